//! The embedded deployment, with names for its members, on which steps are taken.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use sdam_cluster::{
    Change, ClusterState, Condition, EmbeddedCluster, MemberId, MemberOptions, ReconfigError, User,
};
use sdam_core::bson::raw::cstr;
use sdam_core::bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::description::ServerType;

use super::step::{Name, Step, StepError, Who};

/// A deployment that runs.
#[derive(Debug)]
pub(super) struct Stage {
    cluster: EmbeddedCluster,
    has_mongos: bool,
    users: Vec<User>,
    /// The number of servers that there have been.
    count: usize,
}

/// The reason why a step is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error("there is no primary")]
    NoPrimary,
    #[error("{0} is the primary; step it down before it is removed")]
    Primary(Name),
    #[error("{0} belongs to the set already")]
    Member(Name),
    #[error("{0} does not belong to the set")]
    NotMember(Name),
    #[error("{0} {1}")]
    Vain(Name, &'static str),
    #[error("there is no user {0:?}")]
    NoUser(String),
    #[error("{0}")]
    Reconfig(ReconfigError),
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let refused = error.get_ref().and_then(|it| it.downcast_ref::<ReconfigError>()).cloned();
        match refused {
            Some(ReconfigError::NoPrimary) => Self::NoPrimary,
            Some(ReconfigError::Primary(member)) => Self::Primary(Name::of(member)),
            Some(ReconfigError::NotMember(member)) => Self::NotMember(Name::of(member)),
            Some(refused) => Self::Reconfig(refused),
            None => Self::Io(error),
        }
    }
}

impl Stage {
    /// Takes a deployment over that has just begun with these users.
    pub(super) fn new(cluster: EmbeddedCluster, has_mongos: bool, users: Vec<User>) -> Self {
        let count = cluster.addresses().len();
        Self { cluster, has_mongos, users, count }
    }

    /// Takes a step, but for those that only report something.
    pub(super) async fn take(&mut self, step: &Step) -> Result<(), Refusal> {
        step.check(self.count, self.has_mongos)?;
        let cluster = &self.cluster;
        match step {
            Step::Resign => cluster.step_down(self.who(Who::Primary)?).await?,
            Step::Kill(who) => cluster.kill(self.whom(step, *who).await?).await?,
            Step::Shutdown(who) => cluster.shutdown(self.whom(step, *who).await?).await?,
            Step::Start(name) => cluster.restart(self.named(step, *name).await?).await?,
            Step::Freeze(who) => cluster.freeze(self.whom(step, *who).await?).await?,
            Step::Thaw(name) => cluster.thaw(self.named(step, *name).await?).await?,
            Step::Cut(who) => {
                let member = self.whom(step, *who).await?;
                cluster.cut(member).await?;
                // A set of one has no rest.
                if !cluster.state().await?.members.get(&member).is_some_and(|it| it.cut_off) {
                    return Err(Refusal::Vain(Name::of(member), "is the only one that votes"));
                }
            }
            Step::Heal(Some(name)) => cluster.heal(self.named(step, *name).await?).await?,
            Step::Heal(None) => {
                for member in (0..self.count).map(MemberId) {
                    cluster.heal(member).await?;
                }
            }
            Step::Add(name) => self.add(*name).await?,
            Step::Remove(name) => {
                cluster.reconfig(vec![Change::Remove(name.member())]).await?;
            }
            Step::Fail { command, code, times } => self.fail(command, *code, *times).await?,
            Step::FailNothing => {
                let off = rawdoc! { "configureFailPoint": "failCommand", "mode": "off" };
                self.command_all(&off).await?;
            }
            Step::SlowHello { member, by } => self.slow(*member, *by).await?,
            Step::Password { user, password } => {
                let mut users = self.users.clone();
                let changed = users.iter_mut().find(|it| it.name == *user);
                let changed = changed.ok_or_else(|| Refusal::NoUser(user.clone()))?;
                changed.password = password.clone();
                cluster.change_users(users.clone()).await?;
                self.users = users;
            }
            Step::List | Step::Quit => {}
        }
        Ok(())
    }

    /// Has hello take so much longer, everywhere or for one member.
    pub(super) async fn slow(&self, member: Option<Name>, by: Duration) -> Result<(), Refusal> {
        let all = (0..self.count).map(MemberId);
        for id in all.filter(|id| member.is_none_or(|name| name.member() == *id)) {
            self.cluster.delay_hello(id, by).await?;
        }
        Ok(())
    }

