//! Clients that share the monitors of one host, the leader: what each learns of its topology, and
//! how their own inputs reach it.
//!
//! A leader has no pools and no operations. Its lock is taken before those of its followers'
//! topologies, so that whatever it does, it does for all of them in the same order. A follower that
//! is found here is kept until that lock is free, as dropping the last reference would take it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use sdam_core::id::WaiterId;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, EventKind, Follower, Input, Topology};

use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::machines::topology::{Root, TopologyState};
use crate::sync::lock;

/// The clients that share the monitors of a host.
pub(crate) struct Followers<R: Runtime> {
    /// Those that are not closed, opened or not.
    members: Vec<Weak<Host<R>>>,
    opened: Vec<Weak<Host<R>>>,
    succession: Succession,
    /// Those that are opened, from the first input to all of them under one lock until that lock is
    /// free.
    gathered: Option<Vec<Arc<Host<R>>>>,
    /// The followers whose operations wait for a server.
    pub(crate) waiting: BTreeMap<WaiterId, Weak<Host<R>>>,
}

/// The search for a client whose runtime goes on with the monitors, as the last one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Succession {
    /// There is none: a runtime has the monitors.
    Settled,
    /// A search runs.
    Open,
    /// The runtime that was found has ended meanwhile.
    Lost,
}

impl<R: Runtime> Default for Followers<R> {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            opened: Vec::new(),
            succession: Succession::Settled,
            gathered: None,
            waiting: BTreeMap::new(),
        }
    }
}

impl<R: Runtime> TopologyState<R> {
    /// Takes note of a client that is to share the monitors, unless these have ended.
    pub(crate) fn admit(&mut self, follower: &Weak<Host<R>>) -> bool {
        let followers = self.followers.as_mut().filter(|_| !self.closed);
        followers.map(|followers| followers.members.push(Weak::clone(follower))).is_some()
    }

    /// Takes note that the runtime of the monitors has ended; returns whether the caller is to
    /// [search](Self::next_heir) another one, as no other caller does so yet.
    pub(crate) fn begin_succession(&mut self) -> bool {
        let Some(followers) = self.followers.as_mut().filter(|_| !self.closed) else {
            return false;
        };
        let begins = followers.succession == Succession::Settled;
        followers.succession = if begins { Succession::Open } else { Succession::Lost };
        begins
    }

    /// Returns a client whose runtime was not tried yet; if there is none, the monitors end, and
    /// with them those whose runtimes have ended.
    pub(crate) fn next_heir(
        &mut self,
        host: &Host<R>,
        tried: &mut BTreeSet<*const Host<R>>,
    ) -> Option<Arc<Host<R>>> {
        let followers = self.followers.as_mut()?;
        let mut untried = followers.members.iter().filter(|heir| tried.insert(heir.as_ptr()));
        let heir = untried.find_map(Weak::upgrade);
        followers.succession = Succession::Open;
        if heir.is_none() {
            self.step(host, Input::Shutdown);
        }
        heir
    }

    /// Takes note that a runtime has taken the monitors over; returns false if that has ended, too.
    pub(crate) fn end_succession(&mut self) -> bool {
        let Some(followers) = &mut self.followers else { return true };
        let is_found = followers.succession == Succession::Open;
        if is_found {
            followers.succession = Succession::Settled;
        }
        is_found
    }

    /// Lets a follower begin, unless it has.
    pub(crate) fn open(&mut self, follower: &Host<R>) {
        let (Root::Own(topology), Some(followers)) = (&self.root, &mut self.followers) else {
            return;
        };
        let mut state = lock(&follower.topology);
        let TopologyState { root: Root::Shared(shared), actions, .. } = &mut *state else { return };
        if !shared.is_new() {
            return;
        }
        shared.open(topology.get(), follower.shared.runtime.now(), actions);
        state.perform(follower);
        followers.opened.push(Weak::clone(&follower.me));
        if let Some(gathered) = &mut followers.gathered {
            gathered.extend(follower.me.upgrade());
        }
    }

    /// Passes a follower an input of its own, and the topology what that translates to. The caller
    /// performs what the follower has to do afterwards: see [`mark_dirty`](Self::mark_dirty).
    pub(crate) fn step_for(&mut self, host: &Host<R>, follower: &Host<R>, input: Input<'_>) {
        self.open(follower);
        let is_last = matches!(input, Input::Shutdown) && self.dismiss(follower);
        for input in self.translate(follower, input) {
            if let Some(followers) = &mut self.followers {
                match &input {
                    Input::Wait { waiter, .. } => {
                        followers.waiting.insert(*waiter, Weak::clone(&follower.me));
                    }
                    Input::Abandon { waiter } => drop(followers.waiting.remove(waiter)),
                    _ => {}
                }
            }
            self.step(host, input);
        }
        if is_last {
            self.step(host, Input::Shutdown);
        }
    }

