//! The client on real sockets against the embedded deployment, with each executor.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_io::{Async, Timer};
use sdam_async_std::{AsyncIo, Executor, Task, builder_on};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::{ServerType, TopologyDescription};
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsCause, DnsError, DnsRecords, Question};
use sdam_core::failure::Cause;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{ErrorKind, LookupFuture, Resolver};

type Topology<E> = sdam_host::Topology<AsyncIo<E>>;

/// Runs each test with each executor.
macro_rules! with_each_executor {
    ($($test:ident),* $(,)?) => {
        #[cfg(feature = "smol")]
        mod on_smol {
            $(#[test] fn $test() { smol::block_on(super::$test(sdam_async_std::Smol)); })*
        }
        #[cfg(feature = "async-std")]
        mod on_async_std {
            $(#[test] fn $test() {
                async_std::task::block_on(super::$test(sdam_async_std::AsyncStd));
            })*
        }
    };
}

with_each_executor! {
    it_discovers_the_whole_set_from_one_seed,
    it_follows_a_failover_and_a_return,
    it_runs_commands,
    it_keeps_deadlines_while_a_server_is_silent,
    a_check_out_can_be_cancelled_and_the_pool_goes_on,
    closing_ends_every_task_and_the_events,
    dropping_the_client_ends_the_events,
    streams_can_be_opened_by_the_application,
    servers_that_cannot_be_reached_say_why,
    servers_are_looked_up_in_dns_over_udp_and_tcp,
    a_resolver_of_the_applications_own_is_asked,
}

/// The embedded deployment, on threads of its own.
struct Deployment {
    cluster: EmbeddedCluster,
    runtime: tokio::runtime::Runtime,
}

impl Deployment {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let cluster = runtime.block_on(EmbeddedCluster::start(EmbeddedOptions::default()));
        Self { cluster: cluster.unwrap(), runtime }
    }

    fn client<E: Executor>(&self, executor: E, options: &str) -> Topology<E> {
        let uri = format!("{}{options}", self.cluster.uri());
        builder_on(Options::parse(&uri).unwrap(), executor).build().unwrap()
    }
}

/// Waits for what must come, though not for ever.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    let (mut work, mut end) = (pin!(work), Timer::after(Duration::from_secs(90)));
    std::future::poll_fn(|cx| {
        let work = work.as_mut().poll(cx);
        let late = work.is_pending() && Pin::new(&mut end).poll(cx).is_ready();
        assert!(!late, "done in time");
        work
    })
    .await
}

async fn view(client: &Topology<impl Executor>, wanted: impl Fn(&TopologyDescription) -> bool) {
    let mut views = client.watch_topology();
    soon(async { while !wanted(&views.next().await.expect("the client is open")) {} }).await;
}

fn is_whole(view: &TopologyDescription) -> bool {
    let count = |of| view.servers().iter().filter(|server| server.server_type == of).count();
    (count(ServerType::RsPrimary), count(ServerType::RsSecondary)) == (1, 2)
}

async fn it_discovers_the_whole_set_from_one_seed(executor: impl Executor) {
    let deployment = Deployment::start();
    let seed = deployment.cluster.addresses()[2];
    let options = Options::parse(&format!("mongodb://{seed}")).unwrap();
    let client = builder_on(options, executor).connect().await.unwrap();
    view(&client, is_whole).await;
    assert_eq!(client.view().set_name.as_deref(), Some("demo"));
}

async fn it_follows_a_failover_and_a_return(executor: impl Executor) {
    let Deployment { cluster, runtime } = Deployment::start();
    let client = builder_on(Options::parse(&cluster.uri()).unwrap(), executor).build().unwrap();
    view(&client, is_whole).await;
    let old = client.view().primary().unwrap().address.clone();
    let killed = cluster.primary().unwrap();
    runtime.block_on(cluster.kill(killed)).unwrap();
    view(&client, |view| view.primary().is_some_and(|primary| primary.address != old)).await;
    let failure = client.view().server(&old).unwrap().error.clone().unwrap();
    // The new primary may be heard of before the old one is gone.
    let is_gone = matches!(failure.cause, Cause::Refused | Cause::Closed | Cause::StalePrimary);
    assert!(is_gone, "{failure:?}");
    runtime.block_on(cluster.restart(killed)).unwrap();
    client.request_check();
    view(&client, is_whole).await;
}

