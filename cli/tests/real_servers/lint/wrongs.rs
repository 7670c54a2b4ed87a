//! Gateways that are wrong: for each rule, one that breaks it and no other.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Timestamp, doc};

use super::gateway::{Asked, DOCUMENT_SIZE, EXHAUST, MORE, Reaction, Said, Wrong};

/// A member in front of which the gateway stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Secondary,
}

/// A rule, and a gateway that breaks it.
pub(crate) struct Case {
    pub(crate) rule: &'static str,
    pub(crate) wrong: Wrong,
    pub(crate) role: Role,
    /// Options of the connection string.
    pub(crate) options: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// True if the connection string has a user.
    pub(crate) logs_in: bool,
}

/// Breaks a rule by what is done with replies.
const fn after(rule: &'static str, after: fn(&Asked, &mut Said)) -> Case {
    Case {
        rule,
        wrong: Wrong { after, ..Wrong::NONE },
        role: Role::Primary,
        options: "",
        arguments: &[],
        logs_in: false,
    }
}

/// Breaks a rule by what is done with requests.
const fn before(rule: &'static str, before: fn(&mut Asked) -> Reaction) -> Case {
    Case { wrong: Wrong { before, ..Wrong::NONE }, ..after(rule, |_, _| {}) }
}

impl Case {
    const fn on_a_secondary(mut self) -> Self {
        self.role = Role::Secondary;
        self
    }

    /// Waits less for what never comes, and still longer than a busy machine takes for what does.
    const fn impatient(mut self) -> Self {
        self.options = "&connectTimeoutMS=8000";
        self
    }

    const fn with(mut self, arguments: &'static [&'static str]) -> Self {
        self.arguments = arguments;
        self
    }

    const fn logging_in(mut self) -> Self {
        self.logs_in = true;
        self
    }
}

const WRITE: &[&str] = &["--write"];

const STEP_DOWN: &[&str] = &["--step-down"];

/// The command that no server has.
const UNKNOWN: &str = "sdamLintNoCommand";

/// An error as servers have it.
fn error(code: i32, name: &str) -> Reaction {
    let error = doc! { "ok": 0.0, "errmsg": "it is wrong", "code": code, "codeName": name };
    Reaction::Answer(error)
}

fn success() -> Reaction {
    Reaction::Answer(doc! { "ok": 1.0 })
}

/// Answers a request by itself if it is this one.
fn when(is_it: bool, reaction: impl FnOnce() -> Reaction) -> Reaction {
    if is_it { reaction() } else { Reaction::Forward }
}

/// Changes a field of the reply.
fn set(said: &mut Said, name: &str, value: impl Into<Bson>) {
    said.document.insert(name, value);
}

/// Changes a field of a document in the reply, if it is there.
fn set_in(said: &mut Said, outer: &str, name: &str, value: impl Into<Bson>) {
    if let Ok(document) = said.document.get_document_mut(outer) {
        document.insert(name, value);
    }
}

/// Returns whether this is the find in a collection that does not exist, with nothing special.
fn finds_nothing(asked: &Asked) -> bool {
    let is_plain = |it: &Document| !it.contains_key("lsid") && it.get_document("filter").is_ok();
    let name = asked.command.get_str("find").unwrap_or_default();
    name.ends_with("_nothing") && is_plain(&asked.command)
}

fn is_bare(asked: &Asked) -> bool {
    !asked.command.contains_key("$readPreference")
}

/// Takes these fields out of the command.
fn without(asked: &mut Asked, names: &[&str]) -> Reaction {
    for name in names {
        asked.command.remove(name);
    }
    Reaction::ForwardChanged
}

/// Returns every case but those of a step-down.
pub(crate) fn cases() -> Vec<Case> {
    let groups =
        [messages(), hellos(), hello_fields(), members(), versions(), streams(), commands()];
    groups.into_iter().flatten().chain(sessions()).chain(writes()).collect()
}

