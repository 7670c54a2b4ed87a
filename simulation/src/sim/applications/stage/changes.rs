//! The parts of a simulation that are about change streams, and about files.

use std::sync::Arc;
use std::time::Duration;

use sdam::generic::Client;
use sdam_cluster::{Input, MemberId};
use sdam_core::time::Instant;

use super::{Found, LAST_OPERATIONS, SETTLING, Stage, Workload};
use crate::sim::applications::work::{Application, follow, keep, read_all, write};
use crate::sim::checks::Violation;
use crate::sim::fault::Fault;
use crate::sim::random::Random;
use crate::sim::run::Part;
use crate::virtual_time::{Runtime, Topology};

/// The interval at which the log of the members is looked at: it is longer than that.
const LOOK: Duration = Duration::from_millis(20);

/// The longest that streams take to hand out everything once nothing is written any more.
const LAST_EVENTS: Duration = Duration::from_secs(600);

/// The longest that uploads take once all faults have ended: each may be gone on with five times,
/// after a pause.
pub(super) const LAST_UPLOADS: Duration = Duration::from_secs(600);

/// The longest that it takes to read all files back.
const READING: Duration = Duration::from_secs(1_800);

/// The applications that are to be started when all clients are there.
#[derive(Default)]
pub(super) struct Streams {
    waiting: Vec<(u64, Duration, Application)>,
    clients: Vec<(usize, Client<Runtime>)>,
    /// The time when the log is looked at next.
    next_look: Instant,
}

impl Stage {
    /// A client is there, of which tasks write and read.
    pub(super) fn watches(
        &mut self,
        index: usize,
        (number, client): (usize, Topology),
        mut random: Random,
    ) {
        if !self.plan.reduction.has_client(index) {
            return;
        }
        let plan = self.plan.clients[index].clone();
        let version = self.plan.cluster.version;
        let workload = Workload { from: self.plan.work.0, to: self.plan.work.1, version };
        // The last one writes.
        for task in 0..=plan.tasks {
            let application = Application::new(
                (number, client.clone()),
                (self.simulation.time(), Arc::clone(&self.ledger)),
                (workload, plan.interval),
                random.fork(),
            );
            self.streams.waiting.push((plan.tasks - task, plan.interval, application));
        }
        self.streams.clients.push((number, Client::from(client)));
    }

    /// Starts the applications that read and write.
    pub(super) fn begin_streams(&mut self) {
        let clients = Arc::new(std::mem::take(&mut self.streams.clients));
        let (may_lose, drops) = (self.plan.forgets(), self.plan.idles);
        for (place, _, application) in std::mem::take(&mut self.streams.waiting) {
            self.ledger.lock().task_begins();
            if self.plan.part == Part::Files {
                self.simulation.spawn(keep(application, Arc::clone(&clients)));
                continue;
            }
            match place {
                0 => {
                    self.ledger.lock().stories.writers += 1;
                    self.simulation.spawn(write(application, drops));
                }
                _ => self.simulation.spawn(follow(application, Arc::clone(&clients), may_lose)),
            }
        }
    }

    /// Takes note of what a majority has, from time to time or now.
    pub(super) fn look_at_log(&mut self, is_due: bool) -> Found {
        let now = self.now();
        let is_of_log = matches!(self.plan.part, Part::Changes | Part::Files);
        if !is_of_log || !is_due && now < self.streams.next_look {
            return Ok(());
        }
        self.streams.next_look = now + LOOK;
        let mut ledger = self.ledger.lock();
        if self.plan.part == Part::Files {
            let files = &mut ledger.checks.files;
            return files.learn(self.simulation.committed_changes(files.until()));
        }
        let committed = self.simulation.committed_changes(ledger.stories.until());
        ledger.stories.learn(committed)
    }

    /// Lets streams hand out everything, once nothing goes wrong and nothing is written any more.
    pub(super) fn end_streams(&mut self, latest: Instant) -> Found {
        let limit = (self.now() + LAST_OPERATIONS).min(latest);
        self.pass(limit, |it| it.ledger.lock().stories.writers == 0)?;
        if self.now() >= latest {
            return Ok(());
        }
        if self.ledger.lock().stories.writers > 0 {
            return self.have_ended("operations end", self.clients[0].number);
        }
        self.pass((self.now() + SETTLING).min(latest), |_| false)?;
        self.ledger.lock().stories.is_final = true;
        self.pass((self.now() + LAST_EVENTS).min(latest), |it| it.ledger.lock().tasks() == 0)?;
        if self.now() >= latest {
            return Ok(());
        }
        self.ledger.lock().stories.finish()?;
        self.have_ended("operations end", self.clients[0].number)?;
        self.close()
    }

    /// Returns the member that a fault cuts off: more often than not the primary.
    pub(super) fn who_is_cut(&self, fault: &Fault, member: MemberId) -> MemberId {
        let is_of_log = matches!(self.plan.part, Part::Changes | Part::Files);
        let is_primary = is_of_log && !fault.bits.is_multiple_of(3);
        self.simulation.primary().filter(|_| is_primary).unwrap_or(member)
    }

    /// Ends that, for the member that is cut off.
    pub(super) fn heal(&mut self, member: MemberId) {
        if matches!(self.plan.part, Part::Changes | Part::Files) {
            let members = (0..self.plan.cluster.members.len()).map(MemberId);
            members.for_each(|member| self.simulation.inject(Input::Heal { member }));
        } else {
            self.simulation.inject(Input::Heal { member });
        }
    }

    /// Has a client that is new read all files back, once nothing goes wrong and everything that
    /// was under way has come to its end; judges what is there.
    pub(super) fn end_files(&mut self, latest: Instant) -> Found {
        let open = self.ledger.lock().checks.files.open();
        if let Some((client, file)) = open.filter(|_| self.ledger.lock().tasks() > 0) {
            return Err((client, Violation::new("operations end", file)));
        }
        self.have_ended("operations end", self.clients[0].number)?;
        let settled = (self.now() + SETTLING).min(latest);
        self.pass(settled, |_| false)?;
        if self.now() >= latest {
            return Ok(());
        }
        self.ledger.lock().checks.files.finish()?;
        let (number, application) = self.newcomer();
        self.ledger.lock().task_begins();
        self.simulation.spawn(read_all(application));
        let limit = self.now() + READING;
        self.pass(limit, |it| it.ledger.lock().tasks() == 0)?;
        self.have_ended("operations end", number)?;
        self.close()
    }
}
