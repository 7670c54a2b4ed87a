//! What comes on the links of monitors; the second one of a server only measures round trips.

use sdam_core::failure::Stage;
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::topology::Input;

use super::Client;
use super::words::failure_of;
use crate::sim::network::{Network, Packet, StreamId};
use crate::sim::witness::Sign;

/// The shortest reply to hello.
const REPLY: usize = 100;

/// Returns how much may be done because of so many replies: each ends a check, begins another one,
/// and changes a view, and each may have other servers join, leave, and be checked.
const fn most_actions(replies: usize, servers: usize) -> u64 {
    const OF_REPLY: usize = 16;
    const OF_SERVER: usize = 10;
    (replies * (OF_REPLY + OF_SERVER * servers)) as u64
}

impl Client {
    /// The servers may send whatever they like from now on.
    pub(in crate::sim) fn is_flooded(&mut self) {
        self.checks.distrust_servers();
    }

    /// Something has come on a link; if that one only measures round trips, nothing but its own
    /// stream may be affected.
    pub(super) fn arrived_at_link(
        &mut self,
        network: &mut Network,
        stream: StreamId,
        link: LinkId,
        packet: Packet,
    ) {
        let measures = self.measures(link);
        if measures {
            // What is due comes before it, and is not its doing.
            let now = self.not_yet_due(self.topology.deadline());
            self.run(network, |topology, _, out| topology.tick(now, out));
            if !self.links.contains_key(&link) {
                return;
            }
        }
        let news = self.checks.news();
        match packet {
            Packet::Syn | Packet::SynAck => self.tell(network, Input::Opened { link }),
            Packet::Bytes(bytes) => self.read(network, link, &bytes),
            Packet::Refused | Packet::NotResolved | Packet::Fin => {
                if measures {
                    self.checks.note(Sign::MeasuringBroken);
                }
                self.links.remove(&link);
                self.hang_up(network, stream);
                let failure = failure_of(&packet, Stage::Hello);
                self.tell(network, Input::Closed { link, failure });
            }
        }
        if measures && self.checks.news() > news {
            let what = || format!("what came on {link} does");
            self.checks.fail("measuring round trips changes nothing", what);
        }
    }

    /// Bytes are read: what is done because of them is in proportion to the replies in them, each
    /// of which may be news to every server and to every operation that waits.
    pub(super) fn read(&mut self, network: &mut Network, link: LinkId, bytes: &[u8]) {
        let (before, waiting) = (self.actions_done, self.selecting.len());
        self.tell(network, Input::Received { link, bytes });
        let done = (self.actions_done - before).saturating_sub(waiting as u64);
        self.judge_work(link, bytes.len(), done);
    }

    /// Judges how much was done because of so many bytes, but for who had been waiting.
    pub(super) fn judge_work(&mut self, link: LinkId, bytes: usize, done: u64) {
        let limit = most_actions(bytes / REPLY + 1, self.addresses.len());
        if done > limit {
            let what = || format!("{done} actions, {limit} at most, for {bytes} bytes on {link}");
            self.checks.fail("bounded work for what comes", what);
        }
    }

    /// Returns whether a link is the second one of its server, which only measures round trips.
    fn measures(&self, link: LinkId) -> bool {
        let older = self.links.range(..link).next_back();
        older.is_some_and(|(older, _)| older.server() == link.server())
    }

    pub(super) fn note_measuring(&mut self, link: LinkId) {
        if self.measures(link) {
            self.checks.measures(link.server(), self.now);
        }
    }
}
