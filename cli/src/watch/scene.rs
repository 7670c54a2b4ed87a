//! Real events for tests: the machine itself, canned replies, and time that the test decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::RawDocumentBuf;
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::LinkId;
use sdam_core::machine::{Lawful, Machine};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Event, EventKind, Input, Topology};
use sdam_core::wire::{Flags, write_op_msg};

use super::story::Diagnose;

/// A topology on a stage: servers say what the test lets them say.
pub(super) struct Scene {
    topology: Lawful<Topology>,
    now: Instant,
    /// The stream to each server, and the number of the request that waits on it.
    streams: BTreeMap<String, (LinkId, i32)>,
    /// What was known when the last server had left, which is when a story asks.
    emptied: Option<Topology>,
    /// What has happened so far.
    pub(super) events: Vec<Event>,
}

impl Scene {
    /// Opens a topology at time zero.
    pub(super) fn new(uri: &str) -> Self {
        let options = Options::parse(uri).expect("a test's connection string");
        let mut scene = Self {
            topology: Lawful::new(Topology::new(Arc::new(options), 42)),
            now: Instant::ZERO,
            streams: BTreeMap::new(),
            emptied: None,
            events: Vec::new(),
        };
        scene.at(0);
        scene
    }

    /// Lets time pass until `millis` after the start.
    pub(super) fn at(&mut self, millis: u64) -> &mut Self {
        let end = Instant::from_millis(millis);
        while let Some(deadline) = self.topology.deadline()
            && deadline <= end
        {
            self.now = self.now.max(deadline);
            let mut actions = Vec::new();
            self.topology.tick(self.now.into(), &mut actions);
            self.perform(actions);
        }
        self.now = end;
        self
    }

    /// The server accepts the stream.
    pub(super) fn accept(&mut self, server: &str) -> &mut Self {
        let link = self.streams[server].0;
        self.input(Input::Opened { link });
        self
    }

    /// The server answers the request that waits; it accepts the stream first, if it has not.
    pub(super) fn reply(&mut self, server: &str, reply: &RawDocumentBuf) -> &mut Self {
        self.accept(server);
        let (link, request) = self.streams[server];
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, request, Flags::NONE, reply);
        let bytes = &bytes;
        self.input(Input::Received { link, bytes });
        self
    }

    /// The server refuses the stream, or breaks it.
    pub(super) fn refuse(&mut self, server: &str, detail: &str) -> &mut Self {
        let link = self.streams[server].0;
        let failure = Failure::new(Stage::Connect, Cause::Refused, detail);
        self.input(Input::Closed { link, failure });
        self
    }

    /// The client is closed.
    pub(super) fn close(&mut self) -> &mut Self {
        self.input(Input::Shutdown);
        self
    }

    /// Returns what is known now.
    pub(super) fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.get().description())
    }

    /// Returns what tells a story of it why a write found no server when the last one had left, or
    /// finds none in the end.
    pub(super) fn diagnose(&self) -> Diagnose {
        let topology = self.emptied.as_ref().unwrap_or_else(|| self.topology.get()).clone();
        let now = self.now;
        Box::new(move || topology.diagnose(now, &Criteria::write()))
    }

    /// Returns the time.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    fn input(&mut self, input: Input<'_>) {
        let mut actions = Vec::new();
        self.topology.handle(self.now.into(), input, &mut actions);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Open { link, address } => {
                    self.streams.insert(address.to_string(), (link, 0));
                }
                Action::Send { link, bytes } => {
                    let id = bytes[4..8].try_into().expect("four bytes");
                    let waiting = self.streams.values_mut().find(|(known, _)| *known == link);
                    waiting.expect("a stream that was opened").1 = i32::from_le_bytes(id);
                }
                Action::Emit { event } => {
                    if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind
                        && new.servers().is_empty()
                    {
                        self.emptied.get_or_insert_with(|| self.topology.get().clone());
                    }
                    self.events.push(event);
                }
                _ => {}
            }
        }
    }
}

/// A reply of a member of replica set `set` with the members `hosts`.
pub(super) fn member(set: &str, hosts: &[&str], me: &str, primary: Option<&str>) -> RawDocumentBuf {
    let mut array = bson::RawArrayBuf::new();
    hosts.iter().for_each(|host| array.push(*host));
    let mut reply = bson::rawdoc! {
        "ok": 1,
        "minWireVersion": 0,
        "maxWireVersion": 21,
        "setName": set,
        "setVersion": 1,
        "hosts": array,
        "me": me,
        "isWritablePrimary": primary == Some(me),
        "secondary": primary != Some(me),
        "tags": { "dc": "paris" },
        "logicalSessionTimeoutMinutes": 30,
    };
    if let Some(primary) = primary {
        reply.append(bson::cstr!("primary"), primary);
    }
    reply
}
