//! Cursors that applications have dropped: a task for each server closes them there, many with one
//! command.
//!
//! Implements killCursors of Find, getMore and killCursors, and what Client Side Operations Timeout
//! says of closing cursors.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::operation::{AbandonedCursor, CommandMessage, KillCursors, OperationOptions};
use sdam_core::selection::Criteria;

use crate::client::Client;
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::operations::request::{Request, Target};
use crate::sync::before;

/// The time that a client that is closed waits for servers to close cursors.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// Queues a cursor, and begins the service of its server unless there is one.
pub(crate) fn abandon<R: Runtime>(client: &Client<R>, cursor: AbandonedCursor) {
    let host = client.host();
    if !host.shared.process.is_current() {
        return;
    }
    let (server, mut begins) = (cursor.server.clone(), false);
    host.abandoned.change(|cursors| {
        begins = cursors.push(cursor);
        false
    });
    if begins {
        let service = Service { host: Arc::downgrade(host), server };
        client.spawn(|client| service.serve(client));
    }
}

/// Waits until no server is served of which anything is known.
pub(crate) async fn closed<R: Runtime>(client: &Client<R>) {
    let host = client.host();
    if !host.shared.process.is_current() {
        return;
    }
    let is_known = |address: &ServerAddress| {
        let view = host.view();
        let server = view.servers().iter().find(|server| server.address == *address);
        server.is_some_and(|server| server.server_type != ServerType::Unknown)
    };
    let closed = host.abandoned.wait(|cursors| (!cursors.servers().any(is_known)).then_some(()));
    let until = client.now() + LAST_TIMEOUT;
    before(sleep_until(&host.shared, until), closed).await;
}

/// The service of a server whose cursors are to be closed. If it ends before its time, those that
/// wait are left to the server, and the next one begins another service.
struct Service<R: Runtime> {
    host: Weak<Host<R>>,
    server: ServerAddress,
}

impl<R: Runtime> Service<R> {
    async fn serve(mut self, client: Client<R>) {
        while let Some(command) = self.next_command() {
            self.kill(&client, &command).await;
        }
        // What comes from now on is another one's.
        self.host = Weak::new();
    }

    /// "The result from the killCursors command MAY be safely ignored."
    async fn kill(&self, client: &Client<R>, command: &KillCursors) {
        let KillCursors { database, body, has_session, timeout, .. } = command;
        let (timeout, max_time) = client.closing_timeout(*timeout);
        let options = OperationOptions::continuing().with_max_time(max_time);
        let target = Target::Member(&self.server, Arc::new(Criteria::write()));
        let mut session = (!has_session).then(|| client.implicit_session());
        let request = Request::new(CommandMessage::new(database, body), &options, target)
            .with_session(session.as_mut())
            .with_timeout(timeout);
        let _ = client.operate(request).await;
    }

    fn next_command(&self) -> Option<KillCursors> {
        let host = self.host.upgrade()?;
        let mut command = None;
        host.abandoned.change(|cursors| {
            command = cursors.next_command(&self.server);
            command.is_none()
        });
        command
    }
}

impl<R: Runtime> Drop for Service<R> {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade().filter(|host| host.shared.process.is_current()) {
            host.abandoned.change(|cursors| {
                cursors.forget(&self.server);
                true
            });
        }
    }
}