fn messages() -> Vec<Case> {
    vec![
        // It comes late, and is no reply to what was asked by then.
        after("no-reply", |asked, said| {
            if asked.is(UNKNOWN) {
                said.delay = Duration::from_secs(10);
            }
        })
        .impatient(),
        after("response-to", |asked, said| said.response_to += i32::from(asked.is(UNKNOWN))),
        after("malformed-reply", |asked, said| said.is_corrupt = asked.is(UNKNOWN)),
        after("reply-form", |asked, said| said.by_query &= !asked.by_query),
        after("unasked-more-to-come", |asked, said| {
            said.flags |= if asked.is(UNKNOWN) { MORE } else { 0 };
        }),
        after("unknown-flags", |asked, said| said.flags |= u32::from(asked.is(UNKNOWN)) << 5),
        after("unasked-checksum", |asked, said| said.has_checksum = asked.is(UNKNOWN)),
        after("ok-field", |asked, said| {
            if asked.is(UNKNOWN) {
                set(said, "ok", false);
            }
        }),
        after("unasked-compression", |asked, said| said.compresses = asked.is(UNKNOWN)),
        after("compressors-offered", |_, said| {
            if said.document.contains_key("compression") {
                set(said, "compression", vec!["zstd"]);
            }
        }),
        before("compressed-request", |asked| {
            when(asked.is_compressed, || error(1, "InternalError"))
        }),
        before("optional-flags", |asked| when(asked.flags >> 23 == 1, || Reaction::Close)),
        before("required-flags", |asked| when(asked.flags == 1 << 7, success)),
        before("silent-request", |asked| when(asked.flags == MORE, success)),
        before("database-required", |asked| {
            when(!asked.by_query && !asked.command.contains_key("$db"), success)
        }),
        before("large-document", |asked| {
            when(asked.length > 1 << 19 && asked.is("ping"), || Reaction::Close)
        }),
        Case {
            wrong: Wrong { bears_nonsense: true, ..Wrong::NONE },
            ..before("too-large-message", |_| Reaction::Forward).impatient()
        },
        before("idle-connection", |asked| {
            let is_idle = asked.rest > Duration::from_millis(5900) && asked.is("ping");
            when(is_idle, || Reaction::Close)
        })
        .with(&["--idle", "6s"]),
    ]
}

fn hellos() -> Vec<Case> {
    vec![
        before("hello-by-query", |asked| when(asked.by_query, || Reaction::Close)),
        before("hello-by-msg", |asked| {
            when(asked.is_first_by_message, || error(59, "CommandNotFound"))
        }),
        before("lower-case", |asked| {
            when(asked.is("ismaster") && !asked.by_query, || error(59, "CommandNotFound"))
        }),
        after("hello-ok", |_, said| _ = said.document.remove("helloOk")),
        before("hello-command", |asked| when(asked.is("hello"), || error(59, "CommandNotFound"))),
        after("hello-forms-agree", |asked, said| {
            if asked.is("hello") {
                set(said, "maxBsonObjectSize", DOCUMENT_SIZE + 1);
            }
        }),
        after("primary-field", |asked, said| {
            if asked.is("hello")
                && let Some(value) = said.document.remove("isWritablePrimary")
            {
                set(said, "ismaster", value);
            }
        }),
        after("wire-version", |asked, said| {
            if asked.is("hello") {
                set(said, "minWireVersion", 0_i64);
            }
        }),
        after("wire-version-supported", |asked, said| {
            if asked.is_hello() {
                set(said, "maxWireVersion", 6);
            }
        }),
        after("sizes", |asked, said| {
            if asked.is("hello") {
                set(said, "maxWriteBatchSize", 100_000.0);
            }
        }),
        after("session-timeout", |asked, said| {
            if asked.is("hello") {
                set(said, "logicalSessionTimeoutMinutes", "30");
            }
        }),
    ]
}

