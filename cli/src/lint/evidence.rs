//! The replies of one server to all that it was asked, as plain values that rules judge.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::bson::{Bson, Document};
use sdam_core::wire::op_code;

use crate::text::shortened;

/// Makes the topics of their table: each with the words for it.
macro_rules! topics {
    ($($topic:ident = $words:literal,)*) => {
        /// A question to a server, one of each kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum Topic {
            $($topic,)*
        }

        impl Topic {
            /// Returns the words for it.
            pub(super) const fn words(self) -> &'static str {
                match self {
                    $(Self::$topic => $words,)*
                }
            }
        }
    };
}

topics! {
    // Hello.
    Query = "legacy hello by OP_QUERY",
    QueryLowerCase = "a later ismaster by OP_QUERY",
    Legacy = "legacy hello by OP_MSG",
    Hello = "hello",
    LowerCase = "ismaster by OP_MSG",
    OtherMetadata = "a second hello with other metadata",
    AfterOtherMetadata = "hello after one with other metadata",
    UnknownClient = "legacy hello with fields in `client` that are new",
    Compression = "legacy hello that offers compressors",
    CompressedPing = "a compressed ping",
    Mechanisms = "legacy hello with saslSupportedMechs",
    Speculation = "legacy hello with speculativeAuthenticate",
    // Awaitable and streaming hello.
    BeforeAwait = "legacy hello before one that waits",
    AwaitUnchanged = "an awaitable hello",
    Beside = "hello on another connection, while one waits",
    AwaitOther = "an awaitable hello with another processId",
    AwaitOlder = "an awaitable hello with an older counter",
    AwaitWithoutTime = "hello with topologyVersion and no maxAwaitTimeMS",
    AwaitWithoutVersion = "hello with maxAwaitTimeMS and no topologyVersion",
    BeforeStream = "legacy hello before a stream",
    Stream = "a streaming hello",
    // Messages.
    UnknownRequiredFlag = "a ping with an unknown required flag",
    UnknownOptionalFlag = "a ping with an unknown optional flag",
    WithoutDatabase = "a ping without $db",
    AfterSilent = "a ping after one that wants no reply",
    LargeDocument = "a ping of maxBsonObjectSize",
    TooLarge = "a message longer than maxMessageSizeBytes",
    Idle = "a ping on a connection that was idle",
    // Commands.
    Ping = "ping",
    UnknownCommand = "a command that does not exist",
    WrongType = "a find whose filter is a string",
    FindNothing = "a find in a collection that does not exist",
    BareFind = "a find without $readPreference",
    UnknownCursor = "getMore of a cursor that does not exist",
    KillUnknown = "killCursors of a cursor that does not exist",
    // Sessions.
    StartSession = "startSession",
    WithSession = "a find with lsid",
    EndSessions = "endSessions",
    Gossip = "a ping with $clusterTime",
    UnknownTransaction = "a find in a transaction that was not started",
    // Writes.
    Insert = "an insert with a document sequence before the body",
    FirstBatch = "a find with batchSize 2",
    NextBatch = "its getMore with batchSize 2",
    KillCursor = "killCursors of an open cursor",
    KilledCursor = "getMore of a cursor that was killed",
    Duplicate = "an insert of an _id that exists",
    Retryable = "an update with a txnNumber",
    Retried = "the same update with the same txnNumber",
    RetriedFound = "a find of what was updated",
    Transaction = "an insert in a transaction",
    Abort = "abortTransaction",
    AbortedFound = "a find after a transaction was aborted",
    LargeBatch = "a batch of maxWriteBatchSize and one more",
    Drop = "drop",
    SecondaryWrite = "a write on a secondary",
    // A step-down.
    BeforeStepDown = "hello before the step-down",
    StepDown = "replSetStepDown",
    StepDownStream = "a streaming hello during the step-down",
    AfterStepDown = "a ping on another connection after the step-down",
    NewPrimary = "hello of the new primary",
}

impl Topic {
    /// The replies to hello, in each form.
    pub(super) const HELLOS: [Self; 10] = [
        Self::Query,
        Self::QueryLowerCase,
        Self::Legacy,
        Self::Hello,
        Self::LowerCase,
        Self::UnknownClient,
        Self::Compression,
        Self::BeforeAwait,
        Self::Beside,
        Self::BeforeStream,
    ];

    /// Returns whether a rule of its own says what the server may do instead of replying.
    const fn may_be_unanswered(self) -> bool {
        matches!(
            self,
            Self::Query
                | Self::OtherMetadata
                | Self::AfterOtherMetadata
                | Self::AwaitUnchanged
                | Self::Stream
                | Self::UnknownRequiredFlag
                | Self::UnknownOptionalFlag
                | Self::AfterSilent
                | Self::WithoutDatabase
                | Self::LargeDocument
                | Self::TooLarge
                | Self::Idle
                | Self::LargeBatch
                | Self::StepDown
                | Self::StepDownStream
                | Self::AfterStepDown
        )
    }
}

