//! A log of any driver as a report: its events and messages, as far as they have times. A log lacks
//! what decides about operations, so that verdicts are those that types of servers show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::time::Instant;

use super::judged::by_states;
use super::words;
use crate::check_log::{Found, Log, Record, What};
use crate::duration::precise;
use crate::duration::rfc_3339;
use crate::report::model::{Builder, Check, Event, Origin, Report, without_secrets};
use crate::watch::{State, Tone};

/// The time since 1970 from which a log has the date, and not a time since its own beginning: 1973.
const LEAST_DATE: Duration = Duration::from_secs(100_000_000);

/// The reason why no report can be made of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogError {
    /// No line has a time.
    #[error("no line has a time, which a report needs")]
    NoTimes,
    /// There is no such topology.
    #[error("there is no topology {name:?}; there are {}", known.join(", "))]
    NoTopology {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
}

/// Reads the lines of one topology, and remembers what later ones need.
#[derive(Debug, Default)]
struct Reader {
    builder: Builder,
    /// The beginning of each server's check that goes on.
    started: BTreeMap<ServerAddress, Instant>,
    /// The failure of each server whose last check has failed.
    failures: BTreeMap<ServerAddress, String>,
    /// True if a server was found to be a member of a replica set.
    is_set: bool,
    /// The name of that set, and all servers.
    set_name: Option<String>,
    hosts: BTreeSet<String>,
}

/// Makes a report of one topology of a log: of that with this name, or of that with the most lines.
pub(in crate::report) fn read(
    name: &str,
    log: &Log,
    text: &str,
    topology: Option<&str>,
) -> Result<Report, LogError> {
    let number = chosen(log, topology)?;
    let records: Vec<&Record> = log.records.iter().filter(|it| it.topology == number).collect();
    if records.iter().all(|record| record.at.is_none()) {
        return Err(LogError::NoTimes);
    }
    let (mut reader, mut end) = (Reader::default(), Instant::ZERO);
    let closing = closing(&records);
    for (index, record) in records.iter().enumerate() {
        let at = record.at.map_or(end, |at| Instant::ZERO + at);
        end = at;
        let moment = (at, record.line);
        // What a view means may depend on how long it lasts.
        reader.judge(moment);
        if index == closing {
            let text = "the client was closed".to_owned();
            reader.builder.add(Event::new(moment, Tone::Neutral, "topology", text));
            break;
        }
        reader.record(moment, &record.what);
        reader.judge(moment);
    }
    reader.notes(log, number);
    let origin = Origin {
        name: name.to_owned(),
        deployment: super::deployment(
            reader.set_name.as_deref(),
            &reader.hosts.iter().cloned().collect::<Vec<_>>(),
        ),
        began: log.origin.filter(|origin| *origin >= LEAST_DATE).map(date),
        lines: log.lines,
    };
    let lines: Vec<&str> = text.lines().collect();
    Ok(reader.builder.finish(origin, end, |line| {
        line.checked_sub(1).and_then(|index| lines.get(index)).copied().unwrap_or_default()
    }))
}

/// Returns the number of the topology that is shown.
fn chosen(log: &Log, topology: Option<&str>) -> Result<usize, LogError> {
    let Some(name) = topology else {
        let mut counts = vec![0_usize; log.topologies.len()];
        log.records.iter().for_each(|record| counts[record.topology] += 1);
        let most = counts.iter().max().copied().unwrap_or_default();
        return Ok(counts.iter().position(|count| *count == most).unwrap_or_default());
    };
    log.topologies.iter().position(|known| known == name).ok_or_else(|| LogError::NoTopology {
        name: name.to_owned(),
        known: log.topologies.iter().map(|it| format!("{:?}", without_secrets(it))).collect(),
    })
}

/// Returns the index of the record with which the client begins to be closed: servers leave before
/// the topology ends. Of a log without an end it is the number of records.
fn closing(records: &[&Record]) -> usize {
    let is_end = |record: &&Record| matches!(record.what, What::TopologyClosed);
    let Some(end) = records.iter().position(is_end) else { return records.len() };
    let is_of_end = |record: &&Record| match &record.what {
        What::ServerClosed { .. } => true,
        What::TopologyChanged { new, .. } => {
            let mut types = new.iter().flat_map(|new| new.types());
            types.all(|(_, kind)| kind == ServerType::Unknown)
        }
        What::ServerChanged { new, .. } => {
            new.as_ref().is_none_or(|new| new.server_type == ServerType::Unknown)
        }
        What::Ended { found, .. } => matches!(found, Found::Failure(_)),
        What::TopologyOpening
        | What::TopologyClosed
        | What::ServerOpening { .. }
        | What::Started { .. }
        | What::Lost => false,
    };
    let before = records[..end].iter().rposition(|record| !is_of_end(record));
    let from = before.map_or(0, |before| before + 1);
    // That a check fails at last is no end, unless servers leave with it.
    let leaves = |record: &&Record| matches!(record.what, What::ServerClosed { .. });
    records[from..end].iter().position(leaves).map_or(end, |first| from + first)
}

fn date(since_1970: Duration) -> String {
    rfc_3339(std::time::UNIX_EPOCH + since_1970)
}

