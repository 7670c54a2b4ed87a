//! The begin and end of faults.

use bson::raw::{RawArrayBuf, cstr};
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{Flags, write_op_msg};

use super::checks::Violation;
use super::deployment::capacity;
use super::fault::{Fault, FaultKind};
use super::network::StreamId;
use super::path::Trouble;
use super::plan::ClientPlan;
use super::world::{Event, World};
use sdam_cluster::{Input, MemberId};

impl World {
    pub(super) fn begin(&mut self, index: usize) -> Result<(), (usize, Violation)> {
        let fault = self.plan.faults[index].clone();
        *self.statistics.faults.entry(fault.kind).or_default() += 1;
        for (client, member) in pairs(&fault) {
            for trouble in fault.kind.troubles() {
                self.network.begin(client, member, *trouble);
            }
            match fault.kind {
                FaultKind::Reset => self.network.reset(client, member),
                FaultKind::DeadStreams | FaultKind::Moved => self.network.deaden(client, member),
                FaultKind::Misdirected => self.divert(client, member, fault.bits),
                _ => {}
            }
        }
        for member in fault.members.iter().copied() {
            let id = MemberId(member);
            match fault.kind {
                FaultKind::Kill | FaultKind::Gone | FaultKind::Moved => {
                    self.input(Input::Kill { member: id });
                }
                FaultKind::Shutdown => self.input(Input::Shutdown { member: id }),
                FaultKind::Upgrade => self.upgrade(id, fault.bits),
                FaultKind::FrozenMember => self.input(Input::Freeze { member: id }),
                FaultKind::FailPoint => {
                    self.command((index, member), true, &fail_point(fault.bits));
                }
                FaultKind::RateLimit => self.command((index, member), true, &rate_limit(true)),
                FaultKind::DnsChange if self.listed.iter().filter(|it| **it).count() > 1 => {
                    self.listed[member] = false;
                }
                _ => {}
            }
        }
        match (fault.kind, self.cluster.primary()) {
            (FaultKind::Reconfig, _) => self.begin_reconfig(index),
            (FaultKind::LoginRefused, _) => self.change_password("another"),
            (FaultKind::StepDown, Some(member)) => self.input(Input::StepDown { member }),
            (FaultKind::Succession, Some(member)) => self.begin_succession(index, member),
            (FaultKind::Cut, primary) => self.cut(index, primary),
            _ => {}
        }
        for client in fault.clients {
            match fault.kind {
                FaultKind::FrozenClient => self.clients[client].freeze(self.network.now),
                FaultKind::Fork => self.clients[client].fork(fault.bits),
                FaultKind::Alarm => self.clients[client].disturb_alarm(fault.bits),
                FaultKind::TasksDropped => self.drop_tasks(client, fault.bits)?,
                FaultKind::Flood => self.clients[client].is_flooded(),
                FaultKind::Close => self.close(client)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A client's runtime gives up some of its tasks, which disturbs as broken streams do.
    fn drop_tasks(&mut self, index: usize, bits: u64) -> Result<(), (usize, Violation)> {
        self.acting = index;
        let client = &mut self.clients[index];
        if !client.closed && !client.is_frozen() {
            client.drop_tasks(&mut self.network, bits);
        }
        for member in 0..capacity(&self.plan.cluster) {
            self.network.disturb(index, member);
        }
        self.judge(index)
    }

    /// A member ends, and is to start with the next version, or with the one before.
    fn upgrade(&mut self, member: MemberId, bits: u64) {
        self.input(Input::Kill { member });
        if let Some(version) = self.cluster.version(member) {
            let version = version.neighbour(bits.is_multiple_of(2));
            self.input(Input::Upgrade { member, version });
        }
    }

    /// Clients hear nothing of the primary any more, and soon it is none.
    fn begin_succession(&mut self, index: usize, primary: MemberId) {
        let fault = &mut self.plan.faults[index];
        fault.members = vec![primary.0];
        let half = (fault.ends - fault.begins) / 2;
        for client in fault.clients.clone() {
            self.network.begin(client, primary.0, Trouble::SilentToClient);
        }
        self.network.plan(half, Event::StepDown(primary));
    }

    /// A member is cut off from the others: the primary, or whom the fault names.
    fn cut(&mut self, index: usize, primary: Option<MemberId>) {
        let fault = &mut self.plan.faults[index];
        if let Some(primary) = primary.filter(|_| fault.bits.is_multiple_of(2)) {
            fault.members = vec![primary.0];
        }
        for member in fault.members.clone() {
            self.input(Input::Cut { member: MemberId(member) });
        }
    }

    fn end_succession(&mut self, fault: &Fault) {
        for (client, member) in pairs(fault) {
            self.network.end(client, member, Trouble::SilentToClient);
        }
    }

    pub(super) fn end(&mut self, index: usize) -> Result<(), (usize, Violation)> {
        let fault = self.plan.faults[index].clone();
        for member in fault.members.iter().copied() {
            let id = MemberId(member);
            match fault.kind {
                // The operator who has waited long enough for a member's end kills it.
                FaultKind::Shutdown => {
                    self.input(Input::Kill { member: id });
                    self.input(Input::Start { member: id });
                }
                FaultKind::Kill | FaultKind::Upgrade | FaultKind::Moved => {
                    self.input(Input::Start { member: id });
                }
                FaultKind::FrozenMember => self.input(Input::Thaw { member: id }),
                FaultKind::Cut => self.input(Input::Heal { member: id }),
                FaultKind::FailPoint => {
                    let off = rawdoc! {
                        "configureFailPoint": "failCommand", "mode": "off", "$db": "admin"
                    };
                    self.command((index, member), false, &off);
                }
                FaultKind::RateLimit => self.command((index, member), false, &rate_limit(false)),
                FaultKind::DnsChange => {
                    self.listed[member] = true;
                    self.listed_since = self.network.now;
                }
                _ => {}
            }
        }
        for (client, member) in pairs(&fault) {
            if fault.kind == FaultKind::Moved {
                // What was opened meanwhile leads to where the member was.
                self.network.deaden(client, member);
            }
            for trouble in fault.kind.troubles() {
                self.network.end(client, member, *trouble);
            }
            if fault.kind == FaultKind::Misdirected && self.can_divert(client) {
                self.network.end(client, member, Trouble::Misdirected);
            }
        }
        match fault.kind {
            FaultKind::Succession => self.end_succession(&fault),
            FaultKind::Reconfig => self.end_reconfig(index),
            FaultKind::LoginRefused => self.change_password("secret"),
            _ => {}
        }
        for client in fault.clients {
            match fault.kind {
                FaultKind::FrozenClient => {
                    self.acting = client;
                    self.clients[client].thaw(&mut self.network);
                    self.judge(client)?;
                }
                FaultKind::Alarm => self.clients[client].mend_alarm(),
                _ => {}
            }
        }
        Ok(())
    }

    /// A client that connects directly would never find out that it reaches somebody else, and one
    /// outside, which says whom it wants, would be refused by TLS.
    fn can_divert(&self, client: usize) -> bool {
        let ClientPlan { direct, outside, .. } = self.plan.clients[client];
        self.plan.cluster.members.len() > 1 && direct.is_none() && !outside
    }

    fn divert(&mut self, client: usize, member: usize, bits: u64) {
        if self.can_divert(client) {
            let count = self.plan.cluster.members.len();
            let further = usize::try_from(bits % (count - 1) as u64).unwrap_or_default();
            let detour = (member + 1 + further) % count;
            self.network.divert(client, member, detour);
        }
    }

    /// Sends a member a command, over a connection that belongs to the fault.
    fn command(&mut self, fault: (usize, usize), begins: bool, command: &RawDocumentBuf) {
        let (index, member) = fault;
        // Far from the numbers of the clients' streams.
        let connection = StreamId(u64::MAX - (index * 1000 + member) as u64);
        if begins {
            self.input(Input::Accepted { connection, member: MemberId(member) });
            self.input(Input::Trusted { connection });
        }
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, 0, Flags::NONE, command);
        self.input(Input::Received { connection, bytes: &bytes });
    }
}

fn pairs(fault: &Fault) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (clients, members) = (fault.clients.clone(), fault.members.clone());
    clients
        .into_iter()
        .flat_map(move |client| members.clone().into_iter().map(move |member| (client, member)))
}

/// The effect of a fail point on commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Close,
    NotPrimary,
    ShutDown,
    Interrupted,
    TimeExpired,
    Block,
}

