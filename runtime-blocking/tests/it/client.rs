//! The client on real sockets against the embedded deployment.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::deployment::{Deployment, SOON, is_whole, view};
use sdam_blocking::Topology;
use sdam_blocking::driver::DriverTopology as _;
use sdam_cluster::EmbeddedOptions;
use sdam_core::bson::rawdoc;
use sdam_core::command::CommandEvent;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsCause, DnsError, DnsRecords, Question};
use sdam_core::failure::{Cause, Failure};
use sdam_core::selection::Criteria;
use sdam_core::session::SessionOptions;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::driver::DriverTopology as _;
use sdam_host::{Error, ErrorKind, LookupFuture, Resolver};

fn start() -> Deployment {
    Deployment::start(EmbeddedOptions::default())
}

/// Returns what went wrong with the stream.
fn failure(error: &Error) -> &Failure {
    error.failure().unwrap_or_else(|| panic!("{error:?}"))
}

#[test]
fn it_discovers_the_whole_set_from_one_seed() {
    let deployment = start();
    let seed = deployment.cluster.addresses()[2];
    let options = Options::parse(&format!("mongodb://{seed}")).unwrap();
    let client = Topology::connect(options).unwrap();
    view(&client, is_whole);
    assert_eq!(client.view().set_name.as_deref(), Some("demo"));
}

#[test]
fn it_follows_a_failover_and_a_return() {
    let deployment = start();
    let client = deployment.client("");
    view(&client, is_whole);
    let old = client.view().primary().unwrap().address.clone();
    let Deployment { cluster, runtime } = &deployment;
    let killed = cluster.primary().unwrap();
    runtime.block_on(cluster.kill(killed)).unwrap();
    view(&client, |view| view.primary().is_some_and(|primary| primary.address != old));
    let failure = client.view().server(&old).unwrap().error.clone().unwrap();
    // The new primary may be heard of before the old one is gone.
    let is_gone = matches!(failure.cause, Cause::Refused | Cause::Closed | Cause::StalePrimary);
    assert!(is_gone, "{failure:?}");
    runtime.block_on(cluster.restart(killed)).unwrap();
    client.request_check();
    view(&client, is_whole);
}

#[test]
fn it_runs_commands_on_many_threads() {
    let deployment = start();
    let client = deployment.client("&compressors=zlib,snappy&maxPoolSize=4");
    let reply = client.run_command("admin", &rawdoc! { "hello": 1 }).unwrap();
    assert_eq!(reply.get_str("setName").unwrap(), "demo");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    client.run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
                }
            });
        }
    });
    view(&client, is_whole);
    for member in client.members() {
        let mut connection = member.connect().unwrap();
        connection.command("admin", &rawdoc! { "ping": 1 }).unwrap();
    }
}

#[test]
fn it_keeps_deadlines_while_a_server_is_silent() {
    /// The machine may be busy; every other limit is far beyond this.
    const GRACE: Duration = Duration::from_secs(60);
    let deployment = start();
    let client = deployment.client("&connectTimeoutMS=600000&serverSelectionTimeoutMS=600000");
    let ping = rawdoc! { "ping": 1 };
    let mut checked_out = client.select(Criteria::write()).unwrap().check_out().unwrap();
    checked_out.command("admin", &ping).unwrap();
    deployment.freeze_primary();
    let (begun, limit) = (client.now(), Duration::from_millis(100));
    checked_out.set_deadline(Some(begun + limit));
    let error = checked_out.command("admin", &ping).unwrap_err();
    let took = client.now() - begun;
    assert_eq!(failure(&error).cause, Cause::Timeout, "{error}");
    assert!(took >= limit && took < GRACE, "{took:?}");
    // The same for a wait that is not for a socket.
    let begun = client.now();
    let error = client.with_timeout(limit).run_command("admin", &ping).unwrap_err();
    let took = client.now() - begun;
    assert!(error.as_operation().is_none(), "no connection was ready: {error}");
    assert!(took >= limit && took < GRACE, "{took:?}");
}

