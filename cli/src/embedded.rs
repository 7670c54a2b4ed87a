//! The deployment that `sdam` starts inside itself when none is named.

use std::io;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::task::JoinHandle;

/// The message about an embedded deployment.
pub(crate) const BANNER: &str = "started an embedded demonstration deployment, \
                                 whose primary is killed again and again";

/// The name of an embedded deployment, where there is little room.
pub(crate) const TITLE: &str = "a demonstration deployment of its own";

/// Keeps an embedded deployment running until it is dropped.
#[derive(Debug)]
pub(crate) struct Deployment {
    story: JoinHandle<()>,
}

/// The reason why there is no embedded deployment.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the embedded deployment: {0}")]
pub(crate) struct EmbeddedError(io::Error);

impl From<io::Error> for EmbeddedError {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

/// Starts a deployment whose primary fails over for ever, and returns it with its connection
/// string.
pub(crate) async fn start() -> Result<(Deployment, String), EmbeddedError> {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let uri = cluster.uri();
    let story = tokio::spawn(async move {
        // It ends only if a killed member finds its port taken; the rest goes on without it.
        let _ = cluster.fail_over_for_ever().await;
    });
    Ok((Deployment { story }, uri))
}

impl Drop for Deployment {
    fn drop(&mut self) {
        self.story.abort();
    }
}
