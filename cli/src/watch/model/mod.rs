//! The contents of the screen as plain data: members with their lanes, elections, what is wrong,
//! and the last lines.

mod lane;
mod primaries;
mod round_trips;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::time::Instant;
use sdam_core::topology::EventKind;

use self::lane::Lane;
pub(super) use self::lane::Scale;
pub(crate) use self::lane::{State, worst_within};
use self::primaries::Primaries;
use self::round_trips::RoundTrips;
pub(crate) use self::round_trips::bars;
use super::feed::Arrival;
use super::story::{Line, Tone};
use crate::text::{escaped, of_server};

/// The number of lines that are kept to be scrolled through.
const MAX_LINES: usize = 2000;

/// The contents of the screen.
#[derive(Clone, Debug)]
pub(super) struct Model {
    view: Arc<TopologyDescription>,
    members: BTreeMap<ServerAddress, Member>,
    primaries: Primaries,
    lines: VecDeque<Line>,
    /// The number of lines that were forgotten, which is that of the first one that is kept.
    forgotten: u64,
    notice: Option<String>,
    dropped: u64,
    verdicts: Verdicts,
}

/// A member, as far as its description does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// Its states.
    pub(super) lane: Lane,
    /// Its round trip times.
    pub(super) round_trips: RoundTrips,
    /// Its last trouble.
    pub(super) trouble: Option<Trouble>,
}

/// The trouble with a server that is, or was, not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The last failure.
    pub(super) what: String,
    /// The beginning.
    pub(super) since: Instant,
    /// The end, if it is over.
    pub(super) until: Option<Instant>,
}

/// The reasons for which operations would find no server now, if they would not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdicts {
    /// The reason for which writes fail.
    pub(super) write: Option<String>,
    /// The reason for which reads fail that take any server.
    pub(super) read: Option<String>,
}

impl Model {
    /// Begins with what is known now.
    pub(super) fn new(view: Arc<TopologyDescription>) -> Self {
        Self {
            view,
            members: BTreeMap::new(),
            primaries: Primaries::default(),
            lines: VecDeque::new(),
            forgotten: 0,
            notice: None,
            dropped: 0,
            verdicts: Verdicts::default(),
        }
    }

    /// Replaces the view, which is fresher than events: they do not report each round trip, and
    /// some may be dropped.
    pub(super) fn see(&mut self, now: Instant, view: Arc<TopologyDescription>) {
        self.members.retain(|address, _| view.server(address).is_some());
        for server in view.servers().iter() {
            let member = self.members.entry(server.address.clone()).or_default();
            member.lane.note(now, State::of(server));
            member.round_trips.note(server.last_update_time, server.round_trip_time);
        }
        self.view = view;
    }

    /// Replaces what operations would meet now.
    pub(super) fn judge(&mut self, verdicts: Verdicts) {
        self.verdicts = verdicts;
    }

    /// Takes notice of an event, of those that were dropped before it, and of the lines that
    /// describe it.
    pub(super) fn feed(&mut self, Arrival { event, dropped }: &Arrival, lines: Vec<Line>) {
        if *dropped > 0 {
            self.dropped += dropped;
            self.push(Line::dropped(event.at, *dropped));
        }
        match &event.kind {
            EventKind::ServerDescriptionChanged { previous, new } => {
                let member = self.members.entry(new.address.clone()).or_default();
                if member.lane.is_empty() {
                    member.lane.note(Instant::ZERO, State::of(previous));
                }
                member.lane.note(event.at, State::of(new));
                member.note_trouble(event.at, new);
            }
            EventKind::ServerOpening { address, .. } => {
                let member = self.members.entry(address.clone()).or_default();
                member.lane.note(event.at, State::Unchecked);
            }
            EventKind::ServerClosed { address, .. } => {
                self.members.remove(address);
            }
            EventKind::TopologyDescriptionChanged { new, .. } => self.primaries.see(event.at, new),
            _ => {}
        }
        lines.into_iter().for_each(|line| self.push(line));
    }

    fn push(&mut self, line: Line) {
        if line.tone == Tone::Notice {
            self.notice = Some(line.text.clone());
        }
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
            self.forgotten += 1;
        }
        self.lines.push_back(line);
    }

    /// Returns what is known of the deployment.
    pub(super) const fn view(&self) -> &Arc<TopologyDescription> {
        &self.view
    }

    /// Returns what else is known of a member.
    pub(super) fn member(&self, address: &ServerAddress) -> Option<&Member> {
        self.members.get(address)
    }

    /// Returns the primaries of the set.
    pub(super) const fn primaries(&self) -> &Primaries {
        &self.primaries
    }

    /// Returns why operations would fail now.
    pub(super) const fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Returns the lines that contain a text, whatever its case, each with its number, oldest
    /// first.
    pub(super) fn lines(&self, filter: &str) -> Vec<(u64, &Line)> {
        let filter = filter.to_lowercase();
        let contains = |line: &Line| {
            let has = |text: &str| text.to_lowercase().contains(&filter);
            filter.is_empty() || has(&line.subject) || has(&line.text)
        };
        let numbered = (self.forgotten..).zip(&self.lines);
        numbered.filter(|(_, line)| contains(line)).collect()
    }

    /// Returns what the user is asked to do.
    pub(super) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Returns how many events were dropped so far.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Member {
    fn note_trouble(&mut self, at: Instant, server: &ServerDescription) {
        match (&server.error, &mut self.trouble) {
            (Some(error), trouble) => {
                let error = error.to_string();
                let what = escaped(of_server(&error, &server.address)).into_owned();
                let lasting = trouble.take().filter(|trouble| trouble.until.is_none());
                let since = lasting.map_or(at, |trouble| trouble.since);
                *trouble = Some(Trouble { what, since, until: None });
            }
            (None, Some(trouble)) => _ = trouble.until.get_or_insert(at),
            (None, None) => {}
        }
    }
}
