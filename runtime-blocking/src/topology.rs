//! The handle of a deployment, which applications hold below their client.

use std::sync::Arc;
use std::time::{self, Duration, SystemTime};

use sdam_core::bson::RawDocument;
use sdam_core::config::metadata::DriverInfo;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::diagnosis::SelectionError;
use sdam_core::metrics::Family;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::Topics;
use sdam_host::driver::DriverTopology;
use sdam_host::{self as host, ClusterTimeError, Error, Reply};

use crate::blueprint::{Blueprint, Everywhere, Here};
use crate::builder::ClientBuilder;
use crate::runtime::Blocking;
use crate::selected_server::SelectedServer;
use crate::subscription::{Events, Views};

/// The deployment below a client: it discovers servers and watches them, selects one, checks out
/// connections and runs commands, until its last clone is dropped.
///
/// It may be used by many threads, and in processes that are forked off: there it connects again,
/// and begins with the servers that its parent knew. Dropping it waits for nothing.
///
/// If its options say so, it has [no thread](crate#without-any-thread): its callers do the work.
#[derive(Clone, Debug)]
pub struct Topology {
    everywhere: Arc<Everywhere>,
    /// By when each operation is to end at the latest.
    deadline: Option<Instant>,
}

impl Topology {
    /// Creates a topology; discovery begins in the background.
    ///
    /// # Errors
    ///
    /// Fails as [`ClientBuilder::build`] does.
    pub fn new(options: Options) -> Result<Self, Error> {
        Self::builder(options).build()
    }

    /// As [`new`](Self::new), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`ClientBuilder::build`] does.
    pub fn with_events(options: Options) -> Result<(Self, Events), Error> {
        Self::builder(options).build_with_events()
    }

    /// Creates a topology of what a connection string or [`Options`] describe, after the servers of
    /// `mongodb+srv://` were looked up in DNS; discovery begins in the background.
    ///
    /// # Errors
    ///
    /// Fails if the connection string is malformed, and as [`ClientBuilder::connect`] does.
    pub fn connect<O>(options: O) -> Result<Self, Error>
    where
        O: TryInto<Options, Error: Into<Error>>,
    {
        Self::builder(options.try_into().map_err(Into::into)?).connect()
    }

    /// Starts to create a topology that differs from what [`new`](Self::new) would create.
    pub fn builder(options: Options) -> ClientBuilder {
        ClientBuilder::new(options)
    }

    pub(crate) fn made(blueprint: Blueprint, host: host::Topology<Blocking>) -> Self {
        Self { everywhere: Arc::new(Everywhere::new(blueprint, host)), deadline: None }
    }

