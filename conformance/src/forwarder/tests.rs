//! A forwarder between a plain client and an echo, with every disturbance it can make.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::rawdoc;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson;
use sdam_core::wire::{Flags, Frames, write_op_msg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::{Counters, Forwarder, Traffic};
use crate::refusal::RefusingPort;

/// Generous, because nothing depends on it while the test succeeds.
const DEADLINE: Duration = Duration::from_secs(30);

/// The time that silence is listened to; a longer one proves more, and takes longer.
const SILENCE: Duration = Duration::from_millis(100);

/// A server that says its own byte first and then repeats what it hears.
async fn echo(name: u8) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                to.write_all(&[name]).await.unwrap();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

async fn connect(forwarder: &Forwarder) -> TcpStream {
    TcpStream::connect(forwarder.address()).await.unwrap()
}

/// The next byte, or the end, or what broke the connection.
async fn next(stream: &mut TcpStream) -> Result<Option<u8>, ErrorKind> {
    let mut byte = [0];
    let read = timeout(DEADLINE, stream.read(&mut byte)).await.expect("something comes");
    read.map(|count| (count == 1).then_some(byte[0])).map_err(|error| error.kind())
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SILENCE, stream.read(&mut [0])).await.is_err()
}

async fn say(stream: &mut TcpStream, byte: u8) {
    stream.write_all(&[byte]).await.unwrap();
}

