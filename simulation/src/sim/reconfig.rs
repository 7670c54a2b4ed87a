//! Changes of the configuration as a fault: members come, go, hide, and want to be primary, until
//! the fault ends and all is as it was.

use std::time::Duration;

use super::deployment::{capacity, has_horizons, member};
use super::fault::Fault;
use super::world::{Event, World};
use sdam_cluster::{Change, Input, MemberId, ReconfigError};

/// The interval of attempts to undo a change while it is refused.
const RETRY: Duration = Duration::from_secs(1);

/// For how long: a member that is primary may have to step down several times.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reconfig {
    /// A new server joins.
    Add,
    /// A member leaves.
    Remove,
    /// A member wants most to be primary, and takes over if it can.
    Prefer,
    /// A member must not be primary any more.
    Demote,
    /// A member is hidden, or not any more.
    Hide,
    /// A member gets a tag.
    Tag,
    /// The primary gets a tag and dies before anybody else hears of it.
    Lose,
}

impl Reconfig {
    const ALL: [Self; 7] =
        [Self::Add, Self::Remove, Self::Prefer, Self::Demote, Self::Hide, Self::Tag, Self::Lose];

    /// Returns the bits of a fault that change this.
    pub(super) const fn bits(self) -> u64 {
        self as u64
    }

    const fn of(bits: u64) -> Self {
        Self::ALL[(bits % Self::ALL.len() as u64) as usize]
    }
}

impl World {
    /// Changes the configuration; what the deployment refuses does not happen.
    pub(super) fn begin_reconfig(&mut self, index: usize) {
        let fault = self.plan.faults[index].clone();
        if Reconfig::of(fault.bits) == Reconfig::Lose {
            return self.lose_configuration(index);
        }
        let changes: Vec<Change> = match Reconfig::of(fault.bits) {
            Reconfig::Add => self.addition(&fault).into_iter().collect(),
            change => {
                let members = fault.members.iter();
                members.filter_map(|member| self.changed(change, *member)).take(1).collect()
            }
        };
        self.input(Input::Reconfig { changes: &changes });
    }

    /// The primary installs a configuration and dies, so that the next one begins with an older.
    fn lose_configuration(&mut self, index: usize) {
        if let Some(primary) = self.cluster.primary() {
            let change = self.changed(Reconfig::Tag, primary.0);
            self.input(Input::Reconfig { changes: change.as_slice() });
            self.input(Input::Kill { member: primary });
            self.plan.faults[index].members = vec![primary.0];
        }
    }

    /// Returns how a server joins the set that has never belonged to it, or not any more.
    fn addition(&self, fault: &Fault) -> Option<Change> {
        let plan = &self.plan.cluster;
        let spares = plan.members.len()..capacity(plan);
        let joins = |it: &usize| self.oracle.member(*it).is_none_or(|it| it.options.is_none());
        let options = member(spares.into_iter().find(joins)?, has_horizons(plan));
        Some(Change::Add(match fault.bits / 8 % 6 {
            0 => options.with_priority(5),
            1 => options.with_priority(0),
            2 => options.with_priority(0).with_hidden(true),
            3 => options.with_arbiter(true),
            _ => options,
        }))
    }

    /// Returns how a member of the set changes.
    fn changed(&self, change: Reconfig, member: usize) -> Option<Change> {
        let id = MemberId(member);
        let options = self.oracle.member(member)?.options.clone()?;
        let set = |options| Some(Change::Set(id, options));
        match change {
            Reconfig::Add | Reconfig::Lose => None,
            Reconfig::Remove => Some(Change::Remove(id)),
            Reconfig::Prefer => set(options.with_priority(100).with_hidden(false)),
            Reconfig::Demote => set(options.with_priority(0)),
            Reconfig::Hide => {
                let hidden = !options.hidden;
                set(options.with_priority(u16::from(!hidden)).with_hidden(hidden))
            }
            Reconfig::Tag => {
                let tags = vec![("region".to_owned(), "elsewhere".to_owned())];
                set(options.with_tags(tags))
            }
        }
    }

    /// Makes the configuration what it was at first, now or as soon as it is possible.
    pub(super) fn end_reconfig(&mut self, index: usize) {
        let fault = &self.plan.faults[index];
        if Reconfig::of(fault.bits) == Reconfig::Lose {
            for member in fault.members.clone() {
                self.input(Input::Start { member: MemberId(member) });
            }
        }
        let changes = self.restoration(&self.plan.faults[index].members);
        if changes.is_empty() {
            return;
        }
        match self.cluster.check_reconfig(&changes) {
            Ok(()) => return self.input(Input::Reconfig { changes: &changes }),
            Err(ReconfigError::Primary(member)) => self.input(Input::StepDown { member }),
            Err(_) => {}
        }
        let waited = self.network.now - self.plan.faults[index].ends;
        if waited < TIMEOUT && !self.cluster.is_at_rest() {
            self.unfinished += 1;
            self.network.plan(RETRY, Event::Restore(index));
        }
    }

    /// Returns what is to be changed for these members, and those that came later, to be as in the
    /// beginning.
    fn restoration(&self, members: &[usize]) -> Vec<Change> {
        let plan = &self.plan.cluster;
        let spares = plan.members.len()..capacity(plan);
        let all = members.iter().copied().filter(|it| !spares.contains(it)).chain(spares.clone());
        all.filter_map(|member| {
            let is = self.oracle.member(member).and_then(|it| it.options.as_ref());
            match (plan.members.get(member), is) {
                (Some(was), None) => Some(Change::Add(was.clone())),
                (Some(was), Some(is)) if was != is => {
                    Some(Change::Set(MemberId(member), was.clone()))
                }
                (None, Some(_)) => Some(Change::Remove(MemberId(member))),
                _ => None,
            }
        })
        .collect()
    }
}