/// Cases of what else is in hello.
fn hello_fields() -> Vec<Case> {
    vec![
        after("connection-id", |asked, said| {
            if asked.is("hello") {
                set(said, "connectionId", "7");
            }
        }),
        after("one-role", |asked, said| {
            if asked.is("hello") {
                set(said, "secondary", true);
            }
        }),
        before("unknown-client-fields", |asked| {
            let client = asked.command.get_document("client");
            let is_new = client.is_ok_and(|client| client.contains_key("sdamLintIsNew"));
            when(is_new, || error(2, "BadValue"))
        }),
        before("other-metadata", |asked| {
            let client = asked.command.get_document("client");
            let platform = client.and_then(|client| Ok(client.get_str("platform")?.to_owned()));
            when(platform.is_ok_and(|it| it == "another one"), || Reaction::Close)
        }),
        after("tags", |asked, said| {
            if asked.is("hello") {
                set(said, "tags", doc! { "rack": 1 });
            }
        }),
        after("booleans", |asked, said| {
            if asked.is("hello") {
                set(said, "readOnly", 0);
            }
        }),
        after("sasl-mechanisms", |_, said| _ = said.document.remove("saslSupportedMechs"))
            .logging_in(),
        after("speculative-login", |_, said| {
            said.document.remove("speculativeAuthenticate");
        })
        .logging_in(),
    ]
}

fn members() -> Vec<Case> {
    vec![
        after("hosts", |asked, said| {
            if asked.is_hello() {
                set(said, "passives", "none");
            }
        }),
        after("set-version", |asked, said| {
            if asked.is_hello() {
                set(said, "setVersion", 1.0);
            }
        }),
        after("me", |asked, said| {
            if asked.is_hello() {
                set(said, "me", "elsewhere.example:27017");
            }
        })
        .on_a_secondary(),
        after("primary-address", |asked, said| {
            if asked.is_hello() {
                set(said, "primary", "elsewhere.example:27017");
            }
        })
        .on_a_secondary(),
        after("election-id", |_, said| _ = said.document.remove("electionId")),
        after("last-write", |asked, said| {
            if asked.is("hello") {
                set_in(said, "lastWrite", "lastWriteDate", Timestamp { time: 1, increment: 1 });
            }
        }),
        after("last-write-op-time", |asked, said| {
            if asked.is("hello") {
                set_in(said, "lastWrite", "opTime", "now");
            }
        }),
    ]
}

fn versions() -> Vec<Case> {
    vec![
        after("topology-version", |asked, said| {
            if asked.is("hello")
                && let Ok(version) = said.document.get_document_mut("topologyVersion")
                && let Ok(counter) = version.get_i64("counter")
            {
                version.insert("counter", i32::try_from(counter).unwrap_or(i32::MAX));
            }
        }),
        after("process-id", |asked, said| {
            if asked.is("hello") {
                set_in(said, "topologyVersion", "processId", ObjectId::from_bytes([7; 12]));
            }
        }),
        after("counter", |asked, said| {
            if asked.is("hello") {
                set_in(said, "topologyVersion", "counter", 0_i64);
            }
        }),
        after("state-error-version", |_, said| {
            if said.document.get_i32("code").is_ok_and(|code| code == 13435) {
                said.document.remove("topologyVersion");
            }
        })
        .on_a_secondary(),
    ]
}

/// Returns whether a hello names another process than the server's.
fn is_of_another(asked: &Asked) -> bool {
    let id_of = |version: &Document| version.get("processId").cloned();
    let own = asked.known.as_ref().and_then(id_of);
    asked.command.get_document("topologyVersion").is_ok_and(|version| id_of(version) != own)
}

