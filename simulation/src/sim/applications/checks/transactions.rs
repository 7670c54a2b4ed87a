//! Commands of a transaction carry what they must and nothing that they must not, in order, and go
//! to one mongos; none is sent twice but those that end it, and those that a server has shed.

use std::collections::BTreeMap;

use bson::RawDocumentBuf;
use sdam_core::bson;
use sdam_core::operation::{RETRYABLE, RETRYABLE_WRITE, SYSTEM_OVERLOADED, TRANSIENT_TRANSACTION};
use sdam_core::time::Instant;

use super::super::conversation::{Command, Reply, SessionName, text_of};
use super::{Finding, ensure};

/// The fate of the command that was sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unanswered,
    Done,
    /// The server was overloaded, and has done nothing.
    Shed,
    Failed,
}

/// The newest transaction of a session, or its retryable write.
#[derive(Clone, Debug)]
struct Known {
    client: usize,
    number: i64,
    is_transaction: bool,
    /// The mongos that it was begun at.
    member: usize,
    /// True if the client may know that the mongos is of no use.
    may_go_elsewhere: bool,
    /// The recovery tokens that replies have brought.
    tokens: Vec<(Instant, RawDocumentBuf)>,
    /// The command within that was sent last: its operation and its name.
    last: Option<(Option<i64>, String)>,
    last_at: Instant,
    fate: Fate,
    /// True once a commit was sent that may have been carried out.
    was_committed: bool,
    commits: u32,
    aborts: u32,
    is_aborted: bool,
    /// True once the application has called its commit.
    is_committing: bool,
}

/// The transactions of all clients.
#[derive(Clone, Debug, Default)]
pub(in crate::sim::applications) struct Transactions {
    is_sharded: bool,
    known: BTreeMap<SessionName, Known>,
}

impl Known {
    const fn begun(command: &Command, number: i64, is_transaction: bool) -> Self {
        Self {
            client: command.line.client,
            number,
            is_transaction,
            member: command.line.member,
            may_go_elsewhere: false,
            tokens: Vec::new(),
            last: None,
            last_at: command.at,
            fate: Fate::Unanswered,
            was_committed: false,
            commits: 0,
            aborts: 0,
            is_aborted: false,
            is_committing: false,
        }
    }

    /// Returns whether it is at its server, and nothing has ended it, nor was to.
    const fn is_open(&self) -> bool {
        let is_ended = self.is_committing || self.commits > 0 || self.aborts > 0;
        self.is_transaction
            && !is_ended
            && !self.may_go_elsewhere
            && matches!(self.fate, Fate::Done)
    }
}

impl Transactions {
    pub(super) fn new(is_sharded: bool) -> Self {
        Self { is_sharded, ..Self::default() }
    }

    /// Returns whether a command asks what became of a transaction of another client's.
    pub(super) fn is_question(&self, command: &Command) -> bool {
        let known = command.session.as_ref().and_then(|name| self.known.get(name));
        let is_of_another = known.is_some_and(|known| known.client != command.line.client);
        is_of_another && command.name == "commitTransaction"
    }

    /// A client asks what became of a transaction of another one.
    ///
    /// It is a commit that comes again, with the recovery token that the transaction has had last
    /// (Transactions, "writeConcern for commitTransaction attempts", "recoveryToken field").
    pub(super) fn asked(&self, command: &Command) -> Finding {
        let number = command.body.get_i64("txnNumber").ok();
        let known = command.session.as_ref().and_then(|name| self.known.get(name));
        let known = known.filter(|known| number <= Some(known.number));
        let said = || format!("{}, after {known:?}", text_of(&command.body));
        let is_whole = number.is_some() && command.body.get_bool("autocommit").is_ok_and(|it| !it);
        ensure(is_whole && known.is_some(), "others ask for what was begun", said)?;
        ensure(is_for_majority(command), "a commit that comes again is for the majority", said)?;
        match known.filter(|known| Some(known.number) == number) {
            Some(known) => check_token(command, known),
            None => Ok(()),
        }
    }

    /// Returns whether a session has begun something after this number.
    pub(in crate::sim::applications) fn has_newer(&self, name: &SessionName, number: i64) -> bool {
        self.known.get(name).is_some_and(|known| known.number > number)
    }

