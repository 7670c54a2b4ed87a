//! Liveness: who waits while a server is reachable is helped in time, views become the truth when
//! faults stop, and in the end nothing is left.

use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::id::ServerId;
use sdam_core::operation::StateChange;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::bounds::Bounds;
use super::checks::Violation;
use super::client::{Client, GaveUp};
use super::dns::{LONGEST_LOOKUP, WAY};
use super::world::{AUDIT, Event, LAST_OPERATION, World};

#[cfg(test)]
mod tests;

impl World {
    /// Every client is to be alive, and an operation that waits without success is to be helped.
    pub(super) fn audit(&mut self) -> Result<(), (usize, Violation)> {
        let now = self.network.now;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.closed || client.is_frozen() {
                continue;
            }
            client.audit(now);
            self.judge(index)?;
            let view = self.check_quiet(index);
            let round_trips = view.and_then(|()| self.check_round_trips(index));
            round_trips.and(self.check_waits(index)).map_err(|violation| (index, violation))?;
        }
        Ok(())
    }

    /// No selection may wait for longer than B while a suitable server has been reachable for T.
    fn check_waits(&self, index: usize) -> Result<(), Violation> {
        let (client, now) = (&self.clients[index], self.network.now);
        let bounds = self.bounds(client);
        let (cursors, waits) = client.ledger().waits_and_cursors();
        cursors.into_iter().try_for_each(|it| self.check_cursor(index, it, bounds))?;
        for (id, criteria, waits_since) in waits {
            if now - waits_since <= bounds.selection {
                continue;
            }
            let reachable = self.reachable_since(index, &criteria);
            let Some((reachable, address)) = reachable else { continue };
            let limit = (reachable + bounds.reachable).max(waits_since) + bounds.selection;
            if now > limit {
                let detail = format!(
                    "{id:?} has been waiting since {waits_since:?} for {criteria}, and {address} \
                     has been reachable since {reachable:?}"
                );
                return Err(Violation::new("selections end while a server is reachable", detail));
            }
        }
        Ok(())
    }

    /// Between two faults that are far enough apart the view is as right as after the last one.
    fn check_quiet(&mut self, index: usize) -> Result<(), Violation> {
        let client = &self.clients[index];
        let quiet = self.quiet_by(client).filter(|by| *by < self.network.now);
        // A client that scans looks only when it is asked.
        if quiet.is_none() || client.options.is_single_threaded() {
            return Ok(());
        }
        self.compare(index)?;
        // A view that is excused says nothing of whom the client must know.
        let client = &self.clients[index];
        if self.oracle.is_known(&client.view(), &client.plan) {
            self.clients[index].was_right = Some(self.network.now);
        }
        if self.network.now < self.plan.calm {
            self.statistics.verdicts += 1;
        }
        Ok(())
    }

    /// Compares the view of a client with what is so.
    pub(super) fn compare(&self, index: usize) -> Result<(), Violation> {
        let client = &self.clients[index];
        let view = client.view();
        let must_know = |member| self.must_know(index, member).is_some();
        self.oracle.compare(&view, &client.plan, must_know, |it| self.just_refused(client, it))
    }

    /// Returns what a server has answered to an operation within B, because of which it may be
    /// Unknown: before topologyVersion that cannot be stale, whatever else is known of the server,
    /// and operations that chose it earlier, and get a connection one after the other, may get that
    /// answer again and again (SDAM, "not writable primary and node is recovering").
    fn just_refused(&self, client: &Client, address: &ServerAddress) -> Option<StateChange> {
        let lasts = self.bounds(client).selection;
        let refused = client.ledger().refused_by(address);
        refused.filter(|(at, _)| self.network.now <= *at + lasts).map(|(_, change)| change)
    }

    /// Returns since when a client must know a member, whatever its view says: it was right, or
    /// began with this member, and since then all who are asked name it, and no other member has
    /// answered in its name.
    fn must_know(&self, index: usize, member: usize) -> Option<Instant> {
        let client = &self.clients[index];
        let is_seed = client.plan.seeds.contains(&member);
        let fresh = (is_seed && !client.was_forked()).then_some(client.born);
        let misled = self.network.path(index, member).misled;
        let holds = |since: &Instant| misled.is_none_or(|misled| misled < *since);
        if self.oracle.has_mongos {
            // DNS may change which mongos are named.
            return fresh.filter(|_| client.options.srv().is_none());
        }
        let named = self.oracle.named_since(member)?;
        // A client that connects directly never knows other members.
        let was_right = client.was_right.filter(|_| client.plan.direct.is_none());
        let since = [fresh, was_right].into_iter().flatten().filter(holds);
        since.filter(|since| named <= *since).min()
    }

    /// Once nothing is wrong any more, what went wrong weighs a fifth less in each average of round
    /// trips with every heartbeat, and the rest is what paths really take.
    fn check_round_trips(&self, index: usize) -> Result<(), Violation> {
        let (client, now) = (&self.clients[index], self.network.now);
        // A client that scans measures only when it is asked.
        if client.options.is_single_threaded() {
            return Ok(());
        }
        let Some(right_by) = self.quiet_by(client) else { return Ok(()) };
        let longest = client.options.connect_timeout().unwrap_or_default();
        for (member, address) in client.plan.addresses.iter().enumerate() {
            let view = client.view();
            let server = view.server(address);
            let since = client
                .ledger()
                .member_since(address)
                .map_or(right_by, |joined| joined.max(right_by));
            let path = self.network.path(index, member);
            let (Some(time), true) = (server.and_then(|it| it.round_trip_time), since < now) else {
                continue;
            };
            // One heartbeat until it is measured again, and one until that is published.
            let heartbeat = client.options.heartbeat_frequency() + path.latency() * 4;
            let heartbeats = ((now - since).as_secs_f64() / heartbeat.as_secs_f64()).floor();
            let weight = 0.8_f64.powf((heartbeats - 2.0).max(0.0));
            let limit = path.latency() * 4 + longest.mul_f64(weight);
            if time > limit {
                let detail =
                    format!("{time:?} to {address}, and {limit:?} at most since {since:?}");
                return Err(Violation::new("round trips get short again", detail));
            }
        }
        Ok(())
    }

    /// An application that reads from a primary can find out within B that it is none any more, or
    /// within the time that any view takes if it has not been reachable all along.
    fn check_cursor(&self, index: usize, id: ServerId, bounds: Bounds) -> Result<(), Violation> {
        let client = &self.clients[index];
        let view = client.view();
        let Some(known) = view.servers().iter().find(|it| it.id == id) else {
            return Ok(());
        };
        let member = client.plan.addresses.iter().position(|address| *address == known.address);
        let Some(member) = member.filter(|_| known.server_type == ServerType::RsPrimary) else {
            return Ok(());
        };
        let (Some(demoted), Some(calm)) =
            (self.oracle.demoted_since(member), self.network.path(index, member).calm_since())
        else {
            return Ok(());
        };
        let reachable = calm.max(client.running_since) + bounds.reachable + bounds.view;
        let by = reachable.max(demoted + bounds.selection);
        // A single-threaded client does not look while it has no operation that needs a server.
        if self.network.now <= by || client.options.is_single_threaded() {
            return Ok(());
        }
        let detail = format!("{} has not been it since {demoted:?}", known.address);
        Err(Violation::new("a cursor on a demoted primary returns an error", detail))
    }

    fn bounds(&self, client: &Client) -> Bounds {
        match client.options.is_single_threaded() {
            true => Bounds::of_single_threaded(&client.options, client.plan.addresses.len()),
            false => Bounds::of(&client.options),
        }
    }

    /// Returns which server has been suitable and reachable for the longest time, and since when.
    fn reachable_since(
        &self,
        index: usize,
        criteria: &Criteria,
    ) -> Option<(Instant, &ServerAddress)> {
        let client = &self.clients[index];
        let (view, direct) = (client.view(), client.plan.direct.is_some());
        let reachable = |(member, address)| {
            let suitable = self.oracle.suitable_since(member, criteria, &view, direct)?;
            let calm = self.network.path(index, member).calm_since()?;
            let must = self.must_know(index, member);
            let known =
                [client.ledger().member_since(address), must].into_iter().flatten().min()?;
            let reachable = suitable.max(calm).max(known).max(client.running_since);
            // A client without monitors does not find out until then that a stream is dead.
            let alive = match client.options.is_single_threaded() {
                true => self.network.path(index, member).alive_since,
                false => Instant::ZERO,
            };
            Some((reachable.max(alive), address))
        };
        client.plan.addresses.iter().enumerate().filter_map(reachable).min()
    }

    /// A selection that has given up began before a suitable server had been reachable for long.
    pub(super) fn check_gave_up(&self, index: usize, gave_up: &GaveUp) -> Result<(), Violation> {
        let bounds = self.bounds(&self.clients[index]);
        let Some((reachable, address)) = self.reachable_since(index, &gave_up.criteria) else {
            return Ok(());
        };
        if gave_up.since < reachable + bounds.reachable + bounds.scan {
            return Ok(());
        }
        let detail = format!(
            "one that began at {:?} for {} gives up, and {address} has been reachable since \
             {reachable:?}",
            gave_up.since, gave_up.criteria
        );
        Err(Violation::new("a scan finds a server that is reachable", detail))
    }

    /// Returns when the view of a client is to be right unless something happens before, `None`
    /// while something is wrong for it.
    fn quiet_by(&self, client: &Client) -> Option<Instant> {
        let is_in_dns = client.options.srv().is_none() || self.listed.iter().all(|it| *it);
        if !self.cluster.is_at_rest() || self.unfinished > 0 || !is_in_dns {
            return None;
        }
        let lookups = match client.options.srv() {
            Some(_) => self.lookups_calm_since(client.index)?,
            None => Instant::ZERO,
        };
        let calm = self.network.calm_since(client.index)?.max(client.running_since).max(lookups);
        Some(calm.max(self.oracle.changed).max(self.listed_since) + self.time_to_be_right(client))
    }

    /// Returns how long a view may be wrong when nothing is wrong any more.
    fn time_to_be_right(&self, client: &Client) -> Duration {
        let bounds = self.bounds(client);
        // What vanished from DNS is found again by the lookup after one that is in progress, which
        // may bring what was, or nothing.
        let lookup = match client.options.srv() {
            Some(_) => {
                let pause = client.options.rescan_interval();
                LONGEST_LOOKUP + pause.max(client.options.heartbeat_frequency()) + WAY * 2
            }
            None => Duration::ZERO,
        };
        lookup + bounds.reachable + bounds.view
    }

    /// Returns when the view of a client is to be right at last, `None` while something is wrong.
    fn right_by(&self, client: &Client) -> Option<Instant> {
        let right = self.quiet_by(client)?.max(self.plan.calm + self.time_to_be_right(client));
        // The operation that looks is to be the only one, as another's error may undo what a scan
        // found.
        let alone = match client.options.is_single_threaded() {
            true => client.plan.workload_ends + LAST_OPERATION,
            false => Instant::ZERO,
        };
        Some(right.max(alone))
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
            Some(_) => return self.settle(),
        }
        Ok(())
    }

    /// All is calm: views must be right, those of single-threaded clients when their applications
    /// have looked.
    fn settle(&mut self) -> Result<(), (usize, Violation)> {
        let looks_for = self.look()?;
        let first = !std::mem::replace(&mut self.looked, true);
        match looks_for {
            // A stream that was open and has died may take a first look to find out, and what that
            // does to a server, such as to let it cool down, is over by the second.
            Some(bounds) if first => {
                let second = bounds.selection + AUDIT * 3 + bounds.reachable;
                self.network.plan(second, Event::Verdict);
            }
            looks_for => {
                self.settled = true;
                for index in 0..self.clients.len() {
                    self.judge(index)?;
                }
                let longest = looks_for.map_or(Duration::ZERO, |bounds| bounds.selection);
                self.network.plan((longest + AUDIT * 3).max(Duration::from_secs(20)), Event::Close);
            }
        }
        Ok(())
    }

    /// Has the applications of single-threaded clients look at the deployment; returns the longest
    /// bounds of one, if there is any.
    fn look(&mut self) -> Result<Option<Bounds>, (usize, Violation)> {
        let mut longest: Option<Bounds> = None;
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if client.options.is_single_threaded() && !client.closed {
                let bounds = self.bounds(client);
                // A look without success is to last until an audit finds it.
                let patience = bounds.selection + AUDIT * 2;
                self.acting = index;
                self.clients[index].look(&mut self.network, patience);
                self.judge(index)?;
                let longer = |known: &Bounds| bounds.selection > known.selection;
                longest = longest.filter(|known| !longer(known)).or(Some(bounds));
            }
        }
        Ok(longest)
    }

    /// Everything that was begun has ended.
    pub(super) fn look_for_leaks(&self) -> Result<(), (usize, Violation)> {
        for (index, client) in self.clients.iter().enumerate() {
            if client.has_remains() {
                let violation = Violation::new("everything that began has ended", client.remains());
                return Err((index, violation));
            }
            client.ledger().checks.ended().map_err(|violation| (index, violation))?;
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
