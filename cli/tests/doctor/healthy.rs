//! Deployments of all kinds that are well, of which nothing may be said.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use sdam_cluster::certificates::Authority;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::forwarder::Forwarder;
use sdam_conformance::mongod::{Config, Member, Options, ReplicaSet, Tls, User};
use sdam_conformance::proxy::Proxy;

use crate::fakes;
use crate::network::{BLACK_HOLE, NameServer, Sight};
use crate::support::{
    Cluster, Failure, Fixture, Report, SDAM, TIMES, all_is_well, doctor, port, run, until,
    with_responder,
};

/// A kind of deployment, and whether it takes a network of its own.
pub(crate) type Healthy = (&'static str, bool, fn(&Fixture) -> Result<(), Failure>);

pub(crate) const ALL: &[Healthy] = &[
    ("standalones_of_all_versions", false, standalones_of_all_versions),
    ("a_set_of_one", false, a_set_of_one),
    ("a_set_with_all_kinds_of_members", false, a_set_with_all_kinds_of_members),
    ("embedded_sets_of_two_to_five", false, embedded_sets_of_two_to_five),
    ("embedded_versions", false, embedded_versions),
    ("sharded", false, sharded),
    ("tls", false, tls),
    ("a_certificate_that_never_lasts_long", false, a_certificate_that_never_lasts_long),
    ("many_processes", false, many_processes),
    ("a_login", false, a_login),
    ("a_login_by_certificate", false, a_login_by_certificate),
    ("a_seed_list_in_dns", true, a_seed_list_in_dns),
    ("a_proxy", false, a_proxy),
    ("a_load_balancer", false, a_load_balancer),
    ("a_socket_and_compressors", false, a_socket_and_compressors),
    ("mapped_names", true, mapped_names),
    ("names_with_a_dead_address", true, names_with_a_dead_address),
    ("a_datagram_that_is_lost", true, a_datagram_that_is_lost),
    ("a_responder_that_is_not_asked", true, a_responder_that_is_not_asked),
    ("time_that_is_not_exceeded", true, time_that_is_not_exceeded),
];

/// The delay of a member that is kept for mistakes that are noticed late.
const HOUR: Duration = Duration::from_secs(3600);

/// Looks for as long as a busy machine may need.
fn look(uri: &str) -> Result<(), Failure> {
    all_is_well(|| doctor(&["--for", "60s", uri])).map(drop)
}

fn standalones_of_all_versions(fixture: &Fixture) -> Result<(), Failure> {
    for binary in &fixture.binaries {
        let server = sdam_conformance::mongod::Server::start(binary, Config::default())?;
        look(&format!("mongodb://{}/", server.address()))?;
    }
    Ok(())
}

fn a_set_of_one(fixture: &Fixture) -> Result<(), Failure> {
    let address = fixture.set()?.members()[0].address();
    look(&format!("mongodb://{address}/?replicaSet=rs"))?;
    look(&format!("mongodb://{address}/"))?;
    // Another name of the same member: both greetings are its own.
    let port = port(&address)?;
    look(&format!("mongodb://localhost:{port}/?replicaSet=rs"))?;
    look(&format!("mongodb://localhost:{port},{address}/?replicaSet=rs"))?;
    look(&format!("mongodb://{address}/?directConnection=true"))
}

fn a_set_with_all_kinds_of_members(fixture: &Fixture) -> Result<(), Failure> {
    let members = [
        Member::default(),
        Member { priority: 0.0, ..Member::default() },
        Member { priority: 0.0, hidden: true, ..Member::default() },
        Member { priority: 0.0, hidden: true, delay: HOUR, ..Member::default() },
        Member { arbiter_only: true, ..Member::default() },
    ];
    let set = ReplicaSet::start_with(fixture.newest()?, &members, &Options::default())?;
    for member in set.members() {
        look(&format!("mongodb://{}/?replicaSet=rs", member.address()))?;
        look(&format!("mongodb://{}/?directConnection=true", member.address()))?;
    }
    Ok(())
}

fn embedded_sets_of_two_to_five(_: &Fixture) -> Result<(), Failure> {
    for arguments in [
        &["--members", "2"][..],
        &["--members", "3", "--arbiter", "c"],
        &["--members", "4", "--hidden", "d", "--priority", "c=0"],
        &["--members", "5", "--tag", "a=dc:paris"],
    ] {
        look(&Cluster::start(arguments)?.uri)?;
    }
    Ok(())
}

fn embedded_versions(_: &Fixture) -> Result<(), Failure> {
    for version in ["4.4", "7.0", "8.0"] {
        look(&Cluster::start(&["--version", version])?.uri)?;
    }
    Ok(())
}

fn sharded(_: &Fixture) -> Result<(), Failure> {
    look(&Cluster::start(&["--mongos", "1"])?.uri)?;
    look(&Cluster::start(&["--mongos", "2"])?.uri)
}

fn tls(fixture: &Fixture) -> Result<(), Failure> {
    let authority = Authority::new("sdam test")?;
    // Those of the authority last for centuries.
    let file = authority.issue("server", &["127.0.0.1", "localhost"])?;
    let path = authority.file().replace('/', "%2F");
    let tls = Tls::new(file, authority.file());
    let server = fixture.server(Config { tls: Some(tls), ..Config::default() })?;
    look(&format!("mongodb://{}/?tls=true&tlsCAFile={path}", server.address()))?;
    // Five days and a half.
    let soon = authority.issue_for(Duration::from_secs(132 * 3600), "soon", &["127.0.0.1"])?;
    let cluster = Cluster::start(&["--members", "1", "--tls", &soon])?;
    let uri = format!("mongodb://{}/?tls=true&tlsCAFile={path}", cluster.members[0]);
    // Healthy for now, and not for long.
    let said = doctor(&["--for", "60s", &uri])?.first("certificateExpiresSoon")?;
    match said.cause.contains("in 5 days") {
        true => Ok(()),
        false => Err(format!("{said:?}").into()),
    }
}

/// Such are renewed by a program; its responder, which is not there, is not asked.
fn a_certificate_that_never_lasts_long(fixture: &Fixture) -> Result<(), Failure> {
    let (_folder, _server, uri) = with_responder(fixture, "127.0.0.1:9", 7)?;
    look(&format!("{uri}&tlsDisableOCSPEndpointCheck=true"))
}

/// Each has a client, as the workers of a web server have.
fn many_processes(fixture: &Fixture) -> Result<(), Failure> {
    let server = fixture.server(Config::default())?;
    let uri = format!("mongodb://{}/?appName=worker", server.address());
    let watch = || {
        let mut command = Command::new(SDAM);
        // As long as this test may take; they are killed.
        command.args(["watch", "--json", "--for", "300s", &uri]).stdout(Stdio::piped()).spawn()
    };
    let mut workers = Vec::new();
    for _ in 0..22 {
        workers.push(watch()?);
    }
    let monitored = workers.iter_mut().try_for_each(|worker| {
        let mut lines = BufReader::new(worker.stdout.as_mut().ok_or("no pipe")?).lines();
        match lines.any(|line| line.is_ok_and(|line| line.contains("Standalone"))) {
            true => Ok(()),
            false => Err(Failure::from("a worker finds no server")),
        }
    });
    let looked = monitored.and_then(|()| {
        // A server that is busy has not yet read what the last of them asks next.
        until("they are not distinguished", || {
            let report = all_is_well(|| doctor(&["--for", "60s", &uri]))?;
            let clients = report.json["evidence"]["servers"][0]["login"]["clients"].as_array();
            Ok(clients.is_some_and(|clients| clients.len() >= 22).then_some(()))
        })
    });
    for worker in &mut workers {
        worker.kill()?;
        worker.wait()?;
    }
    looked
}

fn a_login(fixture: &Fixture) -> Result<(), Failure> {
    let mut set = ReplicaSet::start(fixture.newest()?, 1, &Options::default())?;
    set.enable_auth(&[User::new("app", "secret")])?;
    let address = set.members()[0].address();
    look(&format!("mongodb://app:secret@{address}/?replicaSet=rs"))?;
    let cluster = Cluster::start(&["--user", "app:secret"])?;
    look(&cluster.uri.replace("mongodb://", "mongodb://app:secret@"))
}

fn a_login_by_certificate(fixture: &Fixture) -> Result<(), Failure> {
    let authority = Authority::new("sdam test")?;
    let file = authority.issue("server", &["127.0.0.1", "localhost"])?;
    let client = authority.issue_client("app")?;
    let tls = Tls { client_certificates: true, ..Tls::new(file, authority.file()) };
    let mut server = fixture.server(Config { tls: Some(tls.required()), ..Config::default() })?;
    server.enable_auth(&[User::with_certificate(client.subject)])?;
    let [trusted, shown] = [authority.file(), client.file].map(|it| it.replace('/', "%2F"));
    let files = format!("tls=true&tlsCAFile={trusted}&tlsCertificateKeyFile={shown}");
    look(&format!("mongodb://{}/?{files}&authMechanism=MONGODB-X509", server.address()))
}

fn a_seed_list_in_dns(fixture: &Fixture) -> Result<(), Failure> {
    let port = fixture.standalone()?.address().port().ok_or("a socket")?;
    let records = format!("a IN A 127.0.0.1\n_mongodb._tcp.well IN SRV 0 0 {port} a\n");
    let _server = NameServer::start("127.0.6.1", &records)?;
    let sight = Sight::of("nameserver 127.0.6.1\n")?;
    let uri = "mongodb+srv://well.shop.test/?tls=false";
    all_is_well(|| run(sight.command(SDAM), &["--for", "60s", uri])).map(drop)
}

fn a_proxy(fixture: &Fixture) -> Result<(), Failure> {
    let (address, proxy) = (fixture.standalone()?.address(), Proxy::start(None)?);
    look(&format!("mongodb://{address}/?proxyHost=127.0.0.1&proxyPort={}", proxy.port()))
}

fn a_load_balancer(_: &Fixture) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mongos = runtime.block_on(EmbeddedCluster::start(EmbeddedOptions::load_balanced(2)))?;
    let _guard = runtime.enter();
    let balancer = Forwarder::start(mongos.addresses().to_vec())?;
    look(&format!("mongodb://{}/?loadBalanced=true", balancer.address()))
}

