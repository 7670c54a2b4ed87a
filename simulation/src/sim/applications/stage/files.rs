//! The part of a simulation that is about files.

use std::time::Duration;

use sdam_core::time::Instant;

use super::{Found, SETTLING, Stage};
use crate::sim::applications::work::read_all;
use crate::sim::checks::Violation;

/// The longest that uploads take once all faults have ended: each may be gone on with five times,
/// after a pause.
pub(super) const LAST_UPLOADS: Duration = Duration::from_secs(600);

/// The longest that it takes to read all files back.
const READING: Duration = Duration::from_secs(1_800);

impl Stage {
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
