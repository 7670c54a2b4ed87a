//! The official driver, with a connection for each task.

use std::net::SocketAddr;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::{Client, Database};

use super::uri;
use crate::Failure;
use crate::load::{Work, on_tokio};
use crate::sample::Sample;

pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let uri = uri(address, tasks);
    let open = async {
        let database = Client::with_uri_str(uri).await?.database("admin");
        Ok(std::iter::repeat_with(|| Official(database.clone())).take(tasks).collect())
    };
    on_tokio(open, window)
}

struct Official(Database);

impl Work for Official {
    async fn once(&mut self) -> Result<(), Failure> {
        self.0.run_command(doc! { "ping": 1 }).await?;
        Ok(())
    }
}
