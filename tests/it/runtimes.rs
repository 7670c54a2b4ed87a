//! The example of each runtime whose feature is on, as a process.

use std::process::Command;

use crate::support::example_path;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::task::spawn_blocking;

/// The examples that this build has.
const EXAMPLES: &[&str] = &[
    #[cfg(feature = "tokio")]
    "version_tokio",
    #[cfg(feature = "async-std")]
    "version_async_std",
    #[cfg(feature = "smol")]
    "version_smol",
    #[cfg(feature = "blocking")]
    "version_blocking",
];

#[tokio::test]
async fn the_same_program_asks_for_the_version_under_each_runtime() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    for example in EXAMPLES {
        let (mut command, uri) = (Command::new(example_path(example)), cluster.uri());
        let output = spawn_blocking(move || command.arg(uri).output()).await.unwrap();
        let output = output.expect("the example was built: cargo build --examples");
        let [printed, errors] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{example}: {errors}");
        assert!(printed.starts_with("version 6.0"), "{example}: {printed}");
    }
}