fn a_socket_and_compressors(fixture: &Fixture) -> Result<(), Failure> {
    let server = fixture.standalone()?;
    let socket = server.socket().to_string().replace('/', "%2F");
    look(&format!("mongodb://{socket}/"))?;
    look(&format!("mongodb://{}/?compressors=zlib,snappy", server.address()))
}

fn mapped_names(fixture: &Fixture) -> Result<(), Failure> {
    let private_names = vec!["mongo9.internal".to_owned()];
    let options = Options { private_names, ..Options::default() };
    let set = ReplicaSet::start(fixture.newest()?, 1, &options)?;
    let (known, real) = (set.members()[0].advertised(), set.members()[0].address());
    let (uri, map) = (format!("mongodb://{known}/?replicaSet=rs"), format!("{known}={real}"));
    all_is_well(|| doctor(&["--for", "60s", "--map", &map, &uri])).map(drop)
}

/// One of the two addresses of each name swallows packets. The seed is another name of the member,
/// which is looked at without waiting for that.
fn names_with_a_dead_address(fixture: &Fixture) -> Result<(), Failure> {
    let name = "known.shop.test";
    let options = Options { private_names: vec![name.to_owned()], ..Options::default() };
    let set = ReplicaSet::start(fixture.newest()?, 1, &options)?;
    let both = |name| format!("{name} IN A 127.0.0.1\n{name} IN A {BLACK_HOLE}\n");
    let _server = NameServer::start("127.0.6.2", &(both("known") + &both("other")))?;
    let sight = Sight::of("nameserver 127.0.6.2\n")?;
    let uri =
        format!("mongodb://other.shop.test:{}/?replicaSet=rs", port(&set.members()[0].address())?);
    all_is_well(|| run(sight.command(SDAM), &["--for", "13s", &uri])).map(drop)
}

