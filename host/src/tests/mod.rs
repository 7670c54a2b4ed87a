//! The host with a runtime that does nothing by itself.

mod cancelling;
mod clients;
mod command_events;
mod commands;
mod derivations;
mod doubts;
mod errors;
mod fixture;
mod flight_recorders;
pub(super) mod forks;
mod in_use;
mod inline;
#[cfg(sdam_shuttle)]
mod interleavings;
mod kill_cursors;
mod links;
mod logs;
mod lookups;
mod metrics;
mod operation_errors;
mod operations;
mod pools;
mod puppet;
mod recordings;
mod reentry;
mod sessions;
mod sets;
mod sharing;
mod siblings;
mod single_threaded;
mod spans;
mod standing;
mod successions;
mod suspensions;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod transactions;
mod wakers;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::machines::Host;
use crate::observe::subscription::{EVENT_LIMIT, Events};
use crate::operations::selected_server::SelectedServer;
use crate::sync::Mutex;
use crate::sync::lock;
use fixture::Fixture;
use puppet::{Puppet, host, pass, take_link};
use sdam_core::config::Options;
use sdam_core::diagnosis::Verdict;
use sdam_core::dns::srv::{SrvRecord, complete};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{EventKind, Topics};

#[test]
fn the_runtime_is_told_the_deadline_and_the_bytes() {
    let host = host("mongodb://a", false);
    host.ring();
    assert_eq!(*lock(&host.runtime().alarm), Some(Instant::from_millis(10_000)));
    let link = take_link(&host);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(link.poll_outgoing(&mut cx).is_pending());
    link.opened();
    assert!(matches!(link.poll_outgoing(&mut cx), Poll::Ready(Some(bytes)) if bytes.len() > 16));
    host.close();
    assert!(matches!(link.poll_outgoing(&mut cx), Poll::Ready(None)), "the link is let go");
    assert_eq!(*lock(&host.runtime().alarm), None);
}

#[test]
fn subscribers_hear_everything_up_to_the_end_when_the_host_is_dropped() {
    let host = host("mongodb://a", false);
    let (mut events, weak) = (host.subscribe(), Arc::downgrade(&host));
    host.ring();
    let link = take_link(&host);
    drop(host);
    assert!(weak.upgrade().is_none(), "a link keeps no host alive");
    link.received(b"too late");
    let mut kinds = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(event)) = events.poll_next(&mut cx) {
        kinds.push(event.kind);
    }
    assert!(matches!(kinds.first(), Some(EventKind::TopologyOpening)));
    assert!(matches!(kinds.last(), Some(EventKind::TopologyClosed)));
    assert!(matches!(events.poll_next(&mut cx), Poll::Ready(None)));
}

/// As streams they are what they are by their own methods, to the end and once more.
#[cfg(feature = "stream")]
#[test]
fn events_and_views_are_streams() {
    use futures_core::Stream;
    use std::pin::Pin;

    fn last<S: Stream + Unpin>(mut stream: S) -> Option<S::Item> {
        let (mut cx, mut last) = (Context::from_waker(Waker::noop()), None);
        while let Poll::Ready(Some(item)) = Pin::new(&mut stream).poll_next(&mut cx) {
            last = Some(item);
        }
        assert!(matches!(Pin::new(&mut stream).poll_next(&mut cx), Poll::Ready(None)));
        last
    }
    let host = host("mongodb://a", false);
    let (events, mut views) = (host.subscribe(), host.watch());
    let mut cx = Context::from_waker(Waker::noop());
    let first = Stream::poll_next(Pin::new(&mut views), &mut cx);
    assert!(matches!(first, Poll::Ready(Some(view)) if Arc::ptr_eq(&view, &host.view())));
    assert!(Stream::poll_next(Pin::new(&mut views), &mut cx).is_pending());
    host.ring();
    host.close();
    assert!(matches!(last(events).unwrap().kind, EventKind::TopologyClosed));
    assert!(last(views).is_some());
}

#[test]
fn a_runtime_that_gives_links_up_under_the_lock_is_heard() {
    let host = host("mongodb://a,b", true);
    host.ring();
    for server in host.view().servers().iter() {
        let failure = Failure::new(Stage::Connect, Cause::Io, "the runtime gave the connection up");
        assert_eq!(server.error, Some(failure));
    }
}

#[test]
fn a_dropped_link_is_reported() {
    let host = host("mongodb://a", false);
    host.ring();
    drop(take_link(&host));
    assert_eq!(host.view().servers()[0].error.as_ref().unwrap().cause, Cause::Io);
}