fn streams() -> Vec<Case> {
    vec![
        before("await-waits", |asked| match asked.waits() {
            true => {
                asked.command.insert("maxAwaitTimeMS", 1_i64);
                Reaction::ForwardChanged
            }
            false => Reaction::Forward,
        }),
        before("await-ends", |asked| {
            when(asked.waits() && asked.is_up_to_date(), || Reaction::Swallow)
        })
        .impatient(),
        after("await-other-process", |asked, said| {
            if asked.waits() && is_of_another(asked) {
                said.delay = Duration::from_secs(4);
            }
        }),
        after("await-older-counter", |asked, said| {
            if asked.waits() && !asked.is_up_to_date() && !is_of_another(asked) {
                said.delay = Duration::from_secs(4);
            }
        }),
        before("await-arguments", |asked| {
            let waits = asked.command.contains_key("maxAwaitTimeMS");
            match waits && !asked.command.contains_key("topologyVersion") {
                true => without(asked, &["maxAwaitTimeMS"]),
                false => Reaction::Forward,
            }
        }),
        Case {
            wrong: Wrong { is_serial: true, ..Wrong::NONE },
            ..before("await-blocks", |_| Reaction::Forward)
        },
        before("stream", |asked| match asked.streams() {
            true => {
                asked.flags &= !EXHAUST;
                Reaction::ForwardChanged
            }
            false => Reaction::Forward,
        }),
        after("stream-continues", |asked, said| {
            said.is_dropped = asked.streams() && said.number > 0;
        })
        .impatient(),
        before("stream-waits", |asked| match asked.streams() {
            true => {
                asked.command.insert("maxAwaitTimeMS", 20_i64);
                Reaction::ForwardChanged
            }
            false => Reaction::Forward,
        }),
        after("stream-chain", |asked, said| {
            if asked.streams() && said.number > 0 {
                said.response_to = 1;
            }
        }),
    ]
}

fn commands() -> Vec<Case> {
    vec![
        before("ping", |asked| {
            let is_plain = asked.command.len() == 2 && asked.command.contains_key("$db");
            let is_usual = is_plain && asked.flags == 0 && !asked.is_compressed;
            when(asked.is("ping") && is_usual, || error(1, "InternalError"))
        }),
        after("error-code", |asked, said| {
            if asked.is(UNKNOWN) {
                set(said, "code", 59_i64);
            }
        }),
        after("error-message", |asked, said| {
            if asked.is(UNKNOWN) {
                said.document.remove("errmsg");
            }
        }),
        after("error-code-name", |asked, said| {
            if asked.is(UNKNOWN) {
                said.document.remove("codeName");
            }
        }),
        after("unknown-command", |asked, said| {
            if asked.is(UNKNOWN) {
                set(said, "code", 115);
            }
        }),
        before("wrong-type", |asked| match asked.command.get_str("filter").is_ok() {
            true => {
                asked.command.insert("filter", doc! {});
                Reaction::ForwardChanged
            }
            false => Reaction::Forward,
        }),
        after("missing-collection", |asked, said| {
            if finds_nothing(asked) {
                set_in(said, "cursor", "firstBatch", vec![doc! { "_id": 1 }]);
            }
        }),
        after("cursor-shape", |asked, said| {
            if finds_nothing(asked) {
                set_in(said, "cursor", "id", 0);
            }
        }),
        after("unknown-cursor", |asked, said| {
            if asked.is("getMore") {
                set(said, "code", 115);
            }
        }),
        after("kill-cursors", |asked, said| {
            if asked.is("killCursors") {
                set(said, "cursorsNotFound", Vec::<i64>::new());
            }
        }),
        before("secondary-read", |asked| match asked.is("find") && is_bare(asked) {
            true => {
                asked.command.insert("$readPreference", doc! { "mode": "secondary" });
                Reaction::ForwardChanged
            }
            false => Reaction::Forward,
        })
        .on_a_secondary(),
        before("secondary-ok", |asked| {
            when(finds_nothing(asked) && !is_bare(asked), || error(2, "BadValue"))
        })
        .on_a_secondary(),
    ]
}

