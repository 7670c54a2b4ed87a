//! Cursors.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::RawDocumentBuf;
use futures_core::Stream;
use sdam_core::operation::Timeout;
use sdam_core::time::Instant;
use sdam_host::{ClientSession, ErrorKind, Extension, KillLimits, Pinned, Runtime};
use serde::de::DeserializeOwned;

use super::fetching::{Fetched, Fetching};
use super::kill_cursors::CursorToKill;
use super::perform::{Handle, Response};
use crate::command::get_more::GetMore;
use crate::command::run::name;
use crate::command::{Operation, Scope};
use crate::cursor::{CursorState, CursorStep, Pace, TimeoutMode, Timing};
use crate::error::Error;
use crate::reply::document::read_as;

/// The documents that an operation has found, read batch by batch.
///
/// It is a [`Stream`]; [`next`](Self::next) does the same without one. A cursor that is dropped
/// while it is open at its server is closed there by a task of the runtime's, together with others
/// of the same collection: dropping waits for nothing, but closing the client does, for a second at
/// most. [`close`](Self::close) waits until it is done.
///
/// A server of which nothing is known, as after a connection was lost, is waited for as by other
/// operations: to go on with the cursor for `serverSelectionTimeoutMS` at most.
///
/// A call that waits for a document may be given up at any time: a task of the runtime's waits for
/// the batch then, and no document is lost. After an empty batch, the server is asked again
/// after a pause that grows from 1 ms to 500 ms, less the time that it has waited for documents.
pub struct Cursor<R: Runtime, T> {
    handle: Handle<R>,
    state: CursorState,
    /// The server it was opened on; while a batch is awaited, another way there, if there is one.
    pin: Option<Pinned<R>>,
    /// The session that it was opened with, until the server has closed it.
    session: Option<ClientSession<R>>,
    timing: Timing,
    /// The limit of its whole life.
    lifetime: Timeout,
    /// The limit of the call for the next document that is under way.
    iteration: Option<Timeout>,
    /// The way to put off the limit of the batch that is awaited, once another call waits for it
    /// than the one that has asked.
    extension: Option<Arc<Extension>>,
    /// The wait for the time when the next batch may be asked for.
    pausing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pace: Pace,
    /// The batch that is awaited.
    fetching: Option<Fetching<R>>,
    /// True once fetching a batch has failed: the cursor is exhausted, but it may still be
    /// open at its server.
    has_failed: bool,
    of: PhantomData<fn() -> T>,
}

/// Opens a cursor, and returns the names of all its documents that have one.
pub(crate) async fn names<R: Runtime>(
    handle: &Handle<R>,
    scope: &Scope,
    operation: impl Operation<Output = CursorState> + Send,
) -> Result<Vec<String>, Error> {
    let cursor = Cursor::<R, RawDocumentBuf>::open(handle, scope, operation).await?;
    let documents: Vec<_> = cursor.try_collect().await?;
    Ok(documents.iter().filter_map(|document| name(document)).collect())
}

impl<R: Runtime, T: DeserializeOwned> Cursor<R, T> {
    pub(crate) async fn open<O: Operation<Output = CursorState> + Send>(
        handle: &Handle<R>,
        scope: &Scope,
        mut operation: O,
    ) -> Result<Self, Error> {
        let timing = operation.timing();
        let Response { outcome, pin, session, timeout } = handle.run(scope, &mut operation).await?;
        let mut cursor = Self {
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
            fetching: None,
            has_failed: false,
            of: PhantomData,
        };
        cursor.release_if_closed();
        Ok(cursor)
    }

