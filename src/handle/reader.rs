//! The reader of a cursor: it knows which batch is asked for, when, and within what time, and
//! leaves to its caller as which type a document is read.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::operation::Timeout;
use sdam_core::time::Instant;
use sdam_core::wire::ReplyDocument;
use sdam_host::driver::{DriverTopology, Extension, KillLimits, Pinned};
use sdam_host::{ClientSession, ErrorKind, Runtime};

use super::call::LimitedCall;
use super::fetching::Fetching;
use super::kill_cursors::CursorToKill;
use super::perform::{Handle, Response};
use crate::command::get_more::GetMore;
use crate::command::{Operation, Scope};
use crate::cursor::{CursorState, CursorStep, Pace, TimeoutMode, Timing};
use crate::error::{DriverError as _, Error};

/// The time that a task has to kill a cursor whose reader has given that up.
const GRACE: Duration = Duration::from_secs(10);

/// The outcome of a getMore, the way to the server, and the wire version of the connection.
type Fetched<R> = (Option<Pinned<R>>, Option<i32>, Result<ReplyDocument, Error>);

/// A cursor that is read, without the type of its documents.
pub(super) struct Reader<R: Runtime> {
    pub(super) handle: Handle<R>,
    pub(super) state: CursorState,
    /// The server it was opened on; while a batch is awaited, another way there, if there is one.
    pin: Option<Pinned<R>>,
    /// The session that it was opened with, until the server has closed it.
    session: Option<ClientSession<R>>,
    timing: Timing,
    /// The limit of its whole life.
    lifetime: Timeout,
    /// The limit of the call for the next document that is under way.
    iteration: Option<LimitedCall>,
    /// The way to put off the limit of the batch that is awaited, once another call waits for it
    /// than the one that has asked.
    extension: Option<Arc<Extension>>,
    /// The wait for the time when the next batch may be asked for.
    pausing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pace: Pace,
    /// The wire version of the connection that the last getMore went over.
    pub(super) max_wire_version: Option<i32>,
    /// True of a change stream, which can begin again at another server.
    begins_elsewhere: bool,
    /// The batch that is awaited.
    pub(super) fetching: Option<Fetching<Fetched<R>>>,
    /// True once fetching a batch has failed: the cursor is exhausted, but it may still be
    /// open at its server.
    pub(super) has_failed: bool,
}

/// The function that reads a document.
type Read<T> = fn(&RawDocument) -> Result<T, Error>;

impl<R: Runtime> Reader<R> {
    pub(super) async fn open<O: Operation<Output = CursorState> + Send>(
        handle: &Handle<R>,
        scope: &Scope,
        operation: &mut O,
    ) -> Result<Self, Error> {
        let timing = operation.timing();
        let Response { outcome, pin, session, timeout } = handle.run(scope, operation).await?;
        let mut reader = Self {
            handle: handle.clone(),
            state: outcome,
            pin,
            session: Some(session),
            timing,
            lifetime: timeout,
            iteration: None,
            extension: None,
            pausing: None,
            pace: Pace::default(),
            max_wire_version: None,
            begins_elsewhere: false,
            fetching: None,
            has_failed: false,
        };
        reader.release_if_closed();
        Ok(reader)
    }

    /// Has it fail rather than wait for a server of which nothing is known, while another one can
    /// be selected.
    #[must_use]
    pub(super) const fn beginning_elsewhere(mut self) -> Self {
        self.begins_elsewhere = true;
        self
    }

    /// Waits for the next document, which a call may be given up for at any time.
    pub(super) async fn next<T>(&mut self, once: bool, read: Read<T>) -> Option<Result<T, Error>> {
        self.begin_call();
        let call = Call(self);
        poll_fn(|cx| call.0.poll(cx, once, read)).await
    }

