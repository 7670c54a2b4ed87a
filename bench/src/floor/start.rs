//! Clients that are made, with whatever they run on, and ping once: the time that the first one
//! takes, and the threads of 50.

use std::any::Any;
use std::net::TcpStream;
use std::time::Instant;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_bench::idle::Usage;
use sdam_bench::raw::{exchange, hello, message};
use sdam_bench::{Failure, THREADS, runtime};
use sdam_core::config::Options;
use sdam_core::wire::Flags;

use crate::Competitor;

/// The number of clients whose threads are counted.
const CLIENTS: usize = 50;

/// Returns the milliseconds from nothing to the reply to the first ping of a client.
pub(crate) fn milliseconds(competitor: Competitor, uri: &str) -> Result<f64, Failure> {
    let begun = Instant::now();
    let _client = pinged(competitor, uri, 1)?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Returns the number of threads of a process with 50 clients, the main one included.
pub(crate) fn threads(competitor: Competitor, uri: &str) -> Result<f64, Failure> {
    let _clients = pinged(competitor, uri, CLIENTS)?;
    Ok(Usage::now()?.threads as f64)
}

/// Makes so many clients, each of which pings once, and returns them with what they run on.
fn pinged(competitor: Competitor, uri: &str, clients: usize) -> Result<Box<dyn Any>, Failure> {
    let ping = rawdoc! { "ping": 1 };
    let clients = 0..clients;
    Ok(match competitor {
        Competitor::Floor => {
            let bare = clients.map(|_| bare(uri));
            Box::new(bare.collect::<Result<Vec<_>, _>>()?)
        }
        Competitor::FloorTokio => return Err("this floor is one of pings".into()),
        Competitor::Libmongoc => return Err("it is a program of its own".into()),
        Competitor::Sdam => {
            let runtime = runtime(THREADS)?;
            let pinged = clients.map(|_| {
                let _entered = runtime.enter();
                let client = sdam_tokio::Topology::new(Options::parse(uri)?)?;
                runtime.block_on(client.run_command("admin", &ping))?;
                Ok(client)
            });
            Box::new((pinged.collect::<Result<Vec<_>, Failure>>()?, runtime))
        }
        Competitor::SdamBlocking => {
            let pinged = clients.map(|_| {
                let client = sdam_blocking::Topology::new(Options::parse(uri)?)?;
                client.run_command("admin", &ping)?;
                Ok(client)
            });
            Box::new(pinged.collect::<Result<Vec<_>, Failure>>()?)
        }
        Competitor::Mongodb => {
            let runtime = runtime(THREADS)?;
            let pinged = clients.map(|_| {
                runtime.block_on(async {
                    let client = mongodb::Client::with_uri_str(uri).await?;
                    client.database("admin").run_command(bson::doc! { "ping": 1 }).await?;
                    Ok(client)
                })
            });
            Box::new((pinged.collect::<Result<Vec<_>, Failure>>()?, runtime))
        }
        Competitor::MongodbSync => {
            let pinged = clients.map(|_| {
                let client = mongodb::sync::Client::with_uri_str(uri)?;
                client.database("admin").run_command(bson::doc! { "ping": 1 }).run()?;
                Ok(client)
            });
            Box::new(pinged.collect::<Result<Vec<_>, Failure>>()?)
        }
    })
}

/// Discovery and an operation have a connection each, and greet the server with their metadata, as
/// every client has to: two connections, of which the second begins when the first has found out
/// who is there.
fn bare(uri: &str) -> Result<[TcpStream; 2], Failure> {
    let [address] = addresses(uri)?[..] else {
        return Err("more than one server to start with".into());
    };
    let (mut reply, mut hello) = ([0; 1024], hello());
    let driver = rawdoc! { "name": "floor", "version": "1" };
    let os = rawdoc! { "type": std::env::consts::OS };
    hello.append(cstr!("client"), rawdoc! { "driver": driver, "os": os });
    let mut said = |stream: &mut TcpStream, command: &RawDocumentBuf| {
        exchange(stream, &message(Flags::NONE, command), &mut reply).map(drop)
    };
    let mut monitor = TcpStream::connect(address)?;
    said(&mut monitor, &hello)?;
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    said(&mut connection, &hello)?;
    said(&mut connection, &rawdoc! { "ping": 1, "$db": "admin" })?;
    Ok([monitor, connection])
}

/// Returns the addresses of the servers.
pub(crate) fn addresses(uri: &str) -> Result<Vec<&str>, Failure> {
    let hosts = uri.strip_prefix("mongodb://").and_then(|rest| rest.split('/').next());
    Ok(hosts.ok_or_else(|| format!("{uri:?} names no server"))?.split(',').collect())
}
