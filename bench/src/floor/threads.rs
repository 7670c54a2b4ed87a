//! The threads of 50 clients of a process that each have pinged once.

use std::fs;
use std::net::TcpStream;

use bson::rawdoc;
use sdam_bench::Failure;
use sdam_core::config::Options;

use crate::Competitor;
use crate::start::{address, exchange, hello};

/// The number of clients.
const CLIENTS: usize = 50;

/// Returns the number of threads, the main one included.
pub(crate) fn count(competitor: Competitor, uri: &str) -> Result<f64, Failure> {
    let ping = rawdoc! { "ping": 1 };
    let clients = 0..CLIENTS;
    match competitor {
        Competitor::Floor => {
            let address = address(uri)?;
            let open = clients.map(|_| TcpStream::connect(address));
            let mut streams = open.collect::<Result<Vec<_>, _>>()?;
            streams.iter_mut().try_for_each(|stream| exchange(stream, &hello()))?;
            threads()
        }
        Competitor::Sdam => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let _entered = runtime.enter();
            let open = clients.map(|_| sdam_tokio::Client::new(Options::parse(uri)?));
            let clients = open.collect::<Result<Vec<_>, _>>()?;
            for client in &clients {
                runtime.block_on(client.run_command("admin", &ping))?;
            }
            threads()
        }
        Competitor::SdamBlocking => {
            let open = clients.map(|_| sdam_blocking::Client::new(Options::parse(uri)?));
            let clients = open.collect::<Result<Vec<_>, _>>()?;
            for client in &clients {
                client.run_command("admin", &ping)?;
            }
            threads()
        }
        Competitor::Mongodb => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let mut open = Vec::new();
            for _ in clients {
                let client = runtime.block_on(mongodb::Client::with_uri_str(uri))?;
                let database = client.database("admin");
                runtime.block_on(async {
                    database.run_command(mongodb::bson::doc! { "ping": 1 }).await
                })?;
                open.push(client);
            }
            threads()
        }
        Competitor::MongodbSync => {
            let mut open = Vec::new();
            for _ in clients {
                let client = mongodb::sync::Client::with_uri_str(uri)?;
                client.database("admin").run_command(mongodb::bson::doc! { "ping": 1 }).run()?;
                open.push(client);
            }
            threads()
        }
    }
}

/// Counts the threads of this process, by what Linux lists.
fn threads() -> Result<f64, Failure> {
    Ok(fs::read_dir("/proc/self/task")?.count() as f64)
}
