//! Commands and their replies, put together from the bytes that are heard on connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bson::raw::CStr;
use bson::{Document, RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::bson;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Frames, Message};

use crate::sim::network::StreamId;
use crate::sim::tap::{Line, Overheard};

/// The name of a session of the servers: the bytes of its UUID.
pub(super) type SessionName = Vec<u8>;

/// A command that a client has sent.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) at: Instant,
    pub(super) line: Line,
    pub(super) name: String,
    pub(super) body: RawDocumentBuf,
    /// The documents that follow the body, with the field that each is of.
    pub(super) documents: Vec<(String, RawDocumentBuf)>,
    /// The operation that it belongs to, by the number in its comment.
    pub(super) operation: Option<i64>,
    pub(super) session: Option<SessionName>,
}

/// A reply that has come whole.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) at: Instant,
    pub(super) body: RawDocumentBuf,
    /// False if another one follows to the same command.
    pub(super) is_last: bool,
}

/// Something that was heard whole.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Command(Arc<Command>),
    Reply(Arc<Command>, Reply),
    /// The client has closed the connection, and has no reply to this.
    Lost(Arc<Command>),
    /// The client has closed the connection, which has carried no command but those of the
    /// handshake.
    Unused(Line),
    /// The client has closed the connection at the very time when a reply came, and may not have
    /// read that.
    Unread(Arc<Command>, Reply),
}

impl Command {
    fn read(at: Instant, line: Line, message: &Message) -> (Self, bool) {
        let mut command = Self {
            at,
            line,
            name: String::new(),
            body: RawDocumentBuf::new(),
            documents: Vec::new(),
            operation: None,
            session: None,
        };
        // What says hello in the old way has no part in what follows.
        let Ok(heard) = message.op_msg() else { return (command, true) };
        command.body = heard.body.to_owned();
        let name = heard.body.iter().next().and_then(Result::ok);
        command.name = name.map(|(name, _)| name.as_str().to_owned()).unwrap_or_default();
        command.operation = heard.body.get_i64("comment").ok();
        let session = heard.body.get_document("lsid").and_then(|it| it.get_binary("id"));
        command.session = session.ok().map(|id| id.bytes.to_vec());
        for sequence in heard.sequences() {
            let documents = sequence.documents().filter_map(Result::ok);
            let name = sequence.identifier.to_owned();
            command.documents.extend(documents.map(|it| (name.clone(), it.to_owned())));
        }
        (command, !heard.flags.contains(Flags::MORE_TO_COME))
    }

    /// Returns the cluster time that it says.
    pub(super) fn cluster_time(&self) -> Option<Timestamp> {
        cluster_time(&self.body)
    }