/// The time within which two answers may have come in either order, as they are read one after the
/// other.
const TOGETHER: Duration = Duration::from_millis(200);

/// The reason why a command says nothing of the server that is refused for want of rights.
const NO_RIGHT: &str = "it needs a login, or more rights";

/// The form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Query,
    Message,
    Compressed,
}

/// A question and its answers.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) request: Document,
    pub(super) request_id: i32,
    pub(super) form: Form,
    pub(super) exhaust_allowed: bool,
    /// True if compressors were offered on the connection.
    pub(super) offers_compression: bool,
    /// The time when it was asked, since the beginning.
    pub(super) sent: Duration,
    pub(super) answers: Vec<Answer>,
    /// The reason why there are no more answers, if more were waited for.
    pub(super) end: Option<End>,
}

impl Exchange {
    /// Returns the time that the request may wait.
    pub(super) fn max_await(&self) -> Duration {
        let millis = self.request.get("maxAwaitTimeMS").and_then(number).unwrap_or_default();
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }
}

/// The reason why an answer has not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// None came within this time.
    Silent(Duration),
    /// The connection was closed, or has failed.
    Closed(String),
    /// No message, but other bytes.
    Malformed(String),
}

impl End {
    /// Returns the words for it.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Silent(time) => format!("no reply within {} ms", time.as_millis()),
            Self::Closed(reason) => format!("the connection has ended: {reason}"),
            Self::Malformed(reason) => reason.clone(),
        }
    }
}

/// A message of the server.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The time when it came, since the beginning.
    pub(super) came: Duration,
    pub(super) request_id: i32,
    pub(super) response_to: i32,
    /// The opcode, of a compressed message that inside.
    pub(super) op_code: i32,
    pub(super) is_compressed: bool,
    /// The flags of an OP_MSG.
    pub(super) flags: u32,
    /// The document, or what is wrong with it.
    pub(super) document: Result<Document, String>,
}

/// The reason why a rule is not kept, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// It is broken.
    Broken { expected: String, found: String },
    /// It could not be tried, for this reason.
    NotTried(String),
}

/// The judgement of a rule.
pub(super) type Judged = Result<(), Objection>;

/// The most characters of a value of the server that are quoted.
const MOST_QUOTED: usize = 500;

/// Returns that a rule is broken.
pub(super) fn broken<T>(
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Result<T, Objection> {
    let quoted = |text: String| shortened(&text, MOST_QUOTED).into_owned();
    Err(Objection::Broken { expected: quoted(expected.into()), found: quoted(found.into()) })
}

/// Returns that a rule was not tried.
pub(super) fn not_tried<T>(reason: impl Into<String>) -> Result<T, Objection> {
    Err(Objection::NotTried(shortened(&reason.into(), MOST_QUOTED).into_owned()))
}

/// The part that a server has in its deployment, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Standalone,
    Mongos,
    Primary,
    Secondary,
    Arbiter,
    /// A member that is none of these.
    Other,
}

impl Kind {
    /// Returns the name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Mongos => "mongos",
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Arbiter => "arbiter",
            Self::Other => "other",
        }
    }
}

/// All that is known of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) exchanges: BTreeMap<Topic, Exchange>,
    /// The reasons why something was not asked.
    pub(super) not_asked: BTreeMap<Topic, String>,
    /// The reason why an application's connection could not be had.
    pub(super) failure: Option<String>,
    /// The time within which a reply has to come: connectTimeoutMS.
    pub(super) timeout: Duration,
}

impl Evidence {
    /// Returns whether an answer seems to have come only because a hello on another connection
    /// waited no longer.
    pub(super) fn is_blocked(&self) -> bool {
        self.both_answered().is_some_and(|(waiting, ended, beside, came)| {
            let took = came.saturating_sub(beside.sent);
            came + TOGETHER >= ended && beside.sent < ended && took > waiting.max_await() / 2
        })
    }

    /// Returns whether an answer has come for certain while a hello on another connection waited.
    pub(super) fn is_unblocked(&self) -> bool {
        self.both_answered().is_some_and(|(_, ended, _, came)| came + TOGETHER < ended)
    }

