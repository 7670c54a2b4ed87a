//! Files of an application's: uploaded, read, renamed and deleted in every way, and uploads that
//! are dropped, aborted, or gone on with by another client.

mod downloading;
mod removing;
mod uploading;

use std::sync::Arc;

use sdam::generic::{Client, GridFsBucket};
use sdam::options::GridFsBucketOptions;
use sdam_core::config::WriteConcern;

use super::within::Patience;
use super::{Application, DATABASE, Terms};
use crate::sim::checks::Finding;
use crate::sim::random::Random;
use crate::virtual_time::Runtime;

pub(in crate::sim::applications) use downloading::read_all;

/// The names of files.
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

type Bucket = GridFsBucket<Runtime>;

/// An application that keeps files.
struct Keeper {
    application: Application,
    bucket: Bucket,
    /// All clients that may go on with an upload, with their numbers.
    clients: Arc<Vec<(usize, Client<Runtime>)>>,
}

/// Has an application keep files until its work is over.
pub(in crate::sim::applications) async fn keep(
    application: Application,
    clients: Arc<Vec<(usize, Client<Runtime>)>>,
) {
    application.time.sleep(application.workload.from.since_origin()).await;
    let bucket = bucket(&application.client);
    let mut keeper = Keeper { application, bucket, clients };
    while keeper.application.goes_on().await {
        match keeper.application.random.below(100) {
            0..55 => keeper.upload().await,
            55..85 => keeper.download().await,
            85..91 => keeper.delete().await,
            91..93 => keeper.delete_by_name().await,
            93..98 => keeper.rename().await,
            _ => keeper.rename_by_name().await,
        }
    }
    keeper.application.state().task_ends();
}

/// Returns the bucket of a client: what is acknowledged in it lasts.
fn bucket(client: &Client<Runtime>) -> Bucket {
    let options = GridFsBucketOptions::builder().write_concern(WriteConcern::majority()).build();
    client.database(DATABASE).gridfs_bucket_with_options(options)
}

/// Draws for how long something is waited for.
fn patience(random: &mut Random) -> Patience {
    match random.below(20) {
        0..17 => Patience::Endless,
        17 => Patience::Time(random.millis(0, 400)),
        _ => Patience::Polls(1 + random.below(12)),
    }
}

impl Keeper {
    /// Returns the bucket with a limit of time.
    fn limited(&self, terms: Terms) -> Bucket {
        match terms.timeout {
            Some(timeout) => self.bucket.with_timeout(timeout),
            None => self.bucket.clone(),
        }
    }

    /// Notes what a check has found.
    fn judge(&self, finding: Finding) {
        let number = self.application.number;
        self.application.state().judge(number, finding);
    }

    fn name(&mut self) -> String {
        self.application.random.pick(&NAMES).to_owned()
    }
}