fn sessions() -> Vec<Case> {
    vec![
        before("session-id", |asked| {
            let has_session = asked.command.contains_key("lsid");
            let has_transaction = asked.command.contains_key("txnNumber");
            when(asked.is("find") && has_session && !has_transaction, || error(2, "BadValue"))
        }),
        after("start-session", |asked, said| {
            if asked.is("startSession") {
                let id = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; 16] };
                set(said, "id", doc! { "id": id });
            }
        }),
        before("end-sessions", |asked| {
            when(asked.is("endSessions"), || error(59, "CommandNotFound"))
        }),
        after("cluster-time", |asked, said| {
            if finds_nothing(asked)
                && let Ok(time) = said.document.get_document_mut("$clusterTime")
                && let Ok(signature) = time.get_document_mut("signature")
            {
                signature.insert("keyId", 0);
            }
        }),
        after("cluster-time-grows", |asked, said| {
            if finds_nothing(asked) {
                let early = Timestamp { time: 1, increment: 1 };
                set_in(said, "$clusterTime", "clusterTime", early);
            }
        }),
        after("operation-time", |asked, said| {
            if finds_nothing(asked) {
                said.document.remove("operationTime");
            }
        }),
        before("gossip", |asked| {
            let gossips = asked.command.contains_key("$clusterTime");
            when(asked.is("ping") && gossips, || error(2, "BadValue"))
        }),
        after("transient-label", |asked, said| {
            if asked.is("find") {
                said.document.remove("errorLabels");
            }
        }),
    ]
}

fn writes() -> Vec<Case> {
    vec![
        after("document-sequence", |asked, said| {
            if asked.is("insert") && asked.has_sequence {
                set(said, "n", 4);
            }
        }),
        before("batch-size", |asked| match asked.is("find") {
            true if asked.command.contains_key("batchSize") => {
                asked.command.insert("batchSize", 1);
                Reaction::ForwardChanged
            }
            _ => Reaction::Forward,
        }),
        after("kill-cursor", |asked, said| {
            if asked.is("killCursors") {
                set(said, "cursorsKilled", Vec::<i64>::new());
            }
        }),
        after("write-errors", |_, said| {
            if let Ok(errors) = said.document.get_array_mut("writeErrors")
                && let Some(Bson::Document(error)) = errors.first_mut()
            {
                error.insert("code", "11000");
            }
        }),
        before("write-batch", |asked| when(asked.is("delete"), success)),
        before("retried-write", |asked| match asked.is("update") {
            true => without(asked, &["lsid", "txnNumber"]),
            false => Reaction::Forward,
        }),
        before("aborted-transaction", |asked| {
            match (asked.is("abortTransaction"), asked.command.contains_key("startTransaction")) {
                (true, _) => success(),
                (_, true) => {
                    without(asked, &["lsid", "txnNumber", "autocommit", "startTransaction"])
                }
                _ => Reaction::Forward,
            }
        }),
        before("secondary-write", |asked| {
            when(asked.is("delete"), || error(20, "IllegalOperation"))
        })
        .on_a_secondary(),
        after("retryable-label", |asked, said| {
            if asked.is("delete") {
                said.document.remove("errorLabels");
            }
        })
        .on_a_secondary(),
    ]
    .into_iter()
    .map(|case| case.with(WRITE))
    .collect()
}

/// Returns the cases in which the primary steps down, each of which needs the set for itself.
pub(crate) fn step_downs() -> Vec<Case> {
    vec![
        after("step-down-answered", |asked, said| said.closes = asked.is("replSetStepDown"))
            .with(STEP_DOWN),
        before("connections-survive", |asked| {
            when(asked.is("ping") && asked.has_stepped_down, || Reaction::Close)
        })
        .with(STEP_DOWN),
        after("step-down-streamed", |asked, said| {
            let is_news = asked.streams() && said.has_stepped_down;
            if let Some(Bson::Document(version)) = asked.command.get("topologyVersion")
                && is_news
            {
                set(said, "topologyVersion", version.clone());
            }
        })
        .with(STEP_DOWN),
        after("next-election", |asked, said| {
            if asked.is_hello() && said.document.contains_key("electionId") {
                set(said, "electionId", ObjectId::from_bytes([0xff; 12]));
            }
        })
        .with(STEP_DOWN),
    ]
}
