//! Liveness: who waits while a server is reachable is helped in time, views become the truth when
//! faults stop, and in the end nothing is left.

use std::time::Duration;

use sdam_core::time::Instant;

use super::bounds::Bounds;
use super::checks::Violation;
use super::client::Client;
use super::world::{Event, World};

impl World {
    /// Everybody is to be alive, and who waits in vain is to be helped.
    pub(super) fn audit(&mut self) -> Result<(), (usize, Violation)> {
        let now = self.network.now;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.closed || client.is_frozen() {
                continue;
            }
            client.checks.audit(now);
            self.judge(index)?;
            self.check_waits(index).map_err(|violation| (index, violation))?;
        }
        Ok(())
    }

    /// No selection may wait for longer than B while a suitable server has been reachable for T.
    fn check_waits(&self, index: usize) -> Result<(), Violation> {
        let (client, now) = (&self.clients[index], self.network.now);
        let bounds = Bounds::of(&client.options);
        for (id, operation) in client.operations() {
            let Some(waits_since) = operation.selecting_since() else { continue };
            if now - waits_since <= bounds.selection {
                continue;
            }
            for (member, address) in client.plan.addresses.iter().enumerate() {
                let direct = client.plan.direct.is_some();
                let (Some(suitable), Some(calm), Some(known)) = (
                    self.truth.suitable_since(
                        member,
                        &operation.criteria,
                        client.view().description(),
                        direct,
                    ),
                    self.network.path(index, member).calm_since(),
                    client.member_since(address),
                ) else {
                    continue;
                };
                let reachable = suitable.max(calm).max(known).max(client.running_since);
                let limit = (reachable + bounds.reachable).max(waits_since) + bounds.selection;
                if now > limit {
                    let detail = format!(
                        "{id:?} has been waiting since {waits_since:?} for {}, and {address} has \
                         been reachable since {reachable:?}",
                        operation.criteria
                    );
                    return Err(Violation::new(
                        "selections end while a server is reachable",
                        detail,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns when the view of a client is to be right, `None` while something is wrong.
    fn right_by(&self, client: &Client) -> Option<Instant> {
        let bounds = Bounds::of(&client.options);
        if !self.cluster.is_at_rest() || self.unfinished > 0 {
            return None;
        }
        let calm = self.network.calm_since()?.max(self.truth.changed).max(client.running_since);
        // What vanished from DNS is found again by the next lookup.
        let lookup = match client.options.srv() {
            Some(_) => client.options.rescan_interval() + Duration::from_millis(10),
            None => Duration::ZERO,
        };
        Some(calm.max(self.plan.calm) + lookup + bounds.reachable + bounds.view)
    }

    pub(super) fn decide(&mut self) -> Result<(), (usize, Violation)> {
        let now = self.network.now;
        let open = self.clients.iter().filter(|client| !client.closed);
        let by = open
            .map(|client| self.right_by(client))
            .try_fold(now, |latest, by| Some(latest.max(by?)));
        match by {
            None => self.network.plan(Duration::from_secs(1), Event::Verdict),
            Some(by) if by > now => self.network.events.plan(by, Event::Verdict),
            Some(_) => {
                self.settled = true;
                for index in 0..self.clients.len() {
                    self.judge(index)?;
                }
                self.network.plan(Duration::from_secs(20), Event::Close);
            }
        }
        Ok(())
    }

    /// Everything that was begun has ended.
    pub(super) fn look_for_leaks(&self) -> Result<(), (usize, Violation)> {
        for (index, client) in self.clients.iter().enumerate() {
            if client.has_remains() {
                let violation = Violation::new("everything that began has ended", client.remains());
                return Err((index, violation));
            }
        }
        match self.network.len() {
            0 => Ok(()),
            streams => {
                let detail = format!("{streams} streams are open");
                Err((0, Violation::new("everything that began has ended", detail)))
            }
        }
    }
}
