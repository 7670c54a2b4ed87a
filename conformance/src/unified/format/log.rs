//! Messages that clients are expected to log (Unified Test Format, "expectedLogMessage").

use bson::Document;

use super::error::FormatError;
use super::object::Node;

/// The messages that a client is to have logged, in order.
#[derive(Clone, Debug)]
pub struct ExpectedLogMessages {
    /// The client.
    pub client: String,
    /// The messages.
    pub messages: Vec<ExpectedMessage>,
    /// Messages that are left out of the comparison.
    pub ignored: Vec<ExpectedMessage>,
    /// True if more may follow.
    pub ignore_extra: bool,
}

/// A message that is expected.
#[derive(Clone, Debug)]
pub struct ExpectedMessage {
    /// Its severity.
    pub level: Level,
    /// The part of the driver that logs it.
    pub component: Component,
    /// True if the failure in it is to be redacted, if it matters.
    pub failure_is_redacted: Option<bool>,
    /// The data.
    pub data: Document,
}

/// The severity of a message (Logging, "Log Severity Levels"), the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The system is unusable.
    Emergency,
    /// Somebody has to act at once.
    Alert,
    /// Something is critical.
    Critical,
    /// Something has failed.
    Error,
    /// Something may fail.
    Warning,
    /// Something unusual happens.
    Notice,
    /// Something happens.
    Info,
    /// Details for developers.
    Debug,
    /// Details that are seldom of interest.
    Trace,
}

impl Level {
    /// The levels and their names.
    pub const NAMES: &[(&str, Self)] = &[
        ("emergency", Self::Emergency),
        ("alert", Self::Alert),
        ("critical", Self::Critical),
        ("error", Self::Error),
        ("warning", Self::Warning),
        ("notice", Self::Notice),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// A part of a driver that logs (Logging, "Components").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Commands.
    Command,
    /// The topology.
    Topology,
    /// The selection of servers.
    ServerSelection,
    /// The pools.
    Connection,
}

impl Component {
    /// The components and their names.
    pub const NAMES: &[(&str, Self)] = &[
        ("command", Self::Command),
        ("topology", Self::Topology),
        ("serverSelection", Self::ServerSelection),
        ("connection", Self::Connection),
    ];
}

pub(super) fn expected_log_messages(node: Node) -> Result<ExpectedLogMessages, FormatError> {
    let mut object = node.object()?;
    let list = |node: Node| node.list(message);
    let messages = ExpectedLogMessages {
        client: object.required("client", Node::string)?,
        messages: object.required("messages", list)?,
        ignored: object.optional("ignoreMessages", list)?.unwrap_or_default(),
        ignore_extra: object.optional("ignoreExtraMessages", Node::boolean)?.unwrap_or_default(),
    };
    object.finish()?;
    Ok(messages)
}

fn message(node: Node) -> Result<ExpectedMessage, FormatError> {
    let mut object = node.object()?;
    let message = ExpectedMessage {
        level: object.required("level", |node| node.one_of(Level::NAMES))?,
        component: object.required("component", |node| node.one_of(Component::NAMES))?,
        failure_is_redacted: object.optional("failureIsRedacted", Node::boolean)?,
        data: object.required("data", Node::document)?,
    };
    object.finish()?;
    Ok(message)
}
