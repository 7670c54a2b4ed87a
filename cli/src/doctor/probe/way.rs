//! One connection to a server, up to its reply to hello.

use std::time::{Duration, SystemTime};

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use tokio::time::{Instant, timeout};

use super::Means;
use super::talk::{Reached, Talk};
use crate::doctor::evidence::{Greeting, Role, Way, is_conclusive};

/// The number of members that are taken from a reply.
const MAX_MEMBERS: usize = 100;

/// The time that hello may take for the clock of the server to be known.
const CERTAIN: Duration = Duration::from_secs(3);

/// Goes the way that the options ask for, or with `reverse` with TLS instead of without or the
/// other way around; returns the open stream if the server has replied.
pub(super) async fn go(
    means: &Means,
    address: &ServerAddress,
    reverse: bool,
) -> (Way, Option<Talk>) {
    let tls = means.options().tls().is_some() != reverse;
    let mut way = Way::new(tls);
    let filters = match means.filters(reverse) {
        Ok(filters) => filters,
        Err(failure) => {
            way.failure = Some(failure);
            return (way, None);
        }
    };
    let (reached, begun, limit) = (Reached::new(), Instant::now(), means.step());
    let mut talk = None;
    let whole = async {
        let open = Talk::open(&means.shared.connector, address, &filters, &reached).await?;
        way.opened = Some(begun.elapsed());
        let talk = talk.insert(open);
        let asked = (Instant::now(), SystemTime::now());
        let reply = talk.command(&hello(means)).await?;
        let took = asked.0.elapsed();
        way.hello = Some(took);
        // It is unknown when a reply that took long was written.
        let now = (took < CERTAIN).then(|| asked.1 + took / 2);
        way.greeting = Some(greeting(&reply, now)?);
        Ok(())
    };
    let outcome = timeout(limit, whole).await;
    let silent = || {
        let stage = reached.stage();
        let what = match stage {
            Stage::Resolve => "the name was not resolved",
            Stage::Connect => "no connection",
            Stage::Proxy => "no connection through the proxy",
            Stage::Tls => "no answer to the opening of TLS",
            _ => "no reply to hello",
        };
        let millis = reached.lasts().as_millis();
        Err(Failure::new(stage, Cause::Timeout, format!("{what} within {millis} ms")))
    };
    way.is_cut = outcome.is_err() && !is_conclusive(reached.stage(), reached.lasts());
    way.resolved = reached.resolved();
    way.failure = outcome.unwrap_or_else(|_| silent()).err();
    way.took = begun.elapsed();
    way.accepted = way.opened.is_some() || matches!(reached.stage(), Stage::Tls | Stage::Hello);
    // What has failed is of no more use.
    let talk = talk.filter(|_| way.failure.is_none());
    (way, talk)
}

/// The time that a server has to answer a line of text.
const TEXT: Duration = Duration::from_secs(3);

/// Returns the protocol of a server that has answered neither hello nor the opening of TLS, if it
/// is one of those made of text, whose servers wait for the end of a line.
pub(super) async fn text_protocol(means: &Means, address: &ServerAddress) -> Option<String> {
    let (plain, reached) = (means.shared.connector.filters(), Reached::new());
    let asked = async {
        let talk = Talk::open(&means.shared.connector, address, &plain, &reached).await.ok()?;
        talk.text_protocol().await
    };
    timeout(TEXT.min(means.left()), asked).await.ok()?.map(str::to_owned)
}

/// The question that every server answers, to any client, as often as one likes.
pub(super) fn plain_hello(means: &Means) -> RawDocumentBuf {
    let options = means.options();
    match options.load_balanced() || options.server_api().is_some() {
        true => rawdoc! { "hello": 1 },
        false => rawdoc! { "isMaster": 1, "helloOk": true },
    }
}

/// The first question on a connection, which says who asks.
fn hello(means: &Means) -> RawDocumentBuf {
    let (options, mut hello) = (means.options(), plain_hello(means));
    hello.append(
        cstr!("client"),
        rawdoc! {
            "application": { "name": "sdam doctor" },
            "driver": { "name": "sdam", "version": env!("CARGO_PKG_VERSION") },
            "os": { "type": std::env::consts::OS },
        },
    );
    if options.load_balanced() {
        hello.append(cstr!("loadBalanced"), true);
    }
    if let Some(api) = options.server_api() {
        hello.append(cstr!("apiVersion"), api.version.as_str());
    }
    hello.append(cstr!("$db"), "admin");
    hello
}

/// Reads a reply; what is of an unexpected type counts as absent.
pub(super) fn greeting(reply: &RawDocument, now: Option<SystemTime>) -> Result<Greeting, Failure> {
    let is = |field| reply.get_bool(field).unwrap_or(false);
    let text = |field| reply.get_str(field).ok().map(str::to_owned);
    let address = |field| text(field).and_then(|text| text.parse().ok());
    let ok = reply.get("ok").ok().flatten();
    if ok.and_then(sdam_core::wire::ok) != Some(true) {
        let code = reply.get_i32("code").unwrap_or_default();
        let cause = Cause::Command { code, name: text("codeName").unwrap_or_default().into() };
        let detail = text("errmsg").unwrap_or_else(|| "the reply is no reply to hello".to_owned());
        return Err(Failure::new(Stage::Hello, cause, detail));
    }
    let role = if text("msg").as_deref() == Some("isdbgrid") {
        Role::Mongos
    } else if is("isreplicaset") {
        Role::Ghost
    } else if reply.get_str("setName").is_err() {
        Role::Standalone
    } else if is("hidden") {
        Role::Other
    } else if is("isWritablePrimary") || is("ismaster") {
        Role::Primary
    } else if is("secondary") {
        Role::Secondary
    } else if is("arbiterOnly") {
        Role::Arbiter
    } else {
        Role::Other
    };
    let server_time = reply.get_datetime("localTime").ok();
    let ahead = server_time.zip(now).map(|(theirs, ours)| {
        let millis = ours.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        theirs.timestamp_millis().saturating_sub(i64::try_from(millis).unwrap_or(i64::MAX))
    });
    Ok(Greeting {
        role,
        set_name: text("setName"),
        set_version: reply.get_i32("setVersion").ok().map(i64::from),
        election: reply.get_object_id("electionId").ok().map(ObjectId::to_hex),
        me: address("me"),
        primary: address("primary"),
        members: members(reply),
        ahead_millis: ahead,
        max_wire_version: reply.get_i32("maxWireVersion").ok(),
    })
}

fn members(reply: &RawDocument) -> Vec<ServerAddress> {
    let listed = ["hosts", "passives", "arbiters"].into_iter().flat_map(|field| {
        let array = reply.get_array(field).ok();
        array.into_iter().flatten().filter_map(|item| item.ok()?.as_str()?.parse().ok())
    });
    listed.take(MAX_MEMBERS).collect()
}
