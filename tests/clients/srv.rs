//! Clients whose servers are named in DNS, with a resolver of the test's own and with real name
//! servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam_conformance::name_server::{NameServer, ZONES};
use sdam_core::config::Options;
use sdam_core::dns::srv::{SrvError, SrvRecord};
use sdam_core::dns::{DnsCause, DnsError, DnsRecords, NameServers, Question};
use sdam_core::topology::EventKind;
use sdam_host::{ClientError, ErrorKind, LookupFuture, Records, Resolver};
use sdam_tokio::{Topology, resolver};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::{advance, pause, resume, sleep, timeout};

/// Far more than anything here takes, on a machine that is busy too.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The time to live of all records in the zones.
const DAY: Duration = Duration::from_secs(86_400);

fn options(uri: &str) -> Options {
    Options::parse(uri).unwrap()
}

fn hosts(client: &Topology) -> Vec<String> {
    client.view().servers().iter().map(|server| server.address.to_string()).collect()
}

/// Waits until these are the hosts.
async fn wait_for_hosts(client: &Topology, expected: &[&str]) {
    let mut views = client.watch_topology();
    let reached = timeout(TIMEOUT, async {
        while hosts(client) != expected {
            views.next().await.expect("the client is open");
        }
    });
    assert!(reached.await.is_ok(), "{:?}, not {expected:?}", hosts(client));
}

/// Makes the records live out. The clock is real again afterwards, for the sockets' sake.
async fn let_the_records_live_out() {
    pause();
    advance(DAY + Duration::from_secs(1)).await;
    resume();
}

/// Answers from a table that the test changes.
#[derive(Clone, Debug, Default)]
struct Table(Arc<Mutex<BTreeMap<String, DnsRecords>>>);

impl Table {
    fn set_hosts(&self, ports: &[u16]) {
        let record = |port: &u16| SrvRecord::new("db.example.com", *port, DAY);
        let records = DnsRecords::Srv(ports.iter().map(record).collect());
        self.0.lock().unwrap().insert("_mongodb._tcp.cluster.example.com".into(), records);
    }

    fn set_options(&self, txt: &str) {
        let records = DnsRecords::Txt(vec![txt.to_owned()]);
        self.0.lock().unwrap().insert("cluster.example.com".into(), records);
    }
}

impl Resolver for Table {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        let answer = self.0.lock().unwrap().get(&*question.name).cloned();
        let server = ([127, 0, 0, 1], 53).into();
        let absent = DnsError::new(question, DnsCause::NoSuchName { server });
        Box::pin(std::future::ready(answer.ok_or(absent)))
    }
}

