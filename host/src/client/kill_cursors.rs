//! The killing of cursors at their servers: of one, whose caller waits for it, and of those that
//! applications have dropped, for which a task of each server kills many with one command.
//!
//! Implements killCursors of Find, getMore and killCursors, and what Client Side Operations Timeout
//! says of closing cursors.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::operation::{
    CommandMessage, KillCursors, MaxTime, OpenCursor, OperationOptions, Timeout,
};
use sdam_core::selection::Criteria;

use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::operations::request::{Request, Target};
use crate::operations::session::{ClientSession, DriverSession, SessionGuard};
use crate::sync::before;

/// The time that a topology that is closed waits for servers to kill cursors.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The time that a server gets to kill cursors, where `timeoutMS` says nothing.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of killing a cursor, whatever is left of the time of the operation that opened it
/// (Client Side Operations Timeout, "Cursors"), and of the deadline of
/// [`Topology::with_deadline`](crate::Topology::with_deadline): a cursor may be closed for the very
/// reason that this has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KillLimits {
    /// The limit of everything.
    pub timeout: Timeout,
    /// The `maxTimeMS` of the command.
    pub max_time: MaxTime,
}

impl KillLimits {
    /// Limits it where the application has not asked for it: to `timeoutMS` of the operation or of
    /// the topology, or else to ten seconds, which the command does not say.
    pub fn in_background<R: Runtime>(
        topology: &Topology<R>,
        of_operation: Option<Duration>,
    ) -> Self {
        let timeout = of_operation.or(topology.options().timeout());
        match Timeout::new(topology.now(), timeout) {
            timeout @ Timeout::At(_) => Self { timeout, max_time: MaxTime::Remaining },
            _ => {
                let timeout = Timeout::At(topology.now() + KILL_TIMEOUT);
                Self { timeout, max_time: MaxTime::Never }
            }
        }
    }

    /// Limits it where the application waits for it: as [`in_background`](Self::in_background), but
    /// without a limit if `timeoutMS` is 0.
    pub fn of_close<R: Runtime>(topology: &Topology<R>, of_operation: Option<Duration>) -> Self {
        match of_operation.or(topology.options().timeout()) {
            Some(Duration::ZERO) => Self::within(topology, Duration::ZERO),
            _ => Self::in_background(topology, of_operation),
        }
    }

    /// Limits it to this time; zero lifts the limit.
    pub fn within<R: Runtime>(topology: &Topology<R>, time: Duration) -> Self {
        let timeout = Timeout::new(topology.now(), Some(time));
        Self { timeout, max_time: MaxTime::Remaining }
    }
}

/// Kills cursors: "the result from the killCursors command MAY be safely ignored".
pub(crate) async fn kill<R: Runtime>(
    topology: &Topology<R>,
    command: &KillCursors,
    target: Target<'_, R>,
    session: Option<&mut SessionGuard<R>>,
    limits: KillLimits,
) {
    let options = OperationOptions::continuing().with_max_time(limits.max_time);
    // The cursor may be read in a stream, but nothing else is.
    let target = match target {
        Target::Stream(connection) => Target::Connection(connection),
        target => target,
    };
    let message = CommandMessage::new(&command.database, &command.body);
    let request =
        Request::new(message, &options, target).with_session(session).with_timeout(limits.timeout);
    let _ = topology.host().operate(request).await;
}

/// Queues a cursor, and begins the task of its server unless there is one.
pub(crate) fn kill_in_background<R: Runtime>(topology: &Topology<R>, cursor: OpenCursor) {
    let host = topology.host();
    if !host.shared.process.is_current() {
        return;
    }
    let (server, mut begins) = (cursor.server.clone(), false);
    host.cursors_to_kill.change(|cursors| {
        begins = cursors.push(cursor);
        false
    });
    if begins {
        let killer = Killer { host: Arc::downgrade(host), server };
        topology.spawn(|topology| killer.run(topology));
    }
}

/// Waits until there is no task of a server of which anything is known.
pub(crate) async fn killed<R: Runtime>(topology: &Topology<R>) {
    let host = topology.host();
    if !host.shared.process.is_current() {
        return;
    }
    let is_known = |address: &ServerAddress| {
        let view = host.view();
        let server = view.servers().iter().find(|server| server.address == *address);
        server.is_some_and(|server| server.server_type != ServerType::Unknown)
    };
    let gate = &host.cursors_to_kill;
    let killed = gate.wait(|cursors| (!cursors.servers().any(is_known)).then_some(()));
    let until = topology.now() + LAST_TIMEOUT;
    before(sleep_until(&host.shared, until), killed).await;
}

/// The task of a server whose cursors are to be killed. If it ends before its time, those that wait
/// are left to the server, and the next one begins another task.
struct Killer<R: Runtime> {
    host: Weak<Host<R>>,
    server: ServerAddress,
}

impl<R: Runtime> Killer<R> {
    async fn run(mut self, topology: Topology<R>) {
        while let Some(command) = self.next_command() {
            let target = Target::Member(&self.server, Arc::new(Criteria::write()));
            let own = (!command.has_session).then(|| ClientSession::implicit(topology.host()));
            let mut session = own.and_then(|own| own.try_acquire());
            let limits = KillLimits::in_background(&topology, command.timeout);
            kill(&topology, &command, target, session.as_mut(), limits).await;
        }
        // What comes from now on is another one's.
        self.host = Weak::new();
    }

    fn next_command(&self) -> Option<KillCursors> {
        let host = self.host.upgrade()?;
        let mut command = None;
        host.cursors_to_kill.change(|cursors| {
            command = cursors.next_command(&self.server);
            command.is_none()
        });
        command
    }
}

impl<R: Runtime> Drop for Killer<R> {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade().filter(|host| host.shared.process.is_current()) {
            host.cursors_to_kill.change(|cursors| {
                cursors.leave(&self.server);
                true
            });
        }
    }
}
