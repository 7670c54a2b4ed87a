//! Each signature of an incident, made to happen for real, and what the doctor says of it.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bson::doc;
use sdam_conformance::mongod::{Config, Connection, Options, ReplicaSet, Tls};
use sdam_conformance::responder::{Keys, Kind, Responder, RevokingAuthority, Signer};

use crate::fakes;
use crate::kerberos;
use crate::network::{BLACK_HOLE, HERE, Machine, NameServer, Sight, lead_in};
use crate::support::{
    Cluster, Failure, Fixture, Report, SDAM, Said, Watching, all_is_well, doctor, finish, port,
    run, start, until, with_fail_point, with_responder,
};
use crate::table::Row;
use crate::transactions;

/// A signature: its number, its name, how it is made, and the test, which may need a network of
/// its own.
pub(crate) struct Signature {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) made: &'static str,
    pub(crate) needs_network: bool,
    pub(crate) test: fn(&Fixture) -> Result<Row, Failure>,
}

const fn signature(
    number: u32,
    name: &'static str,
    made: &'static str,
    test: fn(&Fixture) -> Result<Row, Failure>,
) -> Signature {
    Signature { number, name, made, needs_network: false, test }
}

impl Signature {
    const fn in_a_network(mut self) -> Self {
        self.needs_network = true;
        self
    }
}

