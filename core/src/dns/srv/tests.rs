//! The rules of Initial DNS Seedlist Discovery, prose tests first.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{SrvError, SrvRecord, default_options, domain_name, rescan_interval, seeds, verify};
use crate::config::SrvOptions;
use crate::dns::{DnsCause, DnsError, Question};
use crate::rng::Rng;

fn record(host: &str, port: u16) -> SrvRecord {
    SrvRecord::new(host, port, Duration::from_secs(86_400))
}

fn judge_by(srv: &SrvOptions, host: &str) -> Result<String, SrvError> {
    let records = [record(host, 27017)];
    let seeds = seeds(srv, &records, &mut Rng::new(1))?;
    Ok(seeds.iter().map(ToString::to_string).collect())
}

fn judge(hostname: &str, host: &str) -> Result<String, SrvError> {
    judge_by(&SrvOptions::new(hostname), host)
}

/// The options of a deployment all of whose hosts are in `b.c`.
fn a_b_c() -> SrvOptions {
    SrvOptions::new("a.b.c")
}

fn is_outside(hostname: &str, host: &str) -> bool {
    matches!(judge(hostname, host), Err(SrvError::OutsideDomain { .. }))
}

/// Prose test 1, "Allow SRVs with fewer than 3 `.` separated parts".
#[test]
fn a_name_may_have_fewer_than_three_parts() {
    assert_eq!(judge("localhost", "db.localhost").unwrap(), "db.localhost:27017");
    assert_eq!(judge("mongo.local", "db.mongo.local").unwrap(), "db.mongo.local:27017");
}

/// Prose test 2, "Throw when return address does not end with SRV domain".
#[test]
fn a_host_must_end_in_the_domain() {
    assert!(is_outside("localhost", "localhost.mongodb"));
    assert!(is_outside("mongo.local", "test_1.evil.local"));
    assert!(is_outside("blogs.mongodb.com", "blogs.evil.com"));
}

/// Prose test 3, "Throw when return address is identical to SRV hostname".
#[test]
fn a_host_of_a_short_name_must_have_a_part_more() {
    assert!(is_outside("localhost", "localhost"));
    assert!(is_outside("mongo.local", "mongo.local"));
    assert!(judge("db.mongodb.com", "db.mongodb.com").is_ok(), "three parts may be the same");
}

/// Prose test 4, "Throw when return address does not contain `.` separating shared part of domain".
#[test]
fn a_host_must_have_a_dot_before_the_domain() {
    assert!(is_outside("localhost", "test_1.cluster_1localhost"));
    assert!(is_outside("mongo.local", "test_1.my_hostmongo.local"));
    assert!(is_outside("blogs.mongodb.com", "cluster.testmongodb.com"));
    assert!(is_outside("blogs.mongodb.com", "mongodb.com"));
    assert!(is_outside("blogs.mongodb.com", ".mongodb.com"));
    assert!(is_outside("blogs.mongodb.com", ""));
}

/// "srvAllowedHostsSuffix": it takes the place of the domain of the name; prose test 10: case does
/// not matter.
#[test]
fn a_suffix_takes_the_place_of_the_domain() {
    let with = |hostname: &str, suffix: &str| {
        SrvOptions::new(hostname).with_allowed_hosts_suffix(Some(suffix))
    };
    let srv = with("cluster.example.org", ".Hosts.example.net.");
    assert_eq!(judge_by(&srv, "A.hosts.EXAMPLE.net.").unwrap(), "a.hosts.example.net:27017");
    assert!(judge_by(&srv, "x.y.hosts.example.net").is_ok());
    for host in
        ["db.example.org", "cluster.example.org", "hosts.example.net", "evilhosts.example.net"]
    {
        let refused = judge_by(&srv, host).unwrap_err();
        assert!(matches!(&refused, SrvError::OutsideDomain { .. }), "{host}");
        assert!(refused.to_string().ends_with("does not end in .hosts.example.net"), "{refused}");
    }
    // "This additional requirement does not apply when srvAllowedHostsSuffix is configured."
    let short = with("mongo.local", "local");
    assert_eq!(judge_by(&short, "mongo.local").unwrap(), "mongo.local:27017");
    let localhost = with("cluster.localhost", "localhost");
    assert_eq!(judge_by(&localhost, "db.cluster.localhost").unwrap(), "db.cluster.localhost:27017");
}

/// Prose tests 5 to 8: a function of the application replaces the rule, and sees the name as it
/// is compared.
#[test]
fn a_function_of_the_application_takes_the_place_of_the_domain() {
    let mut srv = SrvOptions::new("blogs.mongodb.com");
    srv.hosts_are_judged = true;
    let accepted = |host: &str| record(host, 1).judged(|_| Ok(()));
    assert_eq!(verify(&srv, &accepted("blogs.evil.com")).unwrap().to_string(), "blogs.evil.com:1");
    let short = SrvOptions { hostname: "mongo.local".into(), ..srv.clone() };
    assert!(verify(&short, &accepted("mongo.local")).is_ok());
    let refused = record("CLUSTER.mongodb.com.", 1).judged(|host| {
        assert_eq!(host, "cluster.mongodb.com");
        Err("not one of ours".into())
    });
    let expected = "an SRV record for blogs.mongodb.com names the host \"CLUSTER.mongodb.com.\", \
                    which is refused: not one of ours";
    assert_eq!(verify(&srv, &refused).unwrap_err().to_string(), expected);
    assert!(matches!(verify(&srv, &accepted("x y")), Err(SrvError::Address { .. })));
    // Without one, nothing is judged.
    srv.hosts_are_judged = false;
    assert!(verify(&srv, &refused).is_ok());
}

