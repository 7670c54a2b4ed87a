//! The ledger of a simulation: what applications do and are given, what is heard on the
//! network, and the first thing that must not be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdam::error::Error;
use sdam_core::bson::Bson;
use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription};
use sdam_core::operation::SYSTEM_OVERLOADED;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::checks::{Checks, Choice, Situation};
use super::conversation::{Conversations, Heard, text_of};
use super::operations::Operations;
use super::questions::Questions;
use super::stories::Stories;
use crate::histories::History;
use crate::sim::checks::{Finding, Violation};
use crate::sim::tap::{Line, Overheard, Tap};
use crate::virtual_time::Topology;

/// The number of lines that are kept of what was heard.
const LAST: usize = 60;

/// The time by which an operation may be late, for what is done at its end.
const LATE: Duration = Duration::from_millis(1);

/// A client, as the ledger knows it.
#[derive(Debug)]
struct KnownClient {
    client: Topology,
    view: Arc<TopologyDescription>,
    /// The members that a read of the nearest may use, and since when.
    choice: Choice,
    /// The time since which it knows no server that takes writes.
    without: Option<Instant>,
    /// The selections that wait, by their operations.
    waiting: BTreeMap<i64, Criteria>,
}

impl KnownClient {
    /// Notes the members that the client may choose from by now; returns from when until now it
    /// had none that takes writes.
    fn note(&mut self, now: Instant, addresses: &[ServerAddress]) -> Option<(Instant, Instant)> {
        let view = self.client.view();
        if Arc::ptr_eq(&view, &self.view) {
            return None;
        }
        let members = members(&view, addresses);
        if members != self.choice.members {
            self.choice = Choice { members, since: now };
        }
        self.view = view;
        let takes_writes = |it: &Arc<ServerDescription>| {
            matches!(it.server_type, ServerType::RsPrimary | ServerType::Mongos)
        };
        match self.view.servers().iter().any(takes_writes) {
            true => self.without.take().map(|since| (since, now)),
            false => {
                self.without.get_or_insert(now);
                None
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct LedgerState {
    pub(super) conversations: Conversations,
    /// The deeds of transactions.
    pub(super) history: History,
    pub(super) questions: Questions,
    pub(super) stories: Stories,
    pub(super) operations: Operations,
    pub(super) checks: Checks,
    /// Clients by their numbers on the network.
    clients: BTreeMap<usize, KnownClient>,
    addresses: Vec<ServerAddress>,
    /// The number of tasks that have not ended.
    tasks: usize,
    /// The members that have said they are overloaded since this was last asked.
    overloaded: Vec<usize>,
    violation: Option<(usize, Violation)>,
    /// The client whose last lines are kept.
    observed: Option<usize>,
    lines: VecDeque<String>,
    digest: u64,
}

/// The ledger of a simulation.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<LedgerState>);

impl Ledger {
    pub(super) fn new(
        checks: Checks,
        addresses: Vec<ServerAddress>,
        observed: Option<usize>,
    ) -> Arc<Self> {
        Arc::new(Self(Mutex::new(LedgerState {
            conversations: Conversations::default(),
            history: History::default(),
            questions: Questions::default(),
            stories: Stories::default(),
            operations: Operations::default(),
            checks,
            clients: BTreeMap::new(),
            addresses,
            tasks: 0,
            overloaded: Vec::new(),
            violation: None,
            observed,
            lines: VecDeque::new(),
            digest: 0xcbf2_9ce4_8422_2325,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tap for Ledger {
    fn hear(&self, now: Instant, line: Line, what: Overheard<'_>) {
        let mut state = self.lock();
        for heard in state.conversations.hear(now, line, what) {
            state.heard(now, line, &heard);
        }
    }
}

impl LedgerState {
    /// A client begins.
    pub(super) fn join(&mut self, number: usize, client: Topology) {
        let view = client.view();
        let (choice, waiting) = (Choice::default(), BTreeMap::new());
        let without = Some(Instant::ZERO);
        let known = KnownClient { client, view, choice, without, waiting };
        self.clients.insert(number, known);
    }

    fn heard(&mut self, now: Instant, line: Line, heard: &Heard) {
        let bits = match heard {
            Heard::Command(command) => command.body.as_bytes().len() as u64,
            Heard::Reply(_, reply) => reply.body.as_bytes().len() as u64 | 1 << 32,
            Heard::Lost(_) => 1 << 33,
            Heard::Unused(_) => 1 << 34,
            Heard::Unread(..) => 1 << 35,
        };
        let folded = self.digest ^ now.as_nanos() ^ bits.rotate_left(40);
        self.digest = folded.wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        self.write(now, line.client, || words(line, heard));
        if let Heard::Reply(_, reply) = heard
            && reply.has_label(SYSTEM_OVERLOADED)
        {
            self.overloaded.push(line.member);
        }
        // What a client has learned at this very time decides where it sends a command.
        if matches!(heard, Heard::Command(_))
            && let Some(known) = self.clients.get_mut(&line.client)
            && let Some(trouble) = known.note(now, &self.addresses)
        {
            self.checks.files.is_troubled(line.client, trouble);
        }
        let Self { checks, operations, conversations, clients, .. } = self;
        let finding = checks.hear(now, heard, operations, || Situation {
            is_alone: operations.is_alone(line.client) && !conversations.waits_elsewhere(line),
            choice: clients.get(&line.client).map(|it| it.choice.clone()).unwrap_or_default(),
        });
        self.judge(line.client, finding);
    }

    fn write(&mut self, now: Instant, client: usize, words: impl FnOnce() -> String) {
        if self.observed == Some(client) {
            if self.lines.len() == LAST {
                self.lines.pop_front();
            }
            let seconds = now.since_origin().as_secs_f64();
            let words: String = words().chars().take(300).collect();
            self.lines.push_back(format!("{seconds:11.6} {words}"));
        }
    }

    /// Notes what a check has found.
    pub(super) fn judge(&mut self, client: usize, finding: Finding) {
        if let Err(violation) = finding {
            self.violation.get_or_insert((client, violation));
        }
    }

    pub(super) fn fail(&mut self, client: usize, check: &'static str, detail: String) {
        self.judge(client, Err(Violation::new(check, detail)));
    }

    pub(super) fn take_violation(&mut self) -> Option<(usize, Violation)> {
        self.violation.take()
    }

    pub(super) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines).into()
    }

    pub(super) fn take_overloaded(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.overloaded)
    }

    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    /// A task of an application begins.
    pub(super) const fn task_begins(&mut self) {
        self.tasks += 1;
    }

    pub(super) const fn task_ends(&mut self) {
        self.tasks -= 1;
    }

    pub(super) const fn tasks(&self) -> usize {
        self.tasks
    }

    /// A selection begins to wait, or is about to look.
    pub(super) fn selects(&mut self, client: usize, operation: i64, criteria: Criteria) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.waiting.insert(operation, criteria);
        }
    }

    pub(super) fn has_selected(&mut self, client: usize, operation: i64) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.waiting.remove(&operation);
        }
    }

    /// An operation has come to its end, by which it may have failed.
    pub(super) fn ended(&mut self, now: Instant, operation: i64, error: Option<&Error>) {
        let Some(known) = self.operations.get(operation) else { return };
        self.operations.succeeded += u64::from(error.is_none());
        let (client, took) = (known.client, now - known.began);
        self.write(now, client, || format!("operation {operation} ends: {error:?}"));
        let Some(timeout) = known.timeout else { return };
        if took > timeout + LATE {
            let detail = format!("operation {operation} takes {took:?} of {timeout:?}: {error:?}");
            self.fail(client, "operations end within their timeoutMS", detail);
        }
        let is_timeout = error.is_some_and(Error::is_timeout);
        if is_timeout && took.is_zero() && !self.is_too_far(client, timeout) {
            let detail =
                format!("operation {operation} has {timeout:?}, and fails at once: {error:?}");
            self.fail(client, "no time is over before it is", detail);
        }
    }

    /// Returns whether a server's replies take that long at best, as far as the client knows: an
    /// operation with no more time than that fails "without attempting to send the message" (Client
    /// Side Operations Timeout, "Command Execution").
    pub(super) fn is_too_far(&self, client: usize, timeout: Duration) -> bool {
        let view = self.clients.get(&client).map(|it| it.client.view());
        let takes = |it: &Arc<ServerDescription>| it.min_round_trip_time >= timeout;
        view.is_some_and(|view| view.servers().iter().any(takes))
    }

    /// An operation learns which documents it has inserted.
    pub(super) fn inserted<'a>(&mut self, operation: i64, ids: impl IntoIterator<Item = &'a Bson>) {
        let Some(known) = self.operations.get(operation) else { return };
        let finding =
            self.checks.writes.inserted(operation, ids.into_iter().filter_map(Bson::as_i64));
        self.judge(known.client, finding);
    }

    /// Looks at every client when nothing more happens at a time: what waits for a server that is
    /// known by then is to have it.
    pub(super) fn look(&mut self, now: Instant) {
        let mut found = None;
        for (number, known) in &mut self.clients {
            if let Some(trouble) = known.note(now, &self.addresses) {
                self.checks.files.is_troubled(*number, trouble);
            }
            let is_there = |(_, it): &(&i64, &Criteria)| known.client.diagnose(it).is_none();
            if let Some((operation, _)) = known.waiting.iter().find(is_there) {
                found = found.or(Some((*number, *operation)));
            }
        }
        if let Some((client, operation)) = found {
            let detail = format!("operation {operation} waits for a server that is there");
            self.fail(client, "who waits for a server is served at once", detail);
        }
    }
}

/// Returns the members that suit a read of the nearest.
fn members(
    view: &TopologyDescription,
    addresses: &[ServerAddress],
) -> std::collections::BTreeSet<usize> {
    let suits = |it: ServerType| {
        matches!(it, ServerType::RsPrimary | ServerType::RsSecondary | ServerType::Mongos)
    };
    let suitable = view.servers().iter().filter(|it| suits(it.server_type));
    suitable.filter_map(|server| addresses.iter().position(|it| *it == server.address)).collect()
}

/// Puts what is heard into words.
fn words(line: Line, heard: &Heard) -> String {
    let member = line.member;
    match heard {
        Heard::Command(command) => {
            format!("-> member {member}, {:?}: {}", line.stream, text_of(&command.body))
        }
        Heard::Reply(command, reply) => {
            let (name, operation) = (&command.name, command.operation);
            format!("<- member {member}, {name} of {operation:?}: {}", text_of(&reply.body))
        }
        Heard::Lost(command) => {
            format!("lost member {member}, {} of {:?}", command.name, command.operation)
        }
        Heard::Unread(command, _) => {
            format!("unread member {member}, {} of {:?}", command.name, command.operation)
        }
        Heard::Unused(line) => format!("unused member {member}, {:?}", line.stream),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::config::Options;

    use super::{Checks, Criteria, Instant, Ledger};
    use crate::sim::applications::checks::Retries;
    use crate::sim::deployment::address;
    use crate::virtual_time::Simulation;

    #[test]
    fn an_operation_that_waits_for_a_server_that_is_there_is_found() {
        let mut simulation = Simulation::new(7);
        let client = simulation.topology(Options::parse(simulation.uri()).unwrap()).unwrap();
        let checks = Checks::new(false, Retries::new(2, false, false));
        let ledger = Ledger::new(checks, [0, 1, 2].map(address).to_vec(), None);
        ledger.lock().join(0, client);
        let operation = ledger.lock().operations.begin((0, Instant::ZERO), None, None);
        ledger.lock().selects(0, operation, Criteria::write());
        ledger.lock().look(Instant::ZERO);
        assert!(ledger.lock().take_violation().is_none(), "no server is known");
        simulation.run_for(Duration::from_secs(30));
        let now = Instant::ZERO + simulation.time().elapsed();
        ledger.lock().look(now);
        let (client, found) = ledger.lock().take_violation().unwrap();
        assert_eq!((client, found.check), (0, "who waits for a server is served at once"));
        ledger.lock().has_selected(0, operation);
        ledger.lock().look(now);
        assert!(ledger.lock().take_violation().is_none());
    }

    #[test]
    fn the_members_that_a_client_may_choose_from_are_those_of_its_last_change() {
        let mut simulation = Simulation::new(7);
        let client = simulation.topology(Options::parse(simulation.uri()).unwrap()).unwrap();
        let checks = Checks::new(false, Retries::new(2, false, false));
        let ledger = Ledger::new(checks, [0, 1, 2].map(address).to_vec(), None);
        ledger.lock().join(0, client);
        simulation.run_for(Duration::from_secs(30));
        let (known, later) = (Instant::from_millis(30_000), Instant::from_millis(31_000));
        for now in [known, later] {
            ledger.lock().look(now);
            let choice = ledger.lock().clients[&0].choice.clone();
            assert_eq!((choice.members, choice.since), ([0, 1, 2].into(), known));
        }
        let state = ledger.lock();
        assert!(!state.is_too_far(0, Duration::from_secs(1)), "servers answer within milliseconds");
        assert!(state.is_too_far(0, Duration::ZERO) && !state.is_too_far(1, Duration::ZERO));
    }
}
