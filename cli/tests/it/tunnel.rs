//! `sdam tunnel` as a process, in front of embedded deployments: what clients see through it, its
//! events and its end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use sdam_cluster::certificates::Authority;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MemberOptions, TlsIdentity, User};
use sdam_conformance::forwarder::Forwarder;
use sdam_conformance::mongod::free_port;
use sdam_conformance::refusal::RefusingPort;
#[cfg(target_os = "linux")]
use sdam_conformance::ssh_server::{ALIAS, SshServer};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ReadMode, ReadPreference, ServerAddress};
use sdam_core::selection::Criteria;
use sdam_core::wire::{Flags, write_op_msg};
use sdam_tokio::Topology;
use serde_json::Value;

/// The time that anything may take.
const GENEROUS: Duration = Duration::from_secs(60);

/// The same as an argument; a run that hangs ends by itself, and so fails.
const LIMIT: &str = "300s";

fn sdam(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(arguments).stdin(Stdio::null()).env_remove("SDAM_URI");
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = sdam(arguments).output().expect("a process");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

/// A file of this process among the build's own.
fn file(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("a file");
    path.to_str().expect("text").to_owned()
}

/// A tunnel in a process of its own, which prints JSON.
struct Tunnel {
    process: Child,
    lines: Receiver<String>,
    /// Events that were not expected yet.
    printed: Vec<Value>,
    /// The connection string to use, and the local address of each member.
    uri: String,
    members: Value,
}

impl Tunnel {
    fn start(uri: &str, arguments: &[&str]) -> Self {
        let mut command = sdam(&["tunnel", "--json", "--for", LIMIT, uri]);
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().expect("it runs");
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let (printed, uri, members) = (Vec::new(), String::new(), Value::Null);
        let mut tunnel = Self { process, lines, printed, uri, members };
        let ready = tunnel.expect("ready");
        tunnel.uri = ready["uri"].as_str().expect("text").to_owned();
        tunnel.members = ready["members"].clone();
        tunnel
    }

    /// Returns the next event of this kind; those of other kinds wait.
    fn expect(&mut self, event: &str) -> Value {
        loop {
            if let Some(at) = self.printed.iter().position(|printed| printed["event"] == event) {
                return self.printed.remove(at);
            }
            let line = self.lines.recv_timeout(GENEROUS);
            let line =
                line.unwrap_or_else(|error| panic!("no {event}: {error}: {:?}", self.printed));
            self.printed.push(serde_json::from_str(&line).expect("an object"));
        }
    }

    fn local(&self, member: &str) -> &str {
        self.members[member].as_str().expect("it has a local address")
    }

    fn locals(&self) -> BTreeSet<&str> {
        let members = self.members.as_object().expect("an object");
        members.values().map(|it| it.as_str().expect("text")).collect()
    }

    #[cfg(unix)]
    fn end(mut self, signal: &str) -> Option<i32> {
        kill(&self.process, signal);
        self.process.wait().expect("the end").code()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(unix)]
fn kill(process: &Child, signal: &str) {
    let killed = Command::new("kill").args([signal, &process.id().to_string()]).status();
    assert!(killed.expect("kill").success());
}

async fn cluster(options: EmbeddedOptions) -> EmbeddedCluster {
    let options = options.with_election_timeout(Duration::from_millis(300));
    let cluster = EmbeddedCluster::start(options).await.expect("ports");
    if cluster.uri().contains("replicaSet") {
        cluster.elected().await.expect("a primary");
    }
    cluster
}

/// Asks `sdam status` for the description of what is at the other end of a connection string.
fn described(uri: &str, arguments: &[&str]) -> Value {
    let arguments = [&["status", "--json", "--for", "60s", uri][..], arguments].concat();
    let (code, out, err) = run(&arguments);
    assert_eq!(code, Some(0), "{out}{err}");
    let status: Value = serde_json::from_str(&out).expect("an object");
    status["description"].clone()
}

fn addresses(description: &Value) -> BTreeSet<&str> {
    let servers = description["servers"].as_array().expect("servers");
    servers.iter().map(|it| it["address"].as_str().expect("text")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_sees_the_whole_set_at_local_ports_and_nothing_else() {
    let cluster = cluster(EmbeddedOptions::default()).await;
    let mut tunnel = Tunnel::start(&cluster.uri(), &[]);
    let description = described(&tunnel.uri, &[]);
    assert_eq!(description["type"], "ReplicaSetWithPrimary");
    assert_eq!(addresses(&description), tunnel.locals());
    for server in description["servers"].as_array().expect("servers") {
        assert_eq!(server["me"], server["address"], "it knows itself by that port");
    }
    let own: BTreeSet<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    assert!(tunnel.locals().iter().all(|local| !own.contains(*local)), "{}", tunnel.uri);

    // Reads and writes find their servers, and follow the primary.
    let uri = format!("{}&heartbeatFrequencyMS=500", tunnel.uri);
    let client = Topology::connect(uri).await.expect("a client");
    let writable = || async {
        let server =
            client.with_timeout(GENEROUS).select(Criteria::write()).await.expect("a primary");
        server.address().to_string()
    };
    let before = writable().await;
    let primary = cluster.primary().expect("there is one");
    assert_eq!(tunnel.local(&cluster.addresses()[primary.0].to_string()), before);
    let secondary = Criteria::read(ReadPreference::new(ReadMode::Secondary));
    let secondary = client.with_timeout(GENEROUS).select(secondary).await.expect("a secondary");
    assert_ne!(secondary.address().to_string(), before);
    assert_eq!(tunnel.expect("primary")["address"], *before);
    cluster.kill(primary).await.expect("it dies");
    let next = tunnel.expect("primary");
    assert_ne!(next["address"], *before);
    let next = next["address"].as_str().expect("text");
    // The client may not have read yet that the old one is gone.
    let deadline = Instant::now() + GENEROUS;
    while writable().await != next {
        assert!(Instant::now() < deadline, "the client does not follow to {next}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let insert = rawdoc! { "insert": "things", "documents": [{ "a": 1 }] };
    let reply = client.with_timeout(GENEROUS).run_command("app", &insert).await.expect("a reply");
    assert_eq!(reply.get_i32("n").expect("a count"), 1);
    let unreachable = tunnel.expect("unreachable");
    assert_eq!(unreachable["member"], cluster.addresses()[primary.0].to_string());
    cluster.restart(primary).await.expect("it starts");
    assert_eq!(tunnel.expect("reachable")["member"], unreachable["member"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn members_that_come_get_a_port_and_those_that_go_keep_it() {
    let cluster = cluster(EmbeddedOptions::default().with_members(2)).await;
    let mut tunnel = Tunnel::start(&cluster.uri(), &[]);
    let added = cluster.add_member(|_| {}).await.expect("a port");
    let joined = tunnel.expect("joined");
    let description = described(&tunnel.uri, &[]);
    let local = joined["address"].as_str().expect("text");
    assert!(addresses(&description).contains(local), "{description}");
    assert_eq!(addresses(&description).len(), 3);
    let remove = sdam_cluster::Change::Remove(added);
    cluster.reconfig(vec![remove]).await.expect("a majority");
    assert_eq!(tunnel.expect("left")["member"], joined["member"]);
    assert_eq!(addresses(&described(&tunnel.uri, &[])), tunnel.locals());
    TcpStream::connect(local).expect("its port stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn mongos_have_a_port_each_and_a_direct_connection_leads_to_one_member() {
    let mongos = cluster(EmbeddedOptions::sharded(2)).await;
    let tunnel = Tunnel::start(&mongos.uri(), &[]);
    assert!(!tunnel.uri.contains('?'), "{}", tunnel.uri);
    let description = described(&tunnel.uri, &[]);
    assert_eq!(description["type"], "Sharded");
    assert_eq!(addresses(&description), tunnel.locals());

    let balanced = cluster(EmbeddedOptions::load_balanced(2)).await;
    let balancer = Forwarder::start(balanced.addresses().to_vec()).expect("a port");
    let tunnel =
        Tunnel::start(&format!("mongodb://{}/?loadBalanced=true", balancer.address()), &[]);
    assert!(tunnel.uri.ends_with("/?loadBalanced=true"), "{}", tunnel.uri);
    assert_eq!(described(&tunnel.uri, &[])["type"], "LoadBalanced");
    assert_eq!(tunnel.locals().len(), 1);

    let set = cluster(EmbeddedOptions::default().with_members(2)).await;
    let uri = format!("mongodb://{}/?directConnection=true", set.addresses()[0]);
    let tunnel = Tunnel::start(&uri, &[]);
    assert_eq!(tunnel.locals().len(), 1);
    assert!(tunnel.uri.ends_with("/?directConnection=true"), "{}", tunnel.uri);
    let (_, out, err) = run(&["status", "--json", "--for", "60s", &tunnel.uri]);
    let status: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!(status["description"]["type"], "Single");
    let server = &status["description"]["servers"][0];
    let others: Vec<&str> =
        server["hosts"].as_array().expect("hosts").iter().filter_map(Value::as_str).collect();
    assert_eq!(others.len(), 2);
    assert!(others.contains(&tunnel.local(&set.addresses()[0].to_string())), "{server}");
    let own = set.addresses()[1].to_string();
    assert!(!others.contains(&own.as_str()), "no member is called by an address of the other side");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn logins_pass_and_no_password_is_printed() {
    let options = EmbeddedOptions::default().with_users(vec![User::new("app", "sesame")]);
    let cluster = cluster(options).await;
    let [first, ..] = cluster.addresses() else { panic!("there are members") };
    let uri = format!("mongodb://app:sesame@{first}/app?replicaSet=demo&authSource=admin");
    let mut tunnel = Tunnel::start(&uri, &[]);
    assert!(tunnel.uri.contains("/app?") && tunnel.uri.contains("authSource=admin"));
    let find = rawdoc! { "find": "things" };
    let of = |user: &str| tunnel.uri.replace("mongodb://", &format!("mongodb://{user}"));
    let anonymous = Topology::connect(of("")).await.expect("a client");
    let refused = anonymous.with_timeout(GENEROUS).run_command("app", &find).await.unwrap_err();
    assert!(refused.to_string().contains("Unauthorized"), "{refused}");
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let uri = format!("{}&authMechanism={mechanism}", of("app:sesame@"));
        let client = Topology::connect(uri).await.expect("a client");
        client.with_timeout(GENEROUS).run_command("app", &find).await.expect("a reply");
    }
    kill(&tunnel.process, "-TERM");
    let printed: Vec<String> = tunnel.lines.iter().collect();
    assert!(!tunnel.uri.contains("sesame") && !printed.concat().contains("sesame"));
    assert_eq!(tunnel.process.wait().expect("the end").code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tls_ends_in_the_tunnel_and_begins_there_again_if_it_is_to() {
    let authority = Authority::new("members").expect("an authority");
    let issued = authority.issue("members", &["127.0.0.1"]).expect("a certificate");
    let identity = TlsIdentity::from_pem_file(issued).expect("a good one");
    let cluster = cluster(EmbeddedOptions::default().with_tls(Some(identity))).await;
    let uri = format!("{}&tlsCAFile={}", cluster.uri(), authority.file());
    let mut plain = Tunnel::start(&uri, &[]);
    assert!(!plain.uri.contains("tls"), "{}", plain.uri);
    assert_eq!(addresses(&described(&plain.uri, &[])), plain.locals());
    // A client that speaks TLS there learns nothing, but the tunnel says what is wrong.
    let (code, ..) = run(&["status", "--for", "60s", &format!("{}&tls=true", plain.uri)]);
    assert_eq!(code, Some(2));
    let reason = "the client speaks TLS, which this port does not; connect without TLS";
    assert_eq!(plain.expect("refused")["reason"], reason);

    let here = Authority::new("here").expect("an authority");
    let issued = here.issue("tunnel", &["localhost"]).expect("a certificate");
    let arguments = ["--tls-certificate", &issued, "--advertise", "localhost"];
    let mut sealed = Tunnel::start(&uri, &arguments);
    assert!(sealed.uri.contains("localhost:") && sealed.uri.contains("tls=true"));
    let trusting = format!("{}&tlsCAFile={}", sealed.uri, here.file());
    let description = described(&trusting, &[]);
    assert_eq!(addresses(&description), sealed.locals());
    let untrusting = format!("{}&tlsCAFile={}", sealed.uri, authority.file());
    let (code, _, err) = run(&["status", "--for", "60s", &untrusting]);
    assert_eq!(code, Some(2), "{err}");
    let refused = sealed.expect("refused");
    let reason = refused["reason"].as_str().expect("text");
    assert!(reason.starts_with("TLS with the client failed: "), "{reason}");
}

/// Each member is known outside by a name that nothing here resolves, and by its own port.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tls_is_passed_on_to_clients_that_know_where_the_names_lead() {
    let names = ["db0.sdam.invalid", "db1.sdam.invalid", "db2.sdam.invalid", "db3.sdam.invalid"];
    let authority = Authority::new("members").expect("an authority");
    let issued = authority.issue("members", &names).expect("a certificate");
    let identity = TlsIdentity::from_pem_file(issued).expect("a good one");
    let known_as = |host: &str, it: &mut MemberOptions| {
        let name = format!("{host}:{}", it.address.port().expect("a port"));
        it.horizons = [("outside".to_owned(), name.parse().expect("an address"))].into();
    };
    let horizon = |id: sdam_cluster::MemberId, it: &mut MemberOptions| known_as(names[id.0], it);
    let options = EmbeddedOptions::default().with_tls(Some(identity));
    let cluster = EmbeddedCluster::start_with(options, horizon).await.expect("ports");
    cluster.elected().await.expect("a primary");
    let port = cluster.addresses()[0].port();
    let uri = format!(
        "mongodb://db0.sdam.invalid:{port}/?replicaSet=demo&tlsCAFile={}",
        authority.file()
    );
    let there = ["--map", "*.sdam.invalid=127.0.0.1"];
    // The network of this test, and of no other.
    let flags = ["--tls-passthrough", "--listen", "127.77.0.1"];
    let mut tunnel = Tunnel::start(&uri, &[&flags[..], &there[..]].concat());
    assert!(tunnel.uri.starts_with("mongodb://db0.sdam.invalid:"), "{}", tunnel.uri);
    assert!(tunnel.uri.contains("tlsCAFile="), "{}", tunnel.uri);
    let rules: Vec<String> = tunnel
        .members
        .as_object()
        .expect("an object")
        .iter()
        .map(|(member, local)| format!("{member}={}", local.as_str().expect("text")))
        .collect();
    assert_eq!(rules.len(), 3);
    assert!(rules.iter().all(|rule| rule.contains("=127.77.0.")), "{rules:?}");
    let maps: Vec<&str> = rules.iter().flat_map(|rule| ["--map", rule]).collect();
    let description = described(&tunnel.uri, &maps);
    assert_eq!(description["type"], "ReplicaSetWithPrimary");
    assert!(addresses(&description).iter().all(|it| it.contains(".sdam.invalid:")));
    // A member that joins needs a name, and a line of its own.
    cluster.add_member(|it| known_as(names[3], it)).await.expect("a port");
    let joined = tunnel.expect("joined");
    assert_eq!(joined["host"], format!("127.77.0.4 {}", names[3]), "{joined}");
    cluster.add_member(|it| known_as("127.0.0.9", it)).await.expect("a port");
    let reason = &tunnel.expect("notOpened")["reason"];
    assert!(reason.as_str().is_some_and(|it| it.contains("advertises an address")), "{reason}");
    // The same without names makes no sense.
    let uri = format!("{}&tlsCAFile={}&tlsInsecure=true", cluster.uri(), authority.file());
    let (code, out, err) = run(&["tunnel", "--tls-passthrough", &uri.replace("&tlsCAFile", "&x")]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("advertises an address"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_member_that_dies_takes_its_connections_along() {
    let cluster = cluster(EmbeddedOptions::default().with_members(1)).await;
    let mut tunnel = Tunnel::start(&cluster.uri(), &[]);
    let member = cluster.addresses()[0].to_string();
    let mut client = TcpStream::connect(tunnel.local(&member)).expect("a connection");
    client.set_read_timeout(Some(GENEROUS)).expect("a time-out");
    let mut hello = Vec::new();
    let command = rawdoc! { "hello": 1, "$db": "admin" };
    write_op_msg(&mut hello, 1, 0, Flags::NONE, &command);
    client.write_all(&hello).expect("it reads");
    let mut length = [0; 4];
    client.read_exact(&mut length).expect("it answers");
    let rest = usize::try_from(i32::from_le_bytes(length)).expect("a length") - length.len();
    client.read_exact(&mut vec![0; rest]).expect("it answers");
    // One that has no more to say than this has its answer, too.
    let mut brief = TcpStream::connect(tunnel.local(&member)).expect("a connection");
    brief.set_read_timeout(Some(GENEROUS)).expect("a time-out");
    brief.write_all(&hello).expect("it reads");
    brief.shutdown(std::net::Shutdown::Write).expect("it is there");
    let mut reply = Vec::new();
    brief.read_to_end(&mut reply).expect("it answers, and ends");
    assert_eq!(reply.len(), length.len() + rest);
    cluster.kill(sdam_cluster::MemberId(0)).await.expect("it dies");
    let ended = client.read(&mut length);
    assert!(matches!(&ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock));
    // A client that comes now is sent away at once, and the tunnel says why.
    let mut late = TcpStream::connect(tunnel.local(&member)).expect("a connection");
    late.set_read_timeout(Some(GENEROUS)).expect("a time-out");
    assert!(matches!(late.read(&mut length), Ok(0) | Err(_)));
    let unreachable = tunnel.expect("unreachable");
    assert_eq!(unreachable["member"], member);
    let reason = unreachable["reason"].as_str().expect("text");
    // If it has just died, the system may have had the connection before.
    let refused = ["refused", "reset", "without an answer"];
    assert!(refused.iter().any(|it| reason.contains(it)), "{reason}");
    // What is no message is refused, too.
    cluster.restart(sdam_cluster::MemberId(0)).await.expect("it starts");
    let mut browser = TcpStream::connect(tunnel.local(&member)).expect("a connection");
    browser.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let refused = tunnel.expect("refused");
    assert_eq!(refused["client"], browser.local_addr().expect("an address").to_string());
    let reason = refused["reason"].as_str().expect("text");
    assert!(reason.starts_with("the client sent a message of "), "{reason}");
    assert_eq!(tunnel.end("-INT"), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ports_follow_each_other_and_the_first_line_is_the_connection_string() {
    let cluster = cluster(EmbeddedOptions::default().with_members(2)).await;
    let first = free_port().expect("a port").to_string();
    let mut command = sdam(&["tunnel", "--for", LIMIT, "--port", &first, &cluster.uri()]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let (uri, members) = (line(), line());
    process.kill().expect("it runs");
    process.wait().expect("the end");
    let options = Options::parse(&uri).expect("a connection string");
    let ports: Vec<u16> = options.seeds().iter().filter_map(ServerAddress::port).collect();
    assert_eq!(ports.len(), 2);
    assert!(ports[0] >= first.parse().expect("a number") && ports[1] > ports[0], "{uri}");
    for address in cluster.addresses() {
        assert!(members.contains(&format!("{address} is 127.0.0.1:")), "{members}");
    }
}

#[test]
fn what_makes_no_sense_is_one_line_and_exit_code_2() {
    let empty = file("tunnel.pem", "");
    let uri = "mongodb://db1.example/";
    let cases: [(&[&str], &str); 8] = [
        (&[], "no deployment is named"),
        (&["mongodb://a,b/?directConnection=true"], "directConnection"),
        (&[uri, "--ssh", "-oProxyCommand=true"], "write HOST or USER@HOST"),
        (
            &["mongodb://db1.example/?proxyHost=p", "--ssh", "bastion"],
            "the connection string has a proxyHost, and --ssh is another way",
        ),
        (&[uri, "--tls-passthrough"], "the connection string asks for none; write tls=true"),
        (
            &["mongodb://db1.example/?tls=true", "--tls-passthrough", "--listen", "::1"],
            "each host needs an address, from an IPv4 one on",
        ),
        (&[uri, "--advertise", "a b"], "--advertise a b: the host name has the character ' '"),
        (&[uri, "--tls-certificate", &empty], "a certificate and its private key"),
    ];
    for (arguments, expected) in cases {
        let arguments = [&["tunnel"][..], arguments].concat();
        // An option that looks like a flag is a value.
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let joined = arguments.join("\n").replace("--ssh\n", "--ssh=");
        let arguments: Vec<&str> = joined.split('\n').collect();
        let (code, out, err) = run(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {out}{err}");
        assert!(out.is_empty() && err.contains(expected), "{arguments:?}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[cfg(unix)]
#[test]
fn without_a_server_it_ends_with_the_likely_cause_and_at_a_signal_with_its_code() {
    let nowhere = RefusingPort::new().expect("a free port").address();
    let uri = format!("mongodb://{nowhere}/?serverSelectionTimeoutMS=4000");
    let (code, out, err) = run(&["tunnel", &uri]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.starts_with("sdam: no server was found in "), "{err}");
    assert!(err.contains("refused"), "{err}");
    // It accepts the connection and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let uri = format!("mongodb://{}/", silent.local_addr().expect("an address"));
    for (signal, expected) in [("-INT", 130), ("-TERM", 143)] {
        let mut process = sdam(&["tunnel", &uri]).spawn().expect("it runs");
        let _connection = silent.accept().expect("it connects");
        kill(&process, signal);
        assert_eq!(process.wait().expect("the end").code(), Some(expected));
    }
}

/// Returns why there is no SSH server here, if there is none.
#[cfg(target_os = "linux")]
fn no_ssh() -> Option<String> {
    let reason = match sdam_conformance::mongod::private_names_work() {
        Err(reason) => format!("this machine {reason}"),
        Ok(()) if SshServer::is_installed() => return None,
        Ok(()) => "there is no sshd: install openssh-server".to_owned(),
    };
    eprintln!("left out: {reason}");
    Some(reason)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ssh_that_ends_is_started_again_and_goes_with_the_tunnel() {
    if no_ssh().is_some() {
        return;
    }
    let cluster = cluster(EmbeddedOptions::default().with_members(2)).await;
    let server = SshServer::start(&[]).expect("an SSH server");
    let config = server.config();
    let config = config.to_str().expect("text");
    let mut tunnel = Tunnel::start(&cluster.uri(), &["--ssh", ALIAS, "--ssh-config", config]);
    assert_eq!(addresses(&described(&tunnel.uri, &[])), tunnel.locals());
    let first = ssh_of(&tunnel);
    assert!(!first.is_empty(), "it runs one");
    let killed = Command::new("kill").args(["-KILL", &first]).status();
    assert!(killed.expect("kill").success());
    let ended = tunnel.expect("sshEnded");
    assert!(ended["reason"].as_str().is_some_and(|it| it.contains("signal: 9")), "{ended}");
    tunnel.expect("sshBack");
    assert_eq!(addresses(&described(&tunnel.uri, &[])), tunnel.locals());
    let second = ssh_of(&tunnel);
    assert_ne!(first, second);
    assert_eq!(tunnel.end("-TERM"), Some(0));
    assert!(!PathBuf::from(format!("/proc/{second}")).exists(), "ssh has ended before");

    // If no server is found, it has no use for ssh any more; in that time ssh tries at least once.
    let nowhere = RefusingPort::new().expect("a free port").address();
    let uri = format!("mongodb://{nowhere}/?serverSelectionTimeoutMS=6000");
    let (code, _, err) = run(&["tunnel", &uri, "--ssh", ALIAS, "--ssh-config", config]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("no server was found in "), "{err}");
    assert!(err.contains(&format!("ssh reaches {ALIAS}, and none from there")), "{err}");
    assert!(!err.contains("proxy"), "the connection string has none: {err}");
    assert_eq!(running_with(config), 0, "ssh has ended before");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_second_signal_ends_ssh_too() {
    if no_ssh().is_some() {
        return;
    }
    let cluster = cluster(EmbeddedOptions::default().with_members(1)).await;
    let server = SshServer::start(&[]).expect("an SSH server");
    let config = server.config();
    let config = config.to_str().expect("text");
    // What it prints is not read, and there is no room for that: so it does not end in peace.
    let (_reader, mut full) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    full.set_nonblocking(true).expect("a socket");
    while full.write(b" ").is_ok() {}
    full.set_nonblocking(false).expect("a socket");
    let local = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a port")));
    let port = local.port().to_string();
    let arguments = ["--ssh", ALIAS, "--ssh-config", config, "--port", &port, &cluster.uri()];
    let mut command = sdam(&[&["tunnel"], &arguments[..]].concat());
    let full = std::os::fd::OwnedFd::from(full);
    let mut process = command.stdout(Stdio::from(full)).spawn().expect("it runs");
    // It listens before it prints.
    let begun = std::time::Instant::now();
    while TcpStream::connect(local).is_err() {
        assert!(begun.elapsed() < GENEROUS, "it does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running_with(config), 2, "it, and ssh");
    kill(&process, "-INT");
    kill(&process, "-TERM");
    let code = process.wait().expect("the end").code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    while running_with(config) > 0 {
        assert!(begun.elapsed() < GENEROUS, "ssh is still there");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Counts the processes that have a text among their arguments.
#[cfg(target_os = "linux")]
fn running_with(argument: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("processes").map_while(Result::ok);
    let arguments =
        processes.map(|it| std::fs::read(it.path().join("cmdline")).unwrap_or_default());
    arguments.filter(|it| String::from_utf8_lossy(it).contains(argument)).count()
}

/// Finds the ssh that a tunnel runs, whichever of its threads has started it.
#[cfg(target_os = "linux")]
fn ssh_of(tunnel: &Tunnel) -> String {
    let tasks = format!("/proc/{}/task", tunnel.process.id());
    let tasks = std::fs::read_dir(tasks).expect("threads");
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let found = tasks.map(|task| children(task.expect("a thread")).unwrap_or_default());
    found.collect::<String>().trim().to_owned()
}

/// The ssh that is run cannot listen, as somebody else has taken its port meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn another_process_that_listens_is_not_taken_for_ssh() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let script = "#!/bin/sh\ncd \"${0%/*}\"\nwhile [ \"$1\" != -D ]; do shift; done\n\
                  echo \"$2\" >begun && mv begun address\n\
                  until [ -e end ]; do sleep 0.01; done\n\
                  echo 'bind: Address already in use' >&2\nexit 255\n";
    std::fs::write(path("ssh"), script).expect("a file");
    std::fs::set_permissions(path("ssh"), PermissionsExt::from_mode(0o755)).expect("a file");
    let others = std::env::var("PATH").expect("text");
    let mut command = sdam(&["tunnel", "--ssh", "bastion", "mongodb://db1.sdam.invalid/"]);
    command.env("PATH", format!("{}:{others}", folder.path().display()));
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let begun = std::time::Instant::now();
    let address = loop {
        match std::fs::read_to_string(path("address")) {
            Ok(address) => break address,
            Err(error) => assert!(begun.elapsed() < GENEROUS, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    let stranger = std::net::TcpListener::bind(address.trim()).expect("the port is free");
    stranger.accept().expect("a connection is tried");
    std::fs::write(path("end"), "").expect("a file");
    let output = process.wait_with_output().expect("the end");
    let err = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{err}");
    let expected = "sdam: ssh to bastion has failed: bind: Address already in use\n";
    assert_eq!(err, expected);
}

#[test]
fn ssh_that_fails_says_why() {
    let port = RefusingPort::new().expect("a free port").address().port();
    let config =
        format!("Host nowhere\nHostName 127.0.0.1\nPort {port}\nBatchMode yes\nUser someone\n");
    let config = file("tunnel.ssh", &config);
    let flags = ["--ssh", "nowhere", "--ssh-config", &config];
    let arguments = [&["tunnel", "mongodb://db1.sdam.invalid/"][..], &flags].concat();
    let (code, out, err) = run(&arguments);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.starts_with("sdam: ssh to nowhere has failed: ssh: connect to host"), "{err}");
    assert!(err.contains("Connection refused") && err.lines().count() == 1, "{err}");
}
