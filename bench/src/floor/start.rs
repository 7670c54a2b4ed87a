//! The time from the creation of a client, with whatever it runs on, to the reply to its first
//! ping.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use bson::{RawDocumentBuf, rawdoc};
use sdam_bench::Failure;
use sdam_core::config::Options;
use sdam_core::wire::{Flags, HEADER_LEN, write_op_msg};

use crate::Competitor;

/// Returns the time of one start.
pub(crate) fn milliseconds(competitor: Competitor, uri: &str) -> Result<f64, Failure> {
    let begun = Instant::now();
    let ping = rawdoc! { "ping": 1 };
    match competitor {
        Competitor::Floor => bare(uri)?,
        Competitor::Sdam => {
            let runtime = runtime()?;
            let _entered = runtime.enter();
            let client = sdam_tokio::Client::new(Options::parse(uri)?)?;
            runtime.block_on(client.run_command("admin", &ping))?;
            return Ok(since(begun));
        }
        Competitor::SdamBlocking => {
            let client = sdam_blocking::Client::new(Options::parse(uri)?)?;
            client.run_command("admin", &ping)?;
            return Ok(since(begun));
        }
        Competitor::Mongodb => {
            let runtime = runtime()?;
            let client = runtime.block_on(mongodb::Client::with_uri_str(uri))?;
            let database = client.database("admin");
            runtime.block_on(async {
                database.run_command(mongodb::bson::doc! { "ping": 1 }).await
            })?;
            return Ok(since(begun));
        }
        Competitor::MongodbSync => {
            let client = mongodb::sync::Client::with_uri_str(uri)?;
            client.database("admin").run_command(mongodb::bson::doc! { "ping": 1 }).run()?;
            return Ok(since(begun));
        }
    }
    Ok(since(begun))
}

fn since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Discovery and an operation have a connection each, and greet the server: two connections, of
/// which the second begins when the first has found out who is there.
fn bare(uri: &str) -> Result<(), Failure> {
    let address = address(uri)?;
    let hello = hello();
    let mut monitor = TcpStream::connect(address)?;
    exchange(&mut monitor, &hello)?;
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    exchange(&mut connection, &hello)?;
    exchange(&mut connection, &rawdoc! { "ping": 1, "$db": "admin" })
}

/// Returns the address of the only server.
pub(crate) fn address(uri: &str) -> Result<&str, Failure> {
    let address = uri.strip_prefix("mongodb://").and_then(|rest| rest.split('/').next());
    address.ok_or_else(|| format!("{uri:?} names no server").into())
}

pub(crate) fn hello() -> RawDocumentBuf {
    rawdoc! { "isMaster": 1, "helloOk": true, "$db": "admin" }
}

/// Sends a command, and reads the reply.
pub(crate) fn exchange(stream: &mut TcpStream, command: &RawDocumentBuf) -> Result<(), Failure> {
    let mut message = Vec::new();
    write_op_msg(&mut message, 1, 0, Flags::NONE, command);
    stream.write_all(&message)?;
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header)?;
    let length = header.first_chunk().map_or(0, |length| i32::from_le_bytes(*length));
    let mut body = vec![0; usize::try_from(length)?.saturating_sub(HEADER_LEN)];
    stream.read_exact(&mut body)?;
    Ok(())
}
