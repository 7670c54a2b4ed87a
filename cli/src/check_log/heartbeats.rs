//! The rules about the checks of one server after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::config::ServerAddress;

use super::clock::Limits;
use super::finding::{Broken, Finding};
use super::record::{Found, Record};
use super::rule::Rule;

/// The time from a check until the next may begin.
const FLOOR: Duration = Duration::from_millis(500);

/// By how much that may seem less, as lines are written later than things happen.
const FLOOR_TOLERANCE: Duration = Duration::from_millis(100);

/// The place and time at which something was logged.
#[derive(Clone, Copy, Debug)]
struct Mark {
    line: usize,
    at: Option<Duration>,
    awake: Option<Duration>,
}

/// The end of the last check of a server.
#[derive(Clone, Copy, Debug)]
struct Ending {
    mark: Mark,
    /// True if the next check may be the first one once more, at once.
    is_retried: bool,
    /// True if the next check may be an awaited one, at once.
    is_streamed: bool,
    succeeded: bool,
}

/// The monitor of one server.
#[derive(Debug, Default)]
struct Monitor {
    in_progress: Option<Mark>,
    /// True if that is awaited, if the log says.
    awaited: Option<bool>,
    ended: Option<Ending>,
    /// The last thing that was heard of it, or that it was asked for.
    last: Option<Mark>,
    /// True if it was found to be stuck and has not moved since.
    stuck: bool,
    /// True if the log says that its server is to be checked; the end of a check alone may be that
    /// of one whose server has left before the log begins.
    is_stated: bool,
}

/// The monitors of a topology.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    topology: usize,
    /// True if the log begins before the first check does.
    is_whole: bool,
    monitors: BTreeMap<ServerAddress, Monitor>,
    /// Checks that were in progress when their servers left.
    left: Vec<(ServerAddress, Mark)>,
}

impl Heartbeats {
    pub(super) fn new(topology: usize, is_whole: bool) -> Self {
        Self { topology, is_whole, ..Self::default() }
    }

    fn finding(&self, mark: Mark, rule: Rule, expected: String, found: String) -> Finding {
        let broken = Broken::new(rule, expected, found);
        Finding { line: mark.line, at: mark.at, topology: self.topology, broken }
    }

    /// A server has joined, and is to be checked from now on.
    pub(super) fn joined(
        &mut self,
        record: &Record,
        awake: Option<Duration>,
        address: &ServerAddress,
    ) {
        let mark = Mark { line: record.line, at: record.at, awake };
        let monitor = self.monitors.entry(address.clone()).or_default();
        monitor.last.get_or_insert(mark);
        monitor.is_stated = true;
    }

    /// A server has left, or all have.
    pub(super) fn left(&mut self, address: &ServerAddress) {
        let monitor = self.monitors.remove(address);
        let mark = monitor.and_then(|monitor| monitor.in_progress);
        self.left.extend(mark.map(|mark| (address.clone(), mark)));
    }

    pub(super) fn started(
        &mut self,
        record: &Record,
        awake: Option<Duration>,
        (address, awaited): (&ServerAddress, Option<bool>),
    ) -> Option<Finding> {
        let mark = Mark { line: record.line, at: record.at, awake };
        let monitor = self.monitors.entry(address.clone()).or_default();
        let (before, ended) = (monitor.in_progress.replace(mark), monitor.ended);
        (monitor.last, monitor.stuck, monitor.awaited) = (Some(mark), false, awaited);
        monitor.is_stated = true;
        if let Some(before) = before {
            // The log does not say which of the two ends next.
            monitor.awaited = None;
            let expected = format!("the end of the heartbeat of {address} in line {}", before.line);
            let found = "another one of that server starts".to_owned();
            return Some(self.finding(mark, Rule::TwoHeartbeats, expected, found));
        }
        let may_follow =
            |ended: &Ending| ended.is_retried || (ended.is_streamed && awaited != Some(false));
        // Without a topologyVersion there is nothing that a server could wait for a change of.
        if awaited == Some(true) && ended.is_some_and(|ended| !ended.is_streamed) {
            let expected = format!("no awaited check of {address}");
            let found = "one, though its last check has brought no topologyVersion".to_owned();
            return Some(self.finding(mark, Rule::WrongAwaited, expected, found));
        }
        let ended = ended.filter(|ended| !may_follow(ended))?;
        let pause = mark.at?.saturating_sub(ended.mark.at?);
        (pause < FLOOR - FLOOR_TOLERANCE).then(|| {
            let expected =
                format!("no check of {address} within 500 ms of line {}", ended.mark.line);
            let found = format!("one starts {} ms after it", pause.as_millis());
            self.finding(mark, Rule::HeartbeatTooSoon, expected, found)
        })
    }

