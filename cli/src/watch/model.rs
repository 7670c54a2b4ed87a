//! The content of the screen as plain data: the members, their faults, and the last lines.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::time::Instant;
use sdam_core::topology::EventKind;

use super::feed::Arrival;
use super::story::{Line, Story, Tone};
use crate::text::escaped;

/// The number of lines that are kept; no terminal is that high.
const MAX_LINES: usize = 500;

/// The content of the screen.
#[derive(Debug)]
pub(super) struct Model {
    story: Story,
    view: Arc<TopologyDescription>,
    troubles: BTreeMap<ServerAddress, Trouble>,
    lines: VecDeque<Line>,
    notice: Option<String>,
    dropped: u64,
}

/// The reason why a server is, or was, not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The last failure.
    pub(super) what: String,
    /// The time when it began.
    pub(super) since: Instant,
    /// The time when it was over.
    pub(super) until: Option<Instant>,
}

impl Model {
    /// Begins with what is known now.
    pub(super) fn new(story: Story, view: Arc<TopologyDescription>) -> Self {
        Self {
            story,
            view,
            troubles: BTreeMap::new(),
            lines: VecDeque::new(),
            notice: None,
            dropped: 0,
        }
    }

    /// Replaces the view, which is fresher than events: they do not tell of each round trip.
    pub(super) fn see(&mut self, view: Arc<TopologyDescription>) {
        self.view = view;
    }

    /// Takes notice of an event, and of those that were dropped before it.
    pub(super) fn feed(&mut self, Arrival { event, dropped }: &Arrival) {
        if *dropped > 0 {
            self.dropped += dropped;
            self.push(Line::dropped(event.at, *dropped));
        }
        match &event.kind {
            EventKind::ServerDescriptionChanged { new, .. } => self.note_trouble(event.at, new),
            EventKind::ServerClosed { address, .. } => {
                self.troubles.remove(address);
            }
            _ => {}
        }
        for line in self.story.tell(event) {
            self.push(line);
        }
    }

    fn push(&mut self, line: Line) {
        if line.tone == Tone::Notice {
            self.notice = Some(line.text.clone());
        }
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn note_trouble(&mut self, at: Instant, server: &ServerDescription) {
        let known = self.troubles.get_mut(&server.address);
        match (&server.error, known) {
            (Some(error), Some(trouble)) => {
                if trouble.until.take().is_some() {
                    trouble.since = at;
                }
                trouble.what = escaped(&error.to_string()).into_owned();
            }
            (Some(error), None) => {
                let trouble = Trouble {
                    what: escaped(&error.to_string()).into_owned(),
                    since: at,
                    until: None,
                };
                self.troubles.insert(server.address.clone(), trouble);
            }
            (None, Some(trouble)) => {
                trouble.until.get_or_insert(at);
            }
            (None, None) => {}
        }
    }

    /// Returns what is known of the deployment.
    pub(super) const fn view(&self) -> &Arc<TopologyDescription> {
        &self.view
    }

    /// Returns the last trouble with a server.
    pub(super) fn trouble(&self, address: &ServerAddress) -> Option<&Trouble> {
        self.troubles.get(address)
    }

    /// Returns the last `count` lines, oldest first.
    pub(super) fn last_lines(&self, count: usize) -> impl Iterator<Item = &Line> {
        self.lines.range(self.lines.len().saturating_sub(count)..)
    }

    /// Returns what the user is asked to do.
    pub(super) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Returns how many events were dropped so far.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the story, to be told on elsewhere.
    pub(super) fn into_story(self) -> Story {
        self.story
    }
}
