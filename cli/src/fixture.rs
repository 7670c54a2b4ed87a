//! Real events for tests: the machine itself, canned replies, and time that the test decides.

use std::sync::Arc;

use bson::RawDocumentBuf;
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::diagnosis::SelectionError;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::harness::{StreamState, VirtualTopology};
use sdam_core::id::LinkId;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Event, EventKind, Input, Topology};

use crate::watch::Diagnose;

/// A topology in virtual time: servers say what the test lets them say.
pub(crate) struct Fixture {
    topology: VirtualTopology,
    /// The topology when the last server had left, for the story.
    emptied: Option<Topology>,
    /// The events so far.
    pub(crate) events: Vec<Event>,
}

impl Fixture {
    /// Opens a topology at time zero.
    pub(crate) fn new(uri: &str) -> Self {
        let options = Options::parse(uri).expect("a test's connection string");
        let (topology, events) = (VirtualTopology::open(options, 42), Vec::new());
        let mut fixture = Self { topology, emptied: None, events };
        fixture.note();
        fixture
    }

    /// Lets time pass until `millis` after the start.
    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        self.topology.pass(Instant::from_millis(millis));
        self.note();
        self
    }

    /// The server accepts the stream.
    pub(crate) fn accept(&mut self, server: &str) -> &mut Self {
        self.topology.accept(self.link(server));
        self.note();
        self
    }

    /// The server answers the request that waits; it accepts the stream first, if it has not.
    pub(crate) fn reply(&mut self, server: &str, reply: &RawDocumentBuf) -> &mut Self {
        self.accept(server);
        self.topology.reply(self.link(server), reply);
        self.note();
        self
    }

    /// The server refuses the stream, or breaks it.
    pub(crate) fn refuse(&mut self, server: &str, detail: &str) -> &mut Self {
        let failure = Failure::new(Stage::Connect, Cause::Refused, detail);
        self.fail(self.link(server), failure)
    }

    /// The stream fails.
    pub(crate) fn fail(&mut self, link: LinkId, failure: Failure) -> &mut Self {
        self.topology.close(link, failure);
        self.note();
        self
    }

    /// The stream is accepted, or what is asked over it is answered.
    pub(crate) fn answer(&mut self, link: LinkId, reply: &RawDocumentBuf) -> &mut Self {
        match self.topology.peer(link).is_asked {
            true => self.topology.reply(link, reply),
            false => self.topology.accept(link),
        }
        self.note();
        self
    }

    /// Returns the streams that are not closed: of which server each is, and whether the server is
    /// to accept it, or to answer.
    pub(crate) fn streams(&self) -> Vec<(LinkId, String, bool)> {
        let streams = self.topology.connected().map(|(link, peer)| {
            let waits = peer.is_asked || peer.state != StreamState::Open;
            (link, peer.address.to_string(), waits)
        });
        streams.collect()
    }

    /// The client is closed.
    pub(crate) fn close(&mut self) -> &mut Self {
        self.topology.input(Input::Shutdown);
        self.note();
        self
    }

    fn link(&self, server: &str) -> LinkId {
        self.topology.last_link(server).expect("a stream that was asked for")
    }

    /// Returns what is known now.
    pub(crate) fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.machine.get().description())
    }

    /// Returns a function that says why a write found no server when the last one had left, or
    /// finds none in the end.
    pub(crate) fn diagnose(&self) -> Diagnose {
        let topology = self.emptied.as_ref().unwrap_or_else(|| self.topology.machine.get());
        let evidence = topology.evidence(self.topology.now());
        Box::new(move || evidence.clone().diagnose(&Criteria::write()))
    }

    /// Returns why an operation finds no server now, or `None` if it finds one.
    pub(crate) fn error(&self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        self.topology.machine.get().evidence(self.now()).diagnose(criteria)
    }

    /// Returns the time.
    pub(crate) const fn now(&self) -> Instant {
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
pub(crate) fn member(set: &str, hosts: &[&str], me: &str, primary: Option<&str>) -> RawDocumentBuf {
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
