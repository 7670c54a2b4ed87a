//! The inputs of a machine, as the words behind a time, and back.

use std::fmt;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::criteria::{Answers, Needs};
use super::failure::{Operation, Resolved};
use super::{LineError, OMITTED, message, time};
use crate::config::metadata::DriverInfo;
use crate::id::{LinkId, ServerId, WaiterId};
use crate::machine::Machine;
use crate::operation::OperationFailure;
use crate::time::Time;
use crate::topology::{Action, Input, Topology};

/// The maximum length of a value that is not a message, in bytes.
const MAX_VALUE_LEN: usize = 1 << 24;

/// A call of a machine, as a trace has it.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Tick,
    Received {
        link: LinkId,
        bytes: Vec<u8>,
    },
    Other(Input<'static>),
    /// It was too long to be kept.
    Omitted,
}

impl Call {
    /// Calls the machine.
    pub(super) fn apply(self, topology: &mut Topology, now: Time, out: &mut Vec<Action>) {
        match self {
            // A replay ends at what was too long to be kept.
            Self::Tick | Self::Omitted => topology.tick(now, out),
            Self::Received { link, bytes } => {
                topology.handle(now, Input::Received { link, bytes: &bytes }, out);
            }
            Self::Other(input) => topology.handle(now, input, out),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(flatten)]
    needs: Needs,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Info {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    platform: Option<String>,
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("what a trace is made of has the form of JSON")
}

/// Writes an input; `messages` is what bytes that were received come to.
pub(super) fn written(input: &Input<'_>, messages: &[Value]) -> String {
    match input {
        Input::Opened { link } => format!("opened {link}"),
        Input::Reached { link, stage } => format!("reached {link} {}", json(stage)),
        Input::Received { link, .. } => format!("received {link} {}", json(&messages)),
        Input::Closed { link, failure } => format!("closed {link} {}", json(failure)),
        Input::Resolved { records } => format!("resolved {}", json(&Resolved::from(records))),
        Input::Wait { waiter, criteria, deadline } => {
            let until = deadline.map(time::written);
            let wait = Wait { until, needs: Needs::from(&**criteria) };
            format!("wait w{} {}", waiter.0, json(&wait))
        }
        Input::Abandon { waiter } => format!("abandon w{}", waiter.0),
        Input::RequestCheck => "request-check".to_owned(),
        Input::OperationFailed { server, failure } => {
            format!("operation-failed {server} {}", json(&Operation::from(failure)))
        }
        Input::AppendMetadata { info } => {
            let (name, version, platform) = info.parts();
            let [version, platform] = [version, platform].map(|part| part.map(str::to_owned));
            let info = Info { name: name.to_owned(), version, platform };
            format!("append-metadata {}", json(&info))
        }
        Input::Shutdown => "shutdown".to_owned(),
    }
}

/// Returns what an input is about: its first words.
pub(super) fn about(written: &str) -> &str {
    let end = written.match_indices(' ').nth(1).map_or(written.len(), |(index, _)| index);
    let words = &written[..end];
    // The second may be a value, which is no word.
    words.split_once(" {").map_or(words, |(word, _)| word)
}

/// Reads a call; predicates of what it needs take their answers from `answers`.
pub(super) fn read(text: &str, answers: &Answers) -> Result<Call, LineError> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
    Ok(Call::Other(match word {
        "tick" => return Ok(Call::Tick),
        OMITTED => {
            let length = name.parse::<u64>();
            length.map_err(|error| LineError::malformed("how much was omitted", &error))?;
            return Ok(Call::Omitted);
        }
        "received" => {
            return Ok(Call::Received { link: link(name)?, bytes: bytes(value)? });
        }
        "opened" => Input::Opened { link: link(name)? },
        "reached" => Input::Reached { link: link(name)?, stage: parsed("a stage", value)? },
        "closed" => Input::Closed { link: link(name)?, failure: parsed("a failure", value)? },
        "resolved" => {
            let resolved: Resolved = parsed("what was resolved", rest)?;
            Input::Resolved { records: resolved.into() }
        }
        "wait" => {
            let Wait { until, needs } = parsed("what is needed", value)?;
            let criteria = needs.criteria(answers)?.into();
            let deadline = until.as_deref().map(time::read).transpose()?;
            Input::Wait { waiter: waiter(name)?, criteria, deadline }
        }
        "abandon" => Input::Abandon { waiter: waiter(name)? },
        "request-check" => Input::RequestCheck,
        "operation-failed" => {
            let operation: Operation = parsed("the failure of an operation", value)?;
            let failure = OperationFailure::try_from(operation)?;
            Input::OperationFailed { server: server(name)?, failure }
        }
        "append-metadata" => {
            let Info { name, version, platform } = parsed("the metadata", rest)?;
            let info = DriverInfo::new(&name, version.as_deref(), platform.as_deref());
            let info = info.map_err(|error| LineError::malformed("the metadata", &error))?;
            Input::AppendMetadata { info }
        }
        "shutdown" => Input::Shutdown,
        _ => return Err(LineError::Input(word.to_owned())),
    }))
}

/// Reads a value, which takes several times the memory of its text.
pub(super) fn parsed<T: DeserializeOwned>(what: &'static str, json: &str) -> Result<T, LineError> {
    if json.len() > MAX_VALUE_LEN {
        let reason = format!("it has {} bytes; at most {MAX_VALUE_LEN} are read", json.len());
        return Err(LineError::malformed(what, &reason));
    }
    serde_json::from_str(json).map_err(|error| LineError::malformed(what, &error))
}

/// Reads an action, as far as it is one that sends something.
pub(super) fn read_send(action: &str) -> Option<(LinkId, Vec<u8>)> {
    let (name, messages) = action.strip_prefix("send ")?.split_once(' ')?;
    Some((link(name).ok()?, bytes(messages).ok()?))
}

/// Reads messages.
fn bytes(json: &str) -> Result<Vec<u8>, LineError> {
    let received = serde_json::from_str(json);
    let Received(bytes) =
        received.map_err(|error| LineError::malformed("what was received", &error))?;
    bytes
}

/// The text of messages, read one after the other: together they may be long. Numbers say how much
/// was held back, and are for people.
struct Received(Result<Vec<u8>, LineError>);

impl<'de> Deserialize<'de> for Received {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Messages)
    }
}

struct Messages;

impl<'de> Visitor<'de> for Messages {
    type Value = Received;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Received, A::Error> {
        let mut bytes = Ok(Vec::new());
        while let Some(value) = values.next_element::<&RawValue>()? {
            if let Ok(bytes_so_far) = &mut bytes
                && let Err(error) = message::read(value.get(), bytes_so_far)
            {
                bytes = Err(error);
            }
        }
        Ok(Received(bytes))
    }
}

fn waiter(text: &str) -> Result<WaiterId, LineError> {
    let number = text.strip_prefix('w').and_then(|number| number.parse().ok());
    number.map(WaiterId).ok_or_else(|| LineError::malformed("the name of a waiter", &text))
}

fn server(text: &str) -> Result<ServerId, LineError> {
    let number = text.strip_prefix('s').and_then(|number| number.parse().ok());
    number.map(ServerId).ok_or_else(|| LineError::malformed("the name of a server", &text))
}

fn link(text: &str) -> Result<LinkId, LineError> {
    let malformed = || LineError::malformed("the name of a link", &text);
    let (of, number) = text.split_once('.').ok_or_else(malformed)?;
    let number = number.parse().map_err(|_| malformed())?;
    Ok(LinkId { server: server(of)?, number })
}