    /// A command is sent.
    ///
    /// "Drivers MUST add" `autocommit`, `txnNumber` and, to the first command only,
    /// `startTransaction` and `readConcern` (Transactions, "Constructing any command").
    pub(super) fn sent(&mut self, command: &Command) -> Finding {
        let Some(name) = &command.session else { return Ok(()) };
        let number = command.body.get_i64("txnNumber").ok();
        let said = || text_of(&command.body);
        let has = |field: &str| command.body.get(field).is_ok_and(|it| it.is_some());
        if !command.is_of_transaction() {
            let of_transaction = ["startTransaction", "recoveryToken"].into_iter().any(has);
            let is_alone = !of_transaction && !command.ends_transaction();
            ensure(is_alone, "fields of transactions come together", said)?;
            if let Some(number) = number
                && self.known.get(name).is_none_or(|known| known.number < number)
            {
                self.known.insert(name.clone(), Known::begun(command, number, false));
            }
            return Ok(());
        }
        let is_whole = number.is_some() && command.body.get_bool("autocommit").is_ok_and(|it| !it);
        ensure(is_whole, "fields of transactions come together", said)?;
        let number = number.unwrap_or_default();
        let starts = has("startTransaction");
        ensure(starts || !has("readConcern"), "only the first command has a read concern", said)?;
        let ends = command.ends_transaction();
        ensure(ends || !has("writeConcern"), "only the end has a write concern", said)?;
        ensure(ends || !has("recoveryToken"), "only the end has a recovery token", said)?;
        match starts {
            true => self.starts(command, name, number),
            false => self.goes_on(command, name, number),
        }
    }

    /// The first command of a transaction is sent.
    fn starts(&mut self, command: &Command, name: &SessionName, number: i64) -> Finding {
        let said = || text_of(&command.body);
        ensure(!command.ends_transaction(), "an empty transaction has no end", said)?;
        if let Some(known) = self.known.get(name) {
            let is_again = known.number == number && known.is_transaction && known.last.is_some();
            let is_shed = is_again && known.fate == Fate::Shed;
            // "The server requires each operation executed within a transaction to provide an
            // incrementing transaction number".
            ensure(number > known.number || is_shed, "each transaction has its number", || {
                format!("{}, after {known:?}", said())
            })?;
        }
        let operation = command.operation;
        let mut known = Known::begun(command, number, true);
        known.last = Some((operation, command.name.clone()));
        self.known.insert(name.clone(), known);
        Ok(())
    }

    /// Another command of a transaction is sent.
    fn goes_on(&mut self, command: &Command, name: &SessionName, number: i64) -> Finding {
        let is_sharded = self.is_sharded;
        let known = self.known.get_mut(name).filter(|it| it.number == number && it.is_transaction);
        let Some(known) = known else {
            let detail = || text_of(&command.body);
            return ensure(false, "a transaction begins with its first command", detail);
        };
        let said = || format!("{}, after {known:?}", text_of(&command.body));
        let is_within = !command.ends_transaction();
        let goes_elsewhere = is_sharded && command.line.member != known.member;
        let may_go = known.may_go_elsewhere;
        // "Drivers MUST send all commands for a single transaction to the same mongos".
        ensure(!goes_elsewhere || may_go, "a transaction is at one mongos", said)?;
        let is_ended = known.commits > 0 || known.aborts > 0;
        ensure(!is_ended || !is_within, "a transaction that is ended is over", said)?;
        match command.name.as_str() {
            "commitTransaction" => {
                ensure(known.aborts == 0, "what is aborted is not committed", said)?;
                check_write_concern(command, known)?;
                check_token(command, known)?;
                known.commits += 1;
            }
            "abortTransaction" => {
                ensure(known.commits == 0, "what is committed is not aborted", said)?;
                ensure(!known.is_aborted, "a transaction is aborted once", said)?;
                check_token(command, known)?;
                known.aborts += 1;
            }
            _ => {
                let this = Some((command.operation, command.name.clone()));
                let is_again = known.last == this && command.name != "getMore";
                let may_be = matches!(known.fate, Fate::Done | Fate::Shed);
                // "drivers MUST NOT retry" them (Transactions, "Interaction with Retryable
                // Writes").
                ensure(!is_again || may_be, "commands within are not sent again", said)?;
                (known.last, known.last_at) = (this, command.at);
            }
        }
        known.fate = Fate::Unanswered;
        Ok(())
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply) {
        let Some(known) = self.known_of(command) else { return };
        let is_shed = reply.has_label(SYSTEM_OVERLOADED) && reply.has_label(RETRYABLE);
        known.fate = match reply.is_ok() {
            true => Fate::Done,
            false if is_shed => Fate::Shed,
            false => Fate::Failed,
        };
        let has_failed = matches!(known.fate, Fate::Failed)
            || reply.body.get("writeConcernError").is_ok_and(|it| it.is_some());
        // What a commit was shed with is no unknown outcome; an abort unpins however it ends.
        known.may_go_elsewhere |= reply.has_label(TRANSIENT_TRANSACTION)
            || match command.name.as_str() {
                "commitTransaction" => has_failed && !is_shed,
                "abortTransaction" => true,
                _ => false,
            };
        if let Ok(token) = reply.body.get_document("recoveryToken")
            && reply.is_ok()
        {
            known.tokens.push((reply.at, token.to_owned()));
        }
        match command.name.as_str() {
            "commitTransaction" => known.was_committed |= !is_shed,
            // Its write concern may have failed so that it is sent again.
            "abortTransaction" => {
                known.is_aborted |= reply.is_ok() && !reply.has_label(RETRYABLE_WRITE);
            }
            _ => {}
        }
    }

