//! Reads of a stream: call by call, each dropped wherever it waits.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bson::Document;
use futures_core::Stream as _;
use sdam::error::Error;
use sdam::generic::ChangeStream;
use sdam::results::ResumeToken;
use sdam_core::bson;

use super::super::super::stories::Seen;
use super::super::within::{Patience, within};
use super::copying::copy;
use super::{Keeper, Life, Reader};
use crate::virtual_time::Runtime;

/// The time by which a call may be late, for what is done at its end.
const LATE: Duration = Duration::from_millis(1);

/// The way in which the next event is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Next,
    TryNext,
    IfAny,
    Stream,
}

type Stream = ChangeStream<Runtime, Document>;

impl Manner {
    async fn ask(self, stream: &mut Stream) -> Result<Option<Document>, Error> {
        match self {
            Self::Next => stream.next().await.transpose(),
            Self::TryNext => stream.try_next().await,
            Self::IfAny => stream.next_if_any().await,
            Self::Stream => poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await.transpose(),
        }
    }
}

/// Returns the text by which tokens are compared.
fn text(token: &ResumeToken) -> &str {
    token.document().get_str("_data").unwrap_or_default()
}

impl Reader {
    /// Reads a stream until it fails, or for a while.
    pub(super) async fn read(&mut self, mut stream: Stream, life: &Life) {
        let manners = [Manner::Next, Manner::TryNext, Manner::IfAny, Manner::IfAny, Manner::Stream];
        let calls = 1 + self.application.random.below(60);
        for _ in 0..calls {
            if self.is_done() {
                break;
            }
            self.pause().await;
            let manner = self.application.random.pick(&manners);
            if !self.call(&mut stream, life, manner).await {
                break;
            }
        }
        self.leave(stream).await;
    }

    async fn pause(&mut self) {
        let pause = match self.application.random.below(100) {
            0..70 => return,
            70..99 => self.application.random.millis(0, 500),
            _ => Duration::from_secs(20),
        };
        self.application.time.sleep(pause).await;
    }

    /// Asks for the next event; returns whether the stream is read further.
    async fn call(&mut self, stream: &mut Stream, life: &Life, manner: Manner) -> bool {
        let random = &mut self.application.random;
        let patience = match random.below(10) {
            0..7 => Patience::Endless,
            7..9 => Patience::Time(random.millis(0, 400)),
            _ => Patience::Polls(1 + random.below(20)),
        };
        self.application.state().checks.streams.calls(life.operation);
        let (before, began) = (stream.resume_token().cloned(), self.application.time.elapsed());
        // Where nothing happens, nothing is polled.
        let limit = self.application.random.millis(500, 30_000);
        let (time, asking) = (&self.application.time, manner.ask(stream));
        let next = within(time, limit, patience.with(time, asking)).await.flatten();
        self.check_call(stream, life, (before.as_ref(), began, next.is_some()));
        match next {
            None => self.application.random.percent(60),
            Some(Ok(Some(event))) => self.hands_out(stream, life, &event).await,
            Some(Ok(None)) if stream.is_alive() => {
                if manner != Manner::IfAny {
                    let check = "streams end only when they are over";
                    let number = self.application.number;
                    self.application.state().fail(number, check, format!("{stream:?}"));
                }
                self.moves(stream, life);
                true
            }
            Some(Ok(None)) => {
                self.check_end(stream);
                false
            }
            Some(Err(error)) => {
                self.fails(&error);
                stream.is_alive()
            }
        }
    }

    /// Checks the token after a call, and the time that it has taken.
    fn check_call(
        &self,
        stream: &Stream,
        life: &Life,
        (before, began, is_over): (Option<&ResumeToken>, Duration, bool),
    ) {
        let (before, after) = (before.map(text), stream.resume_token().map(text));
        if before > after {
            let detail = format!("{after:?} follows {before:?}");
            let number = self.application.number;
            self.application.state().fail(number, "tokens only advance", detail);
        }
        let took = self.application.time.elapsed() - began;
        let timeout = life.terms.timeout.filter(|_| is_over && self.keeper == Keeper::Application);
        if let Some(timeout) = timeout.filter(|timeout| took > *timeout + LATE) {
            let detail = format!("a call takes {took:?} of {timeout:?}");
            let (number, check) = (self.application.number, "calls end within their timeoutMS");
            self.application.state().fail(number, check, detail);
        }
    }

    /// "an invalidate event [...] closes the cursor", and nothing else does without an error.
    fn check_end(&self, stream: &Stream) {
        if !self.last.as_ref().is_some_and(Seen::invalidates) {
            let detail = format!("{stream:?} ends after {:?}", self.last);
            let number = self.application.number;
            let check = "streams end only when they are over";
            self.application.state().fail(number, check, detail);
        }
    }

    /// Takes an event; returns whether the stream is read further.
    async fn hands_out(&mut self, stream: &mut Stream, life: &Life, event: &Document) -> bool {
        let (seen, id) = (Seen::of_event(event), event.get_document("_id").ok());
        let token = stream.resume_token().cloned();
        let (Some(seen), Some(id), Some(token)) = (seen, id, token) else {
            let detail = format!("{event}, behind which is {:?}", stream.resume_token());
            let number = self.application.number;
            self.application.state().fail(number, "events have a place", detail);
            return false;
        };
        if life.store.is_some() && self.application.random.percent(8) {
            // The process ends before it has dealt with the event, which is to come again.
            self.is_killed = true;
            return false;
        }
        {
            let mut state = self.application.state();
            state.stories.hands_out(self.story, seen.clone());
            state.checks.streams.handed_out(life.operation);
        }
        let id = bson::RawDocumentBuf::try_from(id).map(ResumeToken::new).unwrap_or(token.clone());
        self.token = Some(if self.application.random.percent(50) { id } else { token.clone() });
        self.last = Some(seen.clone());
        match &life.store {
            Some(store) if self.keeper == Keeper::Copies => {
                copy(self, store.clone(), &seen, &token).await
            }
            _ => true,
        }
    }

    /// Takes the token that a stream has come to without an event.
    fn moves(&mut self, stream: &Stream, life: &Life) {
        let number = self.application.number;
        let mut state = self.application.state();
        let finding =
            state.checks.streams.finds_nothing(life.operation, stream.resume_token().map(text));
        state.judge(number, finding);
        drop(state);
        if let Some(token) = stream.resume_token() {
            self.token = Some(token.clone());
        }
    }

    /// Closes a stream, or drops it.
    async fn leave(&mut self, mut stream: Stream) {
        let random = &mut self.application.random;
        let patience = match random.below(10) {
            0..7 => Patience::Endless,
            _ => Patience::Time(random.millis(0, 400)),
        };
        let is_killed = std::mem::take(&mut self.is_killed);
        if random.percent(20) && self.keeper != Keeper::Copies && !is_killed {
            patience.with(&self.application.time, stream.save_checkpoint()).await;
        }
        match self.application.random.percent(30) {
            true => drop(patience.with(&self.application.time, stream.close()).await),
            false => drop(stream),
        }
    }
}
