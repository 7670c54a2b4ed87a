//! Transactions: how they begin, go on and end (Transactions, "Interaction with a server").
//!
//! A transaction is a copy of the state at its beginning. What it writes is compared at once with
//! what others have written since, and becomes one entry of the log when it is committed. The
//! shards behind mongos are one store, so that preparing and committing are one step.

use std::time::Duration;

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::Arguments;
use super::sessions::{converted, prohibited};
use super::{READS, fields, session_options};
use crate::model::{Cluster, ConnectionId, Role};
use crate::options::MemberId;
use crate::store::{Change, LastUse, Session, State, Store, Transaction, Transactions, whole};
use crate::wire::{CommandError, Request};

/// The state of a session under the number of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    Committed,
    Aborted,
    /// Nothing has begun under that number.
    Unknown,
}

impl Cluster {
    /// Answers a command of a transaction.
    ///
    /// One that is refused for what it is leaves the transaction as it was; one that fails aborts
    /// it.
    pub(super) fn serve_transaction(
        &mut self,
        now: Instant,
        member: MemberId,
        role: Role,
        request: &Request<'_>,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        let name = request.command_name();
        let arguments = Arguments::read(request)?;
        let version = self.version_of(member);
        session_options::check_within(request, &arguments.body, version)?;
        if session_options::ends_transaction(name) {
            fields::check(name, &arguments.body, version)?;
        }
        if READS.contains(&name) {
            role.check_readable(request)?;
        }
        role.check_writable()?;
        let Some(session) = arguments.transaction.clone() else {
            return Err(CommandError::coded(72, "a transaction is of a session"));
        };
        let number = number(&arguments.body);
        let is_recovered = self.route(member, &session, number, name, &arguments)?;
        match name {
            "commitTransaction" if is_recovered => self.recover(member, &session, number)?,
            "commitTransaction" => self.commit(now, member, &session, number)?,
            "abortTransaction" => self.abort(member, &session, number)?,
            _ => {
                self.enter(now, member, &session, number, &arguments)?;
                let all = request.allows_exhaust();
                let replies = self.serve_within(now, member, name, &arguments, all);
                if !replies.as_ref().is_ok_and(|it| it.iter().all(|it| has_succeeded(it))) {
                    self.end_transaction(member, &session);
                }
                return replies;
            }
        }
        Ok(vec![rawdoc! { "ok": 1.0 }])
    }

    /// Answers a command within a transaction that has begun.
    fn serve_within(
        &mut self,
        now: Instant,
        member: MemberId,
        name: &str,
        arguments: &Arguments,
        all: bool,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        fields::check(name, &arguments.body, self.version_of(member))?;
        session_options::check_wishes(name, &arguments.body)?;
        let owner = self.owner(member);
        let owner = &mut self.members[owner];
        let session = arguments.transaction.as_deref().unwrap_or_default();
        if let Some(mut transaction) = owner.transactions.take(session) {
            let used = used(name, arguments);
            let mut used = used.iter().map(|it| transaction.use_collection(&owner.data.store, it));
            let outcome = used.find(Result::is_err).unwrap_or(Ok(()));
            owner.transactions.put_back(session.to_vec(), transaction);
            outcome?;
        }
        self.dispatch(now, member, name, arguments, all)
    }

    /// Returns the newest number of a session, of a transaction or a retryable write.
    fn active_number(&self, member: MemberId, session: &[u8]) -> Option<i64> {
        let member = &self.members[self.owner(member)];
        let open = member.transactions.state(session).map(State::number);
        open.max(member.data.store.session(session).map(|it| it.number))
    }

    /// Returns what a session has come to under a number.
    ///
    /// # Errors
    ///
    /// Fails with `TransactionTooOld` if it has a newer one.
    fn standing(
        &self,
        member: MemberId,
        session: &[u8],
        number: i64,
    ) -> Result<Standing, CommandError> {
        let active = self.active_number(member, session);
        match active {
            Some(active) if active > number => return Err(too_old(number, active)),
            Some(active) if active == number => {}
            _ => return Ok(Standing::Unknown),
        }
        let member = &self.members[self.owner(member)];
        let state = member.transactions.state(session).filter(|it| it.number() == number);
        let logged = member.data.store.session(session).filter(|it| it.number == number);
        Ok(match (state, logged) {
            (Some(State::Open(_)), _) => Standing::Open,
            (Some(State::Committed(_)), _) => Standing::Committed,
            (Some(State::Aborted(_)), _) => Standing::Aborted,
            (None, Some(logged)) if logged.is_transaction => Standing::Committed,
            (None, _) => Standing::Unknown,
        })
    }

