//! A lookup of the deployment's hosts, as the task that makes it sees it.

use std::sync::Weak;

use super::activity::Running;
use super::driver::News;
use super::{Host, Runtime};
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsCause, DnsError, Question};
use sdam_core::topology::Input;

/// A lookup of the deployment's hosts, as the task that makes it sees it.
///
/// It keeps no client alive. Dropping it without [`ended`](Self::ended) reports that the runtime
/// gave the lookup up.
#[derive(Debug)]
pub struct Rescan<R: Runtime> {
    host: Weak<Host<R>>,
    question: Question,
    reported: bool,
    /// Ends with the task.
    running: Running,
}

impl<R: Runtime> Rescan<R> {
    pub(super) const fn new(host: Weak<Host<R>>, question: Question, running: Running) -> Self {
        Self { host, question, reported: false, running }
    }

    /// Returns what is to be looked up.
    pub const fn question(&self) -> &Question {
        &self.question
    }

    /// Reports what came of it.
    pub fn ended(mut self, records: Result<Vec<SrvRecord>, DnsError>) {
        self.reported = true;
        if let Some(host) = self.host.upgrade() {
            host.handle(Input::Resolved { records });
        }
    }
}

impl<R: Runtime> Drop for Rescan<R> {
    fn drop(&mut self) {
        if !self.reported
            && self.running.process().is_current()
            && let Some(host) = self.host.upgrade()
        {
            let cause = DnsCause::Resolver("the runtime gave the lookup up".into());
            let records = Err(DnsError::new(self.question.clone(), cause));
            host.note(News::Lost(Input::Resolved { records }));
            host.catch_up();
        }
    }
}