#[test]
fn case_and_a_dot_at_the_end_do_not_matter() {
    let seed = judge("Blogs.MongoDB.com.", "DB.mongodb.COM.").unwrap();
    assert_eq!(seed, "db.mongodb.com:27017");
    assert_eq!(domain_name("a.b.c."), "b.c");
    assert_eq!(domain_name("a.b."), "a.b");
}

#[test]
fn a_deeper_host_is_inside_the_domain() {
    assert_eq!(judge("a.b.c", "x.y.b.c").unwrap(), "x.y.b.c:27017");
}

#[test]
fn what_is_no_address_is_refused() {
    let error = verify(&a_b_c(), &record("x.b.c", 0)).unwrap_err();
    let expected = "an SRV record for a.b.c names \"x.b.c\" port 0, which is no server address";
    assert_eq!(error.to_string(), expected);
    for host in ["x..b.c", "x y.b.c", "a/x.b.c", "x:1.b.c", &("x".repeat(300) + ".b.c")] {
        let judged = verify(&a_b_c(), &record(host, 1));
        assert!(matches!(judged, Err(SrvError::Address { .. })), "{host}");
    }
}

#[test]
fn one_bad_record_spoils_the_answer_and_no_record_is_an_error() {
    let records = [record("x.b.c", 1), record("x.evil.c", 1)];
    let error = seeds(&a_b_c(), &records, &mut Rng::new(1)).unwrap_err();
    let expected =
        "an SRV record for a.b.c names the host \"x.evil.c\", which does not end in .b.c";
    assert_eq!(error.to_string(), expected);
    let error = seeds(&a_b_c(), &[], &mut Rng::new(1)).unwrap_err();
    assert_eq!(error.to_string(), "there are no SRV records for a.b.c");
}

#[test]
fn too_many_records_are_refused() {
    let records = vec![record("x.b.c", 1); 1001];
    assert!(seeds(&a_b_c(), &records[..1000], &mut Rng::new(1)).is_ok());
    let error = seeds(&a_b_c(), &records, &mut Rng::new(1)).unwrap_err();
    assert!(matches!(error, SrvError::TooManyRecords { found: 1001, .. }));
}

/// "Querying DNS": srvMaxHosts.
#[test]
fn srv_max_hosts_draws_that_many_different_hosts_evenly() {
    let records: Vec<SrvRecord> = (1..=4).map(|port| record("x.b.c", port)).collect();
    let draw = |limit, seed| {
        let srv = a_b_c().with_max_hosts(limit);
        seeds(&srv, &records, &mut Rng::new(seed)).unwrap()
    };
    assert_eq!(draw(0, 1).len(), 4);
    assert_eq!(draw(4, 1), draw(0, 1), "as many as there are is all of them, in order");
    assert_eq!(draw(9, 1).len(), 4);
    assert_eq!(draw(2, 7), draw(2, 7), "the seed alone decides");
    let mut pairs = BTreeMap::new();
    for seed in 0..12_000 {
        *pairs.entry(draw(2, seed)).or_insert(0) += 1;
    }
    assert_eq!(pairs.len(), 12, "every ordered pair of two different hosts");
    assert!(pairs.values().all(|count| (850..1150).contains(count)), "{pairs:?}");
}

#[test]
fn a_host_that_is_named_twice_is_one_seed() {
    let records = [record("x.b.c", 1), record("X.b.c.", 1), record("x.b.c", 2)];
    let srv = a_b_c().with_max_hosts(2);
    assert_eq!(seeds(&srv, &records, &mut Rng::new(1)).unwrap().len(), 2);
}

#[test]
fn the_shortest_life_decides_but_not_below_a_minute() {
    let with = |seconds| SrvRecord { ttl: Duration::from_secs(seconds), ..record("x.b.c", 1) };
    assert_eq!(rescan_interval(&[with(400), with(90), with(300)]), Duration::from_secs(90));
    assert_eq!(rescan_interval(&[with(400), with(5)]), Duration::from_secs(60));
    assert_eq!(rescan_interval(&[]), Duration::from_secs(60));
}

#[test]
fn one_txt_record_or_none_but_not_several() {
    let options = |records: &[&str]| {
        default_options("a.b.c", Ok(records.iter().map(ToString::to_string).collect()))
    };
    assert_eq!(options(&["replicaSet=rs"]).unwrap().as_deref(), Some("replicaSet=rs"));
    assert_eq!(options(&[]).unwrap(), None);
    let error = options(&["replicaSet=rs", "authSource=x"]).unwrap_err();
    assert_eq!(error.to_string(), "there are 2 TXT records for a.b.c; at most one is allowed");
}

#[test]
fn the_absence_of_txt_records_is_no_error_but_a_failed_lookup_is() {
    let server = "127.0.0.1:53".parse().unwrap();
    let lookup =
        |cause| default_options("a.b.c", Err(DnsError::new(Question::txt("a.b.c"), cause)));
    assert_eq!(lookup(DnsCause::NoSuchName { server }).unwrap(), None);
    assert_eq!(lookup(DnsCause::NoRecords { server }).unwrap(), None);
    let error = lookup(DnsCause::NoNameServer).unwrap_err();
    let expected = "cannot look up the TXT records of a.b.c: no name server is configured";
    assert_eq!(error.to_string(), expected);
}