    /// The end of a heartbeat says whether it was awaited, and its start has said something else.
    pub(super) fn awaited_otherwise(
        &self,
        record: &Record,
        address: &ServerAddress,
        awaited: Option<bool>,
    ) -> Option<Finding> {
        let monitor = self.monitors.get(address)?;
        let (start, stated) = (monitor.in_progress?, monitor.awaited?);
        let found = awaited.filter(|found| *found != stated)?;
        let mark = Mark { line: record.line, at: record.at, awake: None };
        let expected = format!("awaited: {stated}, as in line {}", start.line);
        Some(self.finding(mark, Rule::WrongAwaited, expected, format!("awaited: {found}")))
    }

    /// A heartbeat has ended; `was_known` is whether the server was not Unknown before that.
    pub(super) fn ended(
        &mut self,
        record: &Record,
        awake: Option<Duration>,
        (address, found): (&ServerAddress, &Found),
        was_known: bool,
    ) -> Option<Finding> {
        let mark = Mark { line: record.line, at: record.at, awake };
        let is_checked = self.monitors.get(address).is_some_and(|it| it.in_progress.is_some());
        let left = self.left.iter().position(|(left, _)| left == address);
        if let Some(index) = left.filter(|_| !is_checked) {
            self.left.swap_remove(index);
            return None;
        }
        let monitor = self.monitors.entry(address.clone()).or_default();
        let succeeded = !matches!(found, Found::Failure(_));
        let began_before = !self.is_whole && monitor.ended.is_none();
        let had_succeeded = monitor.ended.is_none_or(|ended| ended.succeeded);
        // "Retry hello or legacy hello calls once"
        let is_retried = !succeeded && (was_known || had_succeeded);
        let is_streamed = found.may_be_streamed();
        monitor.ended = Some(Ending { mark, is_retried, is_streamed, succeeded });
        (monitor.last, monitor.stuck) = (Some(mark), false);
        if monitor.in_progress.take().is_some() || began_before {
            return None;
        }
        let expected = format!("\"Server heartbeat started\" of {address} before");
        let found = match found {
            Found::Failure(detail) => format!("its heartbeat fails: {detail}"),
            _ => "its heartbeat succeeds".to_owned(),
        };
        Some(self.finding(mark, Rule::HeartbeatNotStarted, expected, found))
    }

    /// Finds monitors of which nothing was heard for too long.
    pub(super) fn find_stuck(
        &mut self,
        limits: &Limits,
        now: &Record,
        awake: Duration,
    ) -> Vec<Finding> {
        let longest = limits.longest_silence();
        let (topology, mut findings) = (self.topology, Vec::new());
        for (address, monitor) in &mut self.monitors {
            let is_due = monitor.is_stated && !monitor.stuck;
            let Some(last) = monitor.last.filter(|_| is_due) else { continue };
            let Some(silence) = last.awake.map(|last| awake.saturating_sub(last)) else { continue };
            if silence <= longest {
                continue;
            }
            monitor.stuck = true;
            let (rule, expected) = match monitor.in_progress {
                Some(_) => (Rule::HeartbeatStuck, "the end of this heartbeat of"),
                None => (Rule::NotChecked, "another check of"),
            };
            let expected = format!("{expected} {address} within {} ms", longest.as_millis());
            let (line, silence) = (now.line, silence.as_millis());
            let found = format!("nothing of it until line {line}, {silence} ms later");
            let broken = Broken::new(rule, expected, found);
            findings.push(Finding { line: last.line, at: last.at, topology, broken });
        }
        findings
    }

    /// Finds the heartbeats that have never ended, although the client was closed, or their servers
    /// have left long ago.
    pub(super) fn never_ended(
        &mut self,
        limits: &Limits,
        awake: Option<Duration>,
        is_closed: bool,
    ) -> Vec<Finding> {
        if is_closed {
            let members: Vec<_> = self.monitors.keys().cloned().collect();
            members.iter().for_each(|address| self.left(address));
        }
        let is_late = |mark: &Mark| {
            let silence = awake.zip(mark.awake).map(|(now, then)| now.saturating_sub(then));
            is_closed || silence.is_some_and(|silence| silence > limits.longest_silence())
        };
        let left = self.left.iter().filter(|(_, mark)| is_late(mark));
        let finding = |(address, mark): &(ServerAddress, Mark)| {
            let expected = format!("the success or failure of this heartbeat of {address}");
            let found = "it never ends, and its server leaves or the client is closed".to_owned();
            self.finding(*mark, Rule::HeartbeatNotEnded, expected, found)
        };
        left.map(finding).collect()
    }
}
