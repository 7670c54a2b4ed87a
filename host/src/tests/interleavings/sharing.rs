//! Clients that share monitors: each may begin, wait, work and end whatever the others and the
//! monitors do meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::thread::{spawn, yield_now};

use super::super::fixture::{Behaviour, Fixture};
use super::super::puppet::{Puppet, take_link};
use super::clients::connecting;
use super::{block_on, explore, give_up};
use crate::client::registry::Leaders;
use crate::machines::Host;
use sdam_core::config::Options;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::selection::Criteria;

fn options() -> Arc<Options> {
    Arc::new(Options::parse("mongodb://a/?directConnection=true").unwrap())
}

fn sharing(leader: &Arc<Host<Puppet>>, server: &Arc<Behaviour>, seed: u64) -> Arc<Host<Puppet>> {
    let runtime = connecting(Puppet::default(), server);
    Host::sharing(Arc::clone(leader), options(), seed, runtime).unwrap()
}

/// Two clients of one set of monitors, one of which works, while the other waits impatiently and is
/// dropped; the monitor finds the server, loses it, and finds nothing more.
fn together(finds: bool) {
    let server = Arc::<Behaviour>::default();
    let leader = Host::for_sharing(options(), 1, Puppet::default());
    let [works, waits] = [2, 3].map(|seed| sharing(&leader, &server, seed));
    leader.ring();
    let link = take_link(&leader);
    let weak = Arc::downgrade(&leader);
    let activity = Arc::clone(&leader.shared);
    drop(leader);
    let monitor = spawn(move || {
        link.opened();
        if finds {
            Fixture::answer(&link);
        }
        link.closed(Failure::new(Stage::Hello, Cause::Io, "reset"));
    });
    let worker = spawn(move || {
        works.ring();
        let criteria = Arc::new(Criteria::write());
        // It is found, or the client is closed while it waits.
        let closing = Arc::clone(&works);
        let closer = (!finds).then(|| spawn(move || closing.close()));
        if let Ok(selected) = block_on(works.select(&criteria, None)) {
            drop(block_on(selected.check_out()));
        }
        closer.into_iter().for_each(|closer| closer.join().unwrap());
        works.close();
        block_on(works.ended());
    });
    let waiter = spawn(move || {
        waits.ring();
        give_up(waits.select(&Arc::new(Criteria::write()), None));
        give_up(waits.select(&Arc::new(Criteria::write()), None));
    });
    [monitor, waiter].into_iter().for_each(|thread| thread.join().unwrap());
    // A client that waits for a server that was lost again is not left waiting for ever.
    if let Some(leader) = weak.upgrade() {
        leader.close();
    }
    worker.join().unwrap();
    block_on(activity.activity.idle());
    assert!(weak.upgrade().is_none(), "nothing is left that would hold the monitors");
    assert_eq!(server.open.load(Ordering::Relaxed), 0);
}

#[test]
fn clients_that_share_monitors_begin_and_end_whatever_the_others_do() {
    for finds in [false, true] {
        explore(300, move || together(finds));
    }
}

/// Makes a client that shares monitors with others, and closes it.
fn pass_by(leaders: &Leaders<Puppet>, server: &Arc<Behaviour>, seed: u64) {
    let lead = || (Host::for_sharing(options(), !seed, Puppet::default()), ());
    let follow = |leader| {
        // Whatever happens between the look at a leader and this.
        yield_now();
        let runtime = connecting(Puppet::default(), server);
        Host::sharing(leader, options(), seed, runtime).ok()
    };
    let client = leaders.share(&options(), lead, |leader, ()| leader.ring(), follow);
    client.ring();
    client.close();
}

#[test]
fn each_of_several_first_clients_has_a_leader_although_others_close_at_once() {
    explore(1000, || {
        let (leaders, server) = (Arc::<Leaders<Puppet>>::default(), Arc::<Behaviour>::default());
        let threads = [2, 3, 4].map(|seed| {
            let (leaders, server) = (Arc::clone(&leaders), Arc::clone(&server));
            spawn(move || pass_by(&leaders, &server, seed))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
