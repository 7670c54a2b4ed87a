//! The configuration of the replica set: who belongs to it, who votes, and whom its replies name.

use std::collections::{BTreeMap, BTreeSet};

use bson::RawArrayBuf;
use sdam_core::bson;
use sdam_core::config::ServerAddress;

use crate::options::{MemberId, MemberOptions};

/// A version of the configuration; members that have not heard of the newest one have an older.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// `setVersion`.
    pub(crate) version: i32,
    members: BTreeMap<MemberId, Configured>,
    /// The lists in replies, by horizon; the members' own addresses under the empty name.
    lists: BTreeMap<String, Lists>,
}

/// The addresses that a reply names, as it names them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lists {
    pub(crate) hosts: RawArrayBuf,
    pub(crate) passives: RawArrayBuf,
    pub(crate) arbiters: RawArrayBuf,
}

/// A member, as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Configured {
    options: MemberOptions,
    /// It has no data yet, and so neither vote nor priority.
    newly_added: bool,
}

impl Configured {
    const fn is_electable(&self) -> bool {
        self.options.is_electable() && !self.newly_added
    }
}

impl Config {
    /// The first version.
    pub(super) fn new(members: &[MemberOptions]) -> Self {
        let members = members.iter().enumerate().map(|(index, options)| {
            let configured = Configured { options: options.clone(), newly_added: false };
            (MemberId(index), configured)
        });
        Self { version: 1, members: members.collect(), lists: BTreeMap::new() }.complete()
    }

    /// The version after this one, which says the same as yet, and is to be
    /// [completed](Self::complete) when it says what it should.
    pub(super) fn successor(&self) -> Self {
        let (version, members) = (self.version.saturating_add(1), self.members.clone());
        Self { version, members, lists: BTreeMap::new() }
    }

    /// Prepares what replies name.
    pub(super) fn complete(mut self) -> Self {
        let array = |list: Vec<&ServerAddress>| list.iter().map(ToString::to_string).collect();
        let names = self.members.values().flat_map(|it| it.options.horizons.keys());
        let horizons: BTreeSet<Option<&str>> =
            names.map(|name| Some(name.as_str())).chain([None]).collect();
        let lists = horizons.into_iter().map(|horizon| {
            let lists = Lists {
                hosts: array(self.hosts(horizon)),
                passives: array(self.passives(horizon)),
                arbiters: array(self.arbiters(horizon)),
            };
            (horizon.unwrap_or_default().to_owned(), lists)
        });
        self.lists = lists.collect();
        self
    }

    /// Returns what a reply names.
    pub(crate) fn lists(&self, horizon: Option<&str>) -> Option<&Lists> {
        self.lists.get(horizon.unwrap_or_default())
    }

    pub(super) fn add(&mut self, member: MemberId, options: MemberOptions, newly_added: bool) {
        self.members.insert(member, Configured { options, newly_added });
    }

    pub(super) fn remove(&mut self, member: MemberId) {
        self.members.remove(&member);
    }

    pub(crate) fn get(&self, member: MemberId) -> Option<&MemberOptions> {
        self.members.get(&member).map(|it| &it.options)
    }

    pub(super) fn get_mut(&mut self, member: MemberId) -> Option<&mut MemberOptions> {
        self.members.get_mut(&member).map(|it| &mut it.options)
    }

    pub(crate) fn contains(&self, member: MemberId) -> bool {
        self.members.contains_key(&member)
    }

    pub(crate) fn options(&self) -> Vec<&MemberOptions> {
        self.members.values().map(|it| &it.options).collect()
    }

    /// Returns how much the member wants to be primary; 0 if it must not.
    pub(super) fn priority(&self, member: MemberId) -> u16 {
        let electable = self.members.get(&member).filter(|it| it.is_electable());
        electable.map_or(0, |it| it.options.priority)
    }