    /// Begins a transaction, or checks that it goes on.
    fn enter(
        &mut self,
        now: Instant,
        member: MemberId,
        session: &[u8],
        number: i64,
        arguments: &Arguments,
    ) -> Result<(), CommandError> {
        if arguments.body.contains_key("startTransaction") {
            self.standing(member, session, number)?;
            if self.active_number(member, session) == Some(number) {
                return Err(CommandError::coded(
                    117,
                    "Only servers in a sharded cluster can start a new transaction at the active \
                     transaction number",
                ));
            }
            let snapshot = self.snapshot(member, arguments);
            let owner = self.owner(member);
            let transactions = &mut self.members[owner].transactions;
            self.data_is_new |= transactions.abort(session);
            if !transactions.has_room() {
                return Err(CommandError::coded(261, "too many transactions are open"));
            }
            let transaction = Transaction::begin(number, now, snapshot);
            transactions.begin(session.to_vec(), transaction);
            return Ok(());
        }
        match self.is_open(member, session, number)? {
            true => Ok(()),
            false => Err(is_committed(number)),
        }
    }

    /// Returns whether a transaction is open; if not, it is committed.
    ///
    /// # Errors
    ///
    /// Fails if it is neither.
    fn is_open(&self, member: MemberId, session: &[u8], number: i64) -> Result<bool, CommandError> {
        match self.standing(member, session, number)? {
            Standing::Open => Ok(true),
            Standing::Committed => Ok(false),
            Standing::Aborted => Err(is_aborted(number)),
            Standing::Unknown => {
                Err(is_unknown(number, self.active_number(member, session).unwrap_or(-1)))
            }
        }
    }

    /// Returns the state that a transaction sees.
    ///
    /// Its commit waits for a majority to have what it has read, so that this is the newest state
    /// whatever the read concern, as on real servers.
    fn snapshot(&self, member: MemberId, arguments: &Arguments) -> Store {
        let data = self.data_of(member);
        let concern = arguments.document("readConcern").ok().flatten();
        match concern.and_then(|it| it.get_timestamp("atClusterTime").ok()) {
            None => data.store.clone(),
            Some(at) => data.until(|entry| {
                let entry = entry.timestamp;
                (entry.time, entry.increment) <= (at.time, at.increment)
            }),
        }
    }

    /// Commits a transaction: all of it becomes one entry of the log, unless it has only read. One
    /// that is committed is so once more.
    fn commit(
        &mut self,
        now: Instant,
        member: MemberId,
        session: &[u8],
        number: i64,
    ) -> Result<(), CommandError> {
        if !self.is_open(member, session, number)? {
            return Ok(());
        }
        let owner = self.owner(member);
        let of_owner = &mut self.members[owner];
        let Some(transaction) = of_owner.transactions.open(session) else {
            return Err(is_aborted(number));
        };
        let store = &mut of_owner.data.store;
        let mut changes = match transaction.rebased(store) {
            Ok(changes) => changes,
            Err(conflict) => {
                self.end_transaction(member, session);
                return Err(conflict.into());
            }
        };
        if !changes.is_empty() {
            let before = store.session(session).cloned();
            let after = Session { number, is_transaction: true, ..Session::default() };
            let (id, after) = (session.to_vec(), Some(after.into()));
            changes.push(Change::Session { id, before, after });
        }
        changes.iter().for_each(|change| store.take(change, true));
        of_owner.transactions.note_commit(session.to_vec(), number);
        self.append(now, member, changes);
        self.data_is_new = true;
        Ok(())
    }

    /// Aborts a transaction that is open.
    fn abort(&mut self, member: MemberId, session: &[u8], number: i64) -> Result<(), CommandError> {
        if !self.is_open(member, session, number)? {
            return Err(is_committed(number));
        }
        self.end_transaction(member, session);
        Ok(())
    }