impl Effect {
    const ALL: [Self; 6] = [
        Self::Close,
        Self::NotPrimary,
        Self::ShutDown,
        Self::Interrupted,
        Self::TimeExpired,
        Self::Block,
    ];
}

/// The commands that fail: those of monitors, of writers, of applications, or all.
const COMMANDS: [&[&str]; 4] = [
    &["hello", "isMaster"],
    &["insert"],
    &["find", "insert", "getMore"],
    &["hello", "isMaster", "find", "insert", "getMore"],
];

/// Commands of applications wait for a while.
pub(super) const SLOW_COMMANDS: u64 = fail_point_bits(Effect::Block);

/// Commands of applications fail, as if a primary had stepped down.
pub(super) const NOT_PRIMARY: u64 = fail_point_bits(Effect::NotPrimary);

/// The next few commands of applications fail, as if a primary had stepped down.
pub(super) const NEXT_NOT_PRIMARY: u64 = next_bits(Effect::NotPrimary);

/// The next few commands of applications are answered by the end of their connection.
pub(super) const NEXT_CLOSE: u64 = next_bits(Effect::Close);

/// Returns what makes a fail point do this to all commands of applications.
const fn fail_point_bits(effect: Effect) -> u64 {
    2 + 4 * effect as u64 + 24
}

