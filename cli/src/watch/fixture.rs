//! Real events for tests: the machine itself, canned replies, and time that the test decides.

use std::sync::Arc;

use bson::RawDocumentBuf;
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::harness::VirtualTopology;
use sdam_core::id::LinkId;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Event, EventKind, Input, Topology};

use super::story::Diagnose;

/// A topology in virtual time: servers say what the test lets them say.
pub(super) struct Fixture {
    topology: VirtualTopology,
    /// What was known when the last server had left, which is when a story asks.
    emptied: Option<Topology>,
    /// What has happened so far.
    pub(super) events: Vec<Event>,
}

impl Fixture {
    /// Opens a topology at time zero.
    pub(super) fn new(uri: &str) -> Self {
        let options = Options::parse(uri).expect("a test's connection string");
        let (topology, events) = (VirtualTopology::open(options, 42), Vec::new());
        let mut fixture = Self { topology, emptied: None, events };
        fixture.note();
        fixture
    }

    /// Lets time pass until `millis` after the start.
    pub(super) fn at(&mut self, millis: u64) -> &mut Self {
        self.topology.pass(Instant::from_millis(millis));
        self.note();
        self
    }

    /// The server accepts the stream.
    pub(super) fn accept(&mut self, server: &str) -> &mut Self {
        self.topology.accept(self.link(server));
        self.note();
        self
    }

    /// The server answers the request that waits; it accepts the stream first, if it has not.
    pub(super) fn reply(&mut self, server: &str, reply: &RawDocumentBuf) -> &mut Self {
        self.accept(server);
        self.topology.reply(self.link(server), reply);
        self.note();
        self
    }

    /// The server refuses the stream, or breaks it.
    pub(super) fn refuse(&mut self, server: &str, detail: &str) -> &mut Self {
        let failure = Failure::new(Stage::Connect, Cause::Refused, detail);
        self.topology.close(self.link(server), failure);
        self.note();
        self
    }

    /// The client is closed.
    pub(super) fn close(&mut self) -> &mut Self {
        self.topology.input(Input::Shutdown);
        self.note();
        self
    }

    fn link(&self, server: &str) -> LinkId {
        self.topology.last_link(server).expect("a stream that was asked for")
    }

    /// Returns what is known now.
    pub(super) fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.machine.get().description())
    }

    /// Returns what tells a story of it why a write found no server when the last one had left, or
    /// finds none in the end.
    pub(super) fn diagnose(&self) -> Diagnose {
        let topology = self.emptied.as_ref().unwrap_or_else(|| self.topology.machine.get());
        let evidence = topology.evidence(self.topology.now());
        Box::new(move || evidence.clone().diagnose(&Criteria::write()))
    }

    /// Returns the time.
    pub(super) const fn now(&self) -> Instant {
        self.topology.now()
    }

    fn note(&mut self) {
        for action in self.topology.take_actions() {
            if let Action::Emit { event } = action {
                if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind
                    && new.servers().is_empty()
                {
                    self.emptied.get_or_insert_with(|| self.topology.machine.get().clone());
                }
                self.events.push(event);
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