/// All of them, in the order of the table.
pub(crate) const ALL: &[Signature] = &[
    signature(
        1,
        "members_that_do_not_resolve",
        "a set of three that know each other by names that only they resolve",
        members_that_do_not_resolve,
    )
    .in_a_network(),
    signature(
        2,
        "a_set_initiated_with_a_local_name",
        "a set whose only member is called 127.0.0.1, seen from another machine; then with a server \
         of its own at that address",
        a_set_initiated_with_a_local_name,
    )
    .in_a_network(),
    signature(
        3,
        "a_resolver_that_fails",
        "`resolv.conf` names no server; a name server without the records, and `--name-server` one that \
         has them; a black hole",
        a_resolver_that_fails,
    )
    .in_a_network(),
    signature(
        4,
        "an_srv_host_outside_the_domain",
        "an SRV record of `bad.shop.test` names `db.evil.test`",
        an_srv_host_outside_the_domain,
    )
    .in_a_network(),
    signature(
        5,
        "a_resolver_that_is_slow",
        "`resolv.conf` names a black hole before the name server that answers: `mongodb+srv://`, then \
         `mongodb://`",
        a_resolver_that_is_slow,
    )
    .in_a_network(),
    signature(6, "srv_with_a_port", "`mongodb+srv://` with a port", srv_with_a_port),
    signature(
        7,
        "a_set_not_initiated",
        "a `mongod --replSet` that was never initiated",
        a_set_not_initiated,
    ),
    signature(8, "another_set_name", "a set `rs`, and `replicaSet=prod`", another_set_name),
    signature(
        9,
        "tls_where_there_is_none",
        "`requireTLS` and a client without, the reverse, and a port that answers in HTTP (a fake)",
        tls_where_there_is_none,
    ),
    signature(
        10,
        "an_address_that_is_not_allowed",
        "servers that take the connection and say nothing, with TLS, or that end TLS with the \
         alert `internal_error` (a fake)",
        an_address_that_is_not_allowed,
    ),
    signature(11, "a_wrong_password", "`mongod --auth`, and a wrong password", a_wrong_password),
    signature(
        12,
        "credentials_that_cannot_be_had",
        "MONGODB-OIDC without the file of the token; MONGODB-AWS (a fake server) where the \
         metadata of the machine are a black hole",
        credentials_that_cannot_be_had,
    )
    .in_a_network(),
    signature(
        13,
        "a_process_that_is_stopped",
        "SIGSTOP to the doctor itself for three seconds, with `--watch`",
        a_process_that_is_stopped,
    ),
    signature(
        14,
        "another_time_out",
        "a frozen server and `connectTimeoutMS=1000` alone",
        another_time_out,
    ),
    signature(
        15,
        "slow_establishment",
        "`sdam cluster --hello-latency 2s`, and `waitQueueTimeoutMS=1500`",
        slow_establishment,
    ),
    signature(
        16,
        "a_client_for_each_request",
        "25 clients in one process",
        a_client_for_each_request,
    ),
    signature(
        17,
        "two_primaries",
        "`sdam cluster`, and `cut primary from the rest`",
        two_primaries,
    ),
    signature(
        18,
        "a_primary_that_takes_no_writes",
        "a fail point by which each write fails with NotWritablePrimary",
        a_primary_that_takes_no_writes,
    ),
    signature(
        19,
        "a_gateway_that_calls_itself_mongos",
        "`sdam cluster --mongos 1`, and `replicaSet=rs0`",
        a_gateway_that_calls_itself_mongos,
    ),
    signature(
        20,
        "a_server_that_sheds_load",
        "`mongod --maxConns` with all of them held; a fail point by which `ping` fails with the \
         labels of an overload",
        a_server_that_sheds_load,
    ),
    signature(
        21,
        "a_certificate_that_is_refused",
        "certificates that have expired (`sdam cluster`), of another name, and of an authority \
         that is not named",
        a_certificate_that_is_refused,
    ),
    signature(
        22,
        "a_responder_that_is_silent",
        "a certificate that names a responder of OCSP in a black hole; one that was revoked; one whose \
         responder is not there",
        a_responder_that_is_silent,
    )
    .in_a_network(),
    signature(
        23,
        "idle_connections_that_are_cut",
        "a proxy that closes connections after 1.5 s without a byte, with `--watch`",
        idle_connections_that_are_cut,
    ),
    signature(
        24,
        "a_process_that_was_forked_off",
        "a program that forks, and uses its client in the child",
        crate::forked::a_process_that_was_forked_off,
    ),
    signature(
        25,
        "transactions_that_are_left_open",
        "`transactionLifetimeLimitSeconds=6`, and a transaction that is begun and left",
        transactions::transactions_that_are_left_open,
    ),
    signature(
        26,
        "transactions_that_conflict",
        "eight clients, each of which writes to one document in transactions",
        transactions::transactions_that_conflict,
    ),
    signature(
        27,
        "a_transaction_that_a_failover_has_ended",
        "a primary that steps down and is elected again, and the commit of a transaction from before",
        transactions::a_transaction_that_a_failover_has_ended,
    ),
    signature(
        28,
        "an_oplog_that_is_too_small",
        "`--oplogSize 1`, `transactionLifetimeLimitSeconds=3600`, and writes of more than a mebibyte",
        transactions::an_oplog_that_is_too_small,
    ),
    signature(
        29,
        "logins_without_a_context",
        "a realm of MIT Kerberos, and GSSAPI without a ticket, with one that has expired, to a service and \
         from a realm that are unknown, with a wrong password and an unknown user, and with another time",
        kerberos::logins_without_a_context,
    ),
];

/// Checks that the advice has a line to copy with this in it.
fn copied(said: &Said, wanted: &str) -> Result<(), Failure> {
    match said.lines.iter().any(|line| line.contains(wanted)) {
        true => Ok(()),
        false => Err(format!("{wanted} is not to be copied: {said:?}").into()),
    }
}

/// Checks that the cause has these words.
fn says(said: &Said, wanted: &[&str]) -> Result<(), Failure> {
    match wanted.iter().find(|words| !said.cause.contains(**words)) {
        None => Ok(()),
        Some(words) => Err(format!("{words:?} is not said: {said:?}").into()),
    }
}

