//! Change streams.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::{Document, RawDocument};
use futures_core::Stream;
use sdam_core::operation::Timeout;
use sdam_host::driver::{DriverTopology, KillLimits};
use sdam_host::{ClientSession, ErrorKind, Runtime};
use serde::de::DeserializeOwned;

use super::perform::Handle;
use super::reader::Reader;
use crate::change_stream::{ChangeStreamEvent, ChangeStreamState, ResumeToken, is_resumable};
use crate::command::Scope;
use crate::command::watch::Watch;
use crate::error::Error;
use crate::reply::document::read_as;

/// The changes of a collection, a database or a deployment, as they happen.
///
/// It goes on by itself when its connection or its server is lost, behind the last event that was
/// handed out: an event is handed out once, and in its order. If a server does not know the place
/// any more, the stream ends with the server's error.
///
/// It is a [`Stream`]; [`next`](Self::next) does the same without one, and may be given up at any
/// time. A stream that is dropped is closed at its server in the background.
pub struct ChangeStream<R: Runtime, T = ChangeStreamEvent<Document>> {
    handle: Handle<R>,
    scope: Scope,
    watch: Watch,
    state: ChangeStreamState,
    reader: Reader<R>,
    /// The session of all its cursors, one after the other, until it has ended.
    session: Option<ClientSession<R>>,
    /// The limit of the call that is under way.
    call: Option<Timeout>,
    /// The command that has the stream begin again.
    resuming: Option<Resuming<R>>,
    /// True if the stream is to begin again before anything else is done.
    is_lost: bool,
    is_over: bool,
    of: PhantomData<fn() -> T>,
}

type Resuming<R> = Pin<Box<dyn Future<Output = (Watch, Result<Reader<R>, Error>)> + Send>>;

/// The function that reads an event.
type Read<T> = fn(&RawDocument) -> Result<T, Error>;

impl<R: Runtime, T> ChangeStream<R, T> {
    pub(crate) async fn open(
        handle: &Handle<R>,
        scope: Scope,
        mut watch: Watch,
    ) -> Result<Self, Error> {
        let mut state = watch.state();
        let reader = Reader::open(handle, &scope, &mut watch).await?;
        state.opened(&reader.state, watch.opening().operation_time);
        let (session, call, resuming) = (reader.session(), None, None);
        Ok(Self {
            handle: handle.clone(),
            scope,
            watch,
            state,
            reader,
            session,
            call,
            resuming,
            is_lost: false,
            is_over: false,
            of: PhantomData,
        })
    }

    /// Reads the events as another type, such as [`Document`], or one of the application's where
    /// the pipeline changes their form.
    pub fn with_type<U>(self) -> ChangeStream<R, U> {
        ChangeStream {
            handle: self.handle,
            scope: self.scope,
            watch: self.watch,
            state: self.state,
            reader: self.reader,
            session: self.session,
            call: self.call,
            resuming: self.resuming,
            is_lost: self.is_lost,
            is_over: self.is_over,
            of: PhantomData,
        }
    }

    /// Returns the place that another stream would go on from, by `start_after`: behind the last
    /// event that was handed out, or behind what the server has looked through since; `None` before
    /// either is known.
    pub const fn resume_token(&self) -> Option<&ResumeToken> {
        self.state.token()
    }

    /// Returns whether there may be further events.
    pub const fn is_alive(&self) -> bool {
        !self.is_over
    }

    /// Closes the stream at its server; errors are ignored.
    pub async fn close(mut self) {
        self.resuming = None;
        let timeout = self.handle.timeout_of_operations();
        self.reader.kill(KillLimits::of_close(&self.handle.client, timeout)).await;
    }

    /// As [`close`](Self::close), but within this time; zero lifts the limit.
    pub async fn close_within(mut self, time: Duration) {
        self.resuming = None;
        self.reader.kill(KillLimits::within(&self.handle.client, time)).await;
    }

    /// Begins a call for the next event, with its own limit.
    fn begin_call(&mut self) {
        self.call = None;
        self.reader.begin_call();
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        once: bool,
        read: Read<T>,
    ) -> Poll<Option<Result<T, Error>>> {
        // Its time begins with its first poll.
        self.call();
        let next = ready!(self.poll_once(cx, once, read));
        self.call = None;
        self.reader.end_call();
        Poll::Ready(next)
    }

    fn poll_once(
        &mut self,
        cx: &mut Context<'_>,
        once: bool,
        read: Read<T>,
    ) -> Poll<Option<Result<T, Error>>> {
        loop {
            if self.is_over {
                self.session = None;
                return Poll::Ready(None);
            }
            if std::mem::take(&mut self.is_lost) {
                self.resume();
            }
            if let Some(resuming) = &mut self.resuming {
                let (watch, opened) = ready!(resuming.as_mut().poll(cx));
                (self.resuming, self.watch) = (None, watch);
                match opened {
                    Ok(reader) => self.resumed(reader),
                    Err(error) => return Poll::Ready(Some(Err(self.resume_failed(error)))),
                }
            }
            let next = self.reader.poll_once(cx, once, read);
            let Poll::Ready(next) = next else {
                self.state.heard(&self.reader.state);
                return Poll::Pending;
            };
            let handed_out = next.as_ref().is_some_and(Result::is_ok);
            if handed_out && let Err(error) = self.hands_out() {
                return Poll::Ready(Some(Err(error)));
            }
            self.state.heard(&self.reader.state);
            match next {
                Some(Err(error)) if self.reader.has_failed => match self.judge(error) {
                    Some(error) => return Poll::Ready(Some(Err(error))),
                    None => continue,
                },
                None => self.is_over = self.reader.state.id() == 0,
                _ => {}
            }
            return Poll::Ready(next);
        }
    }

