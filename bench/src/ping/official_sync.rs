//! The official driver's API for threads, with a connection for each.

use std::net::SocketAddr;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::sync::Client;

use super::uri;
use crate::Failure;
use crate::load::on_threads;
use crate::sample::Sample;

pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let uri = uri(address, tasks);
    let database = Client::with_uri_str(uri)?.database("admin");
    let pinger = || {
        let database = database.clone();
        move || {
            database.run_command(doc! { "ping": 1 }).run()?;
            Ok(())
        }
    };
    on_threads(std::iter::repeat_with(pinger).take(tasks).collect(), window)
}