async fn it_runs_commands(executor: impl Executor) {
    let deployment = Deployment::start();
    let client = deployment.client(executor, "&compressors=zlib,snappy");
    let reply = soon(client.run_command("admin", &rawdoc! { "hello": 1 })).await.unwrap();
    assert_eq!(reply.get_str("setName").unwrap(), "demo");
    for member in client.members() {
        let mut connection = soon(member.connect()).await.unwrap();
        soon(connection.command("admin", &rawdoc! { "ping": 1 })).await.unwrap();
    }
}

async fn it_keeps_deadlines_while_a_server_is_silent(executor: impl Executor) {
    let deployment = Deployment::start();
    let client = deployment.client(executor, "");
    let primary = soon(client.select(Criteria::write())).await.unwrap();
    let mut checked_out = soon(primary.check_out()).await.unwrap();
    soon(checked_out.command("admin", &rawdoc! { "ping": 1 })).await.unwrap();
    let Deployment { cluster, runtime } = &deployment;
    runtime.block_on(cluster.freeze(cluster.primary().unwrap())).unwrap();
    let begun = client.now();
    checked_out.set_deadline(Some(begun + Duration::from_millis(100)));
    let error = soon(checked_out.command("admin", &rawdoc! { "ping": 1 })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(client.now() - begun >= Duration::from_millis(100));
}

async fn a_check_out_can_be_cancelled_and_the_pool_goes_on(executor: impl Executor) {
    let deployment = Deployment::start();
    let client = deployment.client(executor, "&maxPoolSize=1");
    let primary = soon(client.select(Criteria::write())).await.unwrap();
    let checked_out = soon(primary.check_out()).await.unwrap();
    {
        let mut waiting = pin!(primary.check_out());
        std::future::poll_fn(|cx| {
            assert!(waiting.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(primary.counts().waiting, 1);
    }
    assert_eq!(primary.counts().waiting, 0);
    let id = checked_out.connection_id();
    drop(checked_out);
    assert_eq!(soon(primary.check_out()).await.unwrap().connection_id(), id);
}

async fn closing_ends_every_task_and_the_events(executor: impl Executor) {
    let deployment = Deployment::start();
    let client = deployment.client(executor, "");
    let mut events = client.subscribe();
    view(&client, is_whole).await;
    let checked_out = soon(soon(client.select(Criteria::write())).await.unwrap().check_out()).await;
    soon(client.close()).await;
    let mut last = None;
    while let Some(event) = soon(events.next()).await {
        last = Some(event.kind);
    }
    assert!(matches!(last, Some(EventKind::TopologyClosed)), "{last:?}");
    let refused = soon(client.select(Criteria::write())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    drop((client, checked_out));
}

async fn dropping_the_client_ends_the_events(executor: impl Executor) {
    let deployment = Deployment::start();
    let options = Options::parse(&deployment.cluster.uri()).unwrap();
    let (client, mut events) = builder_on(options, executor).build_with_events().unwrap();
    let first = soon(events.next()).await.unwrap().kind;
    assert!(matches!(first, EventKind::TopologyOpening), "{first:?}");
    let mut views = client.watch_topology();
    drop(client);
    soon(async { while views.next().await.is_some() {} }).await;
    soon(async { while events.next().await.is_some() {} }).await;
}

async fn streams_can_be_opened_by_the_application(executor: impl Executor) {
    let deployment = Deployment::start();
    let addresses = deployment.cluster.addresses().to_vec();
    let options = Options::parse("mongodb://nowhere.invalid/?directConnection=true").unwrap();
    let client = builder_on(options, executor)
        .dialer(move |address: ServerAddress| {
            assert_eq!(address.host(), "nowhere.invalid");
            Async::<TcpStream>::connect(addresses[0])
        })
        .build()
        .unwrap();
    let any = Criteria::write();
    let server = soon(client.select(any)).await.unwrap();
    let mut checked_out = soon(server.check_out()).await.unwrap();
    soon(checked_out.command("admin", &rawdoc! { "ping": 1 })).await.unwrap();
    drop(checked_out);
    drop(soon(server.check_out()).await.unwrap());
    assert_eq!(server.counts().available, 1, "it was quiet, and used again");
}

async fn servers_that_cannot_be_reached_say_why(executor: impl Executor + Copy) {
    // A label has 63 octets at most (RFC 1035, "Size limits"): no name server is asked, which might
    // be out of reach.
    let name = format!("{}.invalid", "n".repeat(64));
    for (host, text) in [
        (&*name, &*format!("cannot resolve {name}: ")),
        ("127.0.0.1:1", "Connection refused"),
        ("%2Fno%2Fsuch.sock", "/no/such.sock: "),
    ] {
        let options = Options::parse(&format!("mongodb://{host}")).unwrap();
        let client = builder_on(options, executor).build().unwrap();
        view(&client, |view| view.servers().iter().any(|server| server.error.is_some())).await;
        let failure = client.view().servers()[0].error.clone().unwrap();
        assert!(failure.detail.starts_with(text), "{failure:?}");
    }
}

/// A name server whose answers are too long for a datagram: one SRV record, and no other.
fn start_name_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).unwrap();
    std::thread::spawn(move || {
        let mut query = vec![0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            // A response, cut short.
            query[2] |= 0x82;
            socket.send_to(&query[..length], client).unwrap();
        }
    });
    std::thread::spawn(move || {
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

async fn servers_are_looked_up_in_dns_over_udp_and_tcp(executor: impl Executor) {
    let options = Options::parse("mongodb+srv://a.b.c/?tls=false").unwrap();
    let builder = builder_on(options, executor).name_servers([start_name_server()]);
    let client = soon(builder.connect()).await.unwrap();
    view(&client, |view| view.servers().len() == 1).await;
    assert_eq!(client.view().servers()[0].address, "db.b.c:27017".parse().unwrap());
}

/// Knows one deployment, and nothing else.
#[derive(Debug)]
struct Table;

impl Resolver for Table {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        let record = SrvRecord::new("db.b.c", 1, Duration::from_secs(60));
        let server = ([127, 0, 0, 1], 53).into();
        let answer = match &*question.name {
            "_mongodb._tcp.a.b.c" => Ok(DnsRecords::Srv(vec![record])),
            _ => Err(DnsError::new(question, DnsCause::NoSuchName { server })),
        };
        Box::pin(std::future::ready(answer))
    }
}

async fn a_resolver_of_the_applications_own_is_asked(executor: impl Executor + Copy) {
    let connect = |uri| {
        let options = Options::parse(uri).unwrap();
        soon(builder_on(options, executor).resolver(Table).connect())
    };
    let client = connect("mongodb+srv://a.b.c/?tls=false").await.unwrap();
    assert_eq!(client.view().servers()[0].address, "db.b.c:1".parse().unwrap());
    let error = connect("mongodb+srv://d.b.c").await.unwrap_err().to_string();
    assert!(error.contains("_mongodb._tcp.d.b.c"), "{error}");
}

#[test]
fn a_client_whose_executor_drops_its_tasks_is_closed() {
    let tasks: Arc<Mutex<Vec<Task>>> = Arc::default();
    let spawned = Arc::clone(&tasks);
    let options = Options::parse("mongodb://127.0.0.1:1").unwrap();
    let client =
        builder_on(options, move |task: Task| spawned.lock().unwrap().push(task)).build().unwrap();
    // Taken first: closing the client may spawn, too.
    let give_up = || {
        let given_up = std::mem::take(&mut *tasks.lock().unwrap());
        given_up.len()
    };
    assert_eq!(give_up(), 1, "it keeps time, and nothing has happened yet");
    give_up();
    let refused = async_io::block_on(soon(client.select(Criteria::write()))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    async_io::block_on(soon(client.close()));
}