fn members_that_do_not_resolve(fixture: &Fixture) -> Result<Row, Failure> {
    let private_names = (1..=3).map(|n| format!("mongo{n}.internal")).collect();
    let options = Options { private_names, ..Options::default() };
    let set = ReplicaSet::start(fixture.newest()?, 3, &options)?;
    let seed = set.members()[0].address();
    let report = doctor(&[&format!("mongodb://{seed}/?replicaSet=rs")])?;
    let said = report.first("membersElsewhere")?;
    let called = set.members()[0].advertised();
    says(&said, &["does not resolve here"])?;
    copied(&said, &format!("--map {called}={seed}"))?;
    Ok(Row::of(&report, said)
        .naming(&seed, "10.1.2.3:27017")
        .naming(&called, "mongo1.internal:27017"))
}

fn a_set_initiated_with_a_local_name(fixture: &Fixture) -> Result<Row, Failure> {
    let (set, machine) = (fixture.set()?, Machine::start()?);
    let local = set.members()[0].address();
    lead_in(port(&local)?)?;
    let seed = format!("{HERE}:{}", port(&local)?);
    let uri = format!("mongodb://{seed}/?replicaSet=rs");
    let look = || run(machine.command(SDAM), &[&uri]);
    let report = look()?;
    let said = report.first("membersElsewhere")?;
    says(&said, &["this machine itself"])?;
    copied(&said, &format!("--map {local}={seed}"))?;
    let row =
        Row::of(&report, said).naming(&seed, "10.1.2.3:27017").naming(&local, "127.0.0.1:27017");
    // The user has a server of his own there, to which no advice may lead.
    let _stranger = Stranger::start(fixture, &machine, port(&local)?)?;
    let report = look()?;
    let said = report.first("membersElsewhere")?;
    says(&said, &["is a standalone, and no member of that set"])?;
    let other = Row::of(&report, said).naming(&seed, "10.1.2.3:27017");
    Ok(row.with(other.naming(&local, "127.0.0.1:27017")))
}

/// A standalone on another machine.
struct Stranger {
    process: std::process::Child,
    _folder: tempfile::TempDir,
}

