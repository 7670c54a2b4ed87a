//! A proxy: to its clients it is a mongos, and each of them has a connection of its own behind it.
//!
//! ```sh
//! cargo run --example proxy -- 127.0.0.1:27018 'mongodb://db1.example/?replicaSet=rs0'
//! cargo run --example run_command -- mongodb://127.0.0.1:27018
//! ```
//!
//! Without a connection string there is a replica set inside this process behind it.

use std::error::Error;
use std::time::Duration;

use sdam::core::hello::ProxyReply;
use sdam::core::wire::{
    Flags, Frames, Header, Message, ReplyFlags, op_code, write_op_msg, write_op_reply,
};
use sdam::host::Outcome;
use sdam::{CheckedOut, Criteria, Topology};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The time that a client may have to wait for a server, and for each command.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let embedded = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let mut arguments = std::env::args().skip(1);
    let at = arguments.next().unwrap_or_else(|| "127.0.0.1:27018".to_owned());
    let uri = arguments.next().unwrap_or_else(|| embedded.uri());
    let topology = Topology::connect(uri).await?;
    let listener = TcpListener::bind(at).await?;
    println!("listening at {}", listener.local_addr()?);
    loop {
        let ((socket, peer), topology) = (listener.accept().await?, topology.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(&topology, socket).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

/// Serves a client until it goes; an error ends its session, and what it had in use is closed.
async fn serve(topology: &Topology, mut socket: TcpStream) -> Result<()> {
    let (mut frames, mut pinned) = (Frames::new(), None);
    loop {
        while let Some(message) = frames.next()? {
            if let Some(legacy) = hello(&message)? {
                let reply = greet(&topology.with_timeout(LIMIT), message.header(), legacy).await?;
                socket.write_all(&reply).await?;
            } else {
                pinned =
                    forward(&topology.with_timeout(LIMIT), pinned, &message, &mut socket).await?;
            }
        }
        match socket.read(frames.spare()).await? {
            0 => return Ok(()),
            count => frames.fill(count),
        }
    }
}

/// Passes a message on and its replies back; returns the connection for the next one.
async fn forward(
    topology: &Topology,
    pinned: Option<CheckedOut>,
    message: &Message,
    socket: &mut TcpStream,
) -> Result<Option<CheckedOut>> {
    let mut checked_out = match pinned {
        Some(checked_out) => checked_out,
        None => topology.select(Criteria::write()).await?.check_out().await?,
    };
    checked_out.set_deadline(Some(topology.now() + LIMIT));
    checked_out.send_message(message).await?;
    let mut outcome = Outcome::Success;
    // None is due to a message with moreToCome, and another one to a reply with it.
    while checked_out.is_reply_due() {
        let reply = checked_out.receive_message().await?;
        outcome = Outcome::of_reply(reply.op_msg()?.body);
        socket.write_all(reply.bytes()).await?;
    }
    // If the server is not what it was, the topology learns it, and the session goes on elsewhere.
    let stays = outcome == Outcome::Success;
    checked_out.report(outcome);
    Ok(stays.then_some(checked_out))
}

/// Answers hello in the form it came in, once there is a primary that speaks for itself.
///
/// Neither compression nor authentication is offered, so that messages can pass as they are.
async fn greet(topology: &Topology, hello: Header, legacy: bool) -> Result<Vec<u8>> {
    topology.select(Criteria::write()).await?;
    let reply = ProxyReply::mongos().to_legacy(legacy).document(&topology.view())?;
    let (mut bytes, to) = (Vec::new(), hello.request_id);
    match hello.op_code {
        op_code::OP_QUERY => write_op_reply(&mut bytes, 1, to, ReplyFlags::NONE, &reply),
        _ => write_op_msg(&mut bytes, 1, to, Flags::NONE, &reply),
    }
    Ok(bytes)
}

/// Returns whether a message is hello, and then whether it is the legacy one.
fn hello(message: &Message) -> Result<Option<bool>> {
    let command = match message.header().op_code {
        op_code::OP_QUERY => message.op_query()?.query,
        _ => message.op_msg()?.body,
    };
    let name = command.iter().next().transpose()?.map(|(name, _)| name.as_str());
    Ok(match name {
        Some("hello") => Some(false),
        Some("isMaster" | "ismaster") => Some(true),
        _ => None,
    })
}