#[tokio::test]
async fn new_refuses_options_whose_servers_are_still_in_dns() {
    let error = Topology::new(options("mongodb+srv://cluster.example.com")).unwrap_err();
    let expected = "the servers of cluster.example.com have not been looked up in DNS; create the \
                    client with connect";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn connect_needs_no_dns_for_servers_that_are_named_outright() {
    let client = Topology::connect(options("mongodb://127.0.0.1:1")).await.unwrap();
    assert_eq!(hosts(&client), ["127.0.0.1:1"]);
}

/// Initial DNS Seedlist Discovery: "If available, a TXT record provides default options".
#[tokio::test]
async fn a_resolver_of_the_applications_own_names_servers_and_options() {
    let table = Table::default();
    table.set_hosts(&[1, 2]);
    table.set_options("replicaSet=rs");
    let builder = Topology::builder(options("mongodb+srv://cluster.example.com")).resolver(table);
    let client = builder.connect().await.unwrap();
    assert_eq!(hosts(&client), ["db.example.com:1", "db.example.com:2"]);
    assert_eq!(client.view().set_name.as_deref(), Some("rs"));
}

/// Initial DNS Seedlist Discovery, "srvAllowedHostsSuffix", when the client connects.
#[cfg(feature = "public-suffixes")]
#[tokio::test]
async fn a_suffix_allows_hosts_of_another_domain_and_no_others() {
    let connect = |suffix: &str| {
        let table = Table::default();
        table.set_hosts(&[1]);
        let uri = format!("mongodb+srv://cluster.example.com/?srvAllowedHostsSuffix={suffix}");
        Topology::builder(options(&uri)).resolver(table).connect()
    };
    assert_eq!(hosts(&connect(".Example.com").await.unwrap()), ["db.example.com:1"]);
    let error = connect("example.net").await.unwrap_err();
    assert!(error.to_string().contains("does not end in .example.net"), "{error}");
}

/// Prose tests 5 to 9 and 13 of Initial DNS Seedlist Discovery; Polling SRV Records for mongos
/// Discovery, with the same rule.
#[tokio::test]
async fn the_application_judges_the_hosts_that_dns_names() {
    let table = Table::default();
    table.set_hosts(&[1, 2]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let builder = |uri: &str, allow: fn(&str) -> bool| {
        let seen = Arc::clone(&seen);
        let judge = move |host: &str| {
            seen.lock().unwrap().push(host.to_owned());
            allow(host).then_some(()).ok_or("it is not one of ours")
        };
        Topology::builder(options(uri)).resolver(table.clone()).srv_host_validator(judge)
    };
    let elsewhere = "mongodb+srv://cluster.example.org";
    let records = table.0.lock().unwrap().values().next().cloned().unwrap();
    table.0.lock().unwrap().insert("_mongodb._tcp.cluster.example.org".into(), records);
    let (client, mut events) = builder(elsewhere, |_| true).connect_with_events().await.unwrap();
    events.next().await.expect("the topology opens");
    assert_eq!(hosts(&client), ["db.example.com:1", "db.example.com:2"]);
    assert_eq!(*seen.lock().unwrap(), ["db.example.com", "db.example.com"]);
    // The function is not among the options: a copy of the client judges nothing.
    let copied = Topology::builder((**client.options()).clone()).resolver(table.clone()).build();
    assert!(copied.unwrap_err().to_string().contains("give this client such a function"));
    let error = builder(elsewhere, |_| false).connect().await.unwrap_err();
    assert!(error.to_string().contains("refused: it is not one of ours"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Dns);

    let stranger = |port| SrvRecord::new("db.evil.example", port, DAY);
    let records = DnsRecords::Srv(vec![SrvRecord::new("x.example.net", 3, DAY), stranger(4)]);
    table.0.lock().unwrap().insert("_mongodb._tcp.cluster.example.org".into(), records);
    let choosy = builder(elsewhere, |host| !host.ends_with("evil.example"));
    assert!(choosy.connect().await.is_err(), "one host that is refused spoils the answer");
    let_the_records_live_out().await;
    wait_for_hosts(&client, &["db.evil.example:4", "x.example.net:3"]).await;

    let plain = || builder("mongodb://127.0.0.1:1", |_| true);
    let expected = "srv_host_validator is only allowed with mongodb+srv://";
    assert_eq!(plain().connect().await.unwrap_err().to_string(), expected);
    assert_eq!(plain().build().unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn a_name_without_records_is_an_error_that_says_so() {
    let builder = Topology::builder(options("mongodb+srv://cluster.example.com"));
    let error = builder.resolver(Table::default()).connect().await.unwrap_err();
    let Some(ClientError::Srv(SrvError::Dns(dns))) = error.as_client() else { panic!("{error:?}") };
    assert!(dns.is_absence(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Dns);
    assert!(error.to_string().contains("_mongodb._tcp.cluster.example.com"), "{error}");
}

/// Polling SRV Records for mongos Discovery, end to end.
#[tokio::test]
async fn servers_come_and_go_as_the_resolver_says() {
    let table = Table::default();
    table.set_hosts(&[1, 2]);
    let builder = Topology::builder(options("mongodb+srv://cluster.example.com"));
    let (client, mut events) = builder.resolver(table.clone()).connect_with_events().await.unwrap();
    events.next().await.expect("the topology opens");
    table.set_hosts(&[2, 3]);
    let_the_records_live_out().await;
    wait_for_hosts(&client, &["db.example.com:2", "db.example.com:3"]).await;
    table.0.lock().unwrap().clear();
    let_the_records_live_out().await;
    let failed = async {
        loop {
            let event = events.next().await.expect("the client is open");
            if let EventKind::SrvRescanFailed { error } = event.kind {
                return error;
            }
        }
    };
    let error = timeout(TIMEOUT, failed).await.expect("the failure is reported");
    assert!(error.to_string().contains("NXDOMAIN"), "{error}");
    assert_eq!(hosts(&client), ["db.example.com:2", "db.example.com:3"]);
}

/// Starts a name server that answers nothing useful over UDP, and over TCP this.
async fn start_name_server(truncate: bool, answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut query = vec![0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query).await {
            let mut reply = question(&query[..length]);
            // A response, cut: or the server is in trouble.
            reply[2] |= if truncate { 0x82 } else { 0x80 };
            reply[3] |= if truncate { 0 } else { 2 };
            let _ = socket.send_to(&reply, client).await;
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut query = vec![0; length.into()];
            stream.read_exact(&mut query).await.unwrap();
            let mut query = question(&query);
            query[2] |= 0x80;
            query[7] = 1;
            query.extend_from_slice(&answer);
            stream.write_u16(u16::try_from(query.len()).unwrap()).await.unwrap();
            for half in query.chunks(query.len().div_ceil(2)) {
                stream.write_all(half).await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    });
    address
}

/// Returns a query without the record of EDNS, which is its last.
fn question(query: &[u8]) -> Vec<u8> {
    let mut question = query[..query.len() - usize::from(query[11]) * OPT_LEN].to_vec();
    question[11] = 0;
    question
}

/// The length of a record of EDNS without options.
const OPT_LEN: usize = 11;

/// Starts a name server that knows nothing of EDNS, refuses all TCP, and returns its address and
/// how many queries it did not understand.
async fn start_old_name_server(answer: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (address, refused) = (socket.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&refused);
    tokio::spawn(async move {
        let mut query = vec![0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query).await {
            let mut reply = question(&query[..length]);
            reply[2] |= 0x80;
            if query[11] == 0 {
                reply[7] = 1;
                reply.extend_from_slice(&answer);
            } else {
                // FORMERR
                count.fetch_add(1, Ordering::Relaxed);
                reply[3] |= 1;
            }
            let _ = socket.send_to(&reply, client).await;
        }
    });
    (address, refused)
}

/// Starts a way to a name server that takes datagrams only, as firewalls do.
async fn start_way_without_tcp(server: SocketAddr) -> SocketAddr {
    let way = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = way.local_addr().unwrap();
    tokio::spawn(async move {
        let mut bytes = vec![0; 65_535];
        while let Ok((length, client)) = way.recv_from(&mut bytes).await {
            let beyond = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            beyond.send_to(&bytes[..length], server).await.unwrap();
            let length = beyond.recv(&mut bytes).await.unwrap();
            way.send_to(&bytes[..length], client).await.unwrap();
        }
    });
    address
}

fn stub(servers: NameServers) -> impl Resolver {
    resolver(Records::NameServers(servers)).unwrap()
}

/// An SRV record for the question before it: port 27017 of db.b.c.
fn srv_answer() -> Vec<u8> {
    let mut answer = vec![0xc0, 12, 0, 33, 0, 1, 0, 0, 1, 0, 0, 14, 0, 0, 0, 0];
    answer.extend_from_slice(&27017_u16.to_be_bytes());
    answer.extend_from_slice(b"\x02db\x01b\x01c\0");
    answer
}

#[tokio::test]
async fn the_next_server_is_asked_and_a_long_answer_fetched_over_tcp() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let broken = start_name_server(false, Vec::new()).await;
    let truncating = start_name_server(true, srv_answer()).await;
    let servers = NameServers::new([silent.local_addr().unwrap(), broken, truncating]);
    let servers = stub(servers.timeout(Duration::from_secs(2)));
    let question = Question::srv("mongodb", "a.b.c");
    let answer = servers.lookup(question.clone()).await.unwrap();
    let records = answer.into_srv(&question).unwrap();
    assert_eq!((&*records[0].host, records[0].port), ("db.b.c", 27017));
}

/// RFC 6891, section 7: such a server responds with FORMERR.
#[tokio::test]
async fn a_name_server_that_knows_nothing_of_edns_is_asked_without() {
    let (server, refused) = start_old_name_server(srv_answer()).await;
    let servers = stub(NameServers::new([server]).timeout(TIMEOUT / 2).attempts(1));
    let question = Question::srv("mongodb", "a.b.c");
    let answer = servers.lookup(question.clone()).await.unwrap();
    assert_eq!(answer.into_srv(&question).unwrap()[0].port, 27017);
    assert_eq!(refused.load(Ordering::Relaxed), 1, "EDNS was tried first, once");
}

/// RFC 6891, section 6.2.3, against a real name server: where TCP is blocked, answers of more than
/// 512 bytes come all the same.
#[tokio::test]
async fn a_deployment_of_many_hosts_is_found_where_only_datagrams_pass() {
    let Some(zones) = zones() else { return };
    let server = NameServer::start(&zones).unwrap();
    let add = |text: String| {
        let text = text.replace("1       ; serial", "2       ; serial");
        let host = |n: u16| format!("_mongodb._tcp.many IN SRV 0 0 {n} host-{n}.of-a-shard\n");
        text + "\n" + &(27017..27033).map(host).collect::<String>()
    };
    server.edit("test.build.10gen.cc.zone", add).unwrap();
    let way = start_way_without_tcp(server.address()).await;
    let question = Question::srv("mongodb", "many.test.build.10gen.cc");
    let found = timeout(TIMEOUT, async {
        loop {
            let servers = NameServers::new([way]).timeout(TIMEOUT / 4).attempts(1);
            match stub(servers).lookup(question.clone()).await {
                // The server has not read its zone again yet.
                Err(error) if error.is_absence() => sleep(Duration::from_millis(20)).await,
                found => return found.unwrap().into_srv(&question).unwrap(),
            }
        }
    });
    assert_eq!(found.await.expect("the name server reads its zone again").len(), 16);
}

#[tokio::test]
async fn name_servers_that_do_not_help_are_named_in_the_error() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (silent, broken) =
        (silent.local_addr().unwrap(), start_name_server(false, Vec::new()).await);
    let servers = stub(NameServers::new([broken]));
    let error = servers.lookup(Question::txt("a.b.c")).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{broken} over UDP: it answered with SERVFAIL")), "{error}");
    let servers = NameServers::new([silent]).timeout(Duration::from_millis(50)).attempts(1);
    let servers = stub(servers);
    let error = servers.lookup(Question::txt("a.b.c")).await.unwrap_err();
    assert!(!error.is_absence(), "{error}");
}

/// The kernel says at once that no socket has that port.
#[tokio::test]
async fn a_name_server_that_is_not_there_is_not_waited_for() {
    // A port that no other socket can have, and whose socket hears only one address.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect("127.0.0.1:1").await.unwrap();
    let address = socket.local_addr().unwrap();
    let servers = NameServers::new([address]).timeout(Duration::from_secs(30));
    let question = Question::srv("mongodb", "db.example.com");
    let error = stub(servers).lookup(question).await.unwrap_err();
    assert!(!error.is_timeout(), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

/// Returns the folder of the zones; `None` leaves a test out, which in CI is an error.
fn zones() -> Option<PathBuf> {
    let zones = std::env::var_os(ZONES).map(PathBuf::from);
    let in_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(zones.is_some() || !in_ci, "{ZONES} is not set, and in CI the zones must be served");
    if zones.is_none() {
        eprintln!("left out: {ZONES} does not name the folder of the DNS zones to serve");
    }
    zones
}

/// Polling SRV Records for mongos Discovery, prose tests 1 and 2, against a real name server.
#[tokio::test]
async fn records_that_change_in_a_real_name_server_are_followed() {
    let Some(zones) = zones() else { return };
    let server = NameServer::start(&zones).unwrap();
    let uri = "mongodb+srv://test1.test.build.10gen.cc/?tls=false";
    let builder = Topology::builder(options(uri)).name_servers([server.address()]);
    let (client, mut events) = builder.connect_with_events().await.unwrap();
    events.next().await.expect("the topology opens");
    let host = |port: u16| format!("localhost.test.build.10gen.cc:{port}");
    assert_eq!(hosts(&client), [host(27017), host(27018)]);
    let edit = |text: String| {
        let text = text.replace("1       ; serial", "2       ; serial");
        let old = "_mongodb._tcp.test1     IN SRV  0 0 27018";
        assert!(text.contains(old), "the zone has changed");
        text.replace(old, "_mongodb._tcp.test1     IN SRV  0 0 27019")
    };
    server.edit("test.build.10gen.cc.zone", edit).unwrap();
    let question = Question::srv("mongodb", "test1.test.build.10gen.cc");
    let changed = timeout(TIMEOUT, async {
        loop {
            let answer = stub(server.name_servers()).lookup(question.clone()).await.unwrap();
            let records = answer.into_srv(&question).unwrap();
            if records.iter().any(|record| record.port == 27019) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    changed.await.expect("the name server reads its zone again");
    let_the_records_live_out().await;
    wait_for_hosts(&client, &[&host(27017), &host(27019)]).await;
}
