//! Messages that are unusual, or no messages.

use sdam_core::bson::{Document, doc};
use sdam_core::failure::Failure;
use sdam_core::wire::op_code;

use super::Probe;
use crate::lint::evidence::{Topic, number};
use crate::lint::request::Request;

/// A required flag bit that is not defined.
const UNKNOWN_REQUIRED: u32 = 1 << 7;

/// An optional flag bit that is not defined.
const UNKNOWN_OPTIONAL: u32 = 1 << 23;

/// The flag moreToCome.
const MORE_TO_COME: u32 = 1 << 1;

/// The room of a command around its largest field, in bytes.
const FRAME: usize = 512;

/// The largest document that is sent, whatever the server says that it takes.
const MOST: usize = 32 << 20;

/// Sends all of them, each on a connection of its own.
pub(super) async fn ask(probe: &Probe) {
    tokio::join!(
        with_flags(probe, Topic::UnknownRequiredFlag, UNKNOWN_REQUIRED),
        with_flags(probe, Topic::UnknownOptionalFlag, UNKNOWN_OPTIONAL),
        without_database(probe),
        after_silent(probe),
        too_large(probe),
    );
}

fn ping() -> Document {
    doc! { "ping": 1, "$db": "admin" }
}

async fn with_flags(probe: &Probe, topic: Topic, flags: u32) {
    let Some(mut talk) = probe.open(&[topic]).await else { return };
    talk.connection.ask(probe.request(probe.legacy_hello())).await;
    talk.ask(topic, Request { flags, ..probe.request(ping()) }).await;
}

async fn without_database(probe: &Probe) {
    let Some(mut talk) = probe.open(&[Topic::WithoutDatabase]).await else { return };
    talk.connection.ask(probe.request(probe.legacy_hello())).await;
    talk.command(Topic::WithoutDatabase, doc! { "ping": 1 }).await;
}

async fn after_silent(probe: &Probe) {
    let Some(mut talk) = probe.open(&[Topic::AfterSilent]).await else { return };
    talk.connection.ask(probe.request(probe.legacy_hello())).await;
    let silent = Request { flags: MORE_TO_COME, ..probe.request(ping()) };
    talk.connection.begin(&silent).await;
    talk.command(Topic::AfterSilent, ping()).await;
}

/// Returns a limit that the server announces.
fn limit(hello: Option<&Document>, name: &str) -> Option<usize> {
    let value = number(hello?.get(name)?)?;
    usize::try_from(value).ok().filter(|value| *value > FRAME)
}

/// Sends a message that keeps the server busy, as well as this process: nothing is measured then.
pub(super) async fn ask_large(probe: &Probe) {
    let Some(mut talk) = probe.open(&[Topic::LargeDocument]).await else { return };
    let hello = talk.connection.ask(probe.request(probe.legacy_hello())).await;
    let hello = hello.answers.first().and_then(|answer| answer.document.as_ref().ok());
    let Some(size) = limit(hello, "maxBsonObjectSize").filter(|size| *size <= MOST) else {
        return probe.not_asked(&[Topic::LargeDocument], "its maxBsonObjectSize is not usual");
    };
    let padding = "x".repeat(size - FRAME);
    let mut exchange = talk
        .connection
        .ask(probe.request(doc! { "ping": 1, "comment": padding, "$db": "admin" }))
        .await;
    exchange.request.remove("comment");
    probe.note(Topic::LargeDocument, exchange);
}

/// Claims a length that no message may have, and sends no more than that.
async fn too_large(probe: &Probe) {
    let Some(mut talk) = probe.open(&[Topic::TooLarge]).await else { return };
    let hello = talk.connection.ask(probe.request(probe.legacy_hello())).await;
    let hello = hello.answers.first().and_then(|answer| answer.document.as_ref().ok());
    let size = limit(hello, "maxMessageSizeBytes").and_then(|size| i32::try_from(size + 1).ok());
    let Some(size) = size else {
        return probe.not_asked(&[Topic::TooLarge], "its maxMessageSizeBytes is not usual");
    };
    let header: Vec<u8> =
        [size, 7, 0, op_code::OP_MSG].into_iter().flat_map(i32::to_le_bytes).collect();
    let exchange = talk.connection.offend(&header, probe.timeout).await;
    probe.note(Topic::TooLarge, exchange);
}

/// Lets a connection rest.
pub(super) async fn ask_idle(probe: &Probe) -> Result<(), Failure> {
    let Some(time) = probe.scope.idle else { return Ok(()) };
    let mut talk = probe.open_logged_in().await?;
    tokio::time::sleep(time).await;
    talk.command(Topic::Idle, ping()).await;
    Ok(())
}
