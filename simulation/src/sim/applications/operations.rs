//! The operations of applications, as far as checks have to know of them: whose session each has,
//! what limits it, and how many there are at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::time::Instant;

/// The holder of a session: an operation that has one for itself, or a session of an application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Operation(i64),
    Session(i64),
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) client: usize,
    pub(super) holder: Holder,
    pub(super) began: Instant,
    pub(super) timeout: Option<Duration>,
    /// True if its command may be asked for again and again.
    pub(super) repeats: bool,
}

/// All operations so far.
#[derive(Debug, Default)]
pub(super) struct Operations {
    last: i64,
    known: BTreeMap<i64, Operation>,
    /// The holders of sessions, by their numbers, with their clients.
    holders: BTreeMap<i64, usize>,
    /// The numbers of operations, sessions and cursors of each client that have not ended.
    busy: BTreeMap<usize, u32>,
    pub(super) begun: u64,
    pub(super) succeeded: u64,
}

impl Operations {
    fn next(&mut self, client: usize) -> i64 {
        self.last += 1;
        *self.busy.entry(client).or_default() += 1;
        self.last
    }

    /// A session of an application's begins.
    pub(super) fn session(&mut self, client: usize) -> i64 {
        let number = self.next(client);
        self.holders.insert(number, client);
        number
    }

    /// An operation begins, in a session if it has one of the application's.
    pub(super) fn begin(
        &mut self,
        (client, began): (usize, Instant),
        session: Option<i64>,
        timeout: Option<Duration>,
    ) -> i64 {
        let number = self.next(client);
        self.begun += 1;
        let holder = session.map_or(Holder::Operation(number), Holder::Session);
        if session.is_none() {
            self.holders.insert(number, client);
        }
        self.known.insert(number, Operation { client, holder, began, timeout, repeats: false });
        number
    }

    /// An operation may ask for its command again and again.
    pub(super) fn repeats(&mut self, operation: i64) {
        self.known.entry(operation).and_modify(|it| it.repeats = true);
    }

    /// An operation, with its cursor if it has one, or a session has ended.
    pub(super) fn end(&mut self, client: usize) {
        if let Some(busy) = self.busy.get_mut(&client) {
            *busy = busy.saturating_sub(1);
        }
    }

    /// Returns the numbers of a client's holders of sessions that came before an operation.
    pub(super) fn holders_before(
        &self,
        operation: i64,
        client: usize,
    ) -> impl Iterator<Item = i64> {
        let before = self.holders.range(..operation);
        before.filter(move |(_, owner)| **owner == client).map(|(number, _)| *number)
    }

    pub(super) fn get(&self, number: i64) -> Option<Operation> {
        self.known.get(&number).copied()
    }

    /// Returns whether a client has one operation, and nothing else.
    pub(super) fn is_alone(&self, client: usize) -> bool {
        self.busy.get(&client).is_none_or(|busy| *busy <= 1)
    }
}