impl Reader {
    fn record(&mut self, moment: (Instant, usize), what: &What) {
        match what {
            What::TopologyChanged { new: Some(new), .. } => {
                self.set_name = new.set_name.clone().or(self.set_name.take());
                for (address, server) in new.servers.iter().flatten() {
                    self.server(moment, address, server.server_type);
                    let millis = server.round_trip_time.flatten().map(|millis| millis / 1e3);
                    let time = millis.and_then(|it| Duration::try_from_secs_f64(it).ok());
                    if let Some(time) = time {
                        self.builder.round_trip(moment.0, &address.to_string(), time);
                    }
                }
                self.primary(moment);
            }
            What::ServerChanged { address, new: Some(new), .. } => {
                self.server(moment, address, new.server_type);
                self.primary(moment);
            }
            What::ServerOpening { address } => {
                self.builder.state(moment, &address.to_string(), State::Unchecked);
            }
            What::ServerClosed { address } => {
                self.builder.left(moment.0, &address.to_string());
                self.add(moment, Tone::Neutral, address, "left, and is monitored no more");
                self.primary(moment);
            }
            What::Started { address, .. } => {
                self.started.insert(address.clone(), moment.0);
            }
            What::Ended { address, found, awaited } => {
                self.checked(moment, (address, awaited.unwrap_or_default()), found);
            }
            What::Lost => {
                self.started.clear();
                let text = "messages of the log were lost".to_owned();
                self.builder.add(Event::new(moment, Tone::Bad, "topology", text));
            }
            What::TopologyOpening
            | What::TopologyClosed
            | What::TopologyChanged { new: None, .. }
            | What::ServerChanged { new: None, .. } => {}
        }
    }

    fn server(&mut self, moment: (Instant, usize), address: &ServerAddress, kind: ServerType) {
        let name = address.to_string();
        self.hosts.insert(name.clone());
        let before = self.builder.state_of(&name);
        self.builder.state(moment, &name, State::of_type(kind, false));
        let after = self.builder.state_of(&name);
        self.is_set |=
            matches!(kind, ServerType::RsPrimary | ServerType::RsSecondary | ServerType::RsArbiter);
        let (Some(before), Some(after)) = (before, after) else { return };
        // The line about a new primary has the time that there was none.
        if before == after || after == State::Primary {
            return;
        }
        let is_unknown = |state| matches!(state, State::Failing | State::Unchecked);
        let tone = match (is_unknown(before), is_unknown(after)) {
            (_, true) => Tone::Bad,
            (true, false) => Tone::Good,
            (false, false) => Tone::Neutral,
        };
        let named = |state| if is_unknown(state) { "unknown" } else { state.name() };
        self.add(moment, tone, address, &format!("{} → {}", named(before), named(after)));
    }

    /// Finds the primary among the servers.
    fn primary(&mut self, moment: (Instant, usize)) {
        if self.is_set {
            let primary = self.builder.find(State::Primary);
            self.builder.primary(moment, primary.as_deref());
        }
    }

    /// Takes notice of the end of a check; its lines have to say how long it took.
    fn checked(
        &mut self,
        (at, line): (Instant, usize),
        (address, awaited): (&ServerAddress, bool),
        found: &Found,
    ) {
        let lasted = self.started.remove(address).map(|started| at - started);
        let took = lasted.map(|it| it.as_nanos() as f64 / 1e6);
        let name = address.to_string();
        let failure = match found {
            Found::Failure(error) => Some(words::error(error, &name).into_owned()),
            Found::Reply(_) | Found::UnseenReply => None,
        };
        match &failure {
            None => _ = self.failures.remove(address),
            Some(failure) => {
                self.builder.failing((at, line), &name, failure);
                let before = self.failures.insert(address.clone(), failure.clone());
                // That it goes on is no news.
                if before.as_ref() != Some(failure) {
                    let after = lasted.map(|it| format!(" after {}", precise(it)));
                    let after = after.unwrap_or_default();
                    let text = format!("check failed{after}: {failure}");
                    self.add((at, line), Tone::Bad, address, &text);
                }
            }
        }
        self.builder.check(&name, Check { at, line, took, awaited, failure });
    }

    fn judge(&mut self, moment: (Instant, usize)) {
        let (writes, reads) = by_states(&self.builder, moment.0);
        self.builder.judge(moment, writes, reads);
    }

    fn add(&mut self, moment: (Instant, usize), tone: Tone, address: &ServerAddress, text: &str) {
        self.builder.add(Event::new(moment, tone, &address.to_string(), text.to_owned()));
    }

    /// Says what the log lacks.
    fn notes(&mut self, log: &Log, number: usize) {
        let others = log.topologies.iter().enumerate().filter(|(other, _)| *other != number);
        let others: Vec<&str> = others.map(|(_, name)| &**name).collect();
        if !others.is_empty() {
            let note = format!(
                "the log has further topologies, which --topology chooses: {}",
                others.join(", ")
            );
            self.builder.note(note);
        }
        if log.unreadable > 0 {
            let (count, first) = (log.unreadable, log.complaints.first());
            let line = first.map_or(0, |(line, _)| *line);
            self.builder.note(format!("{count} lines cannot be read, the first is line {line}"));
        }
        self.builder.note(
            "a log does not say why operations find no server: verdicts are those that the \
             types of servers show"
                .to_owned(),
        );
    }
}
