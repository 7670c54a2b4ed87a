//! Puts events into words: for each, what has changed, in lines of moderate length.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::{
    Change, RemovalReason, ServerDescription, ServerType, TopologyDescription,
};
use sdam_core::diagnosis::SelectionError;
use sdam_core::failure::{Cause, Failure};
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind};

use crate::duration::precise;
use crate::text::{abridged, escaped, of_server};

/// The number of items of a list that are written out.
const MAX_LISTED: usize = 5;

/// The maximum length of a value and a failure, in characters; a failure may name two elections.
const MAX_VALUE_LEN: usize = 60;
const MAX_FAILURE_LEN: usize = 400;

/// The subject of lines about no server in particular.
const TOPOLOGY: &str = "topology";

/// The maximum padding of subjects, so that one long host name does not push all others away.
const MAX_PADDING: usize = 32;

/// True if a line is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Events that go without saying.
    Quiet,
    /// A change that is neither good nor bad.
    Neutral,
    /// Something works (again).
    Good,
    /// Something does not work.
    Bad,
    /// The user is asked to do something.
    Notice,
}

/// One line of the story; its texts contain nothing that a terminal would obey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The time when it happened.
    pub(super) at: Instant,
    /// The server's address, or `topology`.
    pub(super) subject: String,
    /// The text.
    pub(super) text: String,
    /// True if it is good news.
    pub(super) tone: Tone,
    /// The number of bytes at the beginning of the text that are left out first.
    expendable: usize,
}

impl Line {
    fn new(at: Instant, subject: &str, tone: Tone, text: &str) -> Self {
        let (subject, text) = (escaped(subject).into_owned(), escaped(text).into_owned());
        // Before an arrow stands what it was, a single word; what it is matters more.
        let arrow = text.find(" → ").filter(|arrow| !text[..*arrow].contains(' '));
        let expendable = arrow.map_or(0, |arrow| arrow + 1);
        Self { at, subject, text, tone, expendable }
    }

    /// Returns as much of the text as so many characters can hold; a mark shows what is missing in
    /// the middle.
    pub(super) fn within(&self, room: usize) -> Cow<'_, str> {
        match self.text.chars().count() > room {
            true => abridged(&self.text[self.expendable..], room),
            false => Cow::Borrowed(&self.text),
        }
    }

    /// Says that events were dropped.
    pub(super) fn dropped(at: Instant, count: u64) -> Self {
        let text = format!("{count} events were dropped, because they were not read in time");
        Self::new(at, TOPOLOGY, Tone::Bad, &text)
    }

    /// Returns the width that subjects of this one's length are padded to.
    pub(super) fn padding(&self) -> usize {
        self.subject.chars().count().min(MAX_PADDING)
    }

    /// Returns the time since the start: `+12.345s`.
    pub(super) fn time(&self) -> String {
        let at = self.at.since_origin();
        format!("+{}.{:03}s", at.as_secs(), at.subsec_millis())
    }
}

/// Puts events into words, remembering what is needed to say why servers leave.
pub(super) struct Story {
    heartbeats: bool,
    topology: Arc<TopologyDescription>,
    /// Servers that have changed since the topology last did: what explains its next change.
    changed: Vec<Arc<ServerDescription>>,
    /// The last failed heartbeat, which need not be described again as a change.
    failed: Option<(ServerAddress, Failure)>,
    /// The failure of each server whose last heartbeat has failed: that it goes on is no news.
    failing: BTreeMap<ServerAddress, Arc<str>>,
    diagnose: Diagnose,
}

/// Says why a write would find no server.
pub(crate) type Diagnose = Box<dyn Fn() -> Option<Box<SelectionError>> + Send>;

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Story").field("topology", &self.topology).finish_non_exhaustive()
    }
}

impl Story {
    /// Begins; `heartbeats` is whether to describe those that begin, succeed and are given up too.
    pub(super) fn new(heartbeats: bool, diagnose: Diagnose) -> Self {
        let (topology, changed, failing) = (Arc::default(), Vec::new(), BTreeMap::new());
        Self { heartbeats, topology, changed, failed: None, failing, diagnose }
    }

