//! The advertised address is who a server is, not where the bytes go.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::refusal::RefusingPort;
use sdam_core::config::address_map::AddressMap;
use sdam_core::config::{Options, OptionsBuilder, ServerAddress};
use sdam_core::failure::{Cause, Failure};
use sdam_tokio::{ByteStream, Dialer, Dialing, Topology};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::support::{is_whole, soon, view};

fn options(uri: &str) -> OptionsBuilder {
    Options::builder().uri(uri).unwrap()
}

fn mapped(uri: &str, rule: &str) -> Topology {
    let map = AddressMap::new([rule.parse().unwrap()]).unwrap();
    Topology::new(options(uri).address_map(map).build().unwrap()).unwrap()
}

/// Waits until the only server is known to have failed, and returns why.
async fn failure(client: &Topology) -> Failure {
    view(client, |view| view.servers()[0].error.is_some()).await;
    client.view().servers()[0].error.clone().unwrap()
}

/// Reads a message, and closes the connection.
async fn greeted(mut socket: impl AsyncRead + Unpin) {
    let mut head = [0; 16];
    soon(socket.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[12..], 2013_i32.to_le_bytes(), "OP_MSG");
    let length = u32::from_le_bytes(head[..4].try_into().unwrap());
    // A system that closes a socket with unread bytes says so: connection reset.
    let mut rest = vec![0; length as usize - head.len()];
    soon(socket.read_exact(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_dialled_where_the_map_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let uri = "mongodb://db1.sdam.invalid/?directConnection=true";
    let client = mapped(uri, &format!("*.sdam.invalid={target}"));
    greeted(soon(listener.accept()).await.unwrap().0).await;
    assert_eq!(client.view().servers()[0].address.to_string(), "db1.sdam.invalid:27017");
    // The tunnel is up, but what is behind it is not.
    let told = failure(&client).await;
    assert_eq!(told.cause, Cause::Closed);
    let detail = format!("dialled as {target}: the server closed the connection");
    assert!(told.to_string().starts_with(&detail), "{told}");
}

#[tokio::test]
async fn a_map_may_lead_to_a_unix_domain_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let rule = format!("db1.sdam.invalid={}", path.display());
    let _client = mapped("mongodb://db1.sdam.invalid/?directConnection=true", &rule);
    greeted(soon(listener.accept()).await.unwrap().0).await;
}

#[tokio::test]
async fn a_failure_names_the_address_that_was_dialled_if_it_is_another() {
    let port = RefusingPort::new().unwrap();
    let address = port.address();
    let uri = "mongodb://db1.sdam.invalid:5/?directConnection=true";
    let told = failure(&mapped(uri, &format!("*:5={address}"))).await;
    assert_eq!(told.cause, Cause::Refused);
    let start = format!("dialled as {address}: Connection refused");
    assert!(told.to_string().starts_with(&start), "{told}");
    // An address that is not mapped is not repeated: reports of the server name it.
    let uri = format!("mongodb://{address}/?directConnection=true");
    let told = failure(&mapped(&uri, "*:5=127.0.0.1:1")).await;
    assert!(told.to_string().starts_with("Connection refused"), "{told}");
}

#[tokio::test]
async fn a_whole_set_is_followed_through_the_dialer_of_an_application() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let dialled = Arc::<Mutex<Vec<ServerAddress>>>::default();
    let asked = Arc::clone(&dialled);
    // A pipe that holds seven bytes: whatever is sent or received comes in many pieces.
    let dialer = move |address: ServerAddress| {
        asked.lock().unwrap().push(address.clone());
        async move {
            let mut far = TcpStream::connect(address.to_string()).await?;
            let (near, mut pipe) = duplex(7);
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut far, &mut pipe).await });
            Ok(near)
        }
    };
    let options = options(&cluster.uri()).build().unwrap();
    let client = Topology::builder(options).dialer(dialer).build().unwrap();
    view(&client, is_whole).await;
    for address in cluster.addresses() {
        let address: ServerAddress = address.to_string().parse().unwrap();
        assert!(dialled.lock().unwrap().contains(&address), "{address}");
    }
    let killed = cluster.primary().expect("a primary");
    let old = client.view().primary().unwrap().address.clone();
    cluster.kill(killed).await.unwrap();
    view(&client, |view| view.primary().is_some_and(|primary| primary.address != old)).await;
    cluster.restart(killed).await.unwrap();
    client.request_check();
    view(&client, is_whole).await;
}

/// A dialer of the application's own type; it fails.
struct NoTunnel;

impl Dialer for NoTunnel {
    fn dial<'a>(&'a self, address: &'a ServerAddress) -> Dialing<'a> {
        Box::pin(async move { Err(io::Error::other(format!("there is no tunnel to {address}"))) })
    }
}

#[tokio::test]
async fn what_a_dialer_complains_of_is_why_the_server_is_unknown() {
    let options = options("mongodb://db1.sdam.invalid/?directConnection=true").build().unwrap();
    let client = Topology::builder(options).dialer(NoTunnel).build().unwrap();
    let told = failure(&client).await;
    assert_eq!(told.to_string(), "there is no tunnel to db1.sdam.invalid:27017");
}

#[tokio::test]
async fn a_dialer_is_asked_for_the_mapped_address() {
    let map = AddressMap::new(["*.sdam.invalid=*.tunnel:7".parse().unwrap()]).unwrap();
    let options = options("mongodb://db1.sdam.invalid/?directConnection=true").address_map(map);
    let client = Topology::builder(options.build().unwrap()).dialer(NoTunnel).build().unwrap();
    let told = failure(&client).await.to_string();
    let expected = "dialled as db1.tunnel:7: there is no tunnel to \
                    db1.tunnel:7";
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_dialer_that_never_answers_is_given_up_after_connect_timeout() {
    let uri = "mongodb://db1.sdam.invalid/?directConnection=true&connectTimeoutMS=100";
    let client = Topology::builder(options(uri).build().unwrap())
        .dialer(|_| std::future::pending::<io::Result<TcpStream>>())
        .build()
        .unwrap();
    assert_eq!(failure(&client).await.cause, Cause::Timeout);
}

/// A stream that takes nothing and says so.
struct Full;

impl AsyncRead for Full {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Full {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_stream_that_takes_nothing_is_a_failure_and_no_endless_loop() {
    let options = options("mongodb://db1.sdam.invalid/?directConnection=true").build().unwrap();
    let dialer = |_| async { Ok(Box::new(Full) as Box<dyn ByteStream>) };
    let client = Topology::builder(options).dialer(dialer).build().unwrap();
    assert_eq!(failure(&client).await.cause, Cause::Io);
}