/// Connection Pool, "Clearing a non-load balanced pool": those in use are interrupted.
#[test]
fn a_thread_that_waits_for_a_reply_is_interrupted_when_the_monitor_times_out() {
    let deployment = start();
    let client = deployment.client("&connectTimeoutMS=5000&heartbeatFrequencyMS=500");
    view(&client, is_whole);
    let mut checked_out = client.select(Criteria::write()).unwrap().check_out().unwrap();
    checked_out.command("admin", &rawdoc! { "ping": 1 }).unwrap();
    deployment.freeze_primary();
    // It would wait for ever.
    let error = checked_out.command("admin", &rawdoc! { "ping": 1 }).unwrap_err();
    assert_eq!(failure(&error).cause, Cause::Interrupted, "{error}");
}

#[test]
fn closing_ends_every_task_and_the_events() {
    let deployment = start();
    let client = deployment.client("");
    let events = client.subscribe();
    view(&client, is_whole);
    let checked_out = client.select(Criteria::write()).unwrap().check_out().unwrap();
    assert!(client.close(SOON), "it ends in time");
    let last = events.last().map(|event| event.kind);
    assert!(matches!(last, Some(EventKind::TopologyClosed)), "{last:?}");
    let refused = client.select(Criteria::write()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert!(client.close(Duration::ZERO), "nothing is left to wait for");
    drop((client, checked_out));
}

#[test]
fn dropping_the_client_ends_subscriptions() {
    let deployment = start();
    let options = Options::parse(&deployment.cluster.uri()).unwrap();
    let (client, mut events) = Topology::with_events(options).unwrap();
    let first = events.next().unwrap().kind;
    assert!(matches!(first, EventKind::TopologyOpening), "{first:?}");
    let views = client.watch_topology();
    drop(client);
    assert!(views.count() > 0, "they end");
    assert!(matches!(events.last().unwrap().kind, EventKind::TopologyClosed));
}

/// Driver Sessions, "endSessions": on the thread of the clients, which goes on.
#[test]
fn dropping_the_client_ends_its_sessions() {
    let deployment = start();
    let client = deployment.client("");
    view(&client, is_whole);
    let events = client.subscribe_to(Topics::COMMANDS);
    drop(client.host_topology().start_session(SessionOptions::default()).unwrap());
    drop(client);
    let mut names = Vec::new();
    for event in events {
        if let EventKind::Command { command, event, .. } = event.kind
            && matches!(event, CommandEvent::CommandSucceeded { .. })
        {
            names.push(command.command_name.to_string());
        }
    }
    assert_eq!(names, ["endSessions"]);
}

#[test]
fn streams_can_be_opened_by_the_application() {
    let deployment = start();
    let addresses = deployment.cluster.addresses().to_vec();
    let options = Options::parse("mongodb://nowhere.invalid/?directConnection=true").unwrap();
    let client = Topology::builder(options)
        .dialer(move |address: ServerAddress| {
            assert_eq!(address.host(), "nowhere.invalid");
            TcpStream::connect(addresses[0])
        })
        .build()
        .unwrap();
    let server = client.select(Criteria::write()).unwrap();
    server.check_out().unwrap().command("admin", &rawdoc! { "ping": 1 }).unwrap();
    drop(server.check_out().unwrap());
    assert_eq!(server.counts().available, 1, "it was quiet, and used again");
}

#[test]
fn a_dialer_that_panics_is_a_failure_of_the_server() {
    let options = Options::parse("mongodb://nowhere.invalid").unwrap();
    let client = Topology::builder(options)
        .dialer(|_| -> std::io::Result<TcpStream> { panic!("as it should, in this test") })
        .build()
        .unwrap();
    view(&client, |view| view.servers().iter().any(|server| server.error.is_some()));
}

/// Moves bytes between a Unix domain socket and a member.
#[cfg(unix)]
#[test]
fn servers_are_reached_through_unix_domain_sockets() {
    use std::os::unix::net::UnixListener;

    let deployment = start();
    let member = deployment.cluster.addresses()[0];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mongodb-1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for near in listener.incoming().map(Result::unwrap) {
            let far = TcpStream::connect(member).unwrap();
            let (mut up, mut down) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut up, &mut { far }));
            thread::spawn(move || std::io::copy(&mut down, &mut { near }));
        }
    });
    let host = path.to_str().unwrap().replace('/', "%2F");
    let uri = format!("mongodb://{host}/?directConnection=true");
    let client = Topology::new(Options::parse(&uri).unwrap()).unwrap();
    let reply = client.run_command("admin", &rawdoc! { "hello": 1 }).unwrap();
    assert_eq!(reply.get_str("setName").unwrap(), "demo");
}

