//! The monitors that clients of one process share.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};

use sdam_core::config::Options;

use crate::client::socket_runtime::SocketRuntime;
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::net::reactor::Reactor;
use crate::process::Process;
use crate::sync::{Mutex, lock};

/// The monitors that clients of one process share, if they are made with it.
///
/// Clients of the same deployment then have one set of monitors and one topology in common: 1,000
/// of them cost the servers no more heartbeats than one. Pools, credentials, sessions, concerns,
/// events, logs and metrics are apart. What an operation of one client finds out of a server, such
/// as that it is no primary any more, holds for all of them, and so does the clearing of pools that
/// follows; that a login was refused does not.
///
/// Clients share if their options agree in the seeds, in any order, and in all that decides how
/// servers are reached and checked ([`Options::can_share_monitors`]). A client that cannot share
/// has monitors of its own, as without a registry: with other options, in the single-threaded mode,
/// behind a load balancer, with a dialer, a resolver or a TLS configuration of the application's,
/// and with a recording, which needs a topology of its own. So has a process that was forked off.
///
/// Each client runs its tasks in the runtime where it was made, and all have the same clock. The
/// monitors run where the first client was made. If that runtime ends, its clients are closed, and
/// the monitors go on in that of another client: their connections are made there again, within
/// 500 ms, and servers are Unknown until then, so that operations wait. A runtime that runs only
/// while it is blocked on holds the monitors of all up meanwhile. The monitors end when the
/// last client is closed or dropped; one that is made later has new ones.
///
/// Clones are the same registry.
///
/// ```
/// # use sdam_core::config::Options;
/// # use sdam_host::{Topology, CurrentReactor, Error, Registry, SocketRuntime};
/// # fn example<R: CurrentReactor<Setup: Default>>() -> Result<(), Error> {
/// # type Of<R> = Topology<SocketRuntime<R>>;
/// let registry = Registry::new();
/// for tenant in ["ann", "bob"] {
///     let options = Options::builder()
///         .uri("mongodb://a.example,b.example/?replicaSet=rs0")?
///         .username(tenant)
///         .password(format!("secret of {tenant}"))
///         .build()?;
///     // let client = Topology::builder(options).registry(&registry).build()?;
///     # let client: Of<R> = Of::<R>::builder(options).registry(&registry).build()?;
///     # drop(client);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Registry<R: Reactor> {
    /// The process that made it. One that was forked off never takes its lock, which a thread of
    /// the parent may have held.
    process: Process,
    leaders: Arc<Leaders<SocketRuntime<R>>>,
}

impl<R: Reactor> Registry<R> {
    /// Starts without any monitors.
    pub fn new() -> Self {
        Self { process: Process::current(), leaders: Arc::default() }
    }

    /// Returns how many sets of monitors there are; in a process that was forked off, none.
    pub fn monitored(&self) -> usize {
        match self.process.is_current() {
            true => self.leaders.all().iter().filter(|leader| !leader.is_closed()).count(),
            false => 0,
        }
    }

    /// Makes a client of these options that [shares](Leaders::share) monitors; `None` if nothing
    /// can be shared.
    pub(crate) fn share<T, F>(
        &self,
        options: &Options,
        lead: impl Fn() -> (Arc<Host<SocketRuntime<R>>>, T),
        start: impl FnOnce(&Arc<Host<SocketRuntime<R>>>, T),
        follow: impl FnMut(Arc<Host<SocketRuntime<R>>>) -> Option<F>,
    ) -> Option<F> {
        // Some options cannot be shared at all, even if they are the same.
        let can_share = self.process.is_current() && options.can_share_monitors(options);
        can_share.then(|| self.leaders.share(options, lead, start, follow))
    }
}

/// The hosts with monitors for others that are there.
pub(crate) struct Leaders<R: Runtime>(Mutex<Vec<Weak<Host<R>>>>);

impl<R: Runtime> Leaders<R> {
    /// Makes a client of these options by `follow`, which shares the monitors of a host: of one
    /// that is there already and whose monitors can be shared, or else of the one that `lead`
    /// makes, and that `start` then starts with what it has made besides.
    ///
    /// None of them is called under the lock: what they start and wake may come back here.
    pub(crate) fn share<T, F>(
        &self,
        options: &Options,
        lead: impl Fn() -> (Arc<Host<R>>, T),
        start: impl FnOnce(&Arc<Host<R>>, T),
        mut follow: impl FnMut(Arc<Host<R>>) -> Option<F>,
    ) -> F {
        let is_alike = |leader: &Arc<Host<R>>| leader.options().can_share_monitors(options);
        if let Some(sharing) = self.all().into_iter().filter(is_alike).find_map(&mut follow) {
            return sharing;
        }
        // Each turn that is not the last, other threads have made a client and closed it.
        let mut made = None;
        loop {
            let (leader, more) = made.take().unwrap_or_else(&lead);
            let newer = self.add_unless(&leader, |other| is_alike(other) && !other.is_closed());
            match newer {
                // Another thread was faster, and the one that was made here has not begun.
                Some(newer) => match follow(newer) {
                    Some(sharing) => return sharing,
                    None => made = Some((leader, more)),
                },
                // Once it has a follower, only its own runtime can end it.
                None => match catch_unwind(AssertUnwindSafe(|| follow(Arc::clone(&leader)))) {
                    Ok(None) => {}
                    Ok(Some(sharing)) => {
                        start(&leader, more);
                        return sharing;
                    }
                    // Others may follow it already.
                    Err(panic) => {
                        start(&leader, more);
                        resume_unwind(panic);
                    }
                },
            }
        }
    }

    /// Returns them, to be looked at without the lock.
    fn all(&self) -> Vec<Arc<Host<R>>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds a host, unless there is one already that will do, which is returned.
    fn add_unless(
        &self,
        leader: &Arc<Host<R>>,
        will_do: impl Fn(&Arc<Host<R>>) -> bool,
    ) -> Option<Arc<Host<R>>> {
        loop {
            let known = self.all();
            if let Some(other) = known.iter().find(|other| will_do(other)) {
                return Some(Arc::clone(other));
            }
            let mut leaders = lock(&self.0);
            leaders.retain(|other| other.strong_count() > 0);
            // Clients that were added since are checked, too.
            let is_known = |other: &Weak<Host<R>>| {
                known.iter().any(|known| std::ptr::eq(other.as_ptr(), Arc::as_ptr(known)))
            };
            if leaders.iter().all(is_known) {
                leaders.push(Arc::downgrade(leader));
                return None;
            }
        }
    }
}

impl<R: Runtime> Default for Leaders<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: Reactor> Default for Registry<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Reactor> Clone for Registry<R> {
    fn clone(&self) -> Self {
        Self { process: self.process, leaders: Arc::clone(&self.leaders) }
    }
}

impl<R: Reactor> fmt::Debug for Registry<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("monitored", &self.monitored()).finish_non_exhaustive()
    }
}