/// Returns what makes a fail point do this to the next few commands of applications.
const fn next_bits(effect: Effect) -> u64 {
    2 + 4 * effect as u64
}

/// Returns what makes a fail point do this to the next few hellos.
pub(super) const fn hello_bits(effect: Effect) -> u64 {
    4 * effect as u64
}

fn fail_point(bits: u64) -> RawDocumentBuf {
    let choose = |bits: u64, count: usize| usize::try_from(bits % count as u64).unwrap_or(0);
    let commands = COMMANDS[choose(bits, COMMANDS.len())];
    let commands: RawArrayBuf = commands.iter().copied().collect();
    let mut data = rawdoc! { "failCommands": commands };
    match Effect::ALL[choose(bits / 4, Effect::ALL.len())] {
        Effect::Close => data.append(cstr!("closeConnection"), true),
        Effect::NotPrimary => data.append(cstr!("errorCode"), 10107),
        Effect::ShutDown => data.append(cstr!("errorCode"), 91),
        Effect::Interrupted => data.append(cstr!("errorCode"), 11600),
        Effect::TimeExpired => data.append(cstr!("errorCode"), 50),
        Effect::Block => {
            data.append(cstr!("blockConnection"), true);
            data.append(cstr!("blockTimeMS"), 1500);
        }
    }
    let times = if (bits / 24).is_multiple_of(2) { 3 } else { 1_000_000 };
    let mode = rawdoc! { "times": times };
    rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" }
}

fn rate_limit(enabled: bool) -> RawDocumentBuf {
    rawdoc! {
        "setParameter": 1,
        "ingressConnectionEstablishmentRateLimiterEnabled": enabled,
        "ingressConnectionEstablishmentRatePerSec": 1.0,
        "ingressConnectionEstablishmentBurstCapacitySecs": 2.0,
        "ingressConnectionEstablishmentMaxQueueDepth": 2,
        "$db": "admin",
    }
}