    /// Returns the lines that describe an event; none if it is not worth one.
    pub(super) fn describe(&mut self, event: &Event) -> Vec<Line> {
        let line = |subject: &dyn fmt::Display, tone, text: String| {
            vec![Line::new(event.at, &subject.to_string(), tone, &text)]
        };
        match &event.kind {
            EventKind::TopologyOpening => line(&TOPOLOGY, Tone::Neutral, "opening".to_owned()),
            EventKind::TopologyClosed => line(&TOPOLOGY, Tone::Neutral, "closed".to_owned()),
            EventKind::TopologyDescriptionChanged { previous, new } => {
                self.describe_topology(event.at, previous, new)
            }
            EventKind::ServerOpening { address, .. } => {
                line(address, Tone::Quiet, "opening".to_owned())
            }
            EventKind::ServerClosed { address, .. } => match self.removal_reason(address) {
                Some(removal_reason) => {
                    line(address, Tone::Bad, format!("closed: it {removal_reason}"))
                }
                None => line(address, Tone::Quiet, "closed".to_owned()),
            },
            EventKind::ServerDescriptionChanged { previous, new } => {
                self.changed.push(Arc::clone(new));
                if new.error.is_none() {
                    self.failing.remove(&new.address);
                }
                match self.server_text(previous, new) {
                    Some(text) => line(&new.address, tone(previous, new), text),
                    None => Vec::new(),
                }
            }
            // What has come of it says why it was given up.
            EventKind::ServerHeartbeatFailed { failure, .. }
                if failure.cause == Cause::Canceled && !self.heartbeats =>
            {
                Vec::new()
            }
            EventKind::ServerHeartbeatFailed { address, failure, .. }
                if !self.is_new_failure(address, failure) =>
            {
                Vec::new()
            }
            EventKind::ServerHeartbeatFailed { address, duration, failure, .. } => {
                self.failed = Some((address.clone(), failure.clone()));
                vec![failed_heartbeat(event.at, address, *duration, failure)]
            }
            EventKind::SrvHostRefused { error } => line(&TOPOLOGY, Tone::Bad, error.to_string()),
            EventKind::SrvRescanFailed { error } => line(&TOPOLOGY, Tone::Bad, error.to_string()),
            EventKind::Diagnosed { verdict } => line(&TOPOLOGY, Tone::Notice, verdict.sentence()),
            EventKind::ServerHeartbeatStarted { address, awaited, .. } if self.heartbeats => {
                let text = format!("heartbeat started{}", awaiting(*awaited));
                line(address, Tone::Quiet, text)
            }
            EventKind::ServerHeartbeatSucceeded { address, awaited, duration, .. }
                if self.heartbeats =>
            {
                let (duration, awaiting) = (precise(*duration), awaiting(*awaited));
                let text = format!("heartbeat succeeded in {duration}{awaiting}");
                line(address, Tone::Quiet, text)
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether a heartbeat has not failed in this way just before.
    fn is_new_failure(&mut self, address: &ServerAddress, failure: &Failure) -> bool {
        let before = self.failing.insert(address.clone(), Arc::clone(&failure.detail));
        self.heartbeats || before.as_ref() != Some(&failure.detail)
    }

    fn describe_topology(
        &mut self,
        at: Instant,
        previous: &TopologyDescription,
        new: &Arc<TopologyDescription>,
    ) -> Vec<Line> {
        if new.servers().is_empty() && self.changed.is_empty() {
            // The client is being closed, which the next event says.
            self.topology = Arc::clone(new);
            return Vec::new();
        }
        let changes = previous.changes(new);
        let mut lines = Vec::new();
        if self.heartbeats || changes.iter().any(|change| !is_noise(change.field)) {
            let tone = match new.incompatibility {
                Some(_) => Tone::Bad,
                None => Tone::Neutral,
            };
            let is_worth_it = |change: &&Change| self.heartbeats || !is_noise(change.field);
            let worthy: Vec<Change> = changes.iter().filter(is_worth_it).cloned().collect();
            let text = sentence(&worthy);
            lines.push(Line::new(at, TOPOLOGY, tone, &text));
        }
        if new.servers().is_empty()
            && let Some(error) = (self.diagnose)()
        {
            lines.push(Line::new(at, TOPOLOGY, Tone::Notice, &error.verdict.sentence()));
        }
        self.topology = Arc::clone(new);
        self.changed.clear();
        lines
    }

    /// Says what has changed, without what goes without saying; `None` if it was all said.
    fn server_text(&self, previous: &ServerDescription, new: &ServerDescription) -> Option<String> {
        let mut changes = previous.changes(new);
        if let Some((address, failure)) = &self.failed
            && *address == new.address
            && new.error.as_ref() == Some(failure)
        {
            changes.retain(|change| change.field != "error");
        }
        let expected = self.topology.set_name.as_ref();
        let set_is_another = expected.is_some() && expected != new.set_name.as_ref();
        let is_worth_it = |change: &Change| match (is_blank(previous), is_blank(new)) {
            (_, true) => matches!(change.field, "type" | "error"),
            (true, false) => match change.field {
                "setName" => set_is_another,
                "primary" => self.is_news(new),
                field => matches!(field, "type" | "tags"),
            },
            (false, false) if self.heartbeats => true,
            (false, false) => match change.field {
                "primary" => self.is_news(new),
                // It has been elected again, and was not seen without.
                "electionId" => previous.server_type == new.server_type,
                field => !is_noise(field),
            },
        };
        changes.retain(is_worth_it);
        Some(sentence(&changes)).filter(|text| !text.is_empty())
    }

    /// Returns whether a server names a primary that was not known as such: not itself, and not
    /// the one that the topology has.
    fn is_news(&self, server: &ServerDescription) -> bool {
        let known = self.topology.primary().map(|primary| &primary.address);
        let named = server.primary.as_ref();
        named.is_some() && named != known && named != Some(&server.address)
    }

    /// Infers why the server at `address` leaves; `None` if the client is being closed.
    fn removal_reason(&self, address: &ServerAddress) -> Option<RemovalReason> {
        if self.changed.is_empty() {
            return None;
        }
        let found = self.changed.iter().find(|server| server.address == *address);
        Some(found.map_or(RemovalReason::NotListed, |server| {
            RemovalReason::infer(server, &self.topology)
        }))
    }
}

const fn awaiting(awaited: bool) -> &'static str {
    match awaited {
        true => " (awaited)",
        false => "",
    }
}

fn failed_heartbeat(
    at: Instant,
    address: &ServerAddress,
    duration: Duration,
    failure: &Failure,
) -> Line {
    let (tone, word) = match failure.cause {
        Cause::Canceled => (Tone::Quiet, "canceled"),
        _ => (Tone::Bad, "failed"),
    };
    let (duration, failure) = (precise(duration), failure.to_string());
    let failure = abridged(of_server(&failure, address), MAX_FAILURE_LEN);
    let expendable = format!("heartbeat {word} after {duration}: ");
    let text = format!("{expendable}{failure}");
    let line = Line::new(at, &address.to_string(), tone, &text);
    Line { expendable: expendable.len(), ..line }
}

/// Returns whether a server says nothing of itself, or is not there to say it.
fn is_blank(server: &ServerDescription) -> bool {
    matches!(server.server_type, ServerType::Unknown | ServerType::RsGhost)
}

fn tone(previous: &ServerDescription, new: &ServerDescription) -> Tone {
    match (is_blank(previous), is_blank(new)) {
        (true, false) => Tone::Good,
        (false, true) => Tone::Bad,
        (true, true) if new.error.is_some() => Tone::Bad,
        _ if previous.server_type == new.server_type => Tone::Quiet,
        _ if new.server_type == ServerType::RsPrimary => Tone::Good,
        _ => Tone::Neutral,
    }
}

/// Returns whether a field changes by itself all the time, or as a mere consequence of others.
fn is_noise(field: &str) -> bool {
    matches!(
        field,
        "topologyVersion"
            | "electionId"
            | "maxElectionId"
            | "maxSetVersion"
            | "logicalSessionTimeoutMinutes"
    )
}

/// Lists changes.
fn sentence(changes: &[Change]) -> String {
    let clauses = changes.iter().map(|change| clause(change.field, &change.old, &change.new));
    clauses.collect::<Vec<_>>().join(", ")
}

/// Says how a field has changed.
pub(crate) fn clause(field: &str, old: &str, new: &str) -> String {
    match field {
        "hosts" | "passives" | "arbiters" | "servers" => {
            format!("{field} {}", differences(old, new))
        }
        "type" => format!("{old} → {new}"),
        "primary" if !new.is_empty() => format!("names {new} as primary"),
        "electionId" if !old.is_empty() && !new.is_empty() => "elected again".to_owned(),
        "topologyVersion" => match (old.split_once(':'), new.split_once(':')) {
            (Some((process, old)), Some((same, new))) if process == same => {
                format!("{field} {old} → {new}")
            }
            (Some(_), Some(_)) => format!("{field} of another process"),
            _ => plain(field, old, new),
        },
        "error" => {
            let [old, new] = [old, new].map(|text| value(text, MAX_FAILURE_LEN));
            match &*old {
                "none" => new.into_owned(),
                _ => format!("{field} {old} → {new}"),
            }
        }
        _ => plain(field, old, new),
    }
}

fn plain(field: &str, old: &str, new: &str) -> String {
    let (old, new) = (value(old, MAX_VALUE_LEN), value(new, MAX_VALUE_LEN));
    match &*old {
        "none" => format!("{field} {new}"),
        _ => format!("{field} {old} → {new}"),
    }
}

fn value(text: &str, limit: usize) -> Cow<'_, str> {
    match text {
        "" => Cow::Borrowed("none"),
        _ => abridged(text, limit),
    }
}

/// Says which items came (`+`) and which went (`−`) between two lists that commas separate.
fn differences(old: &str, new: &str) -> String {
    let (old, new) = (split(old), split(new));
    let came = new.iter().filter(|item| !old.contains(*item));
    let went = old.iter().filter(|item| !new.contains(*item));
    let signed = came.map(|item| format!("+{item}")).chain(went.map(|item| format!("−{item}")));
    listed(signed, " ")
}

fn split(list: &str) -> BTreeSet<&str> {
    list.split(',').filter(|item| !item.is_empty()).collect()
}

/// Joins the first few items, and says how many there are beyond them.
pub(super) fn listed(items: impl IntoIterator<Item = String>, separator: &str) -> String {
    let mut items = items.into_iter();
    let mut listed: Vec<String> = items.by_ref().take(MAX_LISTED).collect();
    let rest = items.count();
    if rest > 0 {
        listed.push(format!("and {rest} more"));
    }
    listed.join(separator)
}