    pub(super) fn lost(&mut self, command: &Command) {
        let Some(known) = self.known_of(command) else { return };
        known.fate = Fate::Failed;
        known.may_go_elsewhere = true;
        known.was_committed |= command.name == "commitTransaction";
    }

    /// An operation in the transaction of a session has failed with the label that unpins
    /// (Transactions, "When to unpin"), also if nothing was sent.
    pub(in crate::sim::applications) fn is_unpinned(&mut self, session: &SessionName) {
        if let Some(known) = self.known.get_mut(session) {
            known.may_go_elsewhere = true;
        }
    }

    /// The end of a transaction is about to be sent, by a client that may have known its mongos
    /// since the last command, and may have used each connection to it. If not, an attempt may have
    /// failed that is not heard; the network failed it then, which unpins.
    pub(super) fn ends(&mut self, command: &Command, was_steady: impl Fn(usize, Instant) -> bool) {
        if let Some(known) = self.known_of(command).filter(|_| command.ends_transaction()) {
            known.may_go_elsewhere |= !was_steady(known.member, known.last_at);
        }
    }

    /// The commit of a session's transaction is called. It may fail before anything is sent, and
    /// be forgotten by the next operation of the session, which aborts nothing.
    pub(in crate::sim::applications) fn is_committed(&mut self, session: &SessionName) {
        if let Some(known) = self.known.get_mut(session) {
            known.is_committing = true;
        }
    }

    fn known_of(&mut self, command: &Command) -> Option<&mut Known> {
        let number = command.body.get_i64("txnNumber").ok()?;
        let known = self.known.get_mut(command.session.as_ref()?)?;
        Some(known).filter(|it| command.is_of_transaction() && it.number == number)
    }

    /// Judges what is left when a client of servers that were always there has been closed.
    ///
    /// "Drivers MUST abort" a transaction whose session ends (Transactions, "endSession changes").
    pub(in crate::sim::applications) fn closed(&self, client: usize) -> Finding {
        let left = self.known.values().find(|it| it.client == client && it.is_open());
        ensure(left.is_none(), "a transaction that is left is aborted", || format!("{left:?}"))
    }
}

/// "drivers MUST apply a majority write concern" to a commit that comes again, with a `wtimeout`
/// unless timeoutMS is set (Transactions, "writeConcern for commitTransaction attempts").
fn check_write_concern(command: &Command, known: &Known) -> Finding {
    let may_be = !known.was_committed || is_for_majority(command);
    ensure(may_be, "a commit that comes again is for the majority", || {
        format!("{}, after {known:?}", text_of(&command.body))
    })
}

/// Returns whether a commit waits for the majority, and not for ever.
fn is_for_majority(command: &Command) -> bool {
    let concern = command.body.get_document("writeConcern");
    let is_majority =
        concern.as_ref().is_ok_and(|it| it.get_str("w").is_ok_and(|w| w == "majority"));
    let is_limited = concern.is_ok_and(|it| it.get("wtimeout").is_ok_and(|it| it.is_some()))
        || command.body.get("maxTimeMS").is_ok_and(|it| it.is_some());
    is_majority && is_limited
}

/// "Drivers MUST include the recoveryToken" that came last (Transactions, "recoveryToken field"): a
/// reply that came when nothing more was sent may have been read or not.
fn check_token(command: &Command, known: &Known) -> Finding {
    let sent = command.body.get_document("recoveryToken").ok();
    let (read, unread): (Vec<_>, Vec<_>) =
        known.tokens.iter().partition(|(at, _)| *at < known.last_at);
    let last = read.last().map(|(_, token)| &**token);
    let is_unread = sent.is_some() && unread.iter().any(|(_, token)| Some(&**token) == sent);
    ensure(sent == last || is_unread, "the recovery token is the last one", || {
        format!("{}, after {known:?}", text_of(&command.body))
    })
}

#[cfg(test)]
mod tests;
