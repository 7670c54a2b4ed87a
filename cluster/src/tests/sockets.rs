//! The deployment on real sockets, seen by a plain client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use rustix::process::{Resource, getrlimit};
use sdam_core::bson;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg, write_op_query};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::{SECOND, awaitable, body};
use crate::server::options::connections_each;
use crate::server::socket::{Conversation, Report};
use crate::{ConnectionId, EmbeddedCluster, EmbeddedOptions, MemberId};

/// Generous, because nothing depends on it while the test succeeds.
const DEADLINE: Duration = Duration::from_secs(60);

fn hasty() -> EmbeddedOptions {
    EmbeddedOptions { election_timeout: Duration::from_millis(100), ..EmbeddedOptions::default() }
}

async fn receive(stream: &mut TcpStream) -> io::Result<Message> {
    let mut frames = Frames::new();
    loop {
        if let Some(message) = frames.next().map_err(io::Error::other)? {
            return Ok(message);
        }
        match timeout(DEADLINE, stream.read(frames.spare())).await?? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => frames.fill(count),
        }
    }
}

async fn send(stream: &mut TcpStream, flags: Flags, command: &bson::RawDocument) {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, 0, flags, command);
    stream.write_all(&bytes).await.unwrap();
}

async fn hello(stream: &mut TcpStream) -> RawDocumentBuf {
    let command = rawdoc! { "hello": 1, "$db": "admin" };
    send(stream, Flags::NONE, &command).await;
    body(&receive(stream).await.unwrap())
}

#[tokio::test]
async fn a_plain_client_discovers_the_set_and_sees_its_primary_die_and_return() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let primary = timeout(DEADLINE, cluster.elected()).await.unwrap().unwrap();
    let address = cluster.addresses()[primary.0];
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut query = Vec::new();
    let legacy = rawdoc! { "isMaster": 1, "helloOk": true };
    write_op_query(&mut query, 5, "admin", &legacy);
    client.write_all(&query).await.unwrap();
    let reply = receive(&mut client).await.unwrap();
    assert_eq!(reply.header().response_to, 5);
    let reply = reply.op_reply().unwrap().document.to_owned();
    assert!(reply.get_bool("ismaster").unwrap() && reply.get_bool("helloOk").unwrap());
    assert_eq!(reply.get_str("me").unwrap(), address.to_string());
    for host in reply.get_array("hosts").unwrap() {
        assert!(cluster.uri().contains(host.unwrap().as_str().unwrap()));
    }

    cluster.kill(primary).await.unwrap();
    let end = receive(&mut client).await.unwrap_err();
    let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    assert!(ended.contains(&end.kind()), "{end}");
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let next = timeout(DEADLINE, cluster.elected()).await.unwrap().unwrap();
    assert_ne!(next, primary);

    cluster.restart(primary).await.unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    assert_eq!(hello(&mut client).await.get_str("me").unwrap(), address.to_string());
}

#[tokio::test]
async fn a_stream_tells_of_a_step_down() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let primary = timeout(DEADLINE, cluster.elected()).await.unwrap().unwrap();
    let address = cluster.addresses()[primary.0];
    let named = address.to_string();
    // Before the others know it, none of them is up to date, and it would be elected again at once.
    for follower in cluster.addresses() {
        let mut client = TcpStream::connect(follower).await.unwrap();
        let follows = async {
            while hello(&mut client).await.get_str("primary").ok() != Some(&*named) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(DEADLINE, follows).await.expect("it must hear of the primary");
    }
    let mut client = TcpStream::connect(address).await.unwrap();
    let seen = hello(&mut client).await;
    send(&mut client, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 600 * SECOND)).await;
    cluster.step_down(primary).await.unwrap();
    let reply = receive(&mut client).await.unwrap();
    assert!(!body(&reply).get_bool("isWritablePrimary").unwrap());
    assert!(reply.op_msg().unwrap().flags.contains(Flags::MORE_TO_COME));
}

#[tokio::test]
async fn a_client_that_asks_for_ever_and_never_reads_is_disconnected() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let mut client = TcpStream::connect(cluster.addresses()[0]).await.unwrap();
    let mut bytes = Vec::new();
    for id in 0..1000 {
        let hello = rawdoc! { "hello": 1, "$db": "admin" };
        write_op_msg(&mut bytes, id, 0, Flags::NONE, &hello);
    }
    let flood = async { while client.write_all(&bytes).await.is_ok() {} };
    let ended = timeout(4 * DEADLINE, flood).await;
    assert!(ended.is_ok(), "the member must hang up");
}

#[tokio::test]
async fn a_client_that_never_reads_its_stream_is_disconnected() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let mut client = TcpStream::connect(cluster.addresses()[0]).await.unwrap();
    let seen = hello(&mut client).await;
    send(&mut client, Flags::EXHAUST_ALLOWED, &awaitable(&seen, Duration::ZERO)).await;
    // What it sends is not looked at during the stream, so only a hang-up makes it fail.
    let nag = async {
        while client.write_all(&[0]).await.is_ok() {
            sleep(SECOND / 10).await;
        }
    };
    let ended = timeout(4 * DEADLINE, nag).await;
    assert!(ended.is_ok(), "the member must hang up");
}

