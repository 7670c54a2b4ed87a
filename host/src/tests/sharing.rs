//! Clients that share monitors: what the monitors find out, each of them knows at once.

use std::sync::Arc;
use std::task::Poll;

use super::fixture::{Fixture, Task};
use super::puppet::{Puppet, take_link};
use crate::machines::Host;
use crate::sync::lock;
use sdam_core::config::Options;
use sdam_core::selection::Criteria;

/// A leader, and two clients that share its monitors.
fn sharing() -> (Arc<Host<Puppet>>, [Arc<Host<Puppet>>; 2]) {
    let options = Arc::new(Options::parse("mongodb://a/?directConnection=true").unwrap());
    let leader = Host::for_sharing(Arc::clone(&options), 1, Puppet::default());
    let followers = [2, 3].map(|seed| {
        let runtime = Puppet::default();
        Host::sharing(Arc::clone(&leader), Arc::clone(&options), seed, runtime).unwrap()
    });
    leader.ring();
    (leader, followers)
}

/// An operation that waits is woken by the very reply that names its server: nothing else may
/// happen for ten seconds.
#[test]
fn a_follower_that_waits_for_a_server_is_served_when_it_is_found() {
    let (leader, followers) = sharing();
    let link = take_link(&leader);
    link.opened();
    let criteria = Arc::new(Criteria::write());
    let mut waiting = followers.each_ref().map(|it| Task::new(it.select(&criteria, None)));
    assert!(waiting.iter_mut().all(|task| task.poll().is_pending()));
    Fixture::answer(&link);
    for task in &mut waiting {
        assert!(task.was_woken(), "it is woken at once");
        assert!(task.poll().is_ready());
    }
}

/// An operation that waits for a server is known to the monitors for as long as it waits.
#[test]
fn a_follower_that_gives_up_or_is_served_leaves_nothing_behind() {
    let (leader, followers) = sharing();
    let link = take_link(&leader);
    link.opened();
    let criteria = Arc::new(Criteria::write());
    let count = || lock(&leader.topology).followers.as_ref().unwrap().waiting.len();
    let mut waiting = followers.each_ref().map(|it| Task::new(it.select(&criteria, None)));
    assert!(waiting.iter_mut().all(|task| task.poll().is_pending()));
    assert_eq!(count(), 2);
    let [given_up, mut served] = waiting;
    drop(given_up);
    assert_eq!(count(), 1);
    Fixture::answer(&link);
    assert!(served.poll().is_ready());
    assert_eq!(count(), 0);
    let none = Arc::new(Criteria::write().with_predicate(|_| false));
    let mut closed = Task::new(followers[0].select(&none, None));
    assert!(closed.poll().is_pending());
    assert_eq!(count(), 1);
    followers[0].close();
    assert!(matches!(closed.poll(), Poll::Ready(Err(_))));
    assert_eq!(count(), 0);
}

/// Monitors run for as long as one client is there to share them.
#[test]
fn monitors_end_with_the_last_of_their_clients() {
    let (leader, [one, other]) = sharing();
    one.close();
    one.close();
    assert!(!leader.is_closed() && !other.is_closed(), "another one needs them");
    other.close();
    assert!(leader.is_closed());
}