    /// Returns where the members of the beginning listen.
    pub(super) fn addresses(&self) -> BTreeMap<Name, String> {
        let addresses = self.cluster.addresses().iter().enumerate();
        addresses.map(|(index, it)| (Name::of(MemberId(index)), it.to_string())).collect()
    }

    /// Says of each server what it is.
    pub(super) async fn describe(&self) -> Result<BTreeMap<Name, String>, Refusal> {
        let ClusterState { members, .. } = self.cluster.state().await?;
        let described = members.into_iter().map(|(id, it)| {
            let what = match it.server_type {
                ServerType::Unknown => match it.condition {
                    Condition::Down => "down",
                    Condition::Frozen => "frozen",
                    Condition::Ending => "shutting down",
                    _ => "starting",
                },
                ServerType::RsPrimary => "primary",
                ServerType::RsSecondary => "secondary",
                ServerType::RsArbiter => "arbiter",
                ServerType::Mongos => "mongos",
                ServerType::RsGhost => "removed",
                _ => "hidden or starting",
            };
            let cut_off = if it.cut_off { ", cut off from the rest" } else { "" };
            (Name::of(id), format!("{what} at {}{cut_off}", it.address))
        });
        Ok(described.collect())
    }

    fn who(&self, who: Who) -> Result<MemberId, Refusal> {
        match who {
            Who::Named(name) => Ok(name.member()),
            Who::Primary => self.cluster.primary().ok_or(Refusal::NoPrimary),
        }
    }

    /// Returns whom a step concerns, unless it would change nothing.
    async fn whom(&self, step: &Step, who: Who) -> Result<MemberId, Refusal> {
        self.named(step, Name::of(self.who(who)?)).await
    }

    /// As [`whom`](Self::whom), of a member by its name.
    async fn named(&self, step: &Step, name: Name) -> Result<MemberId, Refusal> {
        let state = self.cluster.state().await?;
        let Some(it) = state.members.get(&name.member()) else { return Ok(name.member()) };
        let reason = match (step, it.condition) {
            (Step::Kill(_) | Step::Shutdown(_) | Step::Freeze(_), Condition::Down) => "is down",
            (Step::Shutdown(_), Condition::Ending) => "is shutting down already",
            (Step::Freeze(_), Condition::Frozen) => "is frozen already",
            (Step::Start(_), Condition::Ending) => "is shutting down; wait until it is down",
            (Step::Start(_), Condition::Answering | Condition::Frozen) => "is up",
            (Step::Thaw(_), condition) if condition != Condition::Frozen => "is not frozen",
            (Step::Cut(_), _) if it.cut_off => "is cut off already",
            (Step::Heal(_), _) if !it.cut_off => "is not cut off",
            _ => return Ok(name.member()),
        };
        Err(Refusal::Vain(name, reason))
    }

    async fn add(&mut self, name: Option<Name>) -> Result<(), Refusal> {
        let former = name.filter(|name| name.member().0 < self.count);
        let Some(name) = former else {
            self.cluster.add_member(|_| {}).await?;
            self.count += 1;
            return Ok(());
        };
        let state = self.cluster.state().await?;
        match state.members.get(&name.member()) {
            Some(it) if it.options.is_none() => {
                let again = MemberOptions::new(it.address.clone());
                Ok(self.cluster.reconfig(vec![Change::Add(again)]).await?)
            }
            _ => Err(Refusal::Member(name)),
        }
    }

    async fn fail(&self, command: &str, code: i32, times: Option<u32>) -> Result<(), Refusal> {
        // Drivers say hello by its old name until they know better.
        let commands = match command {
            "hello" => vec!["hello", "isMaster"],
            other => vec![other],
        };
        let commands: RawArrayBuf = commands.into_iter().collect();
        let data = rawdoc! { "failCommands": commands, "errorCode": code };
        let mut command = rawdoc! { "configureFailPoint": "failCommand" };
        match times {
            Some(times) => {
                let times = rawdoc! { "times": i64::from(times) };
                command.append(cstr!("mode"), times);
            }
            None => command.append(cstr!("mode"), "alwaysOn"),
        }
        command.append(cstr!("data"), data);
        self.command_all(&command).await
    }

    /// Runs a command on all servers that answer.
    async fn command_all(&self, command: &RawDocumentBuf) -> Result<(), Refusal> {
        let state = self.cluster.state().await?;
        let all = state.members.into_iter();
        for (member, _) in all.filter(|(_, it)| it.server_type != ServerType::Unknown) {
            self.cluster.run_command(member, command.clone()).await?;
        }
        Ok(())
    }
}