async fn soon(forwarder: &Forwarder, wanted: impl Fn(Counters) -> bool) {
    let seen = async {
        while !wanted(forwarder.counters()) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let seen = timeout(DEADLINE, seen).await;
    assert!(seen.is_ok(), "{:?}", forwarder.counters());
}

#[tokio::test]
async fn connections_are_led_to_the_targets_in_turn_and_counted() {
    let forwarder = Forwarder::start(vec![echo(b'a').await, echo(b'b').await]).unwrap();
    let mut streams = Vec::new();
    for name in *b"abab" {
        let mut stream = connect(&forwarder).await;
        assert_eq!(next(&mut stream).await, Ok(Some(name)));
        say(&mut stream, b'x').await;
        assert_eq!(next(&mut stream).await, Ok(Some(b'x')));
        streams.push(stream);
    }
    let expected =
        Counters { accepted: 4, refused: 0, open: 4, bytes_to_server: 4, bytes_to_client: 8 };
    assert_eq!(forwarder.counters(), expected);
    streams.truncate(1);
    soon(&forwarder, |it| it.open == 1).await;
    assert_eq!(forwarder.counters().accepted, 4);
}

#[tokio::test]
async fn a_black_hole_swallows_bytes_and_ends_of_old_and_new_connections() {
    let forwarder = Forwarder::start(vec![echo(b'a').await]).unwrap();
    let mut old = connect(&forwarder).await;
    assert_eq!(next(&mut old).await, Ok(Some(b'a')));
    forwarder.set(Traffic::Blackhole);
    let mut new = connect(&forwarder).await;
    say(&mut old, b'x').await;
    old.shutdown().await.unwrap();
    soon(&forwarder, |it| it.open == 1).await;
    assert!(is_silent(&mut old).await && is_silent(&mut new).await);
    forwarder.set(Traffic::Pass);
    assert_eq!(next(&mut old).await, Ok(None), "the end comes late, the byte does not");
    say(&mut new, b'y').await;
    assert_eq!(next(&mut new).await, Ok(Some(b'y')), "the greeting was swallowed");
}

#[tokio::test]
async fn a_black_hole_hides_that_there_is_no_server() {
    let gone = RefusingPort::new().unwrap();
    let forwarder = Forwarder::start(vec![gone.address()]).unwrap();
    forwarder.set(Traffic::Blackhole);
    let mut stream = connect(&forwarder).await;
    assert!(is_silent(&mut stream).await);
    forwarder.set(Traffic::Pass);
    assert_eq!(next(&mut stream).await, Ok(None));
}

#[tokio::test]
async fn each_direction_can_be_cut_alone() {
    let forwarder = Forwarder::start(vec![echo(b'a').await]).unwrap();
    let mut stream = connect(&forwarder).await;
    assert_eq!(next(&mut stream).await, Ok(Some(b'a')));
    forwarder.set(Traffic::DropToClient);
    say(&mut stream, b'x').await;
    soon(&forwarder, |it| it.bytes_to_server == 1).await;
    assert!(is_silent(&mut stream).await);
    assert_eq!(forwarder.counters().bytes_to_client, 1, "only the greeting");
    forwarder.set(Traffic::DropToServer);
    let mut new = connect(&forwarder).await;
    assert_eq!(next(&mut new).await, Ok(Some(b'a')));
    say(&mut new, b'x').await;
    assert!(is_silent(&mut new).await);
    assert_eq!(forwarder.counters().bytes_to_server, 1);
}

#[tokio::test]
async fn refused_connections_end_at_once_and_open_ones_go_on() {
    let forwarder = Forwarder::start(vec![echo(b'a').await]).unwrap();
    let mut old = connect(&forwarder).await;
    assert_eq!(next(&mut old).await, Ok(Some(b'a')));
    forwarder.set(Traffic::Refuse);
    let mut new = connect(&forwarder).await;
    assert_eq!(next(&mut new).await, Ok(None));
    assert_eq!(forwarder.counters().refused, 1);
    say(&mut old, b'x').await;
    assert_eq!(next(&mut old).await, Ok(Some(b'x')));
}

#[tokio::test]
async fn a_reset_reaches_every_open_connection_and_no_later_one() {
    let forwarder = Forwarder::start(vec![echo(b'a').await]).unwrap();
    let mut old = [connect(&forwarder).await, connect(&forwarder).await];
    for stream in &mut old {
        assert_eq!(next(stream).await, Ok(Some(b'a')));
    }
    forwarder.reset_all();
    for stream in &mut old {
        assert_eq!(next(stream).await, Err(ErrorKind::ConnectionReset));
    }
    soon(&forwarder, |it| it.open == 0).await;
    assert_eq!(next(&mut connect(&forwarder).await).await, Ok(Some(b'a')));
}

#[tokio::test]
async fn slow_traffic_drips_until_it_is_no_longer_slow() {
    let forwarder = Forwarder::start(vec![echo(b'a').await]).unwrap();
    let pause = Duration::from_millis(20);
    forwarder.set(Traffic::Slow { bytes: 2, pause });
    let begin = Instant::now();
    let mut stream = connect(&forwarder).await;
    stream.write_all(b"123456").await.unwrap();
    for byte in *b"a123456" {
        assert_eq!(next(&mut stream).await, Ok(Some(byte)));
    }
    assert!(begin.elapsed() >= 4 * pause, "three writes up, and another down");
    forwarder.set(Traffic::Slow { bytes: 0, pause: Duration::from_secs(3600) });
    say(&mut stream, b'x').await;
    assert!(is_silent(&mut stream).await);
    forwarder.set(Traffic::Pass);
    assert_eq!(next(&mut stream).await, Ok(Some(b'x')));
}

#[tokio::test]
async fn dropping_it_closes_the_port_and_the_connections() {
    let forwarder = Forwarder::start(vec![echo(b'a').await]).unwrap();
    let address = forwarder.address();
    forwarder.set(Traffic::Blackhole);
    let mut stream = connect(&forwarder).await;
    drop(forwarder);
    assert!(!matches!(next(&mut stream).await, Ok(Some(_))));
    let closed = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(DEADLINE, closed).await.expect("the port must refuse");
}

#[tokio::test]
async fn without_a_target_there_is_nothing_to_start() {
    let error = Forwarder::start(Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// Says hello, and returns the service that the server is of.
async fn service(stream: &mut TcpStream) -> ObjectId {
    let (mut bytes, mut frames) = (Vec::new(), Frames::new());
    let command = rawdoc! { "hello": 1, "loadBalanced": true, "$db": "admin" };
    write_op_msg(&mut bytes, 1, 0, Flags::NONE, &command);
    stream.write_all(&bytes).await.unwrap();
    loop {
        if let Some(message) = frames.next().unwrap() {
            return message.op_msg().unwrap().body.get_object_id("serviceId").unwrap();
        }
        match timeout(DEADLINE, stream.read(frames.spare())).await.expect("a reply").unwrap() {
            0 => panic!("the server has hung up"),
            count => frames.fill(count),
        }
    }
}

#[tokio::test]
async fn a_forwarder_in_front_of_mongos_is_a_load_balancer() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::load_balanced(2)).await.unwrap();
    let balancer = Forwarder::start(cluster.addresses().to_vec()).unwrap();
    let mut services = Vec::new();
    for _ in 0..4 {
        services.push(service(&mut connect(&balancer).await).await);
    }
    assert_ne!(services[0], services[1]);
    assert_eq!(services[..2], services[2..]);
    assert!(!cluster.uri().contains("replicaSet"));
}