    /// Returns the cursors that it is about.
    pub(super) fn cursors(&self) -> Vec<i64> {
        match self.name.as_str() {
            "getMore" => self.body.get_i64("getMore").into_iter().collect(),
            "killCursors" => {
                let all = self.body.get_array("cursors").into_iter().flatten();
                all.filter_map(|id| id.ok()?.as_i64()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether it is of a transaction.
    pub(super) fn is_of_transaction(&self) -> bool {
        self.body.get_bool("autocommit").is_ok()
    }

    /// Returns whether it commits or aborts a transaction.
    pub(super) fn ends_transaction(&self) -> bool {
        matches!(self.name.as_str(), "commitTransaction" | "abortTransaction")
    }

    /// Returns whether it belongs to the beginning of a connection.
    pub(super) fn is_of_handshake(&self) -> bool {
        let names = ["", "hello", "isMaster", "ismaster", "saslStart", "saslContinue"];
        names.contains(&self.name.as_str())
    }
}

impl Reply {
    pub(super) fn is_ok(&self) -> bool {
        self.body.get_f64("ok").is_ok_and(|ok| ok == 1.0)
    }

    pub(super) fn has_label(&self, label: &str) -> bool {
        let labels = self.body.get_array("errorLabels").into_iter().flatten();
        labels.filter_map(Result::ok).any(|it| it.as_str() == Some(label))
    }

    pub(super) fn cluster_time(&self) -> Option<Timestamp> {
        cluster_time(&self.body)
    }

    /// Returns the number of the cursor that it leaves open, 0 if it closes one.
    pub(super) fn cursor(&self) -> Option<i64> {
        self.body.get_document("cursor").and_then(|it| it.get_i64("id")).ok()
    }

    /// Returns whether it has an `invalidate`, the last event of a change stream.
    pub(super) fn invalidates(&self) -> bool {
        let cursor = self.body.get_document("cursor");
        let batch = |name| cursor.as_ref().ok().and_then(|it| it.get_array(name).ok());
        let events = batch("nextBatch").or_else(|| batch("firstBatch"));
        let last = events.and_then(|events| events.into_iter().last()?.ok()?.as_document());
        last.is_some_and(|it| it.get_str("operationType").is_ok_and(|kind| kind == "invalidate"))
    }
}

fn cluster_time(body: &RawDocument) -> Option<Timestamp> {
    body.get_document("$clusterTime").and_then(|it| it.get_timestamp("clusterTime")).ok()
}

/// Returns a command or a reply as text.
pub(super) fn text_of(body: &RawDocument) -> String {
    Document::try_from(body).map_or_else(|error| error.to_string(), |it| it.to_string())
}

/// Returns the integer of a field, of whichever width.
pub(super) fn integer(body: &RawDocument, name: &CStr) -> Option<i64> {
    let value = body.get(name).ok()??;
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

#[derive(Debug, Default)]
struct Conversation {
    sent: Frames,
    came: Frames,
    unanswered: VecDeque<Arc<Command>>,
    /// True if a command was sent that does not belong to the handshake.
    is_used: bool,
    /// The last reply.
    replied: Option<(Arc<Command>, Reply)>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    all: BTreeMap<StreamId, Conversation>,
    /// The operations that commands of a client belong to which end the transactions of a session,
    /// or are those of a store: they have no comment.
    ending: BTreeMap<(usize, SessionName), i64>,
}

impl Conversations {
    /// Notes the operation by which a client ends the transactions of a session.
    pub(super) fn ends_transactions(&mut self, session: (usize, SessionName), operation: i64) {
        self.ending.insert(session, operation);
    }

    /// Takes what is heard, and returns what is whole by that.
    pub(super) fn hear(&mut self, now: Instant, line: Line, what: Overheard<'_>) -> Vec<Heard> {
        let conversation = self.all.entry(line.stream).or_default();
        let mut heard = Vec::new();
        match what {
            Overheard::Sent(bytes) => {
                conversation.sent.extend(bytes);
                while let Ok(Some(message)) = conversation.sent.next() {
                    let (mut command, is_answered) = Command::read(now, line, &message);
                    if let Some(session) = &command.session
                        && command.is_of_transaction()
                        && command.operation.is_none()
                    {
                        let session = (line.client, session.clone());
                        command.operation = self.ending.get(&session).copied();
                    }
                    let command = Arc::new(command);
                    conversation.is_used |= !command.is_of_handshake();
                    if is_answered {
                        conversation.unanswered.push_back(Arc::clone(&command));
                    }
                    heard.push(Heard::Command(command));
                }
            }
            Overheard::Came(bytes) => {
                conversation.came.extend(bytes);
                while let Ok(Some(message)) = conversation.came.next() {
                    let Some(command) = conversation.unanswered.front().cloned() else { break };
                    let reply = message.op_msg().ok();
                    let more = reply.is_some_and(|it| it.flags.contains(Flags::MORE_TO_COME));
                    if !more {
                        conversation.unanswered.pop_front();
                    }
                    let body = reply.map_or_else(RawDocumentBuf::new, |it| it.body.to_owned());
                    let reply = Reply { at: now, body, is_last: !more };
                    conversation.replied = Some((Arc::clone(&command), reply.clone()));
                    heard.push(Heard::Reply(command, reply));
                }
            }
            Overheard::Closed => {
                let closed = self.all.remove(&line.stream).unwrap_or_default();
                heard.extend(closed.unanswered.into_iter().map(Heard::Lost));
                heard.extend((!closed.is_used).then_some(Heard::Unused(line)));
                let unread = closed.replied.filter(|(_, reply)| reply.at == now);
                heard.extend(unread.map(|(command, reply)| Heard::Unread(command, reply)));
            }
        }
        heard
    }

    /// Returns whether a client waits for a reply, besides that to the command sent last on this
    /// connection.
    pub(super) fn waits_elsewhere(&self, line: Line) -> bool {
        let mut all = self.all.values().flat_map(|it| &it.unanswered);
        all.any(|it| it.line.client == line.client && it.line.stream != line.stream)
    }
}