#[tokio::test]
async fn dropping_the_deployment_closes_its_ports_and_connections() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let address = cluster.addresses()[0];
    let mut client = TcpStream::connect(address).await.unwrap();
    hello(&mut client).await;
    drop(cluster);
    assert!(receive(&mut client).await.is_err());
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(DEADLINE, closed).await.expect("the port must refuse");
}

#[tokio::test]
async fn options_out_of_range_are_invalid_input() {
    let options = EmbeddedOptions { members: 1000, ..hasty() };
    let error = EmbeddedCluster::start(options).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn the_story_has_an_election_every_twelve_seconds() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let begin = Instant::now();
    let watch = async {
        let (mut elections, mut last): (Vec<Duration>, Option<MemberId>) = (Vec::new(), None);
        while elections.len() < 6 {
            let primary = cluster.primary();
            if primary != last && primary.is_some() {
                elections.push(begin.elapsed());
            }
            last = primary;
            sleep(Duration::from_millis(10)).await;
        }
        elections
    };
    let elections = tokio::select! {
        elections = watch => elections,
        ended = cluster.fail_over_for_ever() => panic!("the story ended: {ended:?}"),
    };
    assert!(elections[1] < 8 * SECOND, "{elections:?}");
    for pair in elections[1..].windows(2) {
        let apart = pair[1] - pair[0];
        assert!((11 * SECOND..13 * SECOND).contains(&apart), "{elections:?}");
    }
}

#[tokio::test]
async fn a_test_freezes_a_member_and_commands_it_past_the_client() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let primary = timeout(DEADLINE, cluster.elected()).await.unwrap().unwrap();
    let mut client = TcpStream::connect(cluster.addresses()[primary.0]).await.unwrap();
    hello(&mut client).await;
    cluster.freeze(primary).await.unwrap();
    let answer = hello(&mut client);
    assert!(timeout(SECOND / 10, answer).await.is_err());
    cluster.thaw(primary).await.unwrap();
    receive(&mut client).await.unwrap();

    let refused = cluster.run_command(primary, rawdoc! { "noSuchCommand": 1 }).await.unwrap_err();
    assert_eq!(refused.to_string(), "no such command: 'noSuchCommand'");
    cluster.run_command(primary, rawdoc! { "replSetStepDown": 1 }).await.unwrap();
    let unknown = cluster.run_command(MemberId(9), rawdoc! { "ping": 1 }).await.unwrap_err();
    assert_eq!(unknown.kind(), io::ErrorKind::AddrNotAvailable);
}

#[tokio::test]
async fn a_member_that_is_flooded_turns_clients_away_and_all_others_are_reached() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let [flooded, other] = [cluster.addresses()[0], cluster.addresses()[1]];
    let most = connections_each(3, getrlimit(Resource::Nofile).current);
    let mut clients = Vec::new();
    for _ in 0..most {
        clients.push(timeout(DEADLINE, TcpStream::connect(flooded)).await.unwrap().unwrap());
    }
    let mut refused = TcpStream::connect(flooded).await.unwrap();
    assert!(receive(&mut refused).await.is_err());
    let mut client = TcpStream::connect(other).await.unwrap();
    assert_eq!(hello(&mut client).await.get_str("me").unwrap(), other.to_string());
    let first = &mut clients[0];
    assert_eq!(hello(first).await.get_str("me").unwrap(), flooded.to_string());
}

#[tokio::test]
async fn a_client_hears_its_own_address() {
    let cluster = EmbeddedCluster::start(hasty()).await.unwrap();
    let mut client = TcpStream::connect(cluster.addresses()[0]).await.unwrap();
    send(&mut client, Flags::NONE, &rawdoc! { "whatsmyuri": 1, "$db": "admin" }).await;
    let reply = body(&receive(&mut client).await.unwrap());
    assert_eq!(reply.get_str("you").unwrap(), client.local_addr().unwrap().to_string());
}

/// As real servers do, which read the next request when the one before it is answered.
#[tokio::test]
async fn a_client_that_has_said_its_last_is_still_answered() {
    let (mut client, server) = duplex(64);
    let (reports, mut reported) = mpsc::channel(8);
    let (answers, output) = mpsc::unbounded_channel();
    let connection = ConnectionId(1);
    let conversation = Conversation { connection, reports, output, pending: Arc::default() };
    let engine = async {
        assert!(matches!(reported.recv().await, Some((_, Report::Read(bytes))) if bytes == b"?"));
        assert!(matches!(reported.recv().await, Some((_, Report::Ended))));
        answers.send(b"!".to_vec()).unwrap();
        drop(answers);
    };
    let converse = async {
        client.write_all(b"?").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"!");
    };
    let all = async { tokio::join!(conversation.run(server), engine, converse) };
    timeout(DEADLINE, all).await.unwrap();
}
