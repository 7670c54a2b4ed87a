//! A replica set whose primary dies, in virtual time, as the screen shows it: for tests and for the
//! picture.

use std::collections::BTreeMap;

use bson::RawDocumentBuf;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::LinkId;
use sdam_core::selection::Criteria;

use super::controls::Controls;
use super::draw::{self, Moment};
use crate::fixture::Fixture;
use crate::watch::feed::Arrival;
use crate::watch::model::{Model, Verdicts};
use crate::watch::story::Story;

/// The members, each with its tag and its usual round trip time in milliseconds.
const MEMBERS: [(&str, &str, u64); 3] = [
    ("db1.example:27017", "paris", 2),
    ("db2.example:27017", "lyon", 5),
    ("db3.example:27017", "paris", 3),
];

/// The times at which the first member dies, the second one is primary and the first is back, in
/// milliseconds.
const DEATH: u64 = 20_300;
const ELECTION: u64 = 24_100;
const RETURN: u64 = 45_200;

/// The interval at which the model looks at the view, in milliseconds, as if it was drawn then.
const LOOK: u64 = 250;

/// A replica set, and what the screen knows of it.
pub(super) struct Failover {
    fixture: Fixture,
    story: Story,
    pub(super) model: Model,
    /// The number of events that the model was fed.
    seen: usize,
    /// Since when each stream waits for its server.
    waiting: BTreeMap<LinkId, u64>,
}

impl Failover {
    /// Plays what happens in so many milliseconds.
    pub(super) fn until(millis: u64) -> Self {
        let hosts: Vec<&str> = MEMBERS.iter().map(|(host, ..)| *host).collect();
        let options = "replicaSet=rs0&heartbeatFrequencyMS=1000";
        let fixture = Fixture::new(&format!("mongodb://{}/?{options}", hosts.join(",")));
        let (story, model) = (Story::new(false, fixture.diagnose()), Model::new(fixture.view()));
        let mut failover = Self { fixture, story, model, seen: 0, waiting: BTreeMap::new() };
        for now in 0..=millis {
            failover.pass(now);
        }
        failover.look();
        failover
    }

    fn pass(&mut self, now: u64) {
        self.fixture.at(now);
        for (link, host, waits) in self.fixture.streams() {
            let (index, latency) = (0..).zip(MEMBERS).find(|(_, it)| it.0 == host).map_or_else(
                || unreachable!("{host} is no member"),
                |(index, (.., latency))| (index, latency_at(index, latency, now)),
            );
            let is_dead = index == 0 && (DEATH..RETURN).contains(&now);
            if is_dead {
                self.fixture.fail(link, refused(&host));
            } else if waits {
                let since = *self.waiting.entry(link).or_insert(now);
                if now - since >= latency {
                    self.fixture.answer(link, &reply(index, now));
                    self.waiting.remove(&link);
                }
            }
        }
        if now.is_multiple_of(LOOK) {
            self.look();
        }
    }

    fn look(&mut self) {
        let Self { fixture, story, model, seen, .. } = self;
        for event in &fixture.events[*seen..] {
            let arrival = Arrival { event: event.clone(), dropped: 0 };
            model.feed(&arrival, story.describe(event));
        }
        *seen = fixture.events.len();
        model.see(fixture.now(), fixture.view());
        let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
        let why_not = |criteria| fixture.error(criteria).map(|error| error.verdict.sentence());
        model.judge(Verdicts { write: why_not(&Criteria::write()), read: why_not(&any) });
    }

    /// Feeds the last event again and again, as if it had happened so often.
    pub(super) fn push_lines(&mut self, count: usize) {
        let event = self.fixture.events.last().expect("some event").clone();
        let (_, line) = *self.model.lines("").last().expect("some line");
        let lines = vec![line.clone(); count];
        self.model.feed(&Arrival { event, dropped: 0 }, lines);
    }

    /// Draws the screen.
    pub(super) fn draw(&self, controls: &Controls, width: u16, height: u16) -> Buffer {
        let now = self.fixture.now();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_778_295_600);
        let moment = Moment {
            title: "db1.example:27017 db2.example:27017 db3.example:27017",
            now,
            clock: crate::duration::rfc_3339(time + now.since_origin()),
            color: true,
        };
        drawn(&self.model, controls, &moment, width, height)
    }
}

/// Draws a screen of this size.
pub(super) fn drawn(
    model: &Model,
    controls: &Controls,
    moment: &Moment<'_>,
    width: u16,
    height: u16,
) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    let drawn = terminal.draw(|frame| draw::draw(frame, model, controls, moment));
    drawn.expect("drawing in memory").buffer.clone()
}

/// Returns the characters of a screen, without spaces at the ends of lines.
pub(super) fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width).map(|row| {
        let row: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}

/// Some weather: the third member is slow for a while.
fn latency_at(index: usize, usual: u64, now: u64) -> u64 {
    let is_slow = index == 2 && (46_000..50_000).contains(&now);
    usual + (now / 1000 * 7 + index as u64 * 3) % 4 + if is_slow { 20 } else { 0 }
}

fn refused(host: &str) -> Failure {
    let detail = format!("{host}: Connection refused (os error 111)");
    Failure::new(Stage::Connect, Cause::Refused, &*detail)
}

fn reply(index: usize, now: u64) -> RawDocumentBuf {
    let (me, place, _) = MEMBERS[index];
    let mut hosts = bson::RawArrayBuf::new();
    MEMBERS.iter().for_each(|(host, ..)| hosts.push(*host));
    let primary = match now {
        ..DEATH => Some(0),
        ELECTION.. => Some(1),
        _ => None,
    };
    let mut reply = bson::rawdoc! {
        "ok": 1,
        "minWireVersion": 0,
        "maxWireVersion": 21,
        "setName": "rs0",
        "setVersion": 1,
        "hosts": hosts,
        "me": me,
        "isWritablePrimary": primary == Some(index),
        "secondary": primary != Some(index),
        "tags": { "dc": place },
        "logicalSessionTimeoutMinutes": 30,
    };
    if let Some(primary) = primary {
        reply.append(bson::cstr!("primary"), MEMBERS[primary].0);
    }
    reply
}