    /// Returns the topology of this process.
    pub(crate) fn here(&self) -> Here<'_> {
        let here = self.everywhere.here();
        match self.deadline {
            Some(deadline) => Here::Limited(here.with_deadline(deadline)),
            None => here,
        }
    }

    /// Returns what it was created with, those options included that the environment and DNS have
    /// added.
    pub fn options(&self) -> &Arc<Options> {
        self.everywhere.blueprint.shared.options()
    }

    /// Returns what is known now; it waits for nothing.
    pub fn view(&self) -> Arc<TopologyDescription> {
        self.everywhere.here().view()
    }

    /// Says why an operation would find no server now, without waiting and without asking for
    /// checks; `None` if it would find one.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn diagnose(&self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        self.everywhere.here().diagnose(criteria)
    }

    /// Returns how far the topology's clock, which events are stamped with, has come.
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.epoch().elapsed()
    }

    /// Translates the time of an event to that of the wall clock when the topology was created.
    pub fn wall_clock(&self, at: Instant) -> SystemTime {
        self.everywhere.blueprint.origin + at.since_origin()
    }

    /// Subscribes to the events from now on, but for those of commands;
    /// [`with_events`](Self::with_events) misses none.
    pub fn subscribe(&self) -> Events {
        self.subscribe_to(Topics::WITHOUT_COMMANDS)
    }

    /// Subscribes to the events of these topics from now on.
    pub fn subscribe_to(&self, topics: Topics) -> Events {
        let here = self.everywhere.here();
        Events::new(here.subscribe_to(topics), here.host().runtime())
    }

    /// Subscribes to the view, beginning with that of now.
    pub fn watch_topology(&self) -> Views {
        let here = self.everywhere.here();
        Views::new(here.watch_topology(), here.host().runtime())
    }

    /// Returns the metrics: counts since the first call in this process, or since the beginning
    /// with [`ClientBuilder::metrics`](crate::ClientBuilder::metrics), and gauges of the present.
    pub fn metrics(&self) -> Vec<Family> {
        self.everywhere.here().metrics()
    }

    /// Asks for a check of every server as soon as possible, though not within 500 ms of its last
    /// check.
    pub fn request_check(&self) {
        self.everywhere.here().request_check();
    }

    /// Adds the name of a library that wraps this one to the metadata of connections made from now
    /// on, in this process; adding the same twice changes nothing.
    pub fn append_metadata(&self, info: DriverInfo) {
        self.everywhere.here().append_metadata(info);
    }

    /// Waits until the pool of each server that holds data has `minPoolSize` connections, see
    /// [`host::Topology::warm_connection_pool`].
    pub fn warm_connection_pool(&self) {
        let here = self.here();
        here.engine().wait(here.warm_connection_pool());
    }

    /// Closes the topology for all its clones, and waits for `time` at most until none of its tasks
    /// runs any more; returns whether that is so.
    ///
    /// Operations that wait fail at once; subscriptions end after their last events. Connections in
    /// use are not waited for: they are closed when they return. Dropping the last clone closes a
    /// topology, too, and waits for nothing.
    ///
    /// Before that, servers close the cursors that were dropped, and forget the sessions that were
    /// used, if one is known to be there, for a second each at most; without any time, they are not
    /// asked to.
    pub fn close(&self, time: Duration) -> bool {
        let end = time::Instant::now().checked_add(time);
        if !time.is_zero() {
            let open = self.here();
            open.engine().wait_until(open.close_cursors(), end);
            open.engine().wait_until(open.end_sessions(), end);
        }
        let closed = self.everywhere.close();
        closed.engine().wait_until(closed.host().ended(), end).is_some()
    }

    /// Returns a topology whose every operation ends by `deadline`, a time of [`now`](Self::now):
    /// to select, to check out, to connect and to exchange messages, all of it together.
    ///
    /// It shares everything else. Without it, `timeoutMS` of the options is the limit of each
    /// operation.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { everywhere: Arc::clone(&self.everywhere), deadline: Some(deadline) }
    }

    /// Returns a topology whose operations all end before `time` has passed, see
    /// [`with_deadline`](Self::with_deadline).
    #[must_use]
    pub fn with_timeout(&self, time: Duration) -> Self {
        self.with_deadline(self.now() + time)
    }

    /// Selects a server for an operation, waiting for one for serverSelectionTimeoutMS at most.
    ///
    /// # Errors
    ///
    /// Fails as [`host::Topology::select`] does.
    pub fn select(&self, criteria: impl Into<Arc<Criteria>>) -> Result<SelectedServer, Error> {
        let mut criteria = criteria.into();
        if self.deadline.is_none() {
            // It succeeds in its own process only, which need not be asked for again.
            let first = self.everywhere.first();
            match first.anyones().select_now(criteria) {
                Ok(selected) => return Ok(SelectedServer::of(first.beside(selected))),
                Err(unused) => criteria = unused,
            }
        }
        let here = self.here();
        let selected = match here.select_now(criteria) {
            Ok(selected) => Ok(selected),
            Err(criteria) => here.engine().wait(here.select(criteria)),
        };
        selected.map(SelectedServer::new)
    }

    /// Runs a command on a database of a server that takes writes: selects the server, checks out a
    /// connection, sends the command with what it needs besides, and returns the reply.
    ///
    /// # Errors
    ///
    /// Fails as [`host::Topology::run_command`] does.
    pub fn run_command(&self, database: &str, command: &RawDocument) -> Result<Reply, Error> {
        let here = self.here();
        here.engine().wait(here.run_command(database, command))
    }

    /// As [`run_command`](Self::run_command), on a server of the caller's choice, which receives
    /// the read preference where it needs it.
    ///
    /// # Errors
    ///
    /// Fails as [`host::Topology::run_command`] does.
    pub fn run_command_on(
        &self,
        criteria: impl Into<Arc<Criteria>>,
        database: &str,
        command: &RawDocument,
    ) -> Result<Reply, Error> {
        let here = self.here();
        here.engine().wait(here.run_command_on(criteria, database, command))
    }

    /// Returns every member of the deployment, those included that are never selected, as arbiters:
    /// [`SelectedServer::connect`] leads to that very one.
    pub fn members(&self) -> Vec<SelectedServer> {
        self.here().members().into_iter().map(SelectedServer::new).collect()
    }

    /// Returns the member at an address, see [`host::Topology::member`].
    pub fn member(&self, address: &ServerAddress) -> Option<SelectedServer> {
        self.members().into_iter().find(|member| member.address() == address)
    }

    /// Has commands carry a cluster time, see [`host::Topology::advance_cluster_time`].
    ///
    /// # Errors
    ///
    /// Fails if it is no `$clusterTime` as a server gave it out.
    pub fn advance_cluster_time(&self, cluster_time: &RawDocument) -> Result<(), ClusterTimeError> {
        self.here().advance_cluster_time(cluster_time)
    }

    fn epoch(&self) -> time::Instant {
        self.everywhere.blueprint.epoch
    }
}
