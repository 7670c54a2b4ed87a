//! The evidence for why operations find no server, apart from the topology: explaining calls
//! predicates of the application, for which nothing else should wait.

use std::sync::Arc;
use std::time::Duration;

use super::history::History;
use crate::config::{Options, ReadMode};
use crate::description::TopologyType;
use crate::diagnosis::{Check, Circumstances, SelectionError, Trouble, Verdict};
use crate::selection::{Criteria, Snapshot};
use crate::time::Instant;

/// The evidence for why operations find no server, as it was at one moment.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) topology_type: TopologyType,
    pub(super) is_closed: bool,
    pub(super) options: Arc<Options>,
    pub(super) history: History,
    pub(super) troubles: Vec<Trouble>,
    pub(super) checks: Vec<Check>,
    pub(super) findings: Vec<Verdict>,
    pub(super) now: Instant,
}

impl Evidence {
    /// Says why an operation that cannot wait would find no server; `None` if it would find one.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn diagnose(self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        let verdict = match self.snapshot.select(criteria, |_| 0, 0) {
            _ if self.is_closed => Some(Verdict::Closed),
            Ok(Some(_)) => return None,
            Ok(None) => None,
            Err(refusal) => Some(refusal.into()),
        };
        Some(Box::new(self.explain(criteria, verdict, Duration::ZERO)))
    }

    /// Explains why an operation that has waited so long has found no server; the likely cause is
    /// looked for unless it is known.
    pub(super) fn explain(
        self,
        criteria: &Criteria,
        verdict: Option<Verdict>,
        waited: Duration,
    ) -> SelectionError {
        let explanation = self.snapshot.explain(criteria);
        let verdict = verdict.unwrap_or_else(|| {
            let circumstances = Circumstances {
                wanted_set: self.options.replica_set().map(AsRef::as_ref),
                found_set: self.history.found_set.as_deref(),
                guide: self.history.guide.as_deref(),
                emptied: self.history.emptied.as_ref(),
                troubles: &self.troubles,
                checks: &self.checks,
                tls: self.options.tls().is_some(),
                connect_timeout: self.options.connect_timeout(),
                stale: self.history.stale.as_ref(),
                without_primary: self.now - self.history.primary_seen,
            };
            circumstances.find(&self.snapshot, criteria, &explanation)
        });
        let needs_primary = criteria.mode_in(self.snapshot.description()) == ReadMode::Primary;
        SelectionError {
            verdict,
            also: self.findings,
            criteria: criteria.to_string().into(),
            needs_primary,
            waited,
            limited_by: None,
            topology_type: self.topology_type,
            explanation,
            troubles: self.troubles,
            checks: self.checks,
            emptied: self.history.emptied,
        }
    }
}