    /// Learns for another mongos what has become of a transaction; one that is open is aborted.
    fn recover(
        &mut self,
        member: MemberId,
        session: &[u8],
        number: i64,
    ) -> Result<(), CommandError> {
        if !self.is_open(member, session, number)? {
            return Ok(());
        }
        self.end_transaction(member, session);
        Err(is_aborted(number))
    }

    /// Returns whether the transaction that a command is in has created a collection, or does so;
    /// none if it is in none.
    pub(super) fn is_new_in_transaction(
        &self,
        member: MemberId,
        arguments: &Arguments,
        namespace: &str,
    ) -> Option<bool> {
        let transactions = &self.members[self.owner(member)].transactions;
        let open = transactions.open(arguments.transaction.as_deref()?)?;
        Some(open.store.collection(namespace).is_none() || open.has_created(namespace))
    }

    /// Aborts the transaction of a session if it is open; who has waited for its end may go on.
    fn end_transaction(&mut self, member: MemberId, session: &[u8]) {
        let owner = self.owner(member);
        self.data_is_new |= self.members[owner].transactions.abort(session);
    }

    /// Aborts the open transactions of these sessions, or all.
    pub(super) fn kill_transactions(&mut self, member: MemberId, sessions: &[Vec<u8>], all: bool) {
        let owner = self.owner(member);
        let transactions = &mut self.members[owner].transactions;
        let aborted =
            transactions.abort_all(|session, _| all || sessions.iter().any(|it| it == session));
        self.data_is_new |= aborted;
    }

    /// A member ceases to be primary: what is open is aborted, and what it has committed may be
    /// rolled back.
    pub(crate) fn lose_transactions(&mut self, member: MemberId) {
        if self.options.deployment.has_set() {
            self.data_is_new |= self.members[member.0].transactions.lose();
        }
    }

    /// A process has ended, and with it its transactions. Those of mongos are those of the shards
    /// behind them.
    pub(crate) fn forget_transactions(&mut self, member: MemberId) {
        if self.options.deployment.has_set() {
            self.members[member.0].transactions = Transactions::default();
        }
    }

    /// Returns when the next transaction is to be aborted that takes too long.
    pub(crate) fn transaction_ends_at(&self) -> Option<Instant> {
        self.members.iter().filter_map(|it| it.transactions.ends_at()).min()
    }

    /// Aborts the transactions that have taken too long.
    pub(crate) fn expire_transactions(&mut self, now: Instant) {
        for member in &mut self.members {
            self.data_is_new |= member.transactions.expire(now);
        }
    }

    /// Counts the transactions of a member for `serverStatus`.
    pub(crate) fn transaction_counts(&self, member: MemberId) -> RawDocumentBuf {
        let transactions = &self.members[self.owner(member)].transactions;
        let open = i64::try_from(transactions.all_open().count()).unwrap_or(i64::MAX);
        rawdoc! {
            "currentActive": 0_i64,
            "currentInactive": open,
            "currentOpen": open,
            "totalStarted": transactions.started,
            "totalCommitted": transactions.committed,
            "totalAborted": transactions.aborted,
        }
    }

    /// Notes that a command of the open transaction of its session came over a connection.
    pub(crate) fn note_use(
        &mut self,
        now: Instant,
        (id, member): (ConnectionId, MemberId),
        request: &Request<'_>,
    ) {
        let (Some(session), Some(connection)) = (request.session_id(), self.connections.get(&id))
        else {
            return;
        };
        let last = LastUse {
            at: now,
            connection: connection.number,
            client: connection.peer.map(|peer| peer.to_string()),
            app_name: connection.app_name.clone(),
        };
        let owner = self.owner(member);
        self.members[owner].transactions.note_use(session, last);
    }