#[test]
fn servers_that_cannot_be_reached_say_why() {
    // A label has 63 octets at most (RFC 1035, "Size limits"): no name server is asked, which might
    // be out of reach.
    let name = format!("{}.invalid", "n".repeat(64));
    for (host, text) in [
        (&*name, &*format!("cannot resolve {name}: ")),
        ("127.0.0.1:1", "Connection refused"),
        ("%2Fno%2Fsuch.sock", "/no/such.sock: "),
    ] {
        let client = Topology::new(Options::parse(&format!("mongodb://{host}")).unwrap()).unwrap();
        view(&client, |view| view.servers().iter().any(|server| server.error.is_some()));
        let failure = client.view().servers()[0].error.clone().unwrap();
        assert!(failure.detail.starts_with(text), "{failure:?}");
    }
}

/// A name server whose answers are too long for a datagram: one SRV record, and no other.
fn start_name_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).unwrap();
    thread::spawn(move || {
        let mut query = vec![0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            // A response, cut short.
            query[2] |= 0x82;
            socket.send_to(&query[..length], client).unwrap();
        }
    });
    thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut message = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut message).unwrap();
            // A response; the record of EDNS, which is the last, is not repeated.
            message[2] |= 0x80;
            message.truncate(message.len() - 11 * usize::from(message[11]));
            message[11] = 0;
            match message.windows(8).any(|part| part == b"_mongodb") {
                true => {
                    // Port 27017 of db.b.c.
                    message[7] = 1;
                    message.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 1, 0, 0, 14, 0, 0, 0, 0]);
                    message.extend(27017_u16.to_be_bytes());
                    message.extend(b"\x02db\x01b\x01c\0");
                }
                // There is no such name.
                false => message[3] |= 3,
            }
            let length = u16::try_from(message.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length, &message[..]].concat()).unwrap();
        }
    });
    address
}

#[test]
fn servers_are_looked_up_in_dns_over_udp_and_tcp() {
    let options = Options::parse("mongodb+srv://a.b.c/?tls=false").unwrap();
    let builder = Topology::builder(options).name_servers([start_name_server()]);
    let client = builder.connect().unwrap();
    view(&client, |view| view.servers().len() == 1);
    assert_eq!(client.view().servers()[0].address, "db.b.c:27017".parse().unwrap());
}

/// Knows one deployment, and nothing else.
#[derive(Debug)]
struct Table;

impl Resolver for Table {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        let record = SrvRecord::new("db.b.c", 1, Duration::from_secs(60));
        let answer = match &*question.name {
            "_mongodb._tcp.a.b.c" => Ok(DnsRecords::Srv(vec![record])),
            _ => {
                let server = ([127, 0, 0, 1], 53).into();
                Err(DnsError::new(question, DnsCause::NoSuchName { server }))
            }
        };
        Box::pin(std::future::ready(answer))
    }
}

#[test]
fn a_resolver_of_the_applications_own_is_asked() {
    let connect = |uri| Topology::builder(Options::parse(uri).unwrap()).resolver(Table).connect();
    let client = connect("mongodb+srv://a.b.c/?tls=false").unwrap();
    assert_eq!(client.view().servers()[0].address, "db.b.c:1".parse().unwrap());
    let error = connect("mongodb+srv://d.b.c").unwrap_err().to_string();
    assert!(error.contains("_mongodb._tcp.d.b.c"), "{error}");
}