    /// Returns a hello that waits and one beside it that was asked later, each with the time of its
    /// answer.
    fn both_answered(&self) -> Option<(&Exchange, Duration, &Exchange, Duration)> {
        let answered = |topic| {
            let exchange = self.exchanges.get(&topic)?;
            Some((exchange, exchange.answers.first()?.came))
        };
        let (waiting, ended) = answered(Topic::AwaitUnchanged)?;
        let (beside, came) = answered(Topic::Beside)?;
        (beside.sent > waiting.sent).then_some((waiting, ended, beside, came))
    }

    /// Returns what was said on a topic.
    pub(super) fn exchange(&self, topic: Topic) -> Result<&Exchange, Objection> {
        match (self.exchanges.get(&topic), self.not_asked.get(&topic)) {
            (Some(exchange), _) => Ok(exchange),
            (None, Some(reason)) => not_tried(reason.clone()),
            (None, None) => not_tried(match &self.failure {
                Some(failure) => format!("a connection has failed: {failure}"),
                None => "there was no time for it".to_owned(),
            }),
        }
    }

    /// Returns the first document that has come in answer.
    pub(super) fn reply(&self, topic: Topic) -> Result<&Document, Objection> {
        let exchange = self.exchange(topic)?;
        let document = exchange.answers.first().map(|answer| &answer.document);
        match document {
            Some(Ok(document)) => Ok(document),
            Some(Err(_)) | None => not_tried(format!("{} had no valid reply", topic.words())),
        }
    }

    /// Returns the reply of a command that has succeeded.
    pub(super) fn success(&self, topic: Topic) -> Result<&Document, Objection> {
        let reply = self.reply(topic)?;
        let code = || reply.get("code").map_or_else(|| "none".to_owned(), ToString::to_string);
        match is_ok(reply) {
            true => Ok(reply),
            false if is_unauthorized(reply) => not_tried(NO_RIGHT),
            false => not_tried(format!("{} was refused, with code {}", topic.words(), code())),
        }
    }

    /// Expects that a command has succeeded. A client without the right to run it proves nothing.
    pub(super) fn must_succeed(&self, topic: Topic) -> Result<&Document, Objection> {
        let reply = self.reply(topic)?;
        match is_ok(reply) {
            true => Ok(reply),
            false if is_unauthorized(reply) => not_tried(NO_RIGHT),
            false => broken(
                format!("{} succeeds", topic.words()),
                format!("it fails: {}", refusal(reply)),
            ),
        }
    }

    /// Expects that a command has failed with one of these codes.
    pub(super) fn must_fail(&self, topic: Topic, codes: &[i32]) -> Result<&Document, Objection> {
        let reply = self.reply(topic)?;
        if is_unauthorized(reply) {
            return not_tried(NO_RIGHT);
        }
        let code = reply.get("code").and_then(number);
        if !is_ok(reply) && code.is_some_and(|code| codes.iter().any(|it| i64::from(*it) == code)) {
            return Ok(reply);
        }
        let expected: Vec<_> = codes.iter().map(ToString::to_string).collect();
        let expected = format!("{} fails with code {}", topic.words(), expected.join(" or "));
        match is_ok(reply) {
            true => broken(expected, "it succeeds"),
            false => broken(expected, format!("it fails otherwise: {}", refusal(reply))),
        }
    }

    /// Returns every reply to hello that says `ok`.
    pub(super) fn hellos(&self) -> Vec<(Topic, &Document)> {
        let of = |topic: Topic| Some((topic, self.success(topic).ok()?));
        Topic::HELLOS.into_iter().filter_map(of).collect()
    }

    /// Returns a reply to hello.
    pub(super) fn hello(&self) -> Result<&Document, Objection> {
        let hellos = self.hellos();
        let topics = [Topic::Legacy, Topic::Query, Topic::Hello];
        let first = topics.iter().find_map(|it| hellos.iter().find(|(topic, _)| topic == it));
        match first.or(hellos.first()) {
            Some((_, document)) => Ok(document),
            None => not_tried("no hello was answered"),
        }
    }

    /// Returns the highest wire version that the server supports by its own words.
    pub(super) fn wire_version(&self) -> Result<i64, Objection> {
        let version = self.hello()?.get("maxWireVersion").and_then(number);
        version.map_or_else(|| not_tried("its maxWireVersion is not known"), Ok)
    }

    /// Lets a rule pass that servers before `version` need not keep.
    pub(super) fn since(&self, version: i64, words: &str) -> Judged {
        match self.wire_version()? {
            own if own < version => not_tried(format!("it is for {words} and later")),
            _ => Ok(()),
        }
    }

    /// Returns what the server is.
    pub(super) fn kind(&self) -> Result<Kind, Objection> {
        self.hello().map(kind_of)
    }

    /// Lets a rule pass that is about other servers.
    pub(super) fn only(&self, kinds: &[Kind], words: &str) -> Judged {
        match kinds.contains(&self.kind()?) {
            true => Ok(()),
            false => not_tried(format!("it is about {words}")),
        }
    }

