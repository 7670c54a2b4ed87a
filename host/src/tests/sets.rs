//! Replica sets: which member an operation is sent to, after the replies to its monitors.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};

use super::fixture::{Fixture, Task};
use super::puppet::{Puppet, host, pass};
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::machines::Host;
use crate::machines::tasks::Link;
use crate::operations::selected_server::SelectedServer;
use crate::sync::lock;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::failure::{Cause, Failure, Stage as Phase};
use sdam_core::operation::OpenCursor;
use sdam_core::selection::Criteria;

/// A client of a set of two, and its monitors' links.
struct Scene {
    host: Arc<Host<Puppet>>,
    links: Vec<Link<Puppet>>,
}

impl Scene {
    fn new() -> Self {
        let host = host("mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll", false);
        host.ring();
        let mut links = std::mem::take(&mut *lock(&host.runtime().links));
        links.sort_by_key(|link| link.id().server());
        links.iter().for_each(Link::opened);
        Self { host, links }
    }

    /// Answers the hello of the monitor of that member after so many milliseconds.
    fn answer(&self, member: usize, millis: u64, hello: &RawDocument) {
        let link = &self.links[member];
        let reply = Fixture::reply_with(link, hello);
        pass(&self.host, Duration::from_millis(millis));
        link.received(&reply);
    }

    /// The host of the member that is selected, if any is at once.
    fn selected(&self, criteria: Criteria) -> Option<String> {
        let criteria = Arc::new(criteria);
        match Task::new(self.host.select(&criteria, None)).poll() {
            Poll::Ready(selected) => Some(selected.unwrap().address().host().to_owned()),
            Poll::Pending => None,
        }
    }

    fn nearest(&self) -> Option<String> {
        self.selected(Criteria::read(ReadPreference::new(ReadMode::Nearest)))
    }
}

fn member(is_primary: bool) -> RawDocumentBuf {
    rawdoc! {
        "ok": 1, "setName": "rs", "hosts": ["a:27017", "b:27017"], "maxWireVersion": 17,
        "isWritablePrimary": is_primary, "secondary": !is_primary,
    }
}

/// A primary that was elected in this term, and knows this version of the set's configuration.
fn primary(term: u8, set_version: i32) -> RawDocumentBuf {
    let mut reply = member(true);
    reply.append(cstr!("electionId"), ObjectId::from_bytes([term; 12]));
    reply.append(cstr!("setVersion"), set_version);
    reply
}

/// SDAM, "Using electionId and setVersion to detect stale primaries".
#[test]
fn writes_go_to_the_primary_of_the_later_term_whatever_its_configuration() {
    for (of_a, of_b, expected) in [((1, 5), (2, 1), "b"), ((2, 1), (1, 5), "a")] {
        let scene = Scene::new();
        scene.answer(0, 0, &primary(of_a.0, of_a.1));
        assert_eq!(scene.selected(Criteria::write()).as_deref(), Some("a"));
        scene.answer(1, 0, &primary(of_b.0, of_b.1));
        assert_eq!(scene.selected(Criteria::write()).as_deref(), Some(expected));
    }
}

/// Server Selection, "Selecting servers within the latency window": it begins at the nearest that
/// there is.
#[test]
fn reads_go_to_the_next_member_when_the_nearest_is_gone_or_has_become_slow() {
    for is_gone in [true, false] {
        let mut scene = Scene::new();
        scene.answer(0, 1, &member(false));
        scene.answer(1, 100, &member(false));
        assert_eq!(scene.nearest().as_deref(), Some("a"));
        // The next check of the nearest is due first.
        pass(&scene.host, Duration::from_millis(9_900));
        if is_gone {
            let link = scene.links.remove(0);
            link.closed(Failure::new(Phase::Hello, Cause::Closed, "the server closed it"));
        } else {
            scene.answer(0, 5_000, &member(false));
        }
        assert_eq!(scene.nearest().as_deref(), Some("b"));
    }
}

/// Server Selection: "choose two servers at random", and of them the one with fewer operations.
#[test]
fn reads_are_spread_over_members_that_are_equally_near() {
    let scene = Scene::new();
    scene.answer(0, 1, &member(false));
    scene.answer(1, 1, &member(false));
    let chosen: Vec<_> = (0..64).filter_map(|_| scene.nearest()).collect();
    for name in ["a", "b"] {
        let times = chosen.iter().filter(|chosen| *chosen == name).count();
        assert!((8..=56).contains(&times), "{name}: {times} of 64");
    }
    // An operation that waits for a connection counts.
    let members = scene.host.members();
    let mut busy = Task::new(members[0].check_out());
    assert!(busy.poll().is_pending());
    for _ in 0..16 {
        assert_eq!(scene.nearest().as_deref(), Some("b"));
    }
}

/// Each pool has a deadline of its own.
#[test]
fn whoever_waits_for_a_connection_of_any_member_is_told_when_time_is_up() {
    let scene = Scene::new();
    scene.answer(0, 1, &member(false));
    scene.answer(1, 1, &member(false));
    let members = scene.host.members();
    let now = *lock(&scene.host.runtime().now);
    let members = [(0, 300), (1, 200)].map(|(index, millis): (usize, u64)| {
        members[index].clone().with_deadline(Some(now + Duration::from_millis(millis)))
    });
    let mut waits = members.each_ref().map(|member| Task::new(member.check_out()));
    let are_over =
        |waits: &mut [Task<'_, _>; 2]| waits.each_mut().map(|wait| wait.poll().is_ready());
    assert_eq!(are_over(&mut waits), [false; 2]);
    pass(&scene.host, Duration::from_millis(200));
    assert_eq!(are_over(&mut waits), [false, true]);
    pass(&scene.host, Duration::from_millis(100));
    assert!(waits[0].poll().is_ready());
}

/// Run Command, "Resource Cleanup": a cursor is closed where it is open, whichever member a write
/// or another read would go to.
#[test]
fn a_cursor_is_killed_in_the_background_at_the_server_that_has_it() {
    let scene = Scene::new();
    scene.answer(0, 1, &member(true));
    scene.answer(1, 100, &member(false));
    let client = Topology::from_host(Arc::clone(&scene.host));
    for (id, host) in [(7, "b"), (8, "a")] {
        let members = scene.host.members();
        let server = members.iter().map(SelectedServer::address).find(|it| it.host() == host);
        let namespace = ("app".into(), "things".into());
        client.kill_in_background(OpenCursor::new(server.unwrap().clone(), namespace, id));
        let work = lock(&scene.host.runtime().tasks).pop().expect("its server has a task");
        let mut service = Task::new(work);
        assert!(service.poll().is_pending(), "it waits for a connection");
        let pending = lock(&scene.host.runtime().pending).pop().expect("one is established");
        let server = pending.server.upgrade().unwrap();
        assert_eq!(server.address().host(), host);
    }
}
