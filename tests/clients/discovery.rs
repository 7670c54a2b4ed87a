//! Discovery, failover, and the reasons why a server cannot be reached.

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::config::Options;
use sdam_core::description::TopologyType;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::Cause;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{ClientError, ErrorKind};
use sdam_tokio::Topology;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UnixListener};

use crate::support::{is_whole, soon, view};

fn client(uri: &str) -> Topology {
    Topology::new(Options::parse(uri).unwrap()).unwrap()
}

#[tokio::test]
async fn it_discovers_the_whole_set_from_one_seed() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let seed = &cluster.addresses()[2];
    let client = client(&format!("mongodb://{seed}"));
    view(&client, is_whole).await;
    assert_eq!(client.view().topology_type, TopologyType::ReplicaSetWithPrimary);
    assert_eq!(client.view().set_name.as_deref(), Some("demo"));
}

#[tokio::test]
async fn it_follows_a_failover_and_a_return() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let client = client(&cluster.uri());
    view(&client, is_whole).await;
    let old = client.view().primary().unwrap().address.clone();
    let killed = cluster.primary().expect("a primary");
    cluster.kill(killed).await.unwrap();
    view(&client, |view| view.primary().is_some_and(|primary| primary.address != old)).await;
    let failure = client.view().server(&old).unwrap().error.clone().unwrap();
    // The new primary may be heard of before the old one is gone.
    let is_gone = matches!(failure.cause, Cause::Refused | Cause::Closed | Cause::StalePrimary);
    assert!(is_gone, "{failure:?}");
    cluster.restart(killed).await.unwrap();
    client.request_check();
    view(&client, is_whole).await;
}

#[tokio::test]
async fn it_hears_of_a_step_down_by_the_streamed_reply() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let client = client(&cluster.uri());
    view(&client, is_whole).await;
    let old = client.view().primary().unwrap().address.clone();
    let mut events = client.subscribe();
    cluster.step_down(cluster.primary().unwrap()).await.unwrap();
    let awaited = soon(async {
        loop {
            match events.next().await.expect("open").kind {
                EventKind::ServerHeartbeatSucceeded { address, awaited, .. } if address == old => {
                    return awaited;
                }
                EventKind::ServerHeartbeatFailed { failure, .. } => panic!("{failure}"),
                _ => {}
            }
        }
    })
    .await;
    assert!(awaited);
    view(&client, is_whole).await;
}

/// Accepts one connection, and returns once the client has said something.
async fn greeted(mut socket: impl AsyncReadExt + Unpin) {
    let mut first = [0; 16];
    soon(socket.read_exact(&mut first)).await.unwrap();
    assert_eq!(first[12..], 2013_i32.to_le_bytes(), "OP_MSG");
}

#[tokio::test]
async fn all_addresses_of_a_name_are_tried() {
    // `localhost` may mean ::1 first, where nothing listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let _client = client(&format!("mongodb://localhost:{port}/?directConnection=true"));
    greeted(soon(listener.accept()).await.unwrap().0).await;
}

#[tokio::test]
async fn unix_domain_sockets_are_connected_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mongodb-1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let host = path.to_str().unwrap().replace('/', "%2F");
    let client = client(&format!("mongodb://{host}/?directConnection=true"));
    greeted(soon(listener.accept()).await.unwrap().0).await;
    drop(listener);
    view(&client, |view| view.servers()[0].error.is_some()).await;
}

#[tokio::test]
async fn a_unix_domain_socket_that_is_missing_or_that_nothing_listens_on_has_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, left) = (folder.path().join("missing.sock"), folder.path().join("left.sock"));
    drop(UnixListener::bind(&left).unwrap());
    for (path, cause) in [(missing, Cause::Io), (left, Cause::Refused)] {
        let host = path.to_str().unwrap().replace('/', "%2F");
        let client = client(&format!("mongodb://{host}/?directConnection=true"));
        view(&client, |view| view.servers()[0].error.is_some()).await;
        assert_eq!(client.view().servers()[0].error.as_ref().unwrap().cause, cause);
        let error = client.diagnose(&Criteria::write()).expect("there is no server");
        assert_eq!(error.verdict, Verdict::SocketUnusable, "{error}");
        let said = error.to_string();
        assert!(said.contains("no server listens on the Unix domain socket"), "{said}");
        assert!(said.contains("%2F") && said.contains(path.to_str().unwrap()), "{said}");
    }
}

#[tokio::test]
async fn names_that_do_not_resolve_say_so() {
    // A label has 63 octets at most (RFC 1035, "Size limits"): no name server is asked, which might
    // be out of reach.
    let name = format!("{}.invalid", "n".repeat(64));
    let client = client(&format!("mongodb://{name}/?directConnection=true"));
    view(&client, |view| view.servers()[0].error.is_some()).await;
    let failure = client.view().servers()[0].error.clone().unwrap();
    assert_eq!(failure.cause, Cause::NotResolved);
    let text = format!("cannot resolve {name}: ");
    assert!(failure.to_string().starts_with(&text), "{failure}");
}

/// URI Options, connectTimeoutMS: it covers TLS, as a stream is up only when that is.
#[tokio::test]
async fn a_server_that_is_silent_in_the_tls_handshake_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = "tlsAllowInvalidCertificates=true&connectTimeoutMS=2000";
    let client = client(&format!("mongodb://{address}/?{options}"));
    let (mut socket, _) = soon(listener.accept()).await.unwrap();
    let mut first = [0];
    soon(socket.read_exact(&mut first)).await.unwrap();
    assert_eq!(first, [22], "TLS begins with a handshake record");
    view(&client, |view| {
        let failure = view.servers().iter().find_map(|server| server.error.clone());
        failure.is_some_and(|failure| failure.cause == Cause::Timeout)
    })
    .await;
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let client = client("mongodb://127.0.0.1:1/?tlsCAFile=/nowhere/ca.pem");
    view(&client, |view| {
        let failure = view.servers().iter().find_map(|server| server.error.clone());
        failure.is_some_and(|failure| {
            failure.cause == Cause::Configuration
                && failure.detail.contains("cannot read the tlsCAFile /nowhere/ca.pem")
        })
    })
    .await;
}

#[tokio::test]
async fn an_own_tls_configuration_is_refused_where_no_tls_is_asked_for() {
    use sdam_core::transport::{TlsConfig, TlsMaterial};

    let material = TlsMaterial::default().with_allow_invalid_certificates(true);
    let tls = TlsConfig::from_pem(&material).unwrap();
    let plain = Options::parse("mongodb://127.0.0.1:1").unwrap();
    let error = Topology::builder(plain).tls(tls.clone()).build().unwrap_err();
    assert!(matches!(error.as_client(), Some(ClientError::TlsNotAskedFor)), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    let options = Options::parse("mongodb://127.0.0.1:1/?tls=true").unwrap();
    assert!(Topology::builder(options).tls(tls).build().is_ok());
}

/// Keeps the warnings that it receives.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "sdam"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = String::new();
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            text += &format!("{value:?}");
        });
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn warnings_about_the_connection_string_go_through_tracing() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let _client = client("mongodb://localhost:1/?noSuchOption=1");
    let told = log.0.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("noSuchOption"), "{told:?}");
}