    /// Returns the exchanges whose answers must be as those of any command.
    pub(super) fn answered(&self) -> impl Iterator<Item = (Topic, &Exchange)> {
        self.exchanges.iter().map(|(topic, exchange)| (*topic, exchange))
    }

    /// Returns the exchanges that need an answer, and have no rule of their own about it.
    pub(super) fn needing_answers(&self) -> impl Iterator<Item = (Topic, &Exchange)> {
        self.answered().filter(|(topic, _)| !topic.may_be_unanswered())
    }

    /// Returns every answer, in the order in which they came.
    pub(super) fn answers(&self) -> Vec<(Topic, &Exchange, &Answer)> {
        let mut answers = Vec::new();
        for (topic, exchange) in self.answered() {
            answers.extend(exchange.answers.iter().map(|answer| (topic, exchange, answer)));
        }
        answers.sort_by_key(|(_, _, answer)| answer.came);
        answers
    }

    /// Returns every document that has come, in that order.
    pub(super) fn documents(&self) -> Vec<(Topic, &Document)> {
        let answers = self.answers().into_iter();
        answers.filter_map(|(topic, _, it)| Some((topic, it.document.as_ref().ok()?))).collect()
    }
}

/// Returns what a reply to hello says that the server is (SDAM, "type").
pub(super) fn kind_of(hello: &Document) -> Kind {
    let is = |name: &str| is_true(hello, name);
    if is_mongos(hello) {
        return Kind::Mongos;
    }
    match hello.get_str("setName") {
        Err(_) if is("isreplicaset") => Kind::Other,
        Err(_) => Kind::Standalone,
        Ok(_) if is("isWritablePrimary") || is("ismaster") => Kind::Primary,
        Ok(_) if is("hidden") => Kind::Other,
        Ok(_) if is("secondary") => Kind::Secondary,
        Ok(_) if is("arbiterOnly") => Kind::Arbiter,
        Ok(_) => Kind::Other,
    }
}

/// Returns whether a field is there and true.
pub(super) fn is_true(document: &Document, name: &str) -> bool {
    document.get(name) == Some(&Bson::Boolean(true))
}

/// Returns whether a server calls itself a mongos.
pub(super) fn is_mongos(hello: &Document) -> bool {
    hello.get("msg").and_then(Bson::as_str) == Some("isdbgrid")
}

/// Returns whether a command has succeeded, as clients see it.
pub(super) fn is_ok(reply: &Document) -> bool {
    match reply.get("ok") {
        Some(Bson::Boolean(truth)) => *truth,
        Some(value) => number(value) == Some(1),
        None => false,
    }
}

/// Returns whether a command failed for want of rights.
fn is_unauthorized(reply: &Document) -> bool {
    !is_ok(reply) && reply.get("code").and_then(number) == Some(13)
}

/// Returns an error in a few words.
pub(super) fn refusal(reply: &Document) -> String {
    let text = |name| reply.get_str(name).unwrap_or("none");
    let code = reply.get("code").map_or_else(|| "none".to_owned(), ToString::to_string);
    format!("code {code}, codeName {}, errmsg {:?}", text("codeName"), text("errmsg"))
}

/// Returns the value of a whole number of any type.
pub(super) fn number(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            Some(*number as i64)
        }
        _ => None,
    }
}

/// Returns the words for a number that may be missing.
pub(super) fn shown(number: Option<i64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

/// Returns the name of a value's type, as the rules have it.
pub(super) fn type_name(value: Option<&Bson>) -> &'static str {
    match value {
        None => "missing",
        Some(Bson::Double(_)) => "a double",
        Some(Bson::String(_)) => "a string",
        Some(Bson::Array(_)) => "an array",
        Some(Bson::Document(_)) => "a document",
        Some(Bson::Boolean(_)) => "a boolean",
        Some(Bson::Null) => "null",
        Some(Bson::Int32(_)) => "an int32",
        Some(Bson::Int64(_)) => "an int64",
        Some(Bson::Timestamp(_)) => "a timestamp",
        Some(Bson::Binary(_)) => "binary data",
        Some(Bson::ObjectId(_)) => "an ObjectId",
        Some(Bson::DateTime(_)) => "a date",
        Some(Bson::Decimal128(_)) => "a decimal128",
        Some(_) => "of another type",
    }
}

/// Returns the form that a reply to a message has.
pub(super) const fn op_code_of_reply(form: Form) -> i32 {
    match form {
        Form::Query => op_code::OP_REPLY,
        Form::Message | Form::Compressed => op_code::OP_MSG,
    }
}
