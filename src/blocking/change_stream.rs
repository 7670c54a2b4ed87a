//! Change streams.

use std::time::Duration;

use sdam_blocking::Blocking;
use serde::de::DeserializeOwned;

use super::client::Shared;
use crate::change_stream::{ChangeStreamEvent, ResumeToken};
use crate::error::Error;
use crate::handle::ChangeStream as Futures;

/// The changes of a collection, a database or a deployment, as they happen: an iterator, whose
/// thread waits for the next event. It goes on by itself as
/// [`ChangeStream`](crate::generic::ChangeStream) of futures does.
#[derive(Debug)]
pub struct ChangeStream<T = ChangeStreamEvent> {
    stream: Futures<Blocking, T>,
    shared: Shared,
}

impl<T> ChangeStream<T> {
    pub(super) fn new(stream: Futures<Blocking, T>, shared: &Shared) -> Self {
        Self { stream, shared: shared.clone() }
    }

    /// Reads the events as another type.
    pub fn with_type<U>(self) -> ChangeStream<U> {
        ChangeStream { stream: self.stream.with_type(), shared: self.shared }
    }

    /// Returns the place that another stream would go on from, by `start_after`; `None` before it
    /// is known.
    pub const fn resume_token(&self) -> Option<&ResumeToken> {
        self.stream.resume_token()
    }

    /// Returns whether there may be further events.
    pub const fn is_alive(&self) -> bool {
        self.stream.is_alive()
    }

    /// Saves the token of the last event at once, as
    /// [`ChangeStream::save_checkpoint`](crate::generic::ChangeStream::save_checkpoint) does.
    ///
    /// # Errors
    ///
    /// Fails as the store does, and if that takes longer than `timeoutMS` allows.
    pub fn save_checkpoint(&mut self) -> Result<(), Error> {
        self.shared.wait(self.stream.save_checkpoint())
    }

    /// Closes the stream at its server; errors are ignored.
    pub fn close(self) {
        self.shared.wait(self.stream.close());
    }

    /// As [`close`](Self::close), but within this time; zero lifts the limit.
    pub fn close_within(self, time: Duration) {
        self.shared.wait(self.stream.close_within(time));
    }
}

impl<T: DeserializeOwned> ChangeStream<T> {
    /// Returns the next event as the iterator does, but asks the server once at most: `None` also
    /// stands for an empty batch; [`is_alive`](Self::is_alive) returns whether that is the end.
    ///
    /// # Errors
    ///
    /// Fails as [`ChangeStream::next`](crate::generic::ChangeStream::next) does.
    pub fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.shared.wait(self.stream.next_if_any())
    }
}

impl<T: DeserializeOwned> Iterator for ChangeStream<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.shared.wait(self.stream.next())
    }
}