    /// Takes note that a follower is closed; returns whether it was the last one.
    fn dismiss(&mut self, follower: &Host<R>) -> bool {
        let was_closed = lock(&follower.topology).closed;
        let Some(followers) = self.followers.as_mut().filter(|_| !was_closed) else { return false };
        let is_this = |other: &Weak<Host<R>>| std::ptr::eq(other.as_ptr(), follower);
        let members = followers.members.len();
        followers.members.retain(|other| !is_this(other));
        followers.opened.retain(|other| !is_this(other));
        followers.members.is_empty() && members > 0
    }

    /// Passes a follower an input of its own; returns the inputs for the topology.
    fn translate<'a>(&self, follower: &Host<R>, input: Input<'a>) -> Vec<Input<'a>> {
        let (Root::Own(topology), now) = (&self.root, follower.shared.runtime.now()) else {
            return Vec::new();
        };
        let mut state = lock(&follower.topology);
        let TopologyState { root: Root::Shared(shared), actions, .. } = &mut *state else {
            return Vec::new();
        };
        let inputs = inputs_for_leader(shared, topology.get(), now, input, actions);
        state.perform(follower);
        inputs
    }

    /// Returns whose operation waits under this name, and forgets it.
    pub(crate) fn follower_of(&mut self, waiter: WaiterId) -> Option<Arc<Host<R>>> {
        self.followers.as_mut()?.waiting.remove(&waiter)?.upgrade()
    }

    /// Has a follower do, when the locks are free, what has been left to it.
    pub(crate) fn mark_dirty(&mut self, follower: Arc<Host<R>>) {
        self.dirty.push(follower);
    }

    /// Hands an action on to those who share this topology; returns whether it is to be performed
    /// here.
    pub(crate) fn forward(&mut self, action: &Action) -> bool {
        let Some(followers) = &mut self.followers else { return true };
        match action {
            Action::Open { .. }
            | Action::Send { .. }
            | Action::Close { .. }
            | Action::Resolve { .. } => true,
            Action::Wake { waiter, .. } => {
                let waiting = followers.waiting.remove(waiter);
                if let Some(follower) = waiting.and_then(|follower| follower.upgrade()) {
                    lock(&follower.topology).follow(&follower, action);
                    self.mark_dirty(follower);
                }
                false
            }
            Action::Join { .. }
            | Action::Leave { .. }
            | Action::Pool { .. }
            | Action::Publish { .. }
            | Action::Emit { .. } => {
                for follower in followers.gather() {
                    lock(&follower.topology).follow(follower, action);
                }
                matches!(action, Action::Emit { .. })
            }
        }
    }

    /// Returns the followers that have something to do when the locks are free.
    pub(crate) fn take_dirty(&mut self) -> DirtyFollowers<R> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let gathered = self.followers.as_mut().and_then(|followers| followers.gathered.take());
        dirty.extend(gathered.into_iter().flatten());
        DirtyFollowers(dirty.into_iter())
    }

    /// Does what the leader's topology has done.
    fn follow(&mut self, host: &Host<R>, action: &Action) {
        let Root::Shared(shared) = &mut self.root else { return };
        shared.follow(action, &mut self.actions);
        let logged = self.later.findings.len();
        self.perform(host);
        // The log has what was found out from the leader.
        if let Action::Emit { event } = action
            && matches!(event.kind, EventKind::Diagnosed { .. })
        {
            self.later.findings.truncate(logged);
        }
    }
}

/// The followers that have something to do when the locks are free. If a waker of one of them
/// panics, the others do it nevertheless.
pub(crate) struct DirtyFollowers<R: Runtime>(std::vec::IntoIter<Arc<Host<R>>>);

impl<R: Runtime> DirtyFollowers<R> {
    /// Has them do it.
    pub(crate) fn run(&mut self) {
        for follower in self.0.by_ref() {
            follower.with_topology(|_| ());
        }
    }
}

impl<R: Runtime> Drop for DirtyFollowers<R> {
    fn drop(&mut self) {
        self.run();
    }
}

impl<R: Runtime> Followers<R> {
    /// Returns those that are opened and not dropped.
    fn gather(&mut self) -> &[Arc<Host<R>>] {
        let opened = &mut self.opened;
        self.gathered.get_or_insert_with(|| {
            opened.retain(|follower| follower.strong_count() > 0);
            opened.iter().filter_map(Weak::upgrade).collect()
        })
    }
}

/// Passes a follower an input of its own; returns the inputs for the leader.
fn inputs_for_leader<'a>(
    follower: &mut Follower,
    leader: &Topology,
    now: Instant,
    input: Input<'a>,
    out: &mut Vec<Action>,
) -> Vec<Input<'a>> {
    match input {
        Input::Shutdown => {
            let waiters = follower.shut_down(leader, now, out);
            waiters.into_iter().map(|waiter| Input::Abandon { waiter }).collect()
        }
        input => follower.translate(leader, now, input, out).into_iter().collect(),
    }
}
