//! What an operation is told that has waited for a server in vain.

use std::sync::Arc;
use std::time::Duration;

use bson::{cstr, rawdoc};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::selection::{Criteria, ReadMode, ReadPreference, Reason, TagSet, Verdict};
use sdam_core::topology::Input;

use super::stage::{Stage, member, ms, ok, primary, secondary};
use super::waiting::{HOSTS, POLLING, error, read};

/// The verdict on a write after each of these servers has failed like that.
fn verdict(uri: &str, failures: &[(&str, Step, Cause)]) -> Verdict {
    let mut stage = Stage::new(uri);
    for (link, step, cause) in failures {
        let link = stage.link(link);
        let failure = Failure::new(*step, cause.clone(), "it failed");
        stage.input(Input::Closed { link, failure });
    }
    error(&mut stage, Criteria::write()).verdict
}

#[test]
fn verdicts_tell_what_the_failures_have_in_common() {
    let uri = "mongodb://a,b/?replicaSet=rs";
    let both =
        |step, cause: Cause| verdict(uri, &[("a.0", step, cause.clone()), ("b.0", step, cause)]);
    assert_eq!(verdict(uri, &[]), Verdict::NotCheckedYet);
    assert_eq!(both(Step::Resolve, Cause::NotResolved), Verdict::NamesDoNotResolve);
    assert_eq!(both(Step::Connect, Cause::Refused), Verdict::ConnectionRefused);
    assert_eq!(both(Step::Connect, Cause::Timeout), Verdict::NoAnswer);
    assert_eq!(both(Step::Hello, Cause::Closed), Verdict::TlsExpected);
    assert_eq!(both(Step::Tls, Cause::Closed), Verdict::TlsNotExpected);
    assert_eq!(both(Step::Tls, Cause::UnknownIssuer), Verdict::CertificatesRefused);
    assert_eq!(both(Step::Proxy, Cause::NotResolved), Verdict::ProxyFailed);
    let with_tls = "mongodb://a/?tls=true";
    let closed = [("a.0", Step::Hello, Cause::Closed)];
    assert_eq!(verdict(with_tls, &closed), Verdict::NoServerAvailable, "it speaks TLS already");
    let mixed = [("a.0", Step::Connect, Cause::Refused), ("b.0", Step::Connect, Cause::Timeout)];
    assert_eq!(verdict(uri, &mixed), Verdict::NoServerAvailable);
}

#[test]
fn verdict_members_do_not_resolve_when_a_seed_answered_and_its_members_cannot_be_found() {
    let mut stage = Stage::new("mongodb://seed/?replicaSet=rs");
    stage.greet("seed.0", &primary("a", &HOSTS, 1));
    for link in ["a.0", "b.0"] {
        let link = stage.link(link);
        let failure = Failure::new(Step::Resolve, Cause::NotResolved, "no such name");
        stage.input(Input::Closed { link, failure });
    }
    let error = error(&mut stage, Criteria::write());
    assert_eq!(error.verdict, Verdict::MembersDoNotResolve);
    assert!(error.to_string().contains("names that do not resolve here"), "{error}");
}

#[test]
fn verdict_set_name_differs_by_removal_and_with_a_direct_connection() {
    for uri in
        ["mongodb://a/?replicaSet=wanted", "mongodb://a/?replicaSet=wanted&directConnection=true"]
    {
        let mut stage = Stage::new(uri);
        stage.greet("a.0", &primary("a", &["a"], 1));
        let Verdict::SetNameDiffers { wanted, found } =
            error(&mut stage, Criteria::write()).verdict
        else {
            panic!("another verdict")
        };
        assert_eq!(wanted, "wanted");
        assert!(found.is_none_or(|found| found == "rs"));
    }
}

#[test]
fn verdict_no_primary_says_for_how_long() {
    let mut stage = Stage::new(POLLING);
    stage.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    stage.at(10_000).reply("a.0", &secondary("a", &HOSTS)).at(14_000);
    let error = error(&mut stage, Criteria::write());
    assert_eq!(error.verdict, Verdict::NoPrimary { since: ms(4000) });
    assert!(error.to_string().contains("has had no primary for 4.0 s"), "{error}");
}

