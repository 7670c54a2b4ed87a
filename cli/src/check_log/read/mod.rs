//! A log, line by line: `line` reads one line, and here lines find their topologies.

mod address;
mod description;
mod line;
mod printed;
mod reply;
mod repr;
mod time;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value};

pub(super) use self::reply::document as hello;
use super::record::{Record, What};

/// The number of unreadable lines that are reported.
const MAX_NAMED: usize = 10;

/// A log that was read.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The records of topologies, in their order.
    pub(crate) records: Vec<Record>,
    /// The names of the topologies, by their numbers.
    pub(crate) topologies: Vec<String>,
    /// The times of their latest records.
    latest: Vec<Option<Duration>>,
    /// The number of lines that there are that are not empty.
    pub(crate) lines: usize,
    /// The number of them that speak of something else.
    pub(crate) passed_over: usize,
    /// The number that cannot be read.
    pub(crate) unreadable: usize,
    /// The first of those, by line, and why.
    pub(crate) complaints: Vec<(usize, String)>,
    /// The records of topologies that are missing.
    pub(super) missing: Missing,
    /// heartbeatFrequencyMS, if a line has it.
    pub(crate) heartbeat_frequency: Option<Duration>,
    /// connectTimeoutMS, if a line has it.
    pub(crate) connect_timeout: Option<Duration>,
    /// The earliest time in it, since 1970 or since the log's own beginning.
    pub(crate) origin: Option<Duration>,
}

/// Lines that look like what drivers say of topologies, and cannot be read.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) count: usize,
    /// The first one, and why.
    pub(super) first: Option<(usize, String)>,
}

/// A line that cannot be attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {0} says of which server it speaks and not of which topology, and there are several; \
     give every line of a client its own clientId"
)]
pub(crate) struct Ambiguous(usize);

/// Finds out which topology lines belong to.
#[derive(Debug, Default)]
struct Attribution {
    by_name: HashMap<String, usize>,
    by_client: HashMap<String, usize>,
    /// Those that have not been closed, in the order in which they were opened.
    open: Vec<usize>,
}

impl Log {
    /// Reads a log.
    pub(super) fn read(text: &str) -> Result<Self, Ambiguous> {
        let (mut log, mut attribution) = (Self::default(), Attribution::default());
        for (number, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() {
                continue;
            }
            log.lines += 1;
            let object = match line::object(text) {
                Ok(object) => object,
                Err(error) => {
                    log.complain(number, error);
                    continue;
                }
            };
            let at = time::written_at(&object);
            log.origin = log.origin.into_iter().chain(at).min();
            match line::what(&object) {
                Ok(Some(What::Lost)) => log.lose((number, at), &attribution, &object),
                Ok(Some(what)) => {
                    let topology = log.attribute(&mut attribution, &object, &what);
                    let topology = topology.ok_or(Ambiguous(number))?;
                    log.add(Record { line: number, at, topology, what });
                }
                Ok(None) => log.pass_over(&object),
                Err(error) => log.complain(number, error),
            }
        }
        let origin = log.origin.unwrap_or_default();
        for at in log.records.iter_mut().filter_map(|record| record.at.as_mut()) {
            *at = at.saturating_sub(origin);
        }
        Ok(log)
    }

    /// Adds a record, no earlier than the last one of its topology: lines of others, and of other
    /// kinds, may have been written before earlier ones of this.
    fn add(&mut self, mut record: Record) {
        let last = &mut self.latest[record.topology];
        *last = record.at.max(*last);
        record.at = *last;
        self.records.push(record);
    }

    fn complain(&mut self, line: usize, error: line::LineError) {
        self.unreadable += 1;
        if error.is_of_topology() {
            self.missing.count += 1;
            self.missing.first.get_or_insert_with(|| (line, error.to_string()));
        }
        if self.complaints.len() < MAX_NAMED {
            self.complaints.push((line, error.to_string()));
        }
    }

    /// Passes over a line of another kind, unless it has the options.
    fn pass_over(&mut self, object: &Map<String, Value>) {
        self.passed_over += 1;
        let millis = |name: &str| {
            let millis = object.get(name)?.as_f64()?;
            Duration::try_from_secs_f64(millis / 1e3).ok()
        };
        self.heartbeat_frequency = self.heartbeat_frequency.or(millis("heartbeatFrequencyMS"));
        self.connect_timeout = self.connect_timeout.or(millis("connectTimeoutMS"));
    }

    /// Notes that messages are missing, of any topology that is open; of one, if a client is named.
    fn lose(
        &mut self,
        (line, at): (usize, Option<Duration>),
        attribution: &Attribution,
        object: &Map<String, Value>,
    ) {
        let client = object.get("clientId").and_then(name);
        let only = client.map(|client| attribution.by_client.get(&client).copied());
        let open = attribution.open.iter().copied();
        let open = open.filter(|open| only.is_none_or(|only| only == Some(*open)));
        open.for_each(|topology| self.add(Record { line, at, topology, what: What::Lost }));
    }

    /// Returns the number of the topology that a line belongs to.
    fn attribute(
        &mut self,
        attribution: &mut Attribution,
        object: &Map<String, Value>,
        what: &What,
    ) -> Option<usize> {
        let client = object.get("clientId").and_then(name);
        let topology = match object.get("topologyId").and_then(name) {
            Some(id) => {
                let full = client.iter().chain([&id]).map(String::as_str).collect::<Vec<_>>();
                self.named(attribution, &full.join("/"))
            }
            None => match &client {
                Some(client) => match attribution.by_client.get(client) {
                    Some(topology) => *topology,
                    None => self.named(attribution, client),
                },
                None => match attribution.open[..] {
                    [only] => only,
                    // It may end what a topology has begun before it was closed.
                    [] => match self.topologies.len() {
                        0 => self.named(attribution, ""),
                        count => count - 1,
                    },
                    _ => return None,
                },
            },
        };
        if let Some(client) = client {
            attribution.by_client.insert(client, topology);
        }
        if let What::TopologyClosed = what {
            attribution.open.retain(|open| *open != topology);
        }
        Some(topology)
    }

    fn named(&mut self, attribution: &mut Attribution, name: &str) -> usize {
        if let Some(topology) = attribution.by_name.get(name) {
            return *topology;
        }
        // The first lines of a log that begins in the middle may lack it.
        if let [unnamed] = &mut self.topologies[..]
            && unnamed.is_empty()
        {
            name.clone_into(unnamed);
            attribution.by_name.insert(name.to_owned(), 0);
            return 0;
        }
        let topology = self.topologies.len();
        self.topologies.push(name.to_owned());
        self.latest.push(None);
        attribution.by_name.insert(name.to_owned(), topology);
        attribution.open.push(topology);
        topology
    }
}

/// Reads the name of a topology or client: a text, a number, or an ObjectId in extended JSON.
fn name(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Object(object) => match object.values().next() {
            Some(Value::String(text)) if object.len() == 1 => Some(text.clone()),
            _ => Some(value.to_string()),
        },
        value => Some(value.to_string()),
    }
}