    /// Returns the next document, `None` at the end.
    ///
    /// A tailable cursor waits for documents that come later, and ends only if the server closes
    /// it.
    ///
    /// # Errors
    ///
    /// Fails if the next batch cannot be fetched, after which the cursor is exhausted, and if the
    /// document is of another type. After [`SessionInUse`](crate::error::ArgumentError::SessionInUse) and
    /// [`SessionTimeout`](Error::SessionTimeout) the cursor goes on.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.begin_call();
        let call = Call(self);
        std::future::poll_fn(|cx| call.0.poll(cx, false)).await
    }

    /// As [`next`](Self::next), for `while let Some(document) = cursor.try_next().await?`.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.next().await.transpose()
    }

    /// As [`try_next`](Self::try_next), but fetches one batch at most: `None` also stands for an
    /// empty one, as those of tailable cursors may be; [`is_alive`](Self::is_alive) returns whether
    /// that is the end.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.begin_call();
        let call = Call(self);
        std::future::poll_fn(|cx| call.0.poll(cx, true)).await.transpose()
    }

    /// Returns all documents that are left, as a `Vec` for instance.
    ///
    /// # Errors
    ///
    /// Fails with the first error of [`next`](Self::next). The cursor is given up then: as by
    /// [`close`](Self::close) if its server has answered in time, and is what it was; otherwise as
    /// by dropping it.
    pub async fn try_collect<C: Default + Extend<T>>(mut self) -> Result<C, Error> {
        let mut documents = C::default();
        loop {
            self.begin_call();
            match std::future::poll_fn(|cx| self.poll_once(cx, false)).await {
                Some(Ok(document)) => documents.extend([document]),
                Some(Err(error)) => {
                    if error.is_of_a_server_at_hand()
                        && let Some(open) = self.take_open()
                    {
                        let timeout = self.handle.timeout_of_operations();
                        let limits = KillLimits::in_background(&self.handle.client, timeout);
                        open.kill(&self.handle.client, limits).await;
                    }
                    return Err(error);
                }
                None => return Ok(documents),
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, once: bool) -> Poll<Option<Result<T, Error>>> {
        let next = ready!(self.poll_once(cx, once));
        self.iteration = None;
        Poll::Ready(next)
    }

    fn poll_once(&mut self, cx: &mut Context<'_>, once: bool) -> Poll<Option<Result<T, Error>>> {
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
                let (pin, answer) = ready!(fetching.poll(cx));
                self.fetching = None;
                if answer.as_ref().is_err_and(|error| self.asks_again(error)) {
                    self.pin = pin;
                    continue;
                }
                (has_asked, has_paused) = (true, false);
                if let Err(error) = self.take((pin, answer)) {
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match self.state.step() {
                Ok(CursorStep::Document(document)) => {
                    return Poll::Ready(Some(read_as(document)));
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
}

/// Returns whether the connection is lost, or there is none. A cursor outlives its connection,
/// unless it is pinned to that.
fn is_lost(error: &Error) -> bool {
    use ErrorKind::{CheckOut, Network, Selection};
    let kind = error.as_client().map(sdam_host::Error::kind);
    matches!(kind, Some(Network | CheckOut | Selection))
}

/// A call for the next document, which may be given up at any time.
struct Call<'a, R: Runtime, T>(&'a mut Cursor<R, T>);

impl<R: Runtime, T> Drop for Call<'_, R, T> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

impl<R: Runtime, T> Cursor<R, T> {
    /// Returns whether there may be further documents.
    pub fn is_alive(&self) -> bool {
        !self.has_failed && (self.state.id() != 0 || self.state.has_documents())
    }

    /// Returns the cursor's number at its server; 0 if it is closed there.
    pub const fn id(&self) -> i64 {
        self.state.id()
    }

    /// Changes how many documents the next batches have; zero leaves it to the server, and of a
    /// negative number the amount counts.
    pub const fn set_batch_size(&mut self, batch_size: i32) {
        self.state.set_batch_size(batch_size);
    }

    /// Closes the cursor at its server, if it is open; errors are ignored.
    ///
    /// That has the whole `timeoutMS` again, or ten seconds without that option, whatever is left
    /// of the time of [`Client::with_deadline`](sdam_host::Topology::with_deadline).
    pub async fn close(mut self) {
        let timeout = self.handle.timeout_of_operations();
        self.kill(KillLimits::of_close(&self.handle.client, timeout)).await;
    }

    /// As [`close`](Self::close), but within this time; zero lifts the limit.
    pub async fn close_within(mut self, time: Duration) {
        self.kill(KillLimits::within(&self.handle.client, time)).await;
    }

    async fn kill(&mut self, limits: KillLimits) {
        if let Some(open) = self.take_open() {
            open.kill(&self.handle.client, limits).await;
        }
    }

    /// Begins a call for the next document, whose time begins now, also if it waits for a batch
    /// that another call has asked for.
    fn begin_call(&mut self) {
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
        let get_more = GetMore::new(self.state.namespace(), body, self.timing);
        let is_of_call = self.timing.mode() == TimeoutMode::Iteration;
        let is_limited = timeout.deadline().is_some();
        self.extension = (is_of_call && is_limited).then(Arc::default);
        let extension = self.extension.clone();
        self.pace.asks(handle.client.now());
        self.fetching = Some(Fetching::begin(async move {
            let mut pin = Some(pin);
            let limits = (timeout, extension.as_deref());
            let answer = handle.get_more(get_more, &mut pin, &session, limits).await;
            (pin, answer)
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
    fn take(&mut self, (pin, answer): Fetched<R>) -> Result<(), Error> {
        self.pin = pin;
        let read = answer.and_then(|reply| self.state.more(&reply).map_err(Error::from));
        let Err(error) = read else {
            self.pace.receives(!self.state.has_documents());
            self.release_if_closed();
            return Ok(());
        };
        if error.is_of_session_in_use() {
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
        let deadline = self.iteration.and_then(Timeout::deadline);
        error.is_early_timeout()
            && self.timing.mode() == TimeoutMode::Iteration
            && deadline.is_some_and(|deadline| deadline > self.handle.client.now())
    }

    /// Has a task go on with a getMore that is under way, as its reader has turned to something
    /// else.
    fn hand_over(&mut self) {
        if self.fetching.as_ref().is_some_and(Fetching::is_own) {
            let client = &self.handle.client;
            self.fetching = self.fetching.take().map(|fetching| fetching.hand_over(client));
        }
    }

    /// Returns the limit of the next getMore.
    fn next_timeout(&mut self) -> Timeout {
        match self.timing.mode() {
            TimeoutMode::CursorLifetime => self.lifetime,
            TimeoutMode::Iteration => *self.iteration.get_or_insert_with(|| {
                let timeout = self.handle.timeout_of_operations();
                self.handle.client.timeout(timeout)
            }),
        }
    }

    /// Gives back the connection and the session that nothing depends on any more.
    fn release_if_closed(&mut self) {
        if self.state.id() == 0 {
            (self.pin, self.session) = (None, None);
        }
    }

    /// Marks the cursor closed; returns what kills it at its server, if it is open there.
    fn take_open(&mut self) -> Option<CursorToKill<R>> {
        if let Some(fetched) = self.fetching.take().and_then(Fetching::into_answer) {
            // It came while no caller was waiting.
            let _ = self.take(fetched);
        }
        let timeout = self.handle.timeout_of_operations();
        CursorToKill::of(&mut self.state, self.pin.take(), self.session.take(), timeout)
    }

    /// Kills the cursor at its server, if it is open there; nothing waits for that.
    fn kill_in_background(&mut self) {
        if let Some(open) = self.take_open() {
            open.kill_in_background(&self.handle.client);
        }
    }
}

impl<R: Runtime, T: DeserializeOwned> Stream for Cursor<R, T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let cursor = self.get_mut();
        let next = cursor.poll(cx, false);
        if next.is_pending() && cursor.fetching.as_ref().is_some_and(Fetching::is_own) {
            // A stream does not notice when its reader gives up.
            cursor.hand_over();
            return cursor.poll(cx, false);
        }
        next
    }
}

impl<R: Runtime, T> Drop for Cursor<R, T> {
    fn drop(&mut self) {
        self.kill_in_background();
    }
}

impl<R: Runtime, T> std::fmt::Debug for Cursor<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("id", &self.state.id()).finish_non_exhaustive()
    }
}