/// A name server does not count as silent for that.
fn a_datagram_that_is_lost(fixture: &Fixture) -> Result<(), Failure> {
    let port = port(&fixture.standalone()?.address())?;
    let records = format!("a IN A 127.0.0.1\n_mongodb._tcp.well IN SRV 0 0 {port} a\n");
    let _server = NameServer::start("127.0.6.3", &records)?;
    fakes::losing("127.0.6.4:53".parse()?, "127.0.6.3:53".parse()?)?;
    let sight = Sight::of("nameserver 127.0.6.4\n")?;
    let uri = "mongodb+srv://well.shop.test/?tls=false";
    all_is_well(|| run(sight.command(SDAM), &["--for", "60s", uri])).map(drop)
}

fn a_responder_that_is_not_asked(fixture: &Fixture) -> Result<(), Failure> {
    let (_folder, _server, uri) = with_responder(fixture, BLACK_HOLE, 30)?;
    look(&format!("{uri}&tlsDisableOCSPEndpointCheck=true"))
}

/// Not a deployment that is well, but a doctor that is: it takes no longer than it may.
fn time_that_is_not_exceeded(fixture: &Fixture) -> Result<(), Failure> {
    let frozen = fixture.frozen()?.address();
    let silent_resolver = Sight::of(&format!("nameserver {BLACK_HOLE}\n"))?;
    for uri in [
        format!("mongodb://{BLACK_HOLE}/"),
        format!("mongodb://{frozen}/"),
        format!("mongodb://{frozen}/?tls=true"),
        "mongodb://somewhere.test/".to_owned(),
        "mongodb+srv://good.shop.test/".to_owned(),
    ] {
        for limit in [1, 1500] {
            let look = || -> Result<_, Failure> {
                let arguments = ["--for", &format!("{limit}ms"), &uri];
                let report = run(silent_resolver.command(SDAM), &arguments)?;
                Ok((is_in_time(&report, Duration::from_millis(limit)), report))
            };
            // Only a machine that is busy makes it late, and not each time.
            let (mut is_in_time, mut report) = look()?;
            for _ in 1..TIMES {
                if is_in_time {
                    break;
                }
                (is_in_time, report) = look()?;
            }
            if !is_in_time {
                let (took, json) = (report.took, report.json);
                return Err(format!("{uri} within {limit} ms: after {took:?}, {json}").into());
            }
        }
    }
    Ok(())
}

/// Returns whether a doctor has ended in time, and has said that it had too little of it: that says
/// nothing of a server.
fn is_in_time(report: &Report, limit: Duration) -> bool {
    let verdicts: Vec<_> = report.findings().into_iter().map(|it| it.verdict).collect();
    verdicts == ["notCheckedYet"] && report.took <= limit + Duration::from_secs(3)
}
