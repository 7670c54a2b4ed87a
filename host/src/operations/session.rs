//! Sessions as applications hold them, and the pool of servers' sessions that a client has.
//!
//! Implements Driver Sessions; what a session is and has seen is a value of core.

use std::sync::Weak;

use bson::{RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::session::{
    ClusterTime, ClusterTimeError, ServerSession, Session, SessionError, SessionOptions,
    SessionTimeout,
};

use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::sync::lock;

/// A session: operations that are run with it one after the other, and the times that they have
/// seen.
///
/// [`Client::start_session`](crate::Client::start_session) starts one of the application's own. It
/// may be used by one operation at a time, and not in a process that was forked off. One that is
/// not used for a minute after it was started may be unknown to the servers when it is.
///
/// Writes that are not acknowledged cannot be run with it. Dropping it ends it, and waits for
/// nothing: the servers' session is used again.
pub struct ClientSession<R: Runtime> {
    pub(crate) session: Session,
    host: Weak<Host<R>>,
}

/// Takes a session of the servers from the client's pool.
pub(crate) fn take_session<R: Runtime>(host: &Host<R>) -> ServerSession {
    let (now, timeout) = (host.shared.runtime.now(), session_timeout(host));
    lock(&host.sessions).take(now, timeout)
}

fn give_back_session<R: Runtime>(host: &Host<R>, session: ServerSession) {
    let (now, timeout) = (host.shared.runtime.now(), session_timeout(host));
    lock(&host.sessions).give_back(now, timeout, session);
}

/// Says when servers forget a session that is not used, as far as the topology knows: nothing is
/// known of it behind a load balancer.
fn session_timeout<R: Runtime>(host: &Host<R>) -> SessionTimeout {
    match host.shared.options.load_balanced() {
        true => SessionTimeout::Never,
        false => {
            let view = host.view.load();
            let minutes = view.snapshot.description().logical_session_timeout_minutes;
            SessionTimeout::of_minutes(minutes)
        }
    }
}

/// Empties the client's pool, and returns the commands that end its sessions.
pub(crate) fn end_sessions<R: Runtime>(host: &Host<R>) -> Vec<RawDocumentBuf> {
    match host.shared.process.is_current() {
        true => lock(&host.sessions).end_all(),
        false => Vec::new(),
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Starts a session of the application's.
    pub(crate) fn start(host: &Host<R>, options: SessionOptions) -> Result<Self, SessionError> {
        let mut session = Session::new(options)?;
        if host.shared.process.is_current() {
            session.server_session_or(|| take_session(host));
        }
        Ok(Self { session, host: Weak::clone(&host.me) })
    }

    /// Starts the session of an operation that was given none.
    pub(crate) fn implicit(host: &Host<R>) -> Self {
        Self { session: Session::implicit(), host: Weak::clone(&host.me) }
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Returns the session's name, `{ id: <UUID> }`, that commands carry as `lsid`; `None` if it
    /// has ended, or is implicit and was not sent yet.
    pub fn id(&self) -> Option<&RawDocument> {
        self.session.server_session().map(|session| session.id().document())
    }

    /// Returns what the session was started with.
    pub const fn options(&self) -> &SessionOptions {
        self.session.options()
    }

    /// Returns the latest cluster time that the session has received or was given.
    pub fn cluster_time(&self) -> Option<&RawDocument> {
        self.session.cluster_time().map(ClusterTime::document)
    }

    /// Has the session see at least what another has seen: its [`cluster_time`](Self::cluster_time)
    /// (Driver Sessions, "advanceClusterTime"). That of the client is left as it is.
    ///
    /// # Errors
    ///
    /// Fails if it is no `$clusterTime` as a server gave it out.
    pub fn advance_cluster_time(&mut self, time: &RawDocument) -> Result<(), ClusterTimeError> {
        self.session.advance_cluster_time(ClusterTime::parse(time)?);
        Ok(())
    }

    /// Returns the time of the last operation, as its server has reported it.
    pub const fn operation_time(&self) -> Option<Timestamp> {
        self.session.operation_time()
    }

    /// Has reads of the session see at least what was done at this time, the
    /// [`operation_time`](Self::operation_time) of another session.
    pub fn advance_operation_time(&mut self, time: Timestamp) {
        self.session.advance_operation_time(time);
    }

    /// Returns the time of the snapshot that reads see, once it is known.
    pub const fn snapshot_time(&self) -> Option<Timestamp> {
        self.session.snapshot_time()
    }

    /// Returns whether it was made for an operation that was given no session.
    pub const fn is_implicit(&self) -> bool {
        self.session.is_implicit()
    }

    /// Returns whether a network error came upon a command of the session, or a caller gave one up
    /// before its reply, so that the servers' session is not used again when this one has ended.
    pub fn is_dirty(&self) -> bool {
        self.session.server_session().is_some_and(ServerSession::is_dirty)
    }

    pub(crate) fn is_of(&self, host: &Host<R>) -> bool {
        std::ptr::eq(self.host.as_ptr(), host)
    }

    /// Ends the session; operations with it fail from then on. Another call does nothing.
    pub fn end(&mut self) {
        let Some(session) = self.session.end() else { return };
        // "drivers MUST ensure that sessions already checked out are not returned to the new pool";
        // in a process that was forked off, the pool may be locked for ever.
        if let Some(host) = self.host.upgrade().filter(|host| host.shared.process.is_current()) {
            give_back_session(&host, session);
        }
    }
}

impl<R: Runtime> Drop for ClientSession<R> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<R: Runtime> std::fmt::Debug for ClientSession<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSession").field("session", &self.session).finish_non_exhaustive()
    }
}
