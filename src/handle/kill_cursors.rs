//! The killing of cursors that are open at their servers: those that applications close or drop,
//! those that an operation has left open which failed, and those of attempts that others were made
//! after. Each is marked closed first, so that it is killed once.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::operation::{KillCursors, OpenCursor};
use sdam_host::driver::{DriverSession, DriverTopology, KillLimits, Pinned, SessionGuard};
use sdam_host::{ClientSession, Reply, Runtime};

use super::perform::Handle;
use crate::cursor::{CursorState, Settings};

/// A cursor that is to be killed, and the way to its server.
pub(crate) struct CursorToKill<R: Runtime> {
    pin: Pinned<R>,
    session: ClientSession<R>,
    cursor: OpenCursor,
}

impl<R: Runtime> CursorToKill<R> {
    /// Marks a cursor closed; returns what kills it at its server, if it is open there.
    pub(crate) fn of(
        state: &mut CursorState,
        pin: Option<Pinned<R>>,
        session: Option<ClientSession<R>>,
        timeout: Option<Duration>,
    ) -> Option<Self> {
        // "The client MUST either consume all messages with the moreToCome flag set or close the
        // connection" (OP_MSG); before 4.4, the server does not close the cursor with that.
        let pin = pin.map(Pinned::without_stream);
        let (database, collection) = state.namespace();
        let namespace = (Arc::clone(database), Arc::clone(collection));
        let (id, pin, session) = (state.close()?, pin?, session?);
        let cursor = OpenCursor::new(pin.server().clone(), namespace, id)
            .with_session(session.id())
            .with_timeout(timeout);
        Some(Self { pin, session, cursor })
    }

    /// Kills the cursor at its server: "the result of the operation SHOULD be ignored" (Run
    /// Command, "Iteration and Destruction").
    pub(crate) async fn kill(self, client: &sdam_host::Topology<R>, limits: KillLimits) {
        let Self { mut pin, session, mut cursor } = self;
        // An operation of the application's may use its session at any time: then its name is
        // enough, unless the cursor is in a transaction, which may have a connection of its own.
        let is_shared = cursor.session.is_some() && !session.is_last();
        let is_its = |guard: &SessionGuard<R>| !is_shared || guard.transaction().is_active();
        let mut guard = session.try_acquire().filter(is_its);
        if guard.is_some() || !is_shared {
            cursor.session = None;
        }
        let (command, session) = (KillCursors::of(&cursor), guard.as_mut());
        client.kill_cursors(&command, pin.target(), session, limits).await;
    }

    /// Has a task of the runtime's kill the cursor; nothing waits for that. Its time begins with
    /// the task, which of a client without threads is when the client is used next.
    pub(crate) fn kill_in_background(self, client: &sdam_host::Topology<R>) {
        if self.pin.needs_connection() {
            // It has a connection already, so that there cannot be too many.
            return client.spawn(move |client| async move {
                let limits = KillLimits::in_background(&client, self.cursor.timeout);
                self.kill(&client, limits).await;
            });
        }
        let Self { session, cursor, .. } = self;
        // A session of its own goes back first, so that the command may be sent with it.
        drop(session);
        client.kill_in_background(cursor);
    }
}

/// Kills the cursors of attempts that others were made after. Behind a load balancer they are left
/// to time: their connections are gone, which those others may have needed.
pub(super) fn kill_superseded<R: Runtime>(
    handle: &Handle<R>,
    session: Option<&ClientSession<R>>,
    replies: &mut Vec<Reply>,
) {
    let (client, timeout) = (&handle.client, handle.timeout_of_operations());
    for reply in replies.drain(..) {
        let state = CursorState::open("cursor", reply.document(), Settings::default());
        let Some(state) = state.ok().filter(|state| state.id() != 0) else { continue };
        if client.options().load_balanced() {
            continue;
        }
        let (database, collection) = state.namespace();
        let namespace = (Arc::clone(database), Arc::clone(collection));
        let cursor = OpenCursor::new(reply.server().clone(), namespace, state.id())
            .with_session(session.and_then(ClientSession::id))
            .with_timeout(timeout);
        client.kill_in_background(cursor);
    }
}
