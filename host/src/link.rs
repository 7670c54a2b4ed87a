//! A monitoring byte stream, as the task that moves its bytes sees it.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::activity::Running;
use super::driver::News;
use super::mailbox::Mailbox;
use super::progress::Progress;
use super::{Host, Runtime};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::LinkId;
use sdam_core::topology::Input;

/// A monitoring byte stream, as the task that moves its bytes sees it.
///
/// It keeps no client alive. Dropping it without [`closed`](Self::closed) reports that the runtime
/// gave the stream up.
#[derive(Debug)]
pub struct Link<R: Runtime> {
    host: Weak<Host<R>>,
    id: LinkId,
    pub(super) outgoing: Arc<Mailbox<Vec<u8>>>,
    reported: bool,
    /// Ends with the task.
    pub(super) running: Running,
}

impl<R: Runtime> Link<R> {
    pub(super) const fn new(
        host: Weak<Host<R>>,
        id: LinkId,
        outgoing: Arc<Mailbox<Vec<u8>>>,
        running: Running,
    ) -> Self {
        Self { host, id, outgoing, reported: false, running }
    }

    /// Returns the link's name.
    pub const fn id(&self) -> LinkId {
        self.id
    }

    /// Returns what tells how far the stream has come; the first stage is to connect.
    pub fn progress(&self) -> Progress<R> {
        Progress::of_link(Weak::clone(&self.host), self.id)
    }

    /// Reports that the stream is up.
    pub fn opened(&self) {
        self.tell(Input::Opened { link: self.id });
    }

    /// Reports bytes that came.
    pub fn received(&self, bytes: &[u8]) {
        self.tell(Input::Received { link: self.id, bytes });
    }

    /// Reports that the stream failed or ended.
    pub fn closed(mut self, failure: Failure) {
        self.reported = true;
        self.tell(Input::Closed { link: self.id, failure });
    }

    /// Returns the next bytes to write, `None` if the stream is to be dropped, or arranges for a
    /// wake-up.
    pub fn poll_outgoing(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        self.outgoing.poll_next(cx)
    }

    fn tell(&self, input: Input<'_>) {
        if let Some(host) = self.host.upgrade() {
            host.handle(input);
        }
    }
}

impl<R: Runtime> Drop for Link<R> {
    fn drop(&mut self) {
        if !self.running.process().is_current() {
            return;
        }
        if !self.reported
            && let Some(host) = self.host.upgrade()
        {
            let detail = "the runtime gave the connection up";
            let failure = Failure::new(Stage::Connect, Cause::Io, detail);
            host.note(News::Lost(Input::Closed { link: self.id, failure }));
            host.catch_up();
        }
        drop(self.outgoing.leave());
    }
}
