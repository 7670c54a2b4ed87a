//! What selections come to: which may give up and when, and the look at the deployment that an
//! application takes once all is calm.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, ReadMode, ReadPreference};
use sdam_core::selection::{Criteria, SelectionError};
use sdam_core::time::Instant;
use sdam_core::topology::Input;

use super::Client;
use super::operations::{Operation, OperationId};
use crate::sim::network::Network;
use crate::sim::request::Kind;

/// A selection that has given up before its deadline.
#[derive(Debug)]
pub(in crate::sim) struct GaveUp {
    pub(in crate::sim) criteria: Arc<Criteria>,
    /// When it began.
    pub(in crate::sim) since: Instant,
}

/// The look at the deployment that an application takes once all is calm, in the single-threaded
/// mode, where nobody else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    None,
    Begun(OperationId),
    /// A server was selected, from a view that must be right.
    Ended,
}

impl Client {
    /// A selection ends without a server.
    pub(super) fn gives_up(
        &mut self,
        id: OperationId,
        operation: &Operation,
        error: &SelectionError,
    ) {
        let Some(since) = operation.selecting_since() else { return };
        if self.now >= operation.deadline || self.closed {
            return;
        }
        let single = self.options.is_single_threaded();
        // "if [...] the target scan time would exceed the maximum time": no scan may begin within
        // 500 ms of the last one; an operation's own limit holds in any mode.
        if single && self.now + MIN_HEARTBEAT_FREQUENCY >= operation.deadline {
            return;
        }
        // "If serverSelectionTryOnce is true and the last scan time is newer than the selection
        // start time"
        let servers = self.view.description().servers().len();
        let may = single
            && self.options.server_selection_try_once()
            && self.checks.has_scanned(since, self.now, servers);
        if !may {
            let what = || format!("{id:?} gives up before its deadline: {error}");
            self.checks.fail("selections wait until their deadline", what);
        }
        // What another operation has found out meanwhile may be the reason.
        if self.reported < since {
            self.gave_up = Some(GaveUp { criteria: Arc::clone(&operation.criteria), since });
        }
    }

    /// Returns the selection that has just given up, if one has.
    pub(in crate::sim) const fn take_gave_up(&mut self) -> Option<GaveUp> {
        self.gave_up.take()
    }

    /// The application wants a fresh view, and reads from whatever server there is.
    pub(in crate::sim) fn look(&mut self, network: &mut Network, patience: Duration) {
        self.now = network.now;
        self.tell(network, Input::RequestCheck);
        let (mode, waiter) = (ReadMode::Nearest, self.next_operation());
        self.look = Look::Begun(waiter);
        let criteria = Criteria::read(ReadPreference::new(mode));
        let random = self.random.fork();
        self.start(network, waiter, (Kind::Read(mode), criteria), (patience, random));
        self.settle(network);
        self.catch_up(network);
    }

    /// A server has been found for an operation.
    pub(super) fn looked_at(&mut self, id: OperationId) {
        if self.look == Look::Begun(id) {
            self.look = Look::Ended;
        }
    }

    /// Returns whether the view is to be right at this moment: while nobody looks at a
    /// single-threaded client's, it is as old as the last look.
    pub(in crate::sim) fn is_to_be_right(&mut self) -> bool {
        if !self.options.is_single_threaded() {
            return true;
        }
        let ended = self.look == Look::Ended;
        if ended {
            self.look = Look::None;
        }
        ended
    }
}
