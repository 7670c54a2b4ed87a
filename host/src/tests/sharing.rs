//! Clients that share monitors: what the monitors find out, each of them knows at once.

use std::sync::Arc;

use super::fixture::{Fixture, Task};
use super::puppet::{Puppet, take_link};
use crate::machines::Host;
use sdam_core::config::Options;
use sdam_core::selection::Criteria;

/// An operation that waits is woken by the very reply that names its server: nothing else may
/// happen for ten seconds.
#[test]
fn a_follower_that_waits_for_a_server_is_served_when_it_is_found() {
    let options = Arc::new(Options::parse("mongodb://a/?directConnection=true").unwrap());
    let leader = Host::for_sharing(Arc::clone(&options), 1, Puppet::default());
    let followers = [2, 3].map(|seed| {
        let runtime = Puppet::default();
        Host::sharing(Arc::clone(&leader), Arc::clone(&options), seed, runtime).unwrap()
    });
    leader.ring();
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