#[test]
fn verdict_not_initiated_no_tag_match_too_stale_predicate_and_no_secondary() {
    let mut ghost = ok();
    ghost.append(cstr!("isreplicaset"), true);
    let mut stage = Stage::new("mongodb://a/?replicaSet=rs");
    stage.greet("a.0", &ghost);
    assert_eq!(error(&mut stage, Criteria::write()).verdict, Verdict::NotInitiated);

    let date = |reply: &mut bson::RawDocumentBuf, seconds: i64| {
        let date = bson::DateTime::from_millis(seconds * 1000);
        reply.append(cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
    };
    let (mut first, mut second) = (primary("a", &HOSTS, 1), secondary("b", &HOSTS));
    date(&mut first, 1000);
    date(&mut second, 800);
    let mut stage = Stage::new(POLLING);
    stage.greet("a.0", &first).greet("b.0", &second);
    let preference = || ReadPreference::new(ReadMode::Secondary);
    let east = TagSet::from([("dc".to_owned(), "east".to_owned())]);
    let tagged = Criteria::read(preference().with_tag_sets(vec![east]).unwrap());
    assert_eq!(error(&mut stage, tagged).verdict, Verdict::NoTagMatch);
    let fresh = preference().with_max_staleness(Duration::from_secs(120)).unwrap();
    let by = Duration::from_secs(200 + 10 - 120);
    assert_eq!(error(&mut stage, Criteria::read(fresh)).verdict, Verdict::TooStale { by });
    let refused = Criteria::read(preference()).with_predicate(|_| false);
    assert_eq!(error(&mut stage, refused).verdict, Verdict::PredicateRefused);

    let mut stage = Stage::new("mongodb://a/?replicaSet=rs");
    stage.greet("a.0", &primary("a", &["a"], 1));
    assert_eq!(error(&mut stage, read(ReadMode::Secondary)).verdict, Verdict::NoSecondary);
}

#[test]
fn the_text_is_one_paragraph_that_names_the_likely_cause_first() {
    let mut stage = Stage::new(POLLING);
    stage.greet("a.0", &secondary("a", &HOSTS)).closed("b.0").at(8000);
    assert_eq!(
        error(&mut stage, Criteria::write()).to_string(),
        "no server was found for a write: the replica set has had no primary for 8.0 s. The \
         topology is ReplicaSetNoPrimary; a:27017 is RSSecondary, of a type that the operation \
         cannot use, b:27017 is Unknown, connection refused (1 check failed, for 8.0 s, the next \
         one in 2.0 s)."
    );
}

#[test]
fn troubles_count_failures_since_the_last_success() {
    let mut stage = Stage::new("mongodb://a/?replicaSet=rs");
    stage.at(1000).closed("a.0").at(11_000).closed("a.1").at(12_000);
    let trouble = error(&mut stage, Criteria::write()).troubles.remove(0);
    assert_eq!((trouble.attempts, trouble.since), (2, ms(11_000)));
    assert_eq!(trouble.next, Some(ms(9000)));
    assert_eq!(trouble.failure.stage, Step::Connect);
}

#[test]
fn explanations_give_every_server_its_reason() {
    let hosts = ["a", "b", "c", "d"];
    let mut arbiter = member("d", &hosts);
    arbiter.append(cstr!("arbiterOnly"), true);
    let mut stage = Stage::new("mongodb://a,b,c,d,e/?replicaSet=rs&serverMonitoringMode=poll");
    for (host, reply) in [("d", arbiter), ("b", secondary("b", &hosts))] {
        stage.greet(&format!("{host}.0"), &reply);
    }
    stage.opened("c.0").opened("a.0").at(40).reply("c.0", &secondary("c", &hosts));
    stage.reply("a.0", &primary("a", &["a", "b", "c", "d", "e"], 1));
    let snapshot = Arc::clone(stage.topology.get().snapshot());
    let reasons = |criteria: &Criteria| -> Vec<Reason> {
        snapshot.explain(criteria).servers.into_iter().map(|server| server.reason).collect()
    };
    let far = Reason::OutsideWindow { by: ms(25) };
    use Reason::{Deprioritized, InWindow, NotPreferred, Predicate, Unknown, WrongType};
    assert_eq!(
        reasons(&read(ReadMode::Secondary)),
        [WrongType, InWindow, far.clone(), WrongType, Unknown]
    );
    assert_eq!(
        reasons(&read(ReadMode::SecondaryPreferred)),
        [NotPreferred, InWindow, far, WrongType, Unknown]
    );
    let avoiding = read(ReadMode::Secondary).deprioritize(["b:27017".parse().unwrap()]);
    assert_eq!(reasons(&avoiding), [WrongType, Deprioritized, InWindow, WrongType, Unknown]);
    let choosy = read(ReadMode::Nearest).with_predicate(|server| server.address.host() == "c");
    assert_eq!(reasons(&choosy), [Predicate, Predicate, InWindow, WrongType, Unknown]);
}
