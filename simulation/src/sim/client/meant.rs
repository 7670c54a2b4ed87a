//! Whom a command is meant for, as it says itself (Server Selection, "Read operations").

use sdam_core::bson::RawDocumentBuf;
use sdam_core::config::ReadMode;
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::selection::read_preference_argument;

use super::Operation;
use crate::sim::random::Random;
use crate::sim::request::Kind;

/// Draws whether an application writes its message itself, and does not say whom it is meant for.
pub(super) fn is_careless(random: &mut Random) -> bool {
    random.percent(2)
}

impl Operation {
    /// Returns what its command says to the server that was chosen.
    pub(super) fn read_preference(&self) -> Option<RawDocumentBuf> {
        let (topology, server) = self.chosen.filter(|_| !self.careless)?;
        read_preference_argument(topology, server, self.criteria.read_preference())
    }

    /// Returns whether it has chosen a member of a replica set that may answer it in any role.
    pub(super) fn may_read_from_secondaries(&self) -> bool {
        use ServerType::{RsPrimary, RsSecondary};
        let of_a_set = matches!(self.chosen, Some((_, RsPrimary | RsSecondary)));
        let direct = matches!(self.chosen, Some((TopologyType::Single, _)));
        match self.kind {
            Kind::Write => false,
            Kind::Read(_) if self.careless => false,
            Kind::Read(mode) => of_a_set && (direct || mode != ReadMode::Primary),
        }
    }

    /// Returns whether it reads from whom is near, and avoids nobody that has failed it.
    pub(super) fn is_first_to_nearest(&self) -> bool {
        self.kind == Kind::Read(ReadMode::Nearest) && !self.retried
    }
}