    /// Returns how many members want to be primary more than this one.
    pub(super) fn priority_rank(&self, member: MemberId) -> u32 {
        let own = self.priority(member);
        let more = self.members.keys().filter(|it| self.priority(**it) > own).count();
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    pub(crate) fn votes(&self, member: MemberId) -> bool {
        self.members.get(&member).is_some_and(|it| !it.newly_added)
    }

    pub(crate) fn voters(&self) -> usize {
        self.members.values().filter(|it| !it.newly_added).count()
    }

    /// Returns how many of those that vote have data.
    pub(crate) fn voters_with_data(&self) -> usize {
        let voters = self.members.values().filter(|it| !it.newly_added);
        voters.filter(|it| !it.options.arbiter).count()
    }

    /// Returns how many votes elect a primary.
    pub(crate) fn majority(&self) -> usize {
        self.voters() / 2 + 1
    }

    /// Returns how many of those that vote must have a write that means to survive elections.
    pub(crate) fn write_majority(&self) -> usize {
        self.majority().min(self.voters_with_data())
    }

    /// Returns whether a write that does not say how many members must have it waits for a
    /// majority, since 5.0 (the server's manual, "Implicit Default Write Concern"): not if one more
    /// member without its data would leave none.
    pub(crate) fn implies_majority(&self) -> bool {
        let with_data = self.voters_with_data();
        with_data == self.voters() || with_data > self.majority()
    }

    /// Returns the members, in the order of their ids.
    pub(crate) fn members(&self) -> impl Iterator<Item = (MemberId, &MemberOptions)> {
        self.members.iter().map(|(member, it)| (*member, &it.options))
    }

    /// Returns the members that have neither vote nor priority yet.
    pub(super) fn newly_added(&self) -> impl Iterator<Item = MemberId> {
        self.members.iter().filter(|(_, it)| it.newly_added).map(|(member, _)| *member)
    }

    /// Gives a member its vote and its priority.
    pub(super) fn admit(&mut self, member: MemberId) {
        if let Some(it) = self.members.get_mut(&member) {
            it.newly_added = false;
        }
    }

    /// Returns whether the member is one of those that `passives` names, or would be if it were
    /// not hidden.
    pub(crate) fn is_passive(&self, member: MemberId) -> bool {
        self.members.get(&member).is_some_and(|it| !it.options.arbiter && !it.is_electable())
    }

    /// Returns what the reply calls `hosts`.
    pub(super) fn hosts(&self, horizon: Option<&str>) -> Vec<&ServerAddress> {
        self.addresses(horizon, Configured::is_electable)
    }

    /// Returns what the reply calls `passives`.
    pub(super) fn passives(&self, horizon: Option<&str>) -> Vec<&ServerAddress> {
        self.addresses(horizon, |it| {
            !it.is_electable() && !it.options.hidden && !it.options.arbiter
        })
    }

    /// Returns what the reply calls `arbiters`.
    pub(super) fn arbiters(&self, horizon: Option<&str>) -> Vec<&ServerAddress> {
        self.addresses(horizon, |it| it.options.arbiter && !it.options.hidden)
    }

    fn addresses(
        &self,
        horizon: Option<&str>,
        which: impl Fn(&Configured) -> bool,
    ) -> Vec<&ServerAddress> {
        let members = self.members.values().filter(|it| which(it));
        members.map(|it| it.options.address_under(horizon)).collect()
    }
}

impl MemberOptions {
    /// Returns where clients of this horizon reach the member.
    pub(crate) fn address_under(&self, horizon: Option<&str>) -> &ServerAddress {
        horizon.and_then(|name| self.horizons.get(name)).unwrap_or(&self.address)
    }

    /// Returns the horizon whose clients know the member by this host name.
    pub(crate) fn horizon_of(&self, host: &str) -> Option<&str> {
        let mut horizons = self.horizons.iter();
        horizons.find(|(_, address)| address.host() == host).map(|(name, _)| name.as_str())
    }
}