#[test]
fn a_subscriber_that_falls_behind_loses_the_oldest_events_and_is_told_how_many() {
    let host = host("mongodb://a", false);
    let mut events = host.subscribe();
    host.ring();
    let mut rounds = 0;
    while events.dropped() == 0 {
        let failure = Failure::new(Stage::Connect, Cause::Refused, "refused");
        take_link(&host).closed(failure);
        *lock(&host.runtime().now) = lock(&host.runtime().alarm).unwrap();
        host.ring();
        rounds += 1;
    }
    // Each round is a failed heartbeat and the start of the next one.
    assert!(rounds >= EVENT_LIMIT / 2 - 4, "{rounds}");
    assert!(!matches!(events.try_next().unwrap().kind, EventKind::TopologyOpening));
}

#[test]
fn a_subscriber_hears_of_its_topics_alone() {
    let topics =
        [Topics::TOPOLOGY, Topics::SERVERS, Topics::HEARTBEATS, Topics::POOLS, Topics::COMMANDS];
    let host = host("mongodb://a/?directConnection=true", false);
    let mut each: Vec<_> = topics.iter().map(|topic| host.subscribe_to(*topic)).collect();
    let mut both = host.subscribe_to(Topics::SERVERS | Topics::POOLS);
    let (mut default, mut none) = (host.subscribe(), host.subscribe_to(Topics::NONE));
    host.ring();
    let fixture = Fixture::begin(host);
    fixture.run(fixture.ping(None)).unwrap();
    fixture.host.close();
    let mut heard = Vec::new();
    for (topic, events) in topics.iter().zip(&mut each) {
        let of_topic: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
        assert!(!of_topic.is_empty(), "{topic:?}");
        assert!(of_topic.iter().all(|event| event.kind.topic() == *topic), "{topic:?}");
        heard.push(of_topic.len());
    }
    let count = |events: &mut Events| std::iter::from_fn(|| events.try_next()).count();
    assert_eq!(count(&mut both), heard[1] + heard[3]);
    assert_eq!(count(&mut default), heard[..4].iter().sum::<usize>(), "all but commands");
    assert_eq!(count(&mut none), 0);
    let mut cx = Context::from_waker(Waker::noop());
    for events in each.iter_mut().chain([&mut both, &mut default, &mut none]) {
        assert!(matches!(events.poll_next(&mut cx), Poll::Ready(None)), "it has ended");
    }
}

#[test]
fn whoever_is_woken_by_a_new_view_reads_no_older_one() {
    /// Looks at the view the moment it is woken.
    struct Look(Arc<Host<Puppet>>, Mutex<Vec<bool>>);

    impl std::task::Wake for Look {
        fn wake(self: Arc<Self>) {
            lock(&self.1).push(self.0.view().servers()[0].error.is_some());
        }
    }

    let host = host("mongodb://a/?directConnection=true", false);
    host.ring();
    let mut views = host.watch();
    let look = Arc::new(Look(Arc::clone(&host), Mutex::default()));
    let waker = Waker::from(Arc::clone(&look));
    let mut cx = Context::from_waker(&waker);
    assert!(std::pin::pin!(views.next()).poll(&mut cx).is_ready(), "the view of now");
    assert!(std::pin::pin!(views.next()).poll(&mut cx).is_pending());
    take_link(&host).closed(Failure::new(Stage::Connect, Cause::Refused, "refused"));
    assert_eq!(*lock(&look.1), [true]);
}

#[test]
fn views_yield_the_latest_only() {
    let host = host("mongodb://a/?directConnection=true", false);
    let mut views = host.watch();
    let mut cx = Context::from_waker(Waker::noop());
    host.ring();
    take_link(&host).closed(Failure::new(Stage::Connect, Cause::Refused, "refused"));
    let Poll::Ready(Some(view)) = std::pin::pin!(views.next()).poll(&mut cx) else {
        panic!("a view")
    };
    assert!(view.servers()[0].error.is_some());
    assert!(std::pin::pin!(views.next()).poll(&mut cx).is_pending());
    host.close();
    assert!(matches!(std::pin::pin!(views.next()).poll(&mut cx), Poll::Ready(Some(_))));
    assert!(matches!(std::pin::pin!(views.next()).poll(&mut cx), Poll::Ready(None)));
}