    /// Takes note of the event that the cursor has moved to.
    fn hands_out(&mut self) -> Result<(), Error> {
        let Some(event) = self.reader.state.current() else { return Ok(()) };
        let known = self.state.hands_out(event);
        known.map_err(|error| {
            self.is_over = true;
            self.reader.kill_in_background();
            error.into()
        })
    }

    /// Judges the error of a getMore: returns it if it is the caller's, and else has the stream
    /// begin again.
    fn judge(&mut self, error: Error) -> Option<Error> {
        let is_resumable = is_resumable(&error, self.watch.opening().max_wire_version);
        self.is_lost = is_resumable;
        self.is_over = !is_resumable;
        // "the time is over" of this call: the next one begins with it.
        (!is_resumable || self.is_late()).then_some(error)
    }

    fn is_late(&mut self) -> bool {
        let deadline = self.call().deadline();
        deadline.is_some_and(|deadline| deadline <= self.handle.client.now())
    }

    /// Returns the limit of the call that is under way.
    fn call(&mut self) -> Timeout {
        let (client, timeout) = (&self.handle.client, self.handle.timeout_of_operations());
        *self.call.get_or_insert_with(|| client.timeout(timeout))
    }

    /// Begins to open the stream again where it was, in the same session. The old cursor is killed
    /// at its own server, and nothing waits for that.
    fn resume(&mut self) {
        let deadline = self.call().deadline();
        self.reader.kill_in_background();
        let mut handle = self.handle.clone();
        handle.session = self.session.clone().or(handle.session);
        let of_stream = handle.clone();
        if let Some(deadline) = deadline {
            handle = handle.with(|concerns| concerns.timeout = None);
            handle.client = handle.client.with_deadline(deadline);
        }
        let scope = self.scope.clone();
        let mut watch = self.watch.clone().starting(self.state.start());
        self.resuming = Some(Box::pin(async move {
            let opened = Reader::open(&handle, &scope, &mut watch).await;
            let opened = opened.map(|mut reader| {
                reader.handle = of_stream;
                reader
            });
            (watch, opened)
        }));
    }

    fn resumed(&mut self, reader: Reader<R>) {
        self.reader = reader;
        self.state.heard(&self.reader.state);
    }

    /// Judges the error of the command that was to open the stream again, which is the caller's:
    /// another call tries it once more if no server has refused it.
    fn resume_failed(&mut self, error: Error) -> Error {
        use ErrorKind::{CheckOut, Network, Selection, Timeout};
        self.is_lost = matches!(error.kind(), CheckOut | Network | Selection | Timeout);
        self.is_over = !self.is_lost;
        error
    }

    /// Waits for the next event, which a call may be given up for at any time.
    async fn next_as(&mut self, once: bool, read: Read<T>) -> Option<Result<T, Error>> {
        self.begin_call();
        let call = Call(self);
        std::future::poll_fn(|cx| call.0.poll(cx, once, read)).await
    }
}

impl<R: Runtime, T: DeserializeOwned> ChangeStream<R, T> {
    /// Returns the next event, as soon as there is one; `None` once the stream has ended, as after
    /// an `invalidate`.
    ///
    /// # Errors
    ///
    /// Fails if the stream cannot go on, and if the event is of another type, which is skipped
    /// then. After a [time-out](Error::is_timeout), and after the loss of all servers, another call
    /// goes on.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.next_as(false, |event| read_as(event)).await
    }

    /// As [`next`](Self::next), for `while let Some(event) = stream.try_next().await?`.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.next().await.transpose()
    }

    /// As [`try_next`](Self::try_next), but asks the server once at most: `None` also stands for an
    /// empty batch; [`is_alive`](Self::is_alive) returns whether that is the end. The
    /// [token](Self::resume_token) may have moved on.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.next_as(true, |event| read_as(event)).await.transpose()
    }
}

impl<R: Runtime, T: DeserializeOwned> Stream for ChangeStream<R, T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        let next = stream.poll(cx, false, |event| read_as(event));
        if next.is_pending() && stream.reader.is_fetching() {
            // A stream does not notice when its reader gives up.
            stream.reader.hand_over();
            return stream.poll(cx, false, |event| read_as(event));
        }
        next
    }
}

/// A call for the next event, which may be given up at any time.
struct Call<'a, R: Runtime, T>(&'a mut ChangeStream<R, T>);

impl<R: Runtime, T> Drop for Call<'_, R, T> {
    fn drop(&mut self) {
        self.0.reader.hand_over();
    }
}

impl<R: Runtime, T> std::fmt::Debug for ChangeStream<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeStream")
            .field("cursor", &self.reader.state.id())
            .field("resume_token", &self.state.token())
            .finish_non_exhaustive()
    }
}