    /// Reads the next document by `read`; `once` fetches one batch at most. The call for it ends.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        once: bool,
        read: Read<T>,
    ) -> Poll<Option<Result<T, Error>>> {
        let next = ready!(self.poll_once(cx, once, read));
        let call = self.iteration;
        self.end_call();
        let ends = |error| match call {
            Some(call) => call.ends(&self.handle, error),
            None => error,
        };
        Poll::Ready(next.map(|read| read.map_err(ends)))
    }

    /// Ends a call for the next document: another one has a time of its own.
    pub(super) const fn end_call(&mut self) {
        self.iteration = None;
    }

    /// Has it go on with a call for the next document that has begun before it was opened.
    pub(super) const fn goes_on(&mut self, call: LimitedCall) {
        self.iteration = Some(call);
    }

    /// Returns whether another batch can be asked for.
    pub(super) const fn is_open(&self) -> bool {
        self.state.id() != 0 && self.pin.is_some() && self.session.is_some()
    }

    /// Returns the session that it is read in, unless its server has closed it.
    pub(super) fn session(&self) -> Option<ClientSession<R>> {
        self.session.clone()
    }

    /// Returns whether it waits for a batch that no task goes on with.
    pub(super) fn is_fetching(&self) -> bool {
        self.fetching.as_ref().is_some_and(Fetching::is_own)
    }

    /// As [`poll`](Self::poll), as part of a call that goes on.
    pub(super) fn poll_once<T>(
        &mut self,
        cx: &mut Context<'_>,
        once: bool,
        read: Read<T>,
    ) -> Poll<Option<Result<T, Error>>> {
        let (mut has_asked, mut has_paused) = (false, false);
        if self.has_failed {
            return Poll::Ready(None);
        }
        loop {
            if let Some(pausing) = &mut self.pausing {
                ready!(pausing.as_mut().poll(cx));
                (self.pausing, has_paused) = (None, true);
            }
            if let Some(fetching) = &mut self.fetching {
                let (pin, max_wire_version, answer) = ready!(fetching.poll(cx));
                self.fetching = None;
                if answer.as_ref().is_err_and(|error| self.asks_again(error)) {
                    self.pin = pin;
                    continue;
                }
                (has_asked, has_paused) = (true, false);
                if let Err(error) = self.take((pin, max_wire_version, answer)) {
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match self.state.step() {
                Ok(CursorStep::Document(document)) => {
                    return Poll::Ready(Some(read(document)));
                }
                Err(error) => {
                    self.has_failed = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Ok(CursorStep::Exhausted) => {
                    self.kill_in_background();
                    return Poll::Ready(None);
                }
                Ok(CursorStep::GetMore(_)) if once && has_asked => return Poll::Ready(None),
                Ok(CursorStep::GetMore(body)) => {
                    let pauses = !has_paused && self.pause();
                    if !pauses && !self.fetch(body) {
                        return Poll::Ready(None);
                    }
                }
            }
        }
    }

    /// Kills the cursor at its server, if it is open there, and waits for that; a task does it if
    /// the caller gives it up.
    pub(super) async fn kill(&mut self, limits: KillLimits) {
        let Some(open) = self.take_open() else { return };
        let client = self.handle.client.clone();
        let killing = Fetching::begin(async move { open.kill(&client, limits).await });
        let mut killing = Killing { client: &self.handle.client, killing: Some(killing) };
        poll_fn(|cx| killing.poll(cx)).await;
    }

    /// Begins a call for the next document, whose time begins now, also if it waits for a batch
    /// that another call has asked for.
    pub(super) fn begin_call(&mut self) {
        self.iteration = None;
        if self.fetching.is_some()
            && self.timing.mode() == TimeoutMode::Iteration
            && let Some(deadline) = self.next_timeout().deadline()
            && let Some(extension) = &self.extension
        {
            extension.extend(deadline);
        }
    }

    /// Begins to ask for the next batch; returns false if there is no way to the server.
    fn fetch(&mut self, body: RawDocumentBuf) -> bool {
        let (Some(pin), Some(session)) = (self.pin.take(), self.session.clone()) else {
            return false;
        };
        self.pin = pin.other();
        let (handle, timeout) = (self.handle.clone(), self.next_timeout());
        let mut get_more = GetMore::new(self.state.namespace(), body, self.timing)
            .beginning_elsewhere(self.begins_elsewhere);
        let is_of_call = self.timing.mode() == TimeoutMode::Iteration;
        let is_limited = timeout.deadline().is_some();
        self.extension = (is_of_call && is_limited).then(Arc::default);
        let extension = self.extension.clone();
        self.pace.asks(handle.client.now());
        self.fetching = Some(Fetching::begin(async move {
            let mut pin = Some(pin);
            let limits = (timeout, extension.as_deref());
            let answer = handle.get_more(&mut get_more, &mut pin, &session, limits).await;
            (pin, get_more.max_wire_version(), answer)
        }));
        true
    }

    /// Begins to wait for the time when the next batch may be asked for; returns whether it is
    /// still to come.
    fn pause(&mut self) -> bool {
        let Timing { await_data, max_await_time, .. } = self.timing;
        let Some(until) = self.pace.next(await_data, max_await_time) else { return false };
        let client = self.handle.client.clone();
        if until <= client.now() {
            return false;
        }
        // A getMore that has less time than that fails in time.
        let deadline = self.next_timeout().deadline();
        let until = deadline.map_or(until, |deadline: Instant| deadline.min(until));
        self.pausing = Some(Box::pin(async move { client.sleep_until(until).await }));
        true
    }

    /// Takes the answer to a getMore.
    fn take(&mut self, fetched: Fetched<R>) -> Result<(), Error> {
        let (pin, max_wire_version, answer) = fetched;
        (self.pin, self.max_wire_version) = (pin, max_wire_version.or(self.max_wire_version));
        let read = answer.and_then(|reply| self.state.more(&reply).map_err(Error::from));
        let Err(error) = read else {
            self.pace.receives(!self.state.has_documents());
            self.release_if_closed();
            return Ok(());
        };
        if error.is_session_in_use() {
            // Nothing was sent, so that the cursor is what it was.
            return Err(error);
        }
        let needs_connection = self.pin.as_ref().is_some_and(Pinned::needs_connection);
        if error.is_of_a_closed_cursor() {
            self.state.close();
            self.release_if_closed();
        } else if needs_connection && is_lost(&error) {
            // Its connection stays pinned until it is closed (Load Balancers, "Behaviour With
            // Cursors").
            self.state.close();
        } else if let Some(other) = self.pin.as_ref().and_then(Pinned::other) {
            // A stream has ended with its error, whatever that is.
            self.pin = Some(other);
        }
        self.has_failed = true;
        Err(error)
    }

    /// Returns whether the next batch is asked for once more after this error: the time of a call
    /// that was given up was over before anything was sent, and the call under way has its own.
    fn asks_again(&self, error: &Error) -> bool {
        let deadline = self.iteration.and_then(LimitedCall::deadline);
        error.is_early_timeout()
            && self.timing.mode() == TimeoutMode::Iteration
            && deadline.is_some_and(|deadline| deadline > self.handle.client.now())
    }

    /// Has a task go on with a getMore that is under way, as its reader has turned to something
    /// else.
    pub(super) fn hand_over(&mut self) {
        if let Some(fetching) = &mut self.fetching {
            fetching.hand_over(&self.handle.client);
        }
    }

    /// Returns the limit of the next getMore.
    fn next_timeout(&mut self) -> Timeout {
        match self.timing.mode() {
            TimeoutMode::CursorLifetime => self.lifetime,
            TimeoutMode::Iteration => {
                self.iteration.get_or_insert_with(|| LimitedCall::begin(&self.handle)).timeout
            }
        }
    }

    /// Gives back the connection and the session that nothing depends on any more.
    fn release_if_closed(&mut self) {
        if self.state.id() == 0 {
            (self.pin, self.session) = (None, None);
        }
    }

    /// Marks the cursor closed; returns what kills it at its server, if it is open there.
    pub(super) fn take_open(&mut self) -> Option<CursorToKill<R>> {
        if let Some(fetched) = self.fetching.take().and_then(Fetching::into_answer) {
            // It came while no caller was waiting.
            let _ = self.take(fetched);
        }
        let timeout = self.handle.timeout_of_operations();
        CursorToKill::of(&mut self.state, self.pin.take(), self.session.take(), timeout)
    }

    /// Kills the cursor at its server, if it is open there; nothing waits for that.
    pub(super) fn kill_in_background(&mut self) {
        if let Some(open) = self.take_open() {
            open.kill_in_background(&self.handle.client);
        }
    }
}

/// Returns whether the connection is lost, or there is none. A cursor outlives its connection,
/// unless it is pinned to that.
fn is_lost(error: &Error) -> bool {
    use ErrorKind::{CheckOut, Network, Selection};
    matches!(error.kind(), Network | CheckOut | Selection)
}

/// The killing of a cursor, which a caller waits for, and may give up.
struct Killing<'a, R: Runtime> {
    client: &'a sdam_host::Topology<R>,
    killing: Option<Fetching<()>>,
}

impl<R: Runtime> Killing<'_, R> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(killing) = &mut self.killing {
            ready!(killing.poll(cx));
            self.killing = None;
        }
        Poll::Ready(())
    }
}

impl<R: Runtime> Drop for Killing<'_, R> {
    fn drop(&mut self) {
        if let Some(killing) = self.killing.take() {
            killing.end_within(self.client, GRACE);
        }
    }
}

/// A call for the next document, which may be given up at any time.
struct Call<'a, R: Runtime>(&'a mut Reader<R>);

impl<R: Runtime> Drop for Call<'_, R> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

impl<R: Runtime> Drop for Reader<R> {
    fn drop(&mut self) {
        self.kill_in_background();
    }
}
