//! The handle of a deployment, which applications hold below their client: one for every runtime
//! that waits with futures.

pub(crate) mod blueprint;
pub(crate) mod builder;
pub(crate) mod driver;
pub(crate) mod farewell;
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it writes files, from threads of its own"
)]
pub mod flight_recorder;
pub(crate) mod kill_cursors;
pub(crate) mod registry;
pub(crate) mod siblings;
pub(crate) mod socket_runtime;
pub(crate) mod warm;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;
use sdam_core::config::metadata::DriverInfo;
use sdam_core::config::{Options, ReadMode, ReadPreference, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::diagnosis::SelectionError;
use sdam_core::metrics::Family;
use sdam_core::selection::Criteria;
use sdam_core::session::{ClusterTime, ClusterTimeError};
use sdam_core::time::Instant;
use sdam_core::topology::Topics;

use crate::client::driver::DriverTopology;
use crate::client::socket_runtime::SocketRuntime;
use crate::error::Error;
use crate::machines::Host;
use crate::machines::client_tasks::ClientTasks;
use crate::machines::runtime::Runtime;
use crate::net::reactor::Reactor;
use crate::observe::subscription::{Events, Views};
use crate::operations::exchange::Reply;
use crate::operations::selected_server::SelectedServer;
use crate::operations::session::ClientSession;
use crate::process::Own;
use crate::system::WallClock;

/// The deployment below a client: it discovers servers and watches them, selects one, checks out
/// connections and runs commands, until its last clone is dropped.
///
/// It is the same for every runtime that waits with futures; `sdam_tokio::Topology`, for one, is
/// its name under tokio. Typed operations are above it: the crate `sdam` makes its client of a
/// topology, and `Client::topology` leads back to that. What only drivers call is in the trait
/// [`DriverTopology`].
///
/// It belongs to the process that has created it. In one that was forked off, what could fail fails
/// at once, and says so ([`Forked`](sdam_core::process::Forked)); subscriptions end at once,
/// closing is done at once, and dropping leaves everything to the parent.
pub struct Topology<R: Runtime> {
    host: Own<Arc<Held<R>>>,
    /// By when each operation is to end at the latest.
    deadline: Option<Instant>,
}

/// A host that clones of a topology hold; when the last one lets go, tasks end that hold it, too.
struct Held<R: Runtime> {
    host: Arc<Host<R>>,
    tasks: Arc<ClientTasks>,
    /// True if servers are still to hear that the topology ends.
    says_farewell: bool,
}

impl<R: Runtime> Deref for Held<R> {
    type Target = Host<R>;

    fn deref(&self) -> &Host<R> {
        &self.host
    }
}

impl<R: Runtime> Drop for Held<R> {
    fn drop(&mut self) {
        if !self.says_farewell || !farewell::begin(&self.host, &self.tasks) {
            self.tasks.end();
        }
    }
}

impl<R: Runtime> Topology<R> {
    /// Makes the topology of a task, with the tasks that end with it.
    pub(crate) fn of_task(host: Arc<Host<R>>, tasks: Arc<ClientTasks>) -> Self {
        Self::holding(Held { host, tasks, says_farewell: false })
    }

    fn holding(held: Held<R>) -> Self {
        let process = held.host.shared.process;
        Self { host: Own::new(Arc::new(held), process), deadline: None }
    }

    /// Returns what it was created with, those options included that the environment and DNS have
    /// added.
    pub fn options(&self) -> &Arc<Options> {
        self.host.options()
    }

    /// Returns what is known now; it waits for nothing and takes no lock.
    pub fn view(&self) -> Arc<TopologyDescription> {
        self.host.view()
    }

    /// Says why an operation would find no server now, without waiting and without asking for
    /// checks; `None` if it would find one.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn diagnose(&self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        self.host.diagnose(criteria)
    }

    /// Returns how far the topology's clock, which events are stamped with, has come.
    pub fn now(&self) -> Instant {
        self.host.runtime().now()
    }

    /// Subscribes to the events from now on, but for those of commands;
    /// [`with_events`](Self::with_events) misses none.
    pub fn subscribe(&self) -> Events {
        self.host.subscribe()
    }

    /// Subscribes to the events of these topics from now on.
    ///
    /// Events of commands are made only while there is a subscriber to [`Topics::COMMANDS`].
    ///
    /// ```
    /// # use sdam_core::bson::rawdoc;
    /// # use sdam_core::command::CommandEvent;
    /// # use sdam_core::topology::{EventKind, Topics};
    /// # use sdam_host::{Topology, Runtime};
    /// # async fn example<R: Runtime>(
    /// #     topology: Topology<R>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut events = topology.subscribe_to(Topics::COMMANDS);
    /// topology.run_command("admin", &rawdoc! { "ping": 1 }).await?;
    /// while let Some(event) = events.try_next() {
    ///     let EventKind::Command { command, event, .. } = event.kind else { continue };
    ///     if let CommandEvent::CommandSucceeded { duration, .. } = event {
    ///         println!("{} took {duration:?}", command.command_name);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe_to(&self, topics: Topics) -> Events {
        self.host.subscribe_to(topics)
    }

    /// Subscribes to the view: that of now first, and then each that differs from the one before in
    /// what events report. Round trip times alone are no news; [`view`](Self::view) always has the
    /// latest.
    pub fn watch_topology(&self) -> Views {
        self.host.watch()
    }

    /// Returns the metrics: counts since the first call, or since the beginning if the builder has
    /// enabled that, and the current state. In a process that was forked off there are none.
    ///
    /// They are counted where things happen. Nothing is queued, and nothing can be dropped.
    ///
    /// ```
    /// # use sdam_core::metrics::Exposition;
    /// # use sdam_host::{Topology, Runtime};
    /// # fn example<R: Runtime>(topology: &Topology<R>) -> String {
    /// // As Prometheus reads them.
    /// Exposition::new(&topology.metrics()).to_string()
    /// # }
    /// ```
    pub fn metrics(&self) -> Vec<Family> {
        self.host.metrics()
    }

    /// Asks for a check of every server as soon as possible, though not within 500 ms of its last
    /// check; in the single-threaded mode, when the next operation selects a server.
    pub fn request_check(&self) {
        self.host.request_check();
    }

    /// Adds the name of a library that wraps this one to the metadata of connections made from now
    /// on; adding the same twice changes nothing.
    pub fn append_metadata(&self, info: DriverInfo) {
        self.host.append_metadata(info);
    }

    /// Waits until the pool of each server that holds data has `minPoolSize` connections, so that
    /// operations need not wait for them; for `serverSelectionTimeoutMS` at most, and not for
    /// servers that fail.
    ///
    /// Pools fill themselves in the background whether or not this is called, and do so again after
    /// they were cleared. Without `minPoolSize`, and in the single-threaded mode, this does
    /// nothing.
    pub async fn warm_connection_pool(&self) {
        let limit = self.now() + self.options().server_selection_timeout();
        let until = self.operation_deadline().map_or(limit, |deadline| deadline.min(limit));
        warm::filled(self, until).await;
    }

    /// Closes the topology for all its clones, and waits until none of its tasks runs any more.
    ///
    /// Operations that wait fail at once; subscriptions end after their last events. Connections in
    /// use are not waited for: they are closed when they return. Cursors and change streams that
    /// are open are left to their servers, which keep them for ten minutes: drop or close them
    /// before.
    ///
    /// Before that, servers abort the transactions that are left open, close the cursors that were
    /// dropped, and forget the sessions that were used, if one is known to be there, for a second
    /// each at most.
    ///
    /// Dropping the last clone closes a topology, too, and waits for nothing. If there are sessions
    /// or cursors that servers keep, and a server is known, a task of the runtime's does the same
    /// in the background, and closes the topology then; if the runtime ends before that, servers
    /// forget both after a while. A runtime that runs only while it is blocked on, such as one of
    /// a single thread, closes nothing until then: call this method there.
    ///
    /// A session that is lent to a handle, or that the application holds, is ended when it is
    /// dropped; one that outlives its topology is left to the servers, without its transaction.
    pub async fn close(&self) {
        self.release().await;
        self.close_now();
        self.host.ended().await;
    }

    /// Closes the topology as [`close`](Self::close) does, but asks no server to forget sessions,
    /// and waits for nothing.
    pub fn close_now(&self) {
        self.host.close();
        self.host.tasks.end();
    }

    /// Has servers close what they keep for this topology.
    pub(crate) async fn release(&self) {
        farewell::abort_transactions(self).await;
        self.close_cursors().await;
        self.end_sessions().await;
    }

    /// Returns a topology whose every operation ends by `deadline`, a time of [`now`](Self::now):
    /// to select, to check out, to connect and to exchange messages, all of it together.
    ///
    /// It shares everything else. Without it, `timeoutMS` of the options is the limit of each
    /// operation.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { host: self.host.clone(), deadline: Some(deadline) }
    }

    /// Returns a topology whose operations all end before `time` has passed, see
    /// [`with_deadline`](Self::with_deadline).
    #[must_use]
    pub fn with_timeout(&self, time: Duration) -> Self {
        self.with_deadline(self.now() + time)
    }

    /// Selects a server for an operation, waiting for one for serverSelectionTimeoutMS at most.
    ///
    /// Cancelling the wait is safe at any point. A time-out of zero selects from what is known
    /// already.
    ///
    /// # Errors
    ///
    /// Fails if no server is suitable in time, and at once if waiting cannot help; the error says
    /// why, for every server.
    ///
    /// ```
    /// # use sdam_core::bson::rawdoc;
    /// # use sdam_host::{Topology, Runtime};
    /// # use sdam_core::selection::Criteria;
    /// # async fn example<R: Runtime>(
    /// #     topology: Topology<R>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let primary = topology.select(Criteria::write()).await?;
    /// println!("writes go to {}", primary.address());
    /// let mut connection = primary.check_out().await?;
    /// connection.command("admin", &rawdoc! { "ping": 1 }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn select(
        &self,
        criteria: impl Into<Arc<Criteria>>,
    ) -> Result<SelectedServer<R>, Error> {
        let criteria = match self.select_now(criteria) {
            Ok(selected) => return Ok(selected),
            Err(criteria) => criteria,
        };
        let deadline = self.operation_deadline();
        let selected = self.host.select(&criteria, self.selection_deadline(deadline)).await?;
        Ok(selected.with_deadline(deadline))
    }

    /// As [`select`](Self::select), from what is known already and without a wait.
    ///
    /// # Errors
    ///
    /// Returns the criteria if there is no suitable server now, and where a selection is more than
    /// a look at what is known: see [`Host::select_now`].
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn select_now(
        &self,
        criteria: impl Into<Arc<Criteria>>,
    ) -> Result<SelectedServer<R>, Arc<Criteria>> {
        let selected = self.host.select_now(criteria.into())?;
        Ok(selected.with_deadline(self.operation_deadline()))
    }

    /// Runs a command on a database of a server that takes writes: selects the server, checks out a
    /// connection, sends the command with what it needs besides, see [`CheckedOut::command`], and
    /// returns the reply.
    ///
    /// [`CheckedOut::command`]: crate::operations::checked_out::CheckedOut::command
    ///
    /// # Errors
    ///
    /// Fails if no server is suitable, if no connection is to be had, if the exchange fails, and if
    /// the server replies with an error, each in time; the error says where the time went. The
    /// command is never sent twice, unless the server says that it is overloaded and has done
    /// nothing: then again after a while, `maxAdaptiveRetries` times at most, if `retryReads` and
    /// `retryWrites` are set. But as long as it was not sent, and there is time, a server is
    /// selected again where the pool of the last one was found cleared, twice at most.
    ///
    /// With a time-out, the command carries what is left as `maxTimeMS`, in place of its own.
    ///
    /// ```
    /// # use sdam_core::bson::rawdoc;
    /// # use sdam_host::{Topology, Runtime};
    /// # async fn example<R: Runtime>(
    /// #     topology: Topology<R>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
    /// println!("version {}", reply.get_str("version")?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_command(&self, database: &str, command: &RawDocument) -> Result<Reply, Error> {
        // "RunCommand MUST assume all commands are read operations", with mode primary.
        let criteria = Criteria::read(ReadPreference::new(ReadMode::Primary));
        self.run_command_on(criteria, database, command).await
    }

    /// As [`run_command`](Self::run_command), on a server of the caller's choice, which receives
    /// the read preference where it needs it.
    ///
    /// # Errors
    ///
    /// Fails as [`run_command`](Self::run_command) does.
    pub async fn run_command_on(
        &self,
        criteria: impl Into<Arc<Criteria>>,
        database: &str,
        command: &RawDocument,
    ) -> Result<Reply, Error> {
        self.host.run_command(database, command, criteria.into(), self.timeout(None)).await
    }

    /// Returns every member of the deployment, those included that are never selected, as arbiters:
    /// [`SelectedServer::connect`] leads to that very one.
    pub fn members(&self) -> Vec<SelectedServer<R>> {
        let deadline = self.operation_deadline();
        self.host.members().into_iter().map(|member| member.with_deadline(deadline)).collect()
    }

    /// Returns the member at an address, `None` if there is none: that of a [`Reply`], whose cursor
    /// is to be continued where it was opened.
    ///
    /// ```
    /// # use sdam_core::bson::rawdoc;
    /// # use sdam_host::{Topology, Runtime};
    /// # use sdam_core::selection::Criteria;
    /// # use sdam_core::config::{ReadMode, ReadPreference};
    /// # async fn example<R: Runtime>(
    /// #     topology: Topology<R>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    /// let find = rawdoc! { "find": "things", "batchSize": 2 };
    /// let reply = topology.run_command_on(nearest, "app", &find).await?;
    /// let cursor = reply.get_document("cursor")?.get_i64("id")?;
    /// let more = rawdoc! { "getMore": cursor, "collection": "things" };
    /// let member = topology.member(reply.server()).ok_or("the server has left")?;
    /// member.check_out().await?.command("app", &more).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn member(&self, address: &ServerAddress) -> Option<SelectedServer<R>> {
        Some(self.host.member(address)?.with_deadline(self.operation_deadline()))
    }

    /// Has commands carry this cluster time if it is greater than all that replies brought: so that
    /// this client sees what another client of the same deployment has seen (Sessions,
    /// "advanceClusterTime").
    ///
    /// # Errors
    ///
    /// Fails if it is no `$clusterTime` as a server gave it out; one with a wrong signature is
    /// refused by servers only.
    pub fn advance_cluster_time(&self, cluster_time: &RawDocument) -> Result<(), ClusterTimeError> {
        self.host.shared.clock.advance_to(ClusterTime::parse(cluster_time)?);
        Ok(())
    }

    /// Returns by when an operation that begins now is to end at the latest.
    fn operation_deadline(&self) -> Option<Instant> {
        let timeout = self.host.options().timeout().filter(|timeout| !timeout.is_zero());
        self.deadline.or_else(|| timeout.map(|timeout| self.now() + timeout))
    }

    /// "The computed server selection timeout is the minimum of serverSelectionTimeoutMS and the
    /// remaining timeoutMS"; "when serverSelectionTryOnce is true, server selection timeouts have
    /// no effect".
    fn selection_deadline(&self, deadline: Option<Instant>) -> Option<Instant> {
        let options = self.host.options();
        if options.is_single_threaded() && options.server_selection_try_once() {
            return deadline;
        }
        let most = self.now() + options.server_selection_timeout();
        Some(deadline.map_or(most, |deadline| deadline.min(most)))
    }
}

impl<R: Reactor> Topology<SocketRuntime<R>> {
    /// Translates the time of an event to that of the wall clock when the topology was created.
    pub fn wall_clock(&self, at: Instant) -> WallClock {
        self.host.runtime().origin + at.since_origin()
    }
}

impl<R: Runtime> Clone for Topology<R> {
    fn clone(&self) -> Self {
        Self { host: self.host.clone(), deadline: self.deadline }
    }
}

impl<R: Runtime> std::fmt::Debug for Topology<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology")
            .field("host", self.host())
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Returns whether the session is one of this topology's: operations of others refuse it.
    pub fn belongs_to(&self, topology: &Topology<R>) -> bool {
        self.is_of(topology.host())
    }
}
