//! Hello in each of its forms, as the first message of a connection and as a later one.

use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Binary, Document, doc};
use sdam_core::config::{AuthMechanism, Credential};
use sdam_core::wire::{Compression, Compressor};

use super::{Probe, with};
use crate::lint::evidence::{Form, Topic};
use crate::lint::request::Request;

/// Says hello as drivers do; the rest follows from what the server says then.
pub(super) async fn say_hello(probe: &Probe) {
    let topics = [Topic::Query, Topic::QueryLowerCase];
    if let Some(mut talk) = probe.open(&topics).await {
        let by_query = |command| Request { form: Form::Query, ..probe.request(command) };
        let hello = by_query(probe.legacy_hello());
        if talk.ask(Topic::Query, hello).await.is_some() {
            let again = by_query(doc! { "ismaster": 1, "$db": "admin" });
            talk.ask(Topic::QueryLowerCase, again).await;
        }
    }
    let topics = [
        Topic::Legacy,
        Topic::Hello,
        Topic::LowerCase,
        Topic::OtherMetadata,
        Topic::AfterOtherMetadata,
    ];
    let Some(mut talk) = probe.open(&topics).await else { return };
    talk.command(Topic::Legacy, probe.legacy_hello()).await;
    talk.command(Topic::Hello, doc! { "hello": 1, "$db": "admin" }).await;
    talk.command(Topic::LowerCase, doc! { "ismaster": 1, "$db": "admin" }).await;
    let mut metadata = probe.metadata();
    metadata.insert("platform", "another one");
    let other = doc! { "isMaster": 1, "client": metadata, "$db": "admin" };
    talk.command(Topic::OtherMetadata, other).await;
    talk.command(Topic::AfterOtherMetadata, doc! { "isMaster": 1, "$db": "admin" }).await;
}

/// Says hello with all that may go with it.
pub(super) async fn ask(probe: &Probe) {
    tokio::join!(unknown_fields(probe), compression(probe), login(probe));
}

async fn unknown_fields(probe: &Probe) {
    let Some(mut talk) = probe.open(&[Topic::UnknownClient]).await else { return };
    let mut metadata = probe.metadata();
    metadata.insert("sdamLintIsNew", doc! { "reason": "the next version says more", "number": 1 });
    if let Ok(driver) = metadata.get_document_mut("driver") {
        driver.insert("sdamLintIsNew", true);
    }
    let hello = with(probe.legacy_hello(), doc! { "client": metadata });
    talk.command(Topic::UnknownClient, hello).await;
}

async fn compression(probe: &Probe) {
    let topics = [Topic::Compression, Topic::CompressedPing];
    let Some(mut talk) = probe.open(&topics).await else { return };
    talk.connection.offers_compression = true;
    let known = [Compressor::Snappy, Compressor::Zlib];
    let offered = ["snappy", "zlib", "sdamLintIsNew"];
    let hello = with(probe.legacy_hello(), doc! { "compression": offered.to_vec() });
    let Some(reply) = talk.command(Topic::Compression, hello).await else { return };
    let agreed = reply.get_array("compression").map_or(&[][..], Vec::as_slice);
    let is_agreed = |it: &Compressor| agreed.iter().any(|name| name.as_str() == Some(it.name()));
    let Some(compressor) = known.into_iter().find(is_agreed) else { return };
    talk.connection.compression = Compression::new(compressor, -1).ok();
    let ping = probe.request(doc! { "ping": 1, "$db": "admin" });
    let ping = Request { form: Form::Compressed, ..ping };
    talk.ask(Topic::CompressedPing, ping).await;
}

/// Asks what the user of the connection string may log in with.
async fn login(probe: &Probe) {
    let topics = [Topic::Mechanisms, Topic::Speculation];
    let Some((credential, username)) = user(probe.dialer.options.credential()) else {
        return probe.not_asked(&topics, "it needs a user with SCRAM in the connection string");
    };
    let name = format!("{}.{username}", credential.source);
    if let Some(mut talk) = probe.open(&[Topic::Mechanisms]).await {
        let hello = with(probe.legacy_hello(), doc! { "saslSupportedMechs": name });
        talk.command(Topic::Mechanisms, hello).await;
    }
    if let Some(mut talk) = probe.open(&[Topic::Speculation]).await {
        let mechanism = credential.mechanism.unwrap_or(AuthMechanism::ScramSha256);
        let step = first_step(mechanism, username, &credential.source, &probe.tag);
        let hello = with(probe.legacy_hello(), doc! { "speculativeAuthenticate": step });
        talk.command(Topic::Speculation, hello).await;
    }
}

/// Returns the credential and its user, if that may log in with SCRAM.
fn user(credential: Option<&Credential>) -> Option<(&Credential, &str)> {
    let credential = credential?;
    let is_scram = matches!(
        credential.mechanism,
        None | Some(AuthMechanism::ScramSha1 | AuthMechanism::ScramSha256)
    );
    let username = credential.username.as_deref()?;
    is_scram.then_some((credential, username))
}

/// Returns the first step of SCRAM, in which there is no secret.
fn first_step(mechanism: AuthMechanism, username: &str, source: &str, tag: &[u8]) -> Document {
    let username = username.replace('=', "=3D").replace(',', "=2C");
    let nonce: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = format!("n,,n={username},r={nonce}").into_bytes();
    let payload = Binary { subtype: BinarySubtype::Generic, bytes };
    doc! {
        "saslStart": 1, "mechanism": mechanism.name(), "payload": payload, "db": source,
        "options": { "skipEmptyExchange": true },
    }
}
