//! The fixture of every test of the suite: clients of the adapter, and ways to wait for them.

use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::{ServerType, TopologyDescription};
use sdam_core::failure::Failure;
use sdam_core::pool::Counts;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{Events, SelectedServer, Topology};

use super::parts::RealSet;
use super::{Adapter, Subject};
use crate::forwarder::Forwarder;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion, User};

/// The result of a test.
pub(super) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// By how much anything may be late, on a machine that has other things to do.
pub(super) const GRACE: Duration = Duration::from_secs(60);

/// The time to wait between two looks at something that does not report its changes.
const LOOK: Duration = Duration::from_millis(1);

/// The runtime of the embedded deployment and of what is in front of it, whatever the adapter does.
pub(crate) fn world() -> &'static tokio::runtime::Runtime {
    static WORLD: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let built = builder.worker_threads(1).thread_name("world").enable_all().build();
        built.expect("the system has sockets and threads")
    });
    &WORLD
}

/// An embedded deployment, in the world.
pub(super) struct Deployment(pub(super) EmbeddedCluster);

impl Deployment {
    /// Starts so many members, and waits for their primary.
    pub(super) fn start(members: usize) -> Outcome<Self> {
        Self::start_with(EmbeddedOptions::default().with_members(members))
    }

    /// Starts three members of a version, and waits for their primary.
    pub(super) fn of(version: ServerVersion) -> Outcome<Self> {
        Self::start_with(EmbeddedOptions::default().with_version(version))
    }

    /// Starts one member with these users, and waits until it is primary.
    pub(super) fn with_users(users: Vec<User>) -> Outcome<Self> {
        Self::start_with(EmbeddedOptions::default().with_members(1).with_users(users))
    }

    /// Starts members, and waits for their primary.
    pub(super) fn start_with(options: EmbeddedOptions) -> Outcome<Self> {
        let election_timeout = Duration::from_millis(200);
        let options = options.with_election_timeout(election_timeout);
        let cluster = world().block_on(EmbeddedCluster::start(options))?;
        world().block_on(cluster.elected())?;
        Ok(Self(cluster))
    }

    /// Starts a mongos.
    pub(super) fn sharded() -> Outcome<Self> {
        Ok(Self(world().block_on(EmbeddedCluster::start(EmbeddedOptions::sharded(1)))?))
    }

    /// Starts one member behind a network that can be disturbed.
    pub(super) fn behind_a_forwarder() -> Outcome<(Self, Forwarder)> {
        let deployment = Self::start(1)?;
        let _entered = world().enter();
        let forwarder = Forwarder::start(deployment.0.addresses().to_vec())?;
        Ok((deployment, forwarder))
    }
}

/// Returns the connection string of the only server behind this address.
pub(super) fn direct(address: impl std::fmt::Display) -> String {
    format!("mongodb://{address}/?directConnection=true")
}

/// The fixture of every test.
pub(super) struct Fixture<A: Adapter> {
    pub(super) adapter: Arc<A>,
    /// The real replica set, for those who need it.
    pub(super) real: Option<Mutex<RealSet>>,
}

impl<A: Adapter> Fixture<A> {
    pub(super) fn subject(&self, uri: &str) -> Outcome<Subject<A::Runtime>> {
        Ok(self.adapter.client(Options::parse(uri)?)?)
    }

    pub(super) fn client(&self, uri: &str) -> Outcome<Topology<A::Runtime>> {
        Ok(self.subject(uri)?.0)
    }

    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.adapter.block_on(future)
    }

    /// Waits for a view that is as it should be.
    pub(super) fn view(
        &self,
        client: &Topology<A::Runtime>,
        wanted: impl Fn(&TopologyDescription) -> bool,
    ) -> Outcome<Arc<TopologyDescription>> {
        let mut views = client.watch_topology();
        self.block_on(async {
            while let Some(view) = views.next().await {
                if wanted(&view) {
                    return Ok(view);
                }
            }
            Err("the client was closed".into())
        })
    }

    /// Waits until the first server is known to be what it is.
    pub(super) fn known(&self, client: &Topology<A::Runtime>) -> Outcome {
        let known = |view: &TopologyDescription| {
            view.servers().iter().any(|server| server.server_type != ServerType::Unknown)
        };
        self.view(client, known).map(drop)
    }

    /// Waits until a server is of no use, and returns why.
    pub(super) fn failure(&self, client: &Topology<A::Runtime>) -> Outcome<Failure> {
        let failed = |view: &TopologyDescription| {
            view.servers().iter().find_map(|server| server.error.clone())
        };
        let view = self.view(client, |view| failed(view).is_some())?;
        failed(&view).ok_or_else(|| "it was just there".into())
    }

    /// Runs a command on the only server, or the primary, and looks at the reply.
    pub(super) fn ping(&self, client: &Topology<A::Runtime>) -> Outcome {
        let reply = self.block_on(client.run_command("admin", &ping()))?;
        match reply.get_f64("ok").is_ok() || reply.get_i32("ok").is_ok() {
            true => Ok(()),
            false => Err(format!("not what ping is answered with: {reply:?}").into()),
        }
    }

    /// Selects who takes writes.
    pub(super) fn primary(
        &self,
        client: &Topology<A::Runtime>,
    ) -> Outcome<SelectedServer<A::Runtime>> {
        Ok(self.block_on(client.select(Criteria::write()))?)
    }

    /// Polls a future until something is the case, and leaves it there.
    pub(super) fn poll_until<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
        reached: impl Fn() -> bool,
    ) -> Outcome {
        while !reached() {
            let poll = self.block_on(once(future.as_mut()));
            if poll.is_ready() {
                return Err("it ended too early".into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until no client holds or waits for a connection of this pool.
    pub(super) fn at_rest(server: &SelectedServer<A::Runtime>) {
        let busy = |counts: Counts| counts.pending + counts.in_use + counts.waiting > 0;
        wait_until(|| !busy(server.counts()));
    }

    /// Reads the events to their end, and returns the last.
    pub(super) fn last_event(&self, mut events: Events) -> Option<EventKind> {
        self.block_on(async {
            let mut last = None;
            while let Some(event) = events.next().await {
                last = Some(event.kind);
            }
            last
        })
    }

    /// Checks that the events end, and how.
    pub(super) fn ends(&self, events: Events) -> Outcome {
        match self.last_event(events) {
            Some(EventKind::TopologyClosed) => Ok(()),
            last => Err(format!("the last event is {last:?}").into()),
        }
    }
}

/// Waits until something is the case that is not reported; the suite's limit ends it otherwise.
pub(super) fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(LOOK);
    }
}

/// Polls a future once.
pub(super) async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Runs a future until it has been polled so often, and then drops it.
pub(super) async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), times);
    let poll = |cx: &mut Context<'_>| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    };
    std::future::poll_fn(poll).await
}

pub(super) fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1 }
}

/// Returns whether there are a primary and two secondaries.
pub(super) fn is_whole(view: &TopologyDescription) -> bool {
    let count = |of| view.servers().iter().filter(|server| server.server_type == of).count();
    (count(ServerType::RsPrimary), count(ServerType::RsSecondary)) == (1, 2)
}

/// Returns the address of the primary.
pub(super) fn primary_of(view: &TopologyDescription) -> Option<ServerAddress> {
    view.primary().map(|primary| primary.address.clone())
}

/// Fails unless this is so.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+).into());
        }
    };
}
pub(super) use ensure;
