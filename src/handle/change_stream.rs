//! Change streams.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::{Document, RawDocument};
use futures_core::Stream;
use sdam_host::Runtime;
use sdam_host::driver::KillLimits;
use sdam_host::driver::documents::read_as;
use serde::de::DeserializeOwned;

use super::changes::Changes;
use super::perform::Handle;
use crate::change_stream::{ChangeStreamEvent, ResumeToken};
use crate::command::Scope;
use crate::command::watch::Watch;
use crate::error::{DeserializeError, Error, ReplyError};

/// The changes of a collection, a database or a deployment, as they happen.
///
/// It goes on by itself when its connection or its server is lost, behind the last event that was
/// handed out: an event is handed out once, and in its order. If a server does not know the place
/// any more, the stream ends with the server's error.
///
/// It is a [`Stream`]; [`next`](Self::next) does the same without one, and may be given up at any
/// time. A stream that is dropped is closed at its server in the background.
pub struct ChangeStream<R: Runtime, T = ChangeStreamEvent<Document>> {
    changes: Changes<R>,
    of: PhantomData<fn() -> T>,
}

impl<R: Runtime, T> ChangeStream<R, T> {
    pub(crate) async fn open(
        handle: &Handle<R>,
        scope: Scope,
        watch: Watch,
    ) -> Result<Self, Error> {
        Ok(Self { changes: Changes::open(handle, scope, watch).await?, of: PhantomData })
    }

    /// Reads the events as another type, such as [`Document`], or one of the application's where
    /// the pipeline changes their form.
    pub fn with_type<U>(self) -> ChangeStream<R, U> {
        ChangeStream { changes: self.changes, of: PhantomData }
    }

    /// Returns the place that another stream would go on from, by `start_after`: behind the last
    /// event that was handed out, or behind what the server has looked through since; `None` before
    /// either is known. An event whose type did not fit counts as handed out.
    pub const fn resume_token(&self) -> Option<&ResumeToken> {
        self.changes.state.token()
    }

    /// Returns whether there may be further events.
    pub const fn is_alive(&self) -> bool {
        !self.changes.is_over()
    }

    /// Saves the token of the last event at once, where the stream has a
    /// [checkpoint](crate::operation::Watch::checkpoint): before it is closed, so that another one
    /// does not begin with that event.
    ///
    /// # Errors
    ///
    /// Fails as the store does, and if that takes longer than `timeoutMS` allows.
    pub async fn save_checkpoint(&mut self) -> Result<(), Error> {
        let call = Call(self);
        call.0.changes.save_now().await
    }

    /// Closes the stream at its server; errors are ignored.
    pub async fn close(self) {
        let limits = |handle: &Handle<R>| {
            KillLimits::of_close(&handle.client, handle.timeout_of_operations())
        };
        self.changes.close(limits).await;
    }

    /// As [`close`](Self::close), but within this time; zero lifts the limit.
    pub async fn close_within(self, time: Duration) {
        self.changes.close(|handle| KillLimits::within(&handle.client, time)).await;
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
        self.next_as(false).await
    }

    /// As [`next`](Self::next), for `while let Some(event) = stream.try_next().await?`.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.next().await.transpose()
    }

    /// As [`try_next`](Self::try_next), but asks the server once at most, before or after it begins
    /// again, if it must: `None` also stands for an empty batch; [`is_alive`](Self::is_alive)
    /// returns whether that is the end. The [token](Self::resume_token) may have moved on.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.next_as(true).await.transpose()
    }

    /// Waits for the next event, which a call may be given up for at any time.
    async fn next_as(&mut self, once: bool) -> Option<Result<T, Error>> {
        self.changes.begin_call();
        let call = Call(self);
        std::future::poll_fn(|cx| call.0.poll(cx, once)).await
    }

    /// Moves to the next event, and reads it: the stream is behind it then, whether or not it is of
    /// the type.
    fn poll(&mut self, cx: &mut Context<'_>, once: bool) -> Poll<Option<Result<T, Error>>> {
        let next = ready!(self.changes.poll(cx, once));
        Poll::Ready(next.map(|moved| {
            moved?;
            let event = self.changes.current().ok_or(ReplyError::new("getMore", "nextBatch"))?;
            read_as(event).map_err(|error| Box::new(of_event(*error, event)).into())
        }))
    }
}

/// Names the document that an event is about, if it has its key: the `_id` of an event is a token,
/// which is in no collection.
#[cold]
fn of_event(error: DeserializeError, event: &RawDocument) -> DeserializeError {
    let key = event.get_document("documentKey").ok();
    match key.filter(|key| key.get("_id").is_ok_and(|id| id.is_some())) {
        Some(key) => DeserializeError::new(error.reason, key, error.path),
        None => error,
    }
}

impl<R: Runtime, T: DeserializeOwned> Stream for ChangeStream<R, T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        let next = stream.poll(cx, false);
        if next.is_pending() && stream.changes.is_waiting() {
            // A stream does not notice when its reader gives up.
            stream.changes.hand_over();
            return stream.poll(cx, false);
        }
        next
    }
}

/// A call for the next event, which may be given up at any time.
struct Call<'a, R: Runtime, T>(&'a mut ChangeStream<R, T>);

impl<R: Runtime, T> Drop for Call<'_, R, T> {
    fn drop(&mut self) {
        self.0.changes.hand_over();
    }
}

impl<R: Runtime, T> std::fmt::Debug for ChangeStream<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeStream")
            .field("cursor", &self.changes.reader.state.id())
            .field("resume_token", &self.changes.state.token())
            .finish_non_exhaustive()
    }
}
