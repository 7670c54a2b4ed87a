//! Client Side Operations Timeout, below CRUD: what bounds selections and check-outs.

use std::future::pending;
use std::io;
use std::time::Duration;

use libtest_mimic::Trial;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::pool::CheckOutError;
use sdam_core::selection::Criteria;
use sdam_host::ErrorKind;
use sdam_host::driver::DriverTopology;
use sdam_tokio::Topology;
use tokio::net::TcpStream;

use super::{Outcome, runtime, trial};
use crate::support::soon;

/// The allowed delay of a time-out, on a machine that has other things to do.
const GRACE: Duration = Duration::from_secs(50);

pub(crate) fn trials() -> Vec<Trial> {
    let selections = [
        ("embedded::csot_p8_1_server_selection_timeout", "serverSelectionTimeoutMS=10"),
        ("embedded::csot_p8_2_timeout_if_lower", "timeoutMS=10&serverSelectionTimeoutMS=20"),
        (
            "embedded::csot_p8_3_server_selection_timeout_if_lower",
            "timeoutMS=20&serverSelectionTimeoutMS=10",
        ),
        ("embedded::csot_p8_4_timeout_of_zero_is_none", "timeoutMS=0&serverSelectionTimeoutMS=10"),
    ];
    let check_outs = [
        ("embedded::csot_u_timeout_bounds_check_outs", "timeoutMS=500", 500),
        ("embedded::csot_u_wait_queue_timeout_bounds_check_outs", "waitQueueTimeoutMS=500", 500),
        (
            "embedded::csot_u_a_lower_timeout_overrides",
            "timeoutMS=500&waitQueueTimeoutMS=60000",
            500,
        ),
        ("embedded::csot_u_a_higher_timeout_overrides", "timeoutMS=500&waitQueueTimeoutMS=50", 500),
        (
            "embedded::csot_u_server_selection_timeout_bounds_check_outs_if_lower",
            "timeoutMS=60000&serverSelectionTimeoutMS=500",
            500,
        ),
    ];
    let selections = selections
        .map(|(name, options)| trial(name, move || virtual_time()?.block_on(selection(options))));
    let check_outs = check_outs.map(|(name, options, millis)| {
        trial(name, move || runtime()?.block_on(check_out(options, Duration::from_millis(millis))))
    });
    selections.into_iter().chain(check_outs).collect()
}

/// A runtime whose time passes whenever there is nothing else to do.
fn virtual_time() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()
}

/// The server never answers, as one whose name is `invalid`.
async fn selection(options: &str) -> Outcome {
    let options = Options::parse(&format!("mongodb://invalid/?{options}"))?;
    let nowhere = |_: ServerAddress| pending::<io::Result<TcpStream>>();
    let client = Topology::builder(options).dialer(nowhere).build()?;
    let start = client.now();
    let error = client.run_command("admin", &rawdoc! { "ping": 1 }).await.expect_err("no server");
    let took = client.now() - start;
    // CSOT, "Errors": with timeoutMS, the error is a time-out, and what was done then is within.
    let kind = match client.timeout(None).is_set() {
        true => ErrorKind::Timeout,
        false => ErrorKind::Selection,
    };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.as_selection().is_some(), "{error}");
    assert!((10..=15).contains(&took.as_millis()), "{took:?}");
    Ok(())
}

/// The only connection is in use, for longer than anybody waits.
async fn check_out(options: &str, limit: Duration) -> Outcome {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let options = format!("{}&maxPoolSize=1&{options}", cluster.uri());
    cluster.elected().await?;
    let client = Topology::new(Options::parse(&options)?)?;
    let generous = client.with_timeout(crate::support::GENEROUS);
    let checked_out = soon(async {
        loop {
            // The first may come before the client knows of a primary.
            if let Ok(primary) = generous.select(Criteria::write()).await {
                return primary.check_out().await;
            }
        }
    })
    .await?;
    let start = client.now();
    let error = client.run_command("admin", &rawdoc! { "ping": 1 }).await.expect_err("no loan");
    let took = client.now() - start;
    assert!(matches!(error.as_check_out(), Some(CheckOutError::Timeout { .. })), "{error}");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!((limit..limit + GRACE).contains(&took), "{took:?} instead of {limit:?}");
    drop(checked_out);
    generous.run_command("admin", &rawdoc! { "ping": 1 }).await?;
    Ok(())
}
