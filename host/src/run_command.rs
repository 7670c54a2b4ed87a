//! The command path from its beginning: a server is selected, a connection checked out, and a
//! command run, in one go and under one deadline, or one after the other.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;
use sdam_core::config::ServerAddress;
use sdam_core::id::WaiterId;
use sdam_core::pool::CheckOutError;
use sdam_core::selection::{Criteria, SelectionError};
use sdam_core::time::Instant;
use sdam_core::topology::Input;

use crate::connection::exchange::Reply;
use crate::connection::request::Request;
use crate::error::{Error, Particular, Spent};
use crate::runtime::Runtime;
use crate::selected_server::SelectedServer;
use crate::shared::Host;
use crate::shared::topology::Deferred;
use crate::sync::atomic::Ordering;
use crate::sync::channel::{Answers, Channel, Wait};

/// The number of further selections because the pool of the last server was found cleared.
///
/// A clear says that a server was just found to be of no use, so that one more selection leads to
/// whoever has taken over; two serve where that one falls, too, as in a rolling restart. What is
/// cleared more often than that is an overloaded or a flapping deployment, which is not helped by
/// callers that come again: their error says so, and is labelled `RetryableError`.
const MAX_RESELECTIONS: u32 = 2;

impl<R: Runtime> Host<R> {
    /// Selects a server, checks out a connection, and runs a command: all of it by `deadline`, if
    /// there is one, and the selection by `selection_deadline`, too.
    ///
    /// A command is sent once at most, whatever the reply ("All commands executed via RunCommand
    /// are non-retryable operations"). Before it is sent, a server is selected again if the pool of
    /// the last one is found cleared, twice at most and not after the deadline of the selection;
    /// and once, if an idle connection is found dead in the single-threaded mode.
    ///
    /// # Errors
    ///
    /// Fails as the three parts do.
    pub async fn run_command(
        &self,
        database: &str,
        command: &RawDocument,
        criteria: &Arc<Criteria>,
        selection_deadline: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Result<Reply, Error> {
        let selection_deadline = selection_deadline.into_iter().chain(deadline).min();
        let mut clock = StopWatch { at: self.runtime().now(), spent: Spent::default() };
        // "drivers MUST use the remaining computedServerSelectionTimeout value as the timeout for
        // connection checkout" (Client Side Operations Timeout), if timeoutMS is set.
        let check_out = deadline.and(selection_deadline);
        let mut again = Again::default();
        let mut checked_out = loop {
            let selected = self.find(criteria, selection_deadline).await;
            clock.lap(self.runtime().now(), |spent| &mut spent.selecting);
            let selected =
                selected.map_err(|error| clock.stop(None, Particular::Selection(*error)))?;
            let checked_out = selected.check_out_by(check_out).await;
            let now = self.runtime().now();
            clock.lap(now, |spent| &mut spent.checking_out);
            let has_time = selection_deadline.is_none_or(|deadline| now < deadline);
            match checked_out {
                Ok(checked_out) => break checked_out,
                Err(error) if has_time && again.is_worth_it(&error) => {}
                Err(error) => {
                    return Err(clock.stop(None, Particular::CheckOut(*error)));
                }
            }
        };
        checked_out.set_deadline(deadline);
        let reply = checked_out.exchange(&Request::new(database, command)).await;
        reply.map_err(|error| {
            clock.lap(self.runtime().now(), |spent| &mut spent.exchanging);
            clock.stop(Some(checked_out.server()), Particular::Operation(error))
        })
    }
}

/// The number of further selections, and their reason.
#[derive(Default)]
struct Again {
    cleared: u32,
    found_dead: bool,
}

impl Again {
    /// Says whether to select once more after an error that comes before anything is sent.
    fn is_worth_it(&mut self, error: &CheckOutError) -> bool {
        match error {
            CheckOutError::PoolCleared { .. } => {
                self.cleared += 1;
                self.cleared <= MAX_RESELECTIONS
            }
            // "attempt once more to select a server"
            CheckOutError::IdleConnection { .. } => !std::mem::replace(&mut self.found_dead, true),
            _ => false,
        }
    }
}

struct StopWatch {
    at: Instant,
    spent: Spent,
}

impl StopWatch {
    /// Books the time since the last lap.
    fn lap(&mut self, now: Instant, part: impl Fn(&mut Spent) -> &mut Duration) {
        *part(&mut self.spent) += now - std::mem::replace(&mut self.at, now);
    }