/// Polls a selection of the primary once, at that deadline.
fn select_once(host: &Host<Puppet>, millis: u64) -> Poll<Result<SelectedServer<Puppet>, Error>> {
    let criteria = Arc::new(Criteria::write());
    let selection = host.select(&criteria, Some(Instant::from_millis(millis)));
    std::pin::pin!(selection).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_selection_that_is_cancelled_leaves_nothing_behind() {
    let host = host("mongodb://a/?connectTimeoutMS=0", false);
    host.ring();
    assert!(select_once(&host, 700).is_pending());
    assert!(lock(&host.topology).waiters.is_empty());
    assert_eq!(*lock(&host.runtime().alarm), None, "no deadline is left");
}

#[test]
fn a_selection_is_answered_at_its_deadline_and_when_the_client_is_closed() {
    let host = host("mongodb://a/?connectTimeoutMS=0", false);
    host.ring();
    let criteria = Arc::new(Criteria::write());
    let mut cx = Context::from_waker(Waker::noop());
    let mut selection = std::pin::pin!(host.select(&criteria, Some(Instant::from_millis(700))));
    assert!(selection.as_mut().poll(&mut cx).is_pending());
    assert_eq!(*lock(&host.runtime().alarm), Some(Instant::from_millis(700)));
    *lock(&host.runtime().now) = Instant::from_millis(700);
    host.ring();
    let Poll::Ready(Err(error)) = selection.poll(&mut cx) else { panic!("an answer") };
    assert!(matches!(error.verdict(), Some(Verdict::NoAnswerYet { .. })), "{error}");
    let mut selection = std::pin::pin!(host.select(&criteria, Some(Instant::from_millis(9000))));
    assert!(selection.as_mut().poll(&mut cx).is_pending());
    host.close();
    let Poll::Ready(Err(error)) = selection.poll(&mut cx) else { panic!("an answer") };
    assert_eq!(error.kind(), ErrorKind::Closed);
    let Poll::Ready(Err(error)) = select_once(&host, 9000) else { panic!("an answer") };
    assert_eq!(error.verdict(), Some(&Verdict::Closed), "after the end too");
}

#[test]
fn links_that_have_ended_are_forgotten() {
    let host = host("mongodb://a/?connectTimeoutMS=0", false);
    host.ring();
    for _ in 0..20 {
        take_link(&host).closed(Failure::new(Stage::Connect, Cause::Refused, "refused"));
        *lock(&host.runtime().now) = lock(&host.runtime().alarm).unwrap();
        host.ring();
    }
    assert_eq!(lock(&host.topology).links.len(), 1);
}

#[test]
fn subscriptions_to_a_client_that_is_closed_end_at_once() {
    let host = host("mongodb://a", false);
    host.ring();
    host.close();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(host.subscribe().poll_next(&mut cx), Poll::Ready(None)));
    let mut views = host.watch();
    assert!(matches!(std::pin::pin!(views.next()).poll(&mut cx), Poll::Ready(Some(_))));
    assert!(matches!(std::pin::pin!(views.next()).poll(&mut cx), Poll::Ready(None)));
}

fn srv_record(host: &str) -> SrvRecord {
    SrvRecord::new(host, 27017, Duration::ZERO)
}

/// Polling SRV Records: a minute after its creation, this host wants its servers looked up.
fn polling_host(dying: bool) -> Arc<Host<Puppet>> {
    let options = Options::parse("mongodb+srv://cluster.example.com").unwrap();
    let options = complete(&options, &[srv_record("a.example.com")], Ok(Vec::new()), 1).unwrap();
    let puppet = Puppet { dying, ..Puppet::default() };
    let host = Host::new(Arc::new(options), 1, puppet);
    host.ring();
    pass(&host, Duration::from_secs(60));
    host
}

#[test]
fn a_rescan_names_its_question_and_changes_the_view() {
    let host = polling_host(false);
    let rescan = lock(&host.runtime().rescans).pop().expect("a rescan");
    assert_eq!(&*rescan.question().name, "_mongodb._tcp.cluster.example.com");
    rescan.ended(Ok(vec![srv_record("b.example.com")]));
    let view = host.view();
    let hosts: Vec<&str> = view.servers().iter().map(|server| server.address.host()).collect();
    assert_eq!(hosts, ["b.example.com"]);
}

#[test]
fn a_rescan_that_is_dropped_has_failed_and_the_next_one_follows() {
    for dying in [true, false] {
        let host = polling_host(dying);
        let mut events = host.subscribe();
        // Not while it is locked: the host may ask for the next one at once.
        let dropped = std::mem::take(&mut *lock(&host.runtime().rescans));
        drop(dropped);
        let failed = |event: sdam_core::topology::Event| match event.kind {
            EventKind::SrvRescanFailed { error } => Some(error.to_string()),
            _ => None,
        };
        let seen = std::iter::from_fn(|| events.try_next()).find_map(failed);
        // A dying runtime drops it under the lock, before any subscription.
        assert_eq!(seen.is_some(), !dying);
        pass(&host, Duration::from_secs(10));
        let again = lock(&host.runtime().rescans).len();
        assert_eq!(again, usize::from(!dying));
        let deadline = *lock(&host.runtime().alarm);
        assert!(deadline.is_some_and(|due| due > Instant::from_millis(70_000)), "it goes on");
    }
}
