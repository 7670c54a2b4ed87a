//! The faults of a world, and their effects.

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{Generation, ServerId};
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::topology::Input;

use super::deployment::{GUEST, MEMBERS, NAMES};
use super::laws::{Finding, ensure};
use super::link::end;
use super::step::Fault;
use super::world::World;

impl World {
    /// Returns all that can go wrong.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let (set, mut faults) = (&self.deployment, Vec::new());
        for member in 0..MEMBERS {
            faults.push(Fault::Toggle(member));
            if set.servers[member].is_up && set.servers[member].elected.is_some() {
                faults.push(Fault::StepDown(member));
            }
            if set.is_electable(member) {
                faults.push(Fault::Elect(member));
            }
            if let Some((_, generation, is_ready)) = self.pool(member) {
                if is_ready {
                    faults.extend([Fault::NotPrimary(member), Fault::Network(member)]);
                }
                if generation.number() > 0 {
                    faults.push(Fault::StaleNetwork(member));
                }
            }
        }
        let primary = set.primary();
        if primary.is_some() && set.servers[GUEST].elected.is_none() {
            faults.push(Fault::Reconfigure);
        }
        let open = self.links.iter().filter(|(_, link)| link.is_open && !link.has_ended());
        faults.extend(open.map(|(id, _)| Fault::Reset(*id)));
        faults
    }

    /// Lets it go wrong.
    ///
    /// # Errors
    ///
    /// Says what does not hold then.
    pub(super) fn inject(&mut self, fault: Fault) -> Finding {
        match fault {
            Fault::Toggle(member) => {
                self.deployment.toggle(member);
                self.links.values_mut().filter(|it| it.member == member).for_each(end);
            }
            Fault::StepDown(member) => self.deployment.step_down(member),
            Fault::Elect(member) => self.deployment.elect(member),
            Fault::Reconfigure => self.deployment.reconfigure(),
            Fault::Reset(link) => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.arrivals.clear();
                    end(link);
                }
            }
            Fault::NotPrimary(member) => self.fail_operation(member, not_primary(), false)?,
            Fault::Network(member) => self.fail_operation(member, broken(), false)?,
            Fault::StaleNetwork(member) => self.fail_operation(member, broken(), true)?,
        }
        self.speak(self.now);
        Ok(())
    }

    fn fail_operation(&mut self, member: usize, error: OperationError, stale: bool) -> Finding {
        let Some((server, current, _)) = self.pool(member) else { return Ok(()) };
        let generation = Generation::new(current.number() - u32::from(stale));
        let failure = OperationFailure::new(generation, 17, error);
        let published = self.laws.published;
        if matches!(failure.error, OperationError::Reply { .. }) {
            self.laws.want(server, self.now);
        }
        self.input(Input::OperationFailed { server, failure })?;
        let after = self.pool(member).map(|(_, generation, _)| generation);
        let unchanged = published == self.laws.published && after == Some(current);
        ensure(!stale || unchanged, "stale errors change nothing", || NAMES[member].to_owned())
    }

    fn pool(&self, member: usize) -> Option<(ServerId, Generation, bool)> {
        let is_it = |host: &str| host == NAMES[member];
        let (id, pool) = self.laws.joined.iter().find(|(_, it)| is_it(it.address.host()))?;
        Some((*id, pool.generation, pool.is_ready))
    }
}

fn not_primary() -> OperationError {
    let mut error = CommandError::default();
    error.code = Some(10107);
    OperationError::Reply { stage: Stage::Operate, error }
}

fn broken() -> OperationError {
    OperationError::Stream(Failure::new(Stage::Operate, Cause::Closed, "it was closed"))
}