    /// Describes the open transactions of a member as `$currentOp` does.
    pub(crate) fn open_transactions(&self, now: Instant, member: MemberId) -> Vec<RawDocumentBuf> {
        let transactions = &self.members[self.owner(member)].transactions;
        let open = transactions.all_open().map(|(session, open)| {
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: session.to_vec() };
            let began = bson::DateTime::from_millis(self.wall_millis(open.began));
            let parameters = rawdoc! { "txnNumber": open.number, "autocommit": false };
            let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
            let LastUse { at, connection, client, app_name } = &open.last;
            let mut shown = rawdoc! {
                "type": "idleSession",
                "desc": "inactive transaction",
                "connectionId": *connection,
            };
            if let Some(client) = client {
                shown.append(cstr!("client"), client.as_str());
            }
            if let Some(name) = app_name {
                shown.append(cstr!("appName"), name.as_str());
            }
            shown.append(cstr!("active"), false);
            shown.append(cstr!("lsid"), rawdoc! { "id": id });
            let transaction = rawdoc! {
                "parameters": parameters,
                "startWallClockTime": began.try_to_rfc3339_string().unwrap_or_default(),
                "timeOpenMicros": micros(now - open.began),
                "timeInactiveMicros": micros(now - *at),
            };
            shown.append(cstr!("transaction"), transaction);
            shown
        });
        open.collect()
    }

    /// Returns the lines of a member's log about transactions that were open for too long.
    pub(crate) fn expired_transactions(&self, member: MemberId) -> Vec<String> {
        let transactions = &self.members[self.owner(member)].transactions;
        let line = |(at, number): (Instant, i64)| {
            let date = bson::DateTime::from_millis(self.wall_millis(at));
            let date = date.try_to_rfc3339_string().unwrap_or_default();
            format!(
                "{{\"t\":{{\"$date\":\"{date}\"}},\"s\":\"I\",\"c\":\"COMMAND\",\"id\":20707,\
                 \"msg\":\"Aborting transaction because it has been running for longer than \
                 'transactionLifetimeLimitSeconds'\",\"attr\":{{\"txnNumber\":{number}}}}}"
            )
        };
        transactions.expired().map(line).collect()
    }

    /// Checks the number of a retryable write, which takes the place of an older transaction.
    ///
    /// # Errors
    ///
    /// Fails if the session has a newer transaction, or one of that number.
    pub(super) fn supersede(
        &mut self,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<(), CommandError> {
        let number = arguments.body.get("txnNumber").and_then(whole);
        let session = super::session_id(&arguments.body);
        let (Some(number), Some(session)) = (number, session) else { return Ok(()) };
        let owner = self.owner(member);
        let transactions = &mut self.members[owner].transactions;
        match transactions.state(&session).map(State::number) {
            Some(active) if active > number => Err(prohibited(number, active)),
            Some(active) if active == number => Err(converted()),
            Some(_) => {
                self.data_is_new |= transactions.forget(&session);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Returns the number of a transaction's command.
fn number(body: &Document) -> i64 {
    body.get_i64("txnNumber").unwrap_or(-1)
}

/// Returns the namespaces that a command names.
fn used(name: &str, arguments: &Arguments) -> Vec<String> {
    let database = &arguments.database;
    match name {
        "bulkWrite" => {
            let listed = arguments.body.get_array("nsInfo").into_iter().flatten();
            let names = listed.filter_map(|it| it.as_document()?.get_str("ns").ok());
            names.map(str::to_owned).collect()
        }
        // The collection is in use since the cursor was opened.
        "getMore" | "killCursors" => Vec::new(),
        _ => {
            let (_, collection) = arguments.body.iter().next().unzip();
            let collection = collection.and_then(|it| it.as_str());
            collection.map(|it| format!("{database}.{it}")).into_iter().collect()
        }
    }
}

/// Returns whether a reply reports no statement that has failed.
fn has_succeeded(reply: &RawDocument) -> bool {
    let has_errors = reply.get("writeErrors").is_ok_and(|it| it.is_some());
    !has_errors && reply.get_i32("nErrors").unwrap_or(0) == 0
}

pub(super) fn too_old(number: i64, active: i64) -> CommandError {
    let reason = format!(
        "Cannot start transaction with {{ txnNumber: {number} }} because a newer transaction with \
         txnNumber {active} has already started on this session."
    );
    CommandError::coded(225, reason)
}

fn is_committed(number: i64) -> CommandError {
    let reason = format!("Transaction with {{ txnNumber: {number} }} has been committed.");
    CommandError::coded(256, reason)
}

fn is_aborted(number: i64) -> CommandError {
    let reason = format!("Transaction with {{ txnNumber: {number} }} has been aborted.");
    CommandError::coded(251, reason)
}

pub(super) fn is_unknown(number: i64, active: i64) -> CommandError {
    let reason = format!(
        "Given transaction number {number} does not match any in-progress transactions. The active \
         transaction number is {active}"
    );
    CommandError::coded(251, reason)
}
