//! What comes on the links of monitors; the second one of a server only measures round trips.

use sdam_core::failure::Stage;
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::topology::Input;

use super::Client;
use super::words::failure_of;
use crate::sim::network::{Network, Packet, StreamId};
use crate::sim::witness::Sign;

impl Client {
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
            Packet::Bytes(bytes) => self.tell(network, Input::Received { link, bytes: &bytes }),
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
