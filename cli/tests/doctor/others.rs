//! Further things that can be wrong, each made to happen, and what the doctor says of them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bson::doc;
use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Config, Options, ReplicaSet, Tls, User};
use sdam_conformance::proxy::Proxy;

use crate::buckets;
use crate::fakes;
use crate::support::{
    Cluster, Failure, Fixture, Report, TIMES, Watching, all_is_well, doctor, port, with_fail_point,
};
use crate::transactions;

/// A name, whether it takes a network of its own, and the test.
pub(crate) type Other = (&'static str, bool, fn(&Fixture) -> Result<(), Failure>);

pub(crate) const ALL: &[Other] = &[
    ("a_server_that_wants_a_certificate", false, a_server_that_wants_a_certificate),
    ("a_proxy_that_refuses", false, a_proxy_that_refuses),
    ("a_member_that_others_do_not_reach", false, a_member_that_others_do_not_reach),
    ("a_set_without_a_majority", false, a_set_without_a_majority),
    ("a_member_that_is_down", false, a_member_that_is_down),
    ("options_that_do_nothing", false, options_that_do_nothing),
    ("a_wrong_password_beside_a_silent_server", false, a_wrong_password_beside_a_silent_server),
    ("a_server_that_hangs", false, a_server_that_hangs),
    ("a_server_that_fails_all_writes", false, a_server_that_fails_all_writes),
    ("a_primary_that_steps_down_meanwhile", false, a_primary_that_steps_down_meanwhile),
    ("a_server_that_hangs_up_at_logins", false, a_server_that_hangs_up_at_logins),
    ("a_member_that_was_removed", false, a_member_that_was_removed),
    ("an_address_without_a_route", true, an_address_without_a_route),
    ("other_protocols", false, other_protocols),
    ("tags_that_no_member_has", false, tags_that_no_member_has),
    ("a_stale_primary_that_notices", false, a_stale_primary_that_notices),
    ("a_time_without_a_primary", false, a_time_without_a_primary),
    ("a_frozen_member_of_a_seed_with_another_name", false, a_frozen_member),
    ("a_user_who_may_not_write_on_a_shared_tier", false, a_user_who_may_not_write),
    ("a_connect_timeout_that_is_too_short", false, a_connect_timeout_that_is_too_short),
    ("a_login_that_hangs", false, a_login_that_hangs),
    ("a_forwarder_to_nothing", false, a_forwarder_to_nothing),
    ("a_stray_seed", false, a_stray_seed),
    ("a_user_who_may_ask_little", false, transactions::a_user_who_may_ask_little),
    ("buckets_of_the_embedded_deployment", false, buckets::buckets_of_the_embedded_deployment),
    ("buckets_of_a_real_server", false, buckets::buckets_of_a_real_server),
    ("buckets_that_are_well", false, buckets::buckets_that_are_well),
    ("a_user_who_may_not_remove", false, buckets::a_user_who_may_not_remove),
    (
        "transactions_of_the_embedded_deployment",
        false,
        transactions::transactions_of_the_embedded_deployment,
    ),
];

fn a_server_that_wants_a_certificate(fixture: &Fixture) -> Result<(), Failure> {
    let authority = Authority::new("sdam test")?;
    let file = authority.issue("server", &["127.0.0.1"])?;
    let client = authority.issue_client("app")?.file.replace('/', "%2F");
    let path = authority.file().replace('/', "%2F");
    let tls = Tls { client_certificates: true, ..Tls::new(file, authority.file()) };
    for tls in [tls.clone(), tls.required()] {
        let server = fixture.server(Config { tls: Some(tls), ..Config::default() })?;
        let uri = format!("mongodb://{}/?tls=true&tlsCAFile={path}", server.address());
        let said = doctor(&["--for", "60s", &uri])?.first("certificatesRefused")?;
        if !said.lines.iter().any(|line| line.contains("tlsCertificateKeyFile")) {
            return Err(format!("{said:?}").into());
        }
        let uri = format!("{uri}&tlsCertificateKeyFile={client}");
        all_is_well(|| doctor(&["--for", "60s", &uri]))?;
    }
    Ok(())
}

fn a_proxy_that_refuses(fixture: &Fixture) -> Result<(), Failure> {
    let (address, proxy) = (fixture.standalone()?.address(), Proxy::start(Some(("me", "secret")))?);
    let uri = format!("mongodb://{address}/?proxyHost=127.0.0.1&proxyPort={}", proxy.port());
    doctor(&[&uri])?.first("proxyFailed")?;
    let uri = format!("{uri}&proxyUsername=me&proxyPassword=secret");
    all_is_well(|| doctor(&["--for", "60s", &uri])).map(drop)
}

fn a_member_that_others_do_not_reach(_: &Fixture) -> Result<(), Failure> {
    let mut cluster = Cluster::start(&["--priority", "c=0"])?;
    cluster.take("cut c from the rest")?;
    let said = doctor(&["--for", "60s", &cluster.uri])?.first("membersDisagree")?;
    match said.cause.contains("is a secondary from here") {
        true => Ok(()),
        false => Err(format!("{said:?}").into()),
    }
}

fn a_set_without_a_majority(_: &Fixture) -> Result<(), Failure> {
    let mut cluster = Cluster::start(&["--election-timeout", "200ms"])?;
    for member in ["a", "b", "c"] {
        cluster.take(&format!("cut {member} from the rest"))?;
    }
    let deadline = std::time::Instant::now() + crate::GENEROUS;
    loop {
        let report = doctor(&["--for", "2s", &cluster.uri])?;
        // The primary has to notice.
        if report.first("noPrimary").is_ok() {
            return Ok(());
        }
        if std::time::Instant::now() > deadline {
            return Err(format!("there is a primary: {}", report.json).into());
        }
    }
}

fn a_member_that_is_down(_: &Fixture) -> Result<(), Failure> {
    let mut cluster = Cluster::start(&["--priority", "c=0"])?;
    cluster.take("kill c")?;
    let report = doctor(&["--for", "60s", &cluster.uri])?;
    report.first("connectionRefused")?;
    severity(&report, "warning")
}

fn options_that_do_nothing(fixture: &Fixture) -> Result<(), Failure> {
    let address = fixture.standalone()?.address();
    let report = doctor(&[&format!("mongodb://{address}/?maxPoolSize=many&nonsense=1")])?;
    let causes: Vec<String> = report.findings().into_iter().map(|it| it.cause).collect();
    let is_reported = |option: &str| causes.iter().any(|cause| cause.contains(option));
    report.any("invalidOptions")?;
    match is_reported("maxPoolSize") && is_reported("nonsense") {
        true => Ok(()),
        false => Err(format!("{causes:?}").into()),
    }
}

/// The silent one takes all of the time that there is.
fn a_wrong_password_beside_a_silent_server(fixture: &Fixture) -> Result<(), Failure> {
    let mut set = ReplicaSet::start(fixture.newest()?, 1, &Options::default())?;
    set.enable_auth(&[User::new("app", "right")])?;
    let (member, silent) = (set.members()[0].address(), fixture.frozen()?.address());
    let uri = format!("mongodb://app:wrong@{member},{silent}/?replicaSet=rs");
    let report = doctor(&["--for", "10s", &uri])?;
    report.first("loginRefused")?;
    report.any("serversSilent").map(drop)
}

fn a_server_that_hangs(fixture: &Fixture) -> Result<(), Failure> {
    let server = fixture.server(Config::default())?;
    server.command(&doc! { "fsync": 1, "lock": true }, crate::GENEROUS)?;
    let uri = format!("mongodb://{}/", server.address());
    let look = || -> Result<(), Failure> {
        let said = doctor(&["--for", "20s", &uri])?.first("operationFailed")?;
        match said.cause.contains("delete") && said.cause.contains("not answered") {
            true => Ok(()),
            false => Err(format!("{said:?}").into()),
        }
    };
    // A machine that is busy may leave no time for a delete, but not each time.
    let mut looked = look();
    for _ in 1..TIMES {
        if looked.is_ok() {
            break;
        }
        looked = look();
    }
    server.command(&doc! { "fsyncUnlock": 1 }, crate::GENEROUS)?;
    looked
}

fn a_server_that_fails_all_writes(fixture: &Fixture) -> Result<(), Failure> {
    let server = fixture.standalone()?;
    let fail = doc! { "failCommands": ["delete"], "errorCode": 14031, "appName": "no-space" };
    let report = with_fail_point(&server, fail, || {
        doctor(&[&format!("mongodb://{}/?appName=no-space", server.address())])
    })?;
    let said = report.first("operationFailed")?;
    match said.cause.contains("delete") && said.cause.contains("OutOfDiskSpace") {
        true => Ok(()),
        false => Err(format!("{said:?}").into()),
    }
}

/// It is primary when it says hello, and none any more when it is asked to write.
fn a_primary_that_steps_down_meanwhile(fixture: &Fixture) -> Result<(), Failure> {
    let set = Arc::new(ReplicaSet::start(fixture.newest()?, 1, &Options::default())?);
    let (known, stepping) = (set.members()[0].address(), Arc::clone(&set));
    let command = doc! { "replSetStepDown": 60, "force": true };
    let steps_down = move || {
        stepping.members()[0].command(&command, crate::GENEROUS).expect("it is primary");
    };
    let target = (Ipv4Addr::LOCALHOST, port(&known)?).into();
    let gateway = fakes::before_a_delete(target, steps_down)?;
    let map = format!("{known}={gateway}");
    let uri = format!("mongodb://{known}/?replicaSet=rs");
    let report = doctor(&["--for", "12s", "--map", &map, &uri])?;
    let mut findings = report.findings();
    findings.retain(|said| !said.is_of_time());
    let verdicts: Vec<String> = findings.into_iter().map(|it| it.verdict).collect();
    match verdicts.as_slice() {
        [only] if only == "noPrimary" => Ok(()),
        _ => Err(format!("{verdicts:?}: {}", report.json).into()),
    }
}

/// It answers monitors, and closes a connection whose hello asks how a user may log in.
fn a_server_that_hangs_up_at_logins(fixture: &Fixture) -> Result<(), Failure> {
    let target = (Ipv4Addr::LOCALHOST, port(&fixture.standalone()?.address())?).into();
    let address = fakes::closing_at(target, b"saslSupportedMechs")?;
    let report = doctor(&["--for", "20s", &format!("mongodb://app:secret@{address}/")])?;
    report.first("connectionLimit")?;
    match report.any("overloaded") {
        // Such labels are the client's own.
        Ok(said) => Err(format!("the server has not said that: {said:?}").into()),
        Err(_) => Ok(()),
    }
}

fn a_member_that_was_removed(fixture: &Fixture) -> Result<(), Failure> {
    let member = fixture.set()?.members()[0].address();
    let config = Config { replica_set: Some("rs".to_owned()), ..Config::default() };
    let server = fixture.server(config)?;
    let removed = server.address();
    let said = doctor(&[&format!("mongodb://{member},{removed}/?replicaSet=rs")])?;
    let said = said.first("notAMember")?;
    match said.lines.as_slice() {
        [line] if line.contains("rs.add") => Ok(()),
        _ => Err(format!("{said:?}").into()),
    }
}

/// The network of these tests has no route to elsewhere.
fn an_address_without_a_route(_: &Fixture) -> Result<(), Failure> {
    doctor(&["mongodb://192.0.2.7/"])?.first("unreachable").map(drop)
}

fn other_protocols(_: &Fixture) -> Result<(), Failure> {
    for (address, protocol) in [(fakes::ssh()?, "SSH"), (fakes::redis()?, "Redis")] {
        let uri = format!("mongodb://{address}/");
        let said = doctor(&["--for", "20s", &uri])?.first("notMongo")?;
        if !said.cause.contains(protocol) {
            return Err(format!("{said:?}").into());
        }
    }
    Ok(())
}

fn tags_that_no_member_has(_: &Fixture) -> Result<(), Failure> {
    let cluster = Cluster::start(&["--tag", "b=dc:paris"])?;
    let read = |place: &str| {
        let tags = format!("readPreference=secondary&readPreferenceTags=dc:{place}");
        doctor(&["--for", "60s", &format!("{}&{tags}", cluster.uri)])
    };
    all_is_well(|| read("paris"))?;
    read("rome")?.first("noTagMatch").map(drop)
}

fn a_stale_primary_that_notices(_: &Fixture) -> Result<(), Failure> {
    // By itself the old one notices eight seconds after that at the earliest.
    let mut cluster = Cluster::start(&["--election-timeout", "24s", "--seed", "1"])?;
    cluster.take("cut primary from the rest")?;
    while cluster.wait_for("elected")?["term"] != 2 {}
    let watching = Watching::start(&cluster.uri)?;
    // Until then the client sees both of them.
    cluster.wait_for("steppedDown")?;
    cluster.take("heal")?;
    let report = watching.report(&cluster.uri)?;
    report.first("stalePrimary")?;
    severity(&report, "warning")
}

fn a_time_without_a_primary(_: &Fixture) -> Result<(), Failure> {
    let mut cluster = Cluster::start(&["--election-timeout", "4s", "--seed", "1"])?;
    let watching = Watching::start(&cluster.uri)?;
    cluster.take("kill primary")?;
    cluster.wait_for("elected")?;
    let report = watching.report(&cluster.uri)?;
    let said = report.any("noPrimary")?;
    match said.severity == "warning" && said.cause.contains("has one again") {
        true => Ok(()),
        false => Err(format!("{said:?}: {}", report.json).into()),
    }
}

/// The client drops the seed as soon as that says what it is called; the frozen member is silent
/// for longer than the doctor has time.
fn a_frozen_member(_: &Fixture) -> Result<(), Failure> {
    let mut cluster = Cluster::start(&["--priority", "c=0"])?;
    let (members, set) =
        (cluster.members.clone(), cluster.uri.rsplit_once('/').ok_or("no path")?.1);
    let port = members[0].rsplit_once(':').ok_or("no port")?.1;
    let uri = format!("mongodb://localhost:{port}/{set}");
    cluster.take("freeze c")?;
    let report = doctor(&["--for", "10s", &uri])?;
    let said = report.first("serversSilent")?;
    severity(&report, "warning")?;
    let of = |address: &str| {
        let mut servers = report.json["evidence"]["servers"].as_array().into_iter().flatten();
        servers.find(|server| server["address"] == *address)
    };
    let is_looked_at = |address: &String| of(address).is_some_and(|it| !it["login"].is_null());
    match said.cause.contains(&members[2]) && members[..2].iter().all(is_looked_at) {
        true => Ok(()),
        false => Err(format!("{said:?}: {}", report.json).into()),
    }
}

fn a_user_who_may_not_write(_: &Fixture) -> Result<(), Failure> {
    let address = fakes::shared_tier()?;
    all_is_well(|| doctor(&["--for", "60s", &format!("mongodb://{address}/")])).map(drop)
}

/// It answers later than the client waits; the doctor waits longer.
fn a_connect_timeout_that_is_too_short(_: &Fixture) -> Result<(), Failure> {
    let cluster = Cluster::start(&["--members", "1", "--hello-latency", "2s"])?;
    let report = doctor(&["--for", "30s", &format!("{}&connectTimeoutMS=1000", cluster.uri)])?;
    let said = report.first("serversSilent")?;
    severity(&report, "error")?;
    let is_reported = said.cause.contains("connectTimeoutMS") && !said.cause.contains("firewall");
    let is_to_be_raised = said.lines.iter().any(|line| line.starts_with("connectTimeoutMS="));
    match is_reported && is_to_be_raised && report.any("timeoutOfAnotherKind").is_err() {
        true => Ok(()),
        false => Err(format!("{said:?}: {}", report.json).into()),
    }
}

/// It answers monitors, and says nothing any more when a user logs in.
fn a_login_that_hangs(fixture: &Fixture) -> Result<(), Failure> {
    let target = (Ipv4Addr::LOCALHOST, port(&fixture.standalone()?.address())?).into();
    let address = fakes::hanging_at(target, b"saslSupportedMechs")?;
    let report = doctor(&["--for", "10s", &format!("mongodb://app:secret@{address}/")])?;
    let said = report.first("operationFailed")?;
    match said.cause.contains("no connection within") {
        true => Ok(()),
        false => Err(format!("{said:?}").into()),
    }
}

fn a_forwarder_to_nothing(_: &Fixture) -> Result<(), Failure> {
    let address = fakes::forwarder_to_nothing()?;
    let said = doctor(&[&format!("mongodb://{address}/")])?.first("connectionLimit")?;
    let is_reported = said.cause.contains("or a forwarder behind which nothing listens");
    match is_reported && said.advice.starts_with("check that a server runs behind it") {
        true => Ok(()),
        false => Err(format!("{said:?}").into()),
    }
}

fn a_stray_seed(fixture: &Fixture) -> Result<(), Failure> {
    let (member, stray) = (fixture.set()?.members()[0].address(), fixture.standalone()?.address());
    let report = doctor(&[&format!("mongodb://{member},{stray}/?replicaSet=rs")])?;
    report.first("notAReplicaSet")?;
    severity(&report, "warning")
}

/// Checks the weight of what is said first.
fn severity(report: &Report, wanted: &str) -> Result<(), Failure> {
    match report.json["findings"][0]["severity"].as_str() {
        Some(severity) if severity == wanted => Ok(()),
        _ => Err(format!("that is no {wanted}: {}", report.json).into()),
    }
}