impl Stranger {
    fn start(fixture: &Fixture, machine: &Machine, port: u16) -> Result<Self, Failure> {
        let (binary, folder) = (fixture.newest()?, tempfile::tempdir()?);
        let mut command = machine.command(&binary.path().to_string_lossy());
        command.envs(binary.libraries().map(|folder| ("LD_LIBRARY_PATH", folder)));
        command.args(["--port", &port.to_string(), "--nounixsocket"]).arg("--dbpath");
        command.arg(folder.path()).args(["--wiredTigerCacheSizeGB", "0.25"]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let stranger = Self { process, _folder: folder };
        let uri = format!("mongodb://127.0.0.1:{port}/");
        until("the stranger did not answer", || {
            let status = machine.command(SDAM).args(["status", "--for", "2s", &uri]).output()?;
            Ok(status.status.success().then_some(()))
        })?;
        Ok(stranger)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have ended with its machine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The records of the zone that tests ask for.
fn records(port: u16) -> String {
    format!(
        "a IN A 127.0.0.1\n_mongodb._tcp.good IN SRV 0 0 {port} a\n\
         _mongodb._tcp.bad IN SRV 0 0 27017 db.evil.test.\n"
    )
}

fn a_resolver_that_fails(_: &Fixture) -> Result<Row, Failure> {
    let _empty = NameServer::start("127.0.3.1", "a IN A 127.0.0.1\n")?;
    let _good = NameServer::start("127.0.3.2", &records(27017))?;
    let uri = "mongodb+srv://good.shop.test/?tls=false";
    let look = |name_server: &str, more: &[&str]| -> Result<Report, Failure> {
        let sight = Sight::of(&format!("nameserver {name_server}\n"))?;
        run(sight.command(SDAM), &[&["--for", "10s", uri], more].concat())
    };
    let report = look("127.0.3.9", &[])?;
    let said = report.first("lookupFailed")?;
    says(&said, &["127.0.3.9:53", "Connection refused"])?;
    let refused = Row::of(&report, said);
    let report = look(BLACK_HOLE, &[])?;
    let said = report.first("lookupFailed")?;
    says(&said, &["10.9.9.2:53 did not answer within"])?;
    let silent = Row::of(&report, said);
    let report = look("127.0.3.1", &["--name-server", "127.0.3.2"])?;
    let said = report.first("lookupFailed")?;
    says(&said, &["127.0.3.1:53", "NXDOMAIN", "questions for addresses are answered"])?;
    copied(&said, "nameserver 127.0.3.2")?;
    Ok(refused.with(Row::of(&report, said)).with(silent))
}

fn an_srv_host_outside_the_domain(_: &Fixture) -> Result<Row, Failure> {
    let _server = NameServer::start("127.0.4.1", &records(27017))?;
    let sight = Sight::of("nameserver 127.0.4.1\n")?;
    let report = run(sight.command(SDAM), &["mongodb+srv://bad.shop.test/"])?;
    let said = report.first("srvHostOutsideDomain")?;
    says(&said, &["bad.shop.test", "db.evil.test"])?;
    Ok(Row::of(&report, said))
}

fn a_resolver_that_is_slow(fixture: &Fixture) -> Result<Row, Failure> {
    let port = port(&fixture.standalone()?.address())?;
    let _server = NameServer::start("127.0.5.1", &records(port))?;
    let sight = Sight::of(&format!("nameserver {BLACK_HOLE}\nnameserver 127.0.5.1\n"))?;
    let uri = "mongodb+srv://good.shop.test/?tls=false";
    let report = run(sight.command(SDAM), &["--for", "40s", uri])?;
    let said = report.first("lookupSlow")?;
    says(&said, &["10.9.9.2"])?;
    copied(&said, "nameserver 127.0.5.1")?;
    let row = Row::of(&report, said);
    // Without SRV records the system's resolver waits, too.
    let uri = format!("mongodb://a.shop.test:{port}/");
    let report = run(sight.command(SDAM), &["--for", "40s", &uri])?;
    let said = report.first("lookupSlow")?;
    Ok(row.with(Row::of(&report, said).naming(&port, "27017")))
}

fn srv_with_a_port(_: &Fixture) -> Result<Row, Failure> {
    let report = doctor(&["mongodb+srv://a.shop.test:27017/"])?;
    let said = report.any("invalidOptions")?;
    match report.code {
        Some(2) => Ok(Row::of(&report, said)),
        code => Err(format!("the exit code is {code:?}").into()),
    }
}

fn a_set_not_initiated(fixture: &Fixture) -> Result<Row, Failure> {
    let server =
        fixture.server(Config { replica_set: Some("rs0".to_owned()), ..Config::default() })?;
    let address = server.address();
    doctor(&[&format!("mongodb://{address}/")])?.first("notInitiated")?;
    let report = doctor(&[&format!("mongodb://{address}/?replicaSet=rs0")])?;
    let said = report.first("notInitiated")?;
    copied(&said, "rs.initiate()")?;
    Ok(Row::of(&report, said).naming(&address, "a.example:27017"))
}

fn another_set_name(fixture: &Fixture) -> Result<Row, Failure> {
    let address = fixture.set()?.members()[0].address();
    let report = doctor(&[&format!("mongodb://{address}/?replicaSet=prod")])?;
    let said = report.first("setNameDiffers")?;
    says(&said, &["\"rs\"", "\"prod\""])?;
    copied(&said, "replicaSet=rs")?;
    Ok(Row::of(&report, said).naming(&address, "a.example:27017"))
}

fn tls_where_there_is_none(fixture: &Fixture) -> Result<Row, Failure> {
    let authority = sdam_cluster::certificates::Authority::new("sdam test")?;
    let file = authority.issue("server", &["127.0.0.1", "localhost"])?;
    let tls = Some(Tls::new(file, authority.file()).required());
    let server = fixture.server(Config { tls, ..Config::default() })?;
    let address = server.address();
    let plain = fixture.standalone()?.address();
    let report = doctor(&[&format!("mongodb://{plain}/?tls=true")])?;
    let said = report.first("tlsNotExpected")?;
    copied(&said, "tls=false")?;
    let reverse = Row::of(&report, said).naming(&plain, "a.example:27017");
    let http = fakes::http()?;
    doctor(&[&format!("mongodb://{http}/?tls=true")])?.first("notMongo")?;
    let report = doctor(&[&format!("mongodb://{http}/")])?;
    let said = report.first("notMongo")?;
    let http = Row::of(&report, said).naming(&http, "a.example:27017");
    let report = doctor(&[&format!("mongodb://{address}/")])?;
    let said = report.first("tlsExpected")?;
    copied(&said, "tls=true")?;
    let row = Row::of(&report, said).naming(&address, "a.example:27017");
    Ok(row.with(reverse).with(http))
}

fn an_address_that_is_not_allowed(fixture: &Fixture) -> Result<Row, Failure> {
    let alert = fakes::alert()?;
    let report = doctor(&[&format!("mongodb://{alert}/?replicaSet=x&tls=true")])?;
    let said = report.first("accessRefused")?;
    says(&said, &["InternalError"])?;
    let refused = Row::of(&report, said).naming(&alert, "a.example:27017");
    let frozen = fixture.frozen()?.address();
    let report = doctor(&["--for", "8s", &format!("mongodb://{frozen}/?replicaSet=x&tls=true")])?;
    let said = report.first("serversSilent")?;
    says(&said, &["TCP connects to", "the opening of TLS"])?;
    Ok(Row::of(&report, said).naming(&frozen, "a.example:27017").with(refused))
}

fn a_wrong_password(fixture: &Fixture) -> Result<Row, Failure> {
    let mut server = fixture.server(Config::default())?;
    server.enable_auth(&[sdam_conformance::mongod::User::new("app", "right")])?;
    let address = server.address();
    let uri = |login: &str| format!("mongodb://{login}{address}/?authSource=admin");
    all_is_well(|| doctor(&["--for", "60s", &uri("app:right@")]))?;
    doctor(&["--for", "60s", &uri("")])?.first("loginRefused")?;
    let report = doctor(&["--for", "60s", &uri("app:wr%3Aong@")])?;
    let said = report.first("loginRefused")?;
    says(&said, &["user \"app\"", "authSource admin", "Authentication failed"])?;
    // The database that a connection string names is where users are looked for.
    let elsewhere = doctor(&["--for", "60s", &format!("mongodb://app:right@{address}/shop")])?;
    copied(&elsewhere.first("loginRefused")?, "authSource=admin")?;
    if report.json.to_string().contains("wr:ong") || report.json.to_string().contains("wr%3Aong") {
        return Err("the password is shown".into());
    }
    Ok(Row::of(&report, said).naming(&address, "a.example:27017"))
}

fn credentials_that_cannot_be_had(fixture: &Fixture) -> Result<Row, Failure> {
    let server = fixture.standalone()?.address();
    let oidc = "authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s&tls=false";
    let report = doctor(&[&format!("mongodb://{server}/?{oidc}")])?;
    let said = report.first("credentialsUnavailable")?;
    says(&said, &["No such file"])?;
    let token = Row::of(&report, said).naming(&server, "a.example:27017");
    let aws = fakes::aws()?;
    let report = doctor(&["--for", "20s", &format!("mongodb://{aws}/?authMechanism=MONGODB-AWS")])?;
    let said = report.first("credentialsUnavailable")?;
    says(&said, &["EC2"])?;
    Ok(token.with(Row::of(&report, said).naming(&aws, "a.example:27017")))
}

fn a_process_that_is_stopped(fixture: &Fixture) -> Result<Row, Failure> {
    let watching = Watching::start(&format!("mongodb://{}/", fixture.standalone()?.address()))?;
    watching.signal("-STOP")?;
    // The incident itself: any gap of two seconds or more is one.
    std::thread::sleep(Duration::from_secs(3));
    watching.signal("-CONT")?;
    let report = watching.end()?;
    let said = report.paused()?;
    Ok(Row::of(&report, said))
}

fn another_time_out(fixture: &Fixture) -> Result<Row, Failure> {
    let frozen = fixture.frozen()?.address();
    let uri = format!("mongodb://{frozen}/?connectTimeoutMS=1000");
    let report = doctor(&["--for", "8s", &uri])?;
    report.first("serversSilent")?;
    let said = report.any("timeoutOfAnotherKind")?;
    copied(&said, "serverSelectionTimeoutMS=")?;
    Ok(Row::of(&report, said))
}

fn slow_establishment(_: &Fixture) -> Result<Row, Failure> {
    let cluster = Cluster::start(&["--members", "1", "--hello-latency", "2s"])?;
    let uri = format!("{}&waitQueueTimeoutMS=1500", cluster.uri);
    let report = doctor(&["--for", "60s", &uri])?;
    let said = report.any("establishmentSlow")?;
    says(&said, &["mostly hello", "only 2", "0 of 100"])?;
    copied(&said, "maxConnecting=")?;
    Ok(Row::of(&report, said).naming(&cluster.members[0], "a.example:27017"))
}

fn a_client_for_each_request(fixture: &Fixture) -> Result<Row, Failure> {
    let server = fixture.server(Config::default())?;
    let address = server.address();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let uri = format!("mongodb://{address}/?appName=shop");
    let clients = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..25 {
            let client = sdam_tokio::Topology::connect(uri.as_str()).await?;
            // One that streams awaits its next reply when it has had its first.
            client.run_command("admin", &bson::rawdoc! { "ping": 1 }).await?;
            clients.push(client);
        }
        Ok::<_, sdam_host::Error>(clients)
    })?;
    // A server that is busy has not yet read what the last of them asks next.
    let (report, said) = until("25 clients were not seen", || {
        let report = doctor(&[&format!("mongodb://{address}/")])?;
        let Ok(said) = report.any("manyClients") else { return Ok(None) };
        Ok(said.cause.contains("25 clients").then_some((report, said)))
    })?;
    says(&said, &["shop"])?;
    drop(clients);
    let process = format!("process {}", std::process::id());
    Ok(Row::of(&report, said).naming(&process, "process 4711"))
}

fn two_primaries(_: &Fixture) -> Result<Row, Failure> {
    // The old one notices seven seconds later at the earliest.
    let mut cluster = Cluster::start(&["--election-timeout", "20s", "--seed", "1"])?;
    cluster.take("cut primary from the rest")?;
    while cluster.wait_for("elected")?["term"] != 2 {}
    // One look: before another one it would notice.
    let report = finish(start(Command::new(SDAM), &[&cluster.uri])?)?;
    let said = report.first("stalePrimary")?;
    says(&said, &["claims to be primary (election 1)", "(election 2 of "])?;
    let row = Row::of(&report, said);
    Ok(cluster
        .members
        .iter()
        .zip(["a", "b", "c"])
        .fold(row, |row, (address, name)| row.naming(address, &format!("{name}.example:27017"))))
}

fn a_primary_that_takes_no_writes(fixture: &Fixture) -> Result<Row, Failure> {
    let set = fixture.set()?;
    let address = set.members()[0].address();
    let fail = doc! { "failCommands": ["delete"], "errorCode": 10107, "appName": "no-writes" };
    let report = with_fail_point(&set.members()[0], fail, || {
        doctor(&[&format!("mongodb://{address}/?replicaSet=rs&appName=no-writes")])
    })?;
    let said = report.first("primaryRefusesWrites")?;
    says(&said, &["last 3 writes", "NotWritablePrimary"])?;
    Ok(Row::of(&report, said).naming(&address, "a.example:27017"))
}

fn a_gateway_that_calls_itself_mongos(_: &Fixture) -> Result<Row, Failure> {
    let cluster = Cluster::start(&["--mongos", "1"])?;
    let address = &cluster.members[0];
    let report = doctor(&[&format!("mongodb://{address}/?replicaSet=rs0")])?;
    let said = report.first("notAReplicaSet")?;
    says(&said, &["is a Mongos"])?;
    Ok(Row::of(&report, said).naming(address, "a.example:27017"))
}

fn a_server_that_sheds_load(fixture: &Fixture) -> Result<Row, Failure> {
    let arguments = ["--maxConns", "6"].map(str::to_owned).to_vec();
    let server = fixture.server(Config { arguments, ..Config::default() })?;
    let address = server.address();
    // Those of the harness itself may still be there, and leave one after the other.
    let (mut held, mut refused) = (Vec::new(), 0);
    until("the connections of the server were not all held", || {
        let connected = Connection::open(&address, crate::GENEROUS).and_then(|mut connection| {
            connection.command("admin", &doc! { "ping": 1 }, crate::GENEROUS)?;
            Ok(connection)
        });
        refused = if connected.is_ok() { 0 } else { refused + 1 };
        held.extend(connected);
        Ok((held.len() >= 6 && refused >= 20).then_some(()))
    })?;
    let report = doctor(&[&format!("mongodb://{address}/")])?;
    let said = report.first("connectionLimit")?;
    let row = Row::of(&report, said).naming(&address, "a.example:27017");
    drop(held);
    let server = fixture.standalone()?;
    let fail = doc! {
        "failCommands": ["ping"], "errorCode": 462, "appName": "overload",
        "errorLabels": ["SystemOverloadedError", "RetryableError"],
    };
    let report = with_fail_point(&server, fail, || {
        doctor(&[&format!("mongodb://{}/?appName=overload", server.address())])
    })?;
    let said = report.first("overloaded")?;
    says(&said, &["failCommand"])?;
    let shed = Row::of(&report, said).naming(&server.address(), "a.example:27017");
    Ok(row.with(shed))
}

fn a_certificate_that_is_refused(fixture: &Fixture) -> Result<Row, Failure> {
    let authority = sdam_cluster::certificates::Authority::new("sdam test")?;
    let trusted = format!("tls=true&tlsCAFile={}", authority.file().replace('/', "%2F"));
    let other = authority.issue("other", &["db.other.example"])?;
    let expired = authority.issue_for(Duration::ZERO, "expired", &["127.0.0.1"])?;
    let cluster = Cluster::start(&["--members", "1", "--tls", &expired])?;
    // Its last second has to pass.
    let late = until("the certificate did not expire", || {
        let late = doctor(&[&format!("mongodb://{}/?{trusted}", cluster.members[0])])?;
        let is_refused = !late.json["evidence"]["servers"][0]["way"]["failure"].is_null();
        Ok(is_refused.then_some(late))
    })?;
    let said = late.first("certificatesRefused")?;
    says(&said, &["expired"])?;
    let late = Row::of(&late, said).naming(&cluster.members[0], "a.example:27017");
    let server = fixture
        .server(Config { tls: Some(Tls::new(other, authority.file())), ..Config::default() })?;
    let address = server.address();
    let report = doctor(&[&format!("mongodb://{address}/?{trusted}")])?;
    let said = report.first("certificatesRefused")?;
    says(&said, &["db.other.example", "sdam test"])?;
    copied(&said, &format!("--map db.other.example={address}"))?;
    let other = Row::of(&report, said).naming(&address, "127.0.0.1:27017");
    let report = doctor(&[&format!("mongodb://{address}/?tls=true")])?;
    let said = report.first("certificatesRefused")?;
    says(&said, &["no trusted authority", "sdam test"])?;
    copied(&said, "tlsCAFile=")?;
    Ok(late.with(other).with(Row::of(&report, said).naming(&address, "a.example:27017")))
}

fn a_responder_that_is_silent(fixture: &Fixture) -> Result<Row, Failure> {
    let (_folder, server, uri) = with_responder(fixture, BLACK_HOLE, 30)?;
    let report = doctor(&[&uri])?;
    let said = report.first("revocationSlow")?;
    copied(&said, "tlsDisableOCSPEndpointCheck=true")?;
    let row = Row::of(&report, said).naming(&server.address(), "a.example:27017");
    let [revoked, unknown] = a_certificate_that_was_revoked(fixture)?;
    Ok(row.with(revoked).with(unknown))
}

/// One that was not is reported beside it, and so is a responder that is not there.
fn a_certificate_that_was_revoked(fixture: &Fixture) -> Result<[Row; 2], Failure> {
    let authority = RevokingAuthority::new(Keys::Ecdsa)?;
    let responder = Responder::start(&authority, Signer::Delegate)?;
    let look = |is_revoked, responder| -> Result<_, Failure> {
        let kind = Kind { is_revoked, is_silent: true, ..Kind::default() };
        let server = fixture.server(authority.server(kind, responder)?)?;
        let trusted = authority.file().replace('/', "%2F");
        let uri = format!("mongodb://{}/?tls=true&tlsCAFile={trusted}", server.address());
        Ok((server.address(), doctor(&[&uri])?))
    };
    let (_, valid) = look(false, responder.address())?;
    let seen = &valid.json["evidence"]["servers"][0]["certificate"]["responder"];
    // The client that the doctor looks through may have asked before it.
    if !seen["failure"].is_null() || !(seen["status"].is_null() || seen["status"] == "good") {
        return Err(format!("the responder is said to be {seen}").into());
    }
    let (address, revoked) = look(true, responder.address())?;
    let said = revoked.first("certificateRevoked")?;
    says(&said, &["revoked at 2025-01-01", "keyCompromise"])?;
    let revoked = Row::of(&revoked, said).naming(&address, "a.example:27017");
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let (address, unknown) = look(false, closed)?;
    let said = unknown.first("revocationUnknown")?;
    says(&said, &["does not say whether it was revoked", "refused"])?;
    let unknown = Row::of(&unknown, said).naming(&address, "a.example:27017");
    Ok([revoked, unknown.naming(&closed, "127.0.0.1:8888")])
}

/// The number of further connections after which a monitor's was cut often enough for a verdict:
/// three times in a row, while another connection measures round trips more seldom.
const RECONNECTED: usize = 8;

fn idle_connections_that_are_cut(fixture: &Fixture) -> Result<Row, Failure> {
    let server = fixture.standalone()?.address();
    let target = (Ipv4Addr::LOCALHOST, port(&server)?).into();
    let (taken, connections) = mpsc::channel();
    let cutting = fakes::cutting(target, Duration::from_millis(1500), taken)?;
    let uri = format!("mongodb://{cutting}/?directConnection=true&heartbeatFrequencyMS=6000");
    let watching = Watching::start(&uri)?;
    connections.try_iter().for_each(drop);
    for _ in 0..RECONNECTED {
        connections.recv_timeout(crate::GENEROUS)?;
    }
    let report = watching.end()?;
    // A busy machine may be late with an operation, too.
    let said = report.any("idleConnectionsCut")?;
    says(&said, &["heartbeatFrequencyMS (6.0 s)"])?;
    copied(&said, "heartbeatFrequencyMS=")?;
    // Whole seconds: more than one if that machine was late each time.
    let options = said.lines[0].clone();
    Ok(Row::of(&report, said)
        .naming(&cutting, "a.example:27017")
        .naming(&options, "heartbeatFrequencyMS=1000&maxIdleTimeMS=1000"))
}