    fn stop(&self, server: Option<&ServerAddress>, cause: Particular) -> Error {
        Error::new(cause, server.cloned(), self.spent)
    }
}

impl<R: Runtime> Host<R> {
    /// Selects a server, waiting only if there is none in the view of now, and until `deadline` at
    /// most.
    ///
    /// In the single-threaded mode, it waits for a scan of the servers whenever one is due, which
    /// the caller's thread has to drive: see [`OptionsBuilder::single_threaded`].
    ///
    /// [`OptionsBuilder::single_threaded`]: sdam_core::config::OptionsBuilder::single_threaded
    ///
    /// Of two that are drawn among the suitable ones, the one with fewer operations is taken.
    /// Cancelling the wait leaves nothing behind.
    ///
    /// # Errors
    ///
    /// Fails when the deadline has passed, at once if waiting cannot help, and when the client is
    /// closed; the error says why there was no server.
    pub async fn select(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Option<Instant>,
    ) -> Result<SelectedServer<R>, Error> {
        Ok(self.find(criteria, deadline).await?)
    }

    async fn find(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Option<Instant>,
    ) -> Result<SelectedServer<R>, Box<SelectionError>> {
        self.unless_forked(criteria)?;
        if self.options().is_single_threaded() {
            // "Before each operation, the client checks if heartbeatFrequencyMS has passed"
            self.wait(Arc::clone(criteria), deadline).await?;
        }
        loop {
            if let Some(selected) = self.try_select(criteria) {
                return Ok(selected);
            }
            self.wait(Arc::clone(criteria), deadline).await?;
        }
    }

    /// Waits until the view has changed, or a scan is over; whoever gives up drops it.
    fn wait(&self, criteria: Arc<Criteria>, deadline: Option<Instant>) -> Wait<'_, Self> {
        let waiter = WaiterId(self.next_waiter.fetch_add(1, Ordering::Relaxed));
        let wait = Wait::new(self, waiter);
        let answer = Arc::clone(wait.answer());
        self.with_driver(|driver| driver.waiters.insert(waiter, answer));
        self.handle(Input::Wait { waiter, criteria, deadline });
        wait
    }

    /// Says why an operation would find no server now, without waiting and without asking for
    /// checks; `None` if it would find one.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn diagnose(&self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        if let Err(forked) = self.unless_forked(criteria) {
            return Some(forked);
        }
        // No predicate is called under the lock.
        let now = self.shared.runtime.now();
        let evidence = self.with_driver(|driver| driver.topology.get().evidence(now));
        evidence.diagnose(criteria)
    }

    /// Refuses a process that was forked off: nobody would ever answer.
    fn unless_forked(&self, criteria: &Criteria) -> Result<(), Box<SelectionError>> {
        self.shared.process.check().map_err(|forked| {
            let topology_type = self.view.load().snapshot.description().topology_type;
            Box::new(SelectionError::forked(forked, criteria, topology_type))
        })
    }

    /// Selects a server from the view of now, which takes no lock.
    fn try_select(&self, criteria: &Arc<Criteria>) -> Option<SelectedServer<R>> {
        let view = self.view.load();
        let servers = &view.servers;
        let load = |index: usize| servers.get(index).map_or(0, |server| server.operation_count());
        // The machine has the better error, so that a refusal is left to it too.
        let chosen = view.snapshot.select(criteria, load, self.shared.random_bits()).ok()??;
        let description = view.snapshot.description();
        Some(SelectedServer {
            server: Arc::clone(servers.get(chosen)?),
            description: Arc::clone(&description.servers()[chosen]),
            topology_type: description.topology_type,
            criteria: Some(Arc::clone(criteria)),
            deadline: None,
        })
    }

    /// Returns every server of the deployment, those included that are never selected. As nothing
    /// was selected, commands to them may be answered in any role, see
    /// [`CheckedOut::command`](crate::connection::checked_out::CheckedOut::command).
    pub fn members(&self) -> Vec<SelectedServer<R>> {
        let view = self.view.load();
        let description = view.snapshot.description();
        let known = description.servers().iter().zip(view.servers.iter());
        known
            .map(|(description_of, server)| SelectedServer {
                server: Arc::clone(server),
                description: Arc::clone(description_of),
                topology_type: description.topology_type,
                criteria: None,
                deadline: None,
            })
            .collect()
    }
}

/// The answer to an operation that waits for a server: it is to look again, or why there is none.
pub(crate) type Answer = Result<(), Box<SelectionError>>;

impl<R: Runtime> Answers for Host<R> {
    type Answer = Answer;

    fn give_up(&self, waiter: WaiterId, _: &Channel<Answer>) {
        if self.shared.process.is_current() {
            // Whoever is woken may end the wait under the very lock.
            self.defer(Deferred::Abandoned(waiter));
            self.drain();
        }
    }
}
