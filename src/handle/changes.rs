//! A change stream without the type of its events: the cursor that it reads, and how it begins
//! again.
//!
//! Implements "Resume Process" of Change Streams.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::time::Instant;
use sdam_host::driver::{DriverTopology, KillLimits};
use sdam_host::{ClientSession, Runtime, Topology};

use super::call::LimitedCall;
use super::fetching::Fetching;
use super::history::explain;
use super::perform::Handle;
use super::reader::Reader;
use crate::change_stream::{
    Assembly, ChangeStreamState, Checkpoint, Checkpoints, Fragments, ResumeToken, Resumption,
    Superseded, is_resumable,
};
use crate::command::Scope;
use crate::command::watch::Watch;
use crate::error::{DriverError as _, Error};

/// The time for which a stream that is closed while it begins again waits for the cursor that it
/// has asked for, so that this one is closed, too.
const GRACE: Duration = Duration::from_secs(10);

/// The time after which a client is looked after once more that a call without a limit waits in.
const LONG: Duration = Duration::from_secs(3600);

/// A change stream, without the type of its events.
pub(super) struct Changes<R: Runtime> {
    handle: Handle<R>,
    scope: Scope,
    watch: Watch,
    pub(super) state: ChangeStreamState,
    pub(super) reader: Reader<R>,
    /// The session of all its cursors, one after the other, until it has ended.
    session: Option<ClientSession<R>>,
    /// The call that is under way.
    call: Option<LimitedCall>,
    /// The end of that time, or of the client, while a token is being saved.
    late: Option<Pin<Box<dyn Future<Output = Error> + Send>>>,
    /// True once a server has answered within this call.
    has_asked: bool,
    phase: Phase<R>,
    resumption: Resumption,
    /// The number that metrics know it by.
    number: u64,
    /// The parts of an event that is not complete, if large events are split.
    fragments: Option<Fragments>,
    /// The event that was put together last.
    joined: Option<RawDocumentBuf>,
    checkpoint: Option<Checkpoint>,
    checkpoints: Checkpoints,
    /// The token that is being saved.
    saving: Option<Fetching<(ResumeToken, Result<(), Error>)>>,
}

/// The thing that a stream does.
enum Phase<R: Runtime> {
    /// It reads its cursor.
    Reading,
    /// It is to begin again before anything else is done.
    Lost,
    /// It waits until it may begin again.
    Pausing(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// It begins again, within the time of the call that has found that out.
    Resuming { work: Fetching<Resumed<R>>, deadline: Option<Instant> },
    /// It ends with an error whose cause is asked for.
    Ending(Fetching<Error>),
    /// It has ended.
    Over,
}

/// The thing that a cursor has moved to.
enum Moved {
    Event,
    /// A part of an event that is not complete.
    Part,
}

/// The command that has the stream begin again, and its outcome.
type Resumed<R> = (Watch, Result<Reader<R>, Error>);

impl<R: Runtime> Changes<R> {
    pub(super) async fn open(
        handle: &Handle<R>,
        scope: Scope,
        mut watch: Watch,
    ) -> Result<Self, Error> {
        handle.check_times(&watch)?;
        let call = LimitedCall::begin(handle);
        let deadline = call.deadline();
        let mut checkpoints = Checkpoints::default();
        if let Some(token) = load(&handle.client, &mut watch, deadline).await? {
            checkpoints.saved(handle.client.now(), token);
        }
        let (mut state, checkpoint) = (watch.state(), watch.store());
        let reader = match open_until(handle, deadline, &scope, &mut watch).await {
            Ok(reader) => reader,
            Err(error) => {
                return Err(explain(handle, state.token().cloned(), error, deadline).await);
            }
        };
        state.opened(&reader.state, watch.opening().operation_time);
        let (session, splits) = (reader.session(), watch.splits());
        let mut changes = Self {
            handle: handle.clone(),
            scope,
            watch,
            state,
            reader,
            session,
            call: Some(call),
            late: None,
            has_asked: false,
            phase: Phase::Reading,
            resumption: Resumption::default(),
            number: handle.client.random_bits(),
            fragments: splits.then(Fragments::default),
            joined: None,
            checkpoint,
            checkpoints,
            saving: None,
        };
        // Before an event is handed out, the store has a place to go on from.
        poll_fn(|cx| changes.save(cx)).await?;
        changes.end_call();
        Ok(changes)
    }

    /// Returns the event that was handed out last, until another one is asked for.
    pub(super) fn current(&self) -> Option<&RawDocument> {
        self.joined.as_deref().or_else(|| self.reader.state.current())
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Closes the cursor at its server, or the one that is being opened.
    pub(super) async fn close(mut self, limits: impl FnOnce(&Handle<R>) -> KillLimits) {
        self.leave_resuming();
        let limits = limits(&self.handle);
        self.reader.kill(limits).await;
    }

    /// Begins a call for the next event, with its own limit.
    pub(super) fn begin_call(&mut self) {
        self.has_asked = false;
        self.end_limit();
        self.reader.begin_call();
    }

    /// Moves to the next event; `once` asks for one batch at most: by a getMore, or by beginning
    /// again.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        once: bool,
    ) -> Poll<Option<Result<(), Error>>> {
        // Its time begins with its first poll.
        let call = self.call();
        let next = ready!(self.poll_once(cx, once));
        self.end_call();
        Poll::Ready(next.map(|moved| moved.map_err(|error| call.ends(&self.handle, error))))
    }

    fn end_call(&mut self) {
        self.end_limit();
        self.reader.end_call();
    }

    /// Ends the limit of a call. Without one, what ends the wait for a store is the end of the
    /// client, which that of the next call waits for, too.
    fn end_limit(&mut self) {
        if self.call.take().is_some_and(|call| call.deadline().is_some()) {
            self.late = None;
        }
    }

    /// Returns whether it waits for something that no task goes on with.
    pub(super) fn is_waiting(&self) -> bool {
        self.saving.as_ref().is_some_and(Fetching::is_own)
            || match &self.phase {
                Phase::Resuming { work, .. } => work.is_own(),
                Phase::Ending(asking) => asking.is_own(),
                _ => self.reader.is_fetching(),
            }
    }

    /// Has tasks go on with what is under way, as its reader has turned to something else.
    pub(super) fn hand_over(&mut self) {
        self.reader.hand_over();
        if let Some(saving) = &mut self.saving {
            saving.hand_over(&self.handle.client);
        }
        match &mut self.phase {
            Phase::Resuming { work, .. } => work.hand_over(&self.handle.client),
            Phase::Ending(asking) => asking.hand_over(&self.handle.client),
            Phase::Reading | Phase::Lost | Phase::Pausing(_) | Phase::Over => {}
        }
    }

    fn poll_once(&mut self, cx: &mut Context<'_>, once: bool) -> Poll<Option<Result<(), Error>>> {
        self.joined = None;
        loop {
            match self.save(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => {
                    // The answer to a getMore that was asked before is not left unread.
                    self.reader.hand_over();
                    return Poll::Pending;
                }
            }
            let has_asked = once && self.has_asked && self.has_read_all();
            let ended = match &mut self.phase {
                Phase::Over => return Poll::Ready(None),
                Phase::Lost => {
                    self.begin_again();
                    continue;
                }
                Phase::Pausing(pause) => {
                    ready!(pause.as_mut().poll(cx));
                    self.resume();
                    continue;
                }
                Phase::Resuming { work, deadline } => {
                    let (resumed, deadline) = (ready!(work.poll(cx)), *deadline);
                    self.resumed(resumed, deadline)
                }
                Phase::Ending(asking) => {
                    let error = ready!(asking.poll(cx));
                    self.phase = Phase::Over;
                    Some(error)
                }
                Phase::Reading if has_asked => return Poll::Ready(None),
                Phase::Reading => match ready!(self.read(cx)) {
                    None | Some(Ok(Moved::Part)) => None,
                    Some(Ok(Moved::Event)) => return Poll::Ready(Some(Ok(()))),
                    Some(Err(error)) => self.fails(error),
                },
            };
            if let Some(error) = ended {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Returns whether the next event is to be asked for.
    fn has_read_all(&self) -> bool {
        !self.reader.state.has_documents() && self.reader.is_open()
    }

    /// Reads what the cursor has next, or `None` after a batch without an event.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Moved, Error>>> {
        let asks = self.has_read_all() || self.reader.fetching.is_some();
        let was_asked = self.reader.fetching.is_some();
        let polled = self.reader.poll_once(cx, true, |_| Ok(()));
        if !was_asked && self.reader.fetching.is_some() {
            let await_time = self.reader.state.await_time();
            self.handle.client.change_stream_waits(self.number, await_time);
        }
        let next = ready!(polled);
        self.has_asked |= asks;
        let next = match next {
            Some(Ok(())) => Some(self.moves()),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => None,
        };
        if next.as_ref().is_some_and(Result::is_err) {
            self.ends_now();
            return Poll::Ready(next);
        }
        // A part of an event comes again if what follows it is lost.
        if !matches!(next, Some(Ok(Moved::Part))) {
            self.resumption.succeeds();
        }
        self.hears();
        self.reports();
        if self.state.is_invalidated() || next.is_none() && !self.reader.is_open() {
            self.ends_now();
        }
        Poll::Ready(next)
    }

    /// Takes note of the document that the cursor has moved to.
    fn moves(&mut self) -> Result<Moved, Error> {
        let document = self.reader.state.current().expect("it has moved to a document");
        let assembly = self.fragments.as_mut().map(|fragments| fragments.take(document));
        match assembly.transpose()? {
            None | Some(Assembly::Whole) => self.state.hands_out(document)?,
            Some(Assembly::Joined(event)) => {
                self.state.hands_out(&event)?;
                self.joined = Some(event);
            }
            Some(Assembly::Incomplete) => return Ok(Moved::Part),
        }
        self.checkpoints.hands_out();
        Ok(Moved::Event)
    }

    /// Takes the token of the batch, if all of it was handed out: of an event that is not complete,
    /// the first part comes again.
    fn hears(&mut self) {
        if self.fragments.as_ref().is_none_or(Fragments::is_empty) {
            self.state.heard(&self.reader.state);
        }
    }

    /// Reports to the metrics how far the stream is behind, at the end of each batch.
    fn reports(&self) {
        if !self.reader.state.has_documents()
            && let Some(lag) = self.state.lag(&self.reader.state)
        {
            self.handle.client.change_stream_lags(self.number, Some(lag));
        }
    }

    /// Saves the token that the stream has come to, if it is time for that, within the time of the
    /// call. A save that takes longer goes on, and the next call waits for it.
    fn save(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(checkpoint) = self.checkpoint.clone() else { return Poll::Ready(Ok(())) };
        loop {
            if let Some(saving) = &mut self.saving {
                let Poll::Ready((token, saved)) = saving.poll(cx) else {
                    return self.poll_late(cx).map(Err);
                };
                self.saving = None;
                if let Err(error) = saved {
                    if Superseded::is_cause_of(&error) {
                        self.checkpoint = None;
                        self.ends_now();
                    }
                    return Poll::Ready(Err(error));
                }
                self.checkpoints.saved(self.handle.client.now(), token);
            }
            let now = self.handle.client.now();
            let due = self.state.token().filter(|token| self.checkpoints.is_due(now, token));
            let Some(token) = due.cloned() else { return Poll::Ready(Ok(())) };
            let checkpoint = checkpoint.clone();
            self.saving = Some(Fetching::begin(async move {
                let saved = checkpoint.save(&token).await;
                (token, saved)
            }));
        }
    }

    /// Waits until the time of the call is over, or the client is closed.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let (deadline, client) = (self.call().deadline(), &self.handle.client);
        let late =
            self.late.get_or_insert_with(|| Box::pin(late(client.clone(), deadline, "saved")));
        let polled = late.as_mut().poll(cx);
        if polled.is_ready() {
            self.late = None;
        }
        polled
    }

    /// Saves the token that the stream has come to, whether or not it is time for that.
    pub(super) async fn save_now(&mut self) -> Result<(), Error> {
        self.begin_call();
        self.checkpoints.hands_out();
        let saved = poll_fn(|cx| self.save(cx)).await;
        self.end_call();
        saved
    }

    /// Judges the error of a getMore: returns it if it is the caller's, and else has the stream
    /// begin again.
    fn fails(&mut self, error: Error) -> Option<Error> {
        if self.is_over() || !self.reader.has_failed {
            return Some(error);
        }
        // "If a `next` call fails with a timeout error, drivers MUST NOT invalidate the change
        // stream": also with one that the server has replied with.
        let has_run_out = error.reply().is_some() && error.is_timeout() && self.is_limited();
        let opened = self.watch.opening().max_wire_version;
        let max_wire_version = self.reader.max_wire_version.unwrap_or(opened);
        if !has_run_out && !is_resumable(&error, max_wire_version) {
            self.ends(error);
            return None;
        }
        self.phase = Phase::Lost;
        if has_run_out {
            return Some(error);
        }
        // "the time is over" of this call: the next one begins with it.
        self.is_late().then(|| error.out_of_time())
    }

    /// Ends: nothing depends any more on the cursor, which is killed if it is open still, nor on
    /// the session, and the stream is behind nothing.
    fn ends_now(&mut self) {
        self.reader.kill_in_background();
        self.session = None;
        self.handle.client.change_stream_lags(self.number, None);
        self.leave_resuming();
    }

    /// Ends with an error, once its cause is known.
    fn ends(&mut self, error: Error) {
        self.ends_now();
        let (deadline, token) = (self.call().deadline(), self.state.token().cloned());
        let handle = self.handle.clone();
        let asking = Fetching::begin(async move { explain(&handle, token, error, deadline).await });
        self.phase = Phase::Ending(asking);
    }

    /// Returns whether `timeoutMS` limits the call that is under way.
    fn is_limited(&mut self) -> bool {
        self.call().deadline().is_some()
    }

    fn is_late(&mut self) -> bool {
        let deadline = self.call().deadline();
        deadline.is_some_and(|deadline| deadline <= self.handle.client.now())
    }

    /// Returns the call that is under way.
    fn call(&mut self) -> LimitedCall {
        *self.call.get_or_insert_with(|| LimitedCall::begin(&self.handle))
    }

    /// Begins again, at once or after a pause. The old cursor is killed at its own server, and
    /// nothing waits for that.
    fn begin_again(&mut self) {
        self.reader.kill_in_background();
        self.fragments.iter_mut().for_each(Fragments::clear);
        let random = self.handle.client.random_bits();
        let Some(pause) = self.resumption.begins(random) else { return self.resume() };
        let until = self.handle.client.now() + pause;
        // A command that has less time than that fails in time.
        let until = self.call().deadline().map_or(until, |deadline| deadline.min(until));
        let client = self.handle.client.clone();
        self.phase = Phase::Pausing(Box::pin(async move { client.sleep_until(until).await }));
    }

    /// Begins to open the stream again where it was, in the same session.
    fn resume(&mut self) {
        let deadline = self.call().deadline();
        let mut handle = self.handle.clone();
        handle.session = self.session.clone().or(handle.session);
        let scope = self.scope.clone();
        let mut watch = self.watch.clone().starting(self.state.start());
        let work = Fetching::begin(async move {
            let opened = open_until(&handle, deadline, &scope, &mut watch).await;
            (watch, opened)
        });
        self.phase = Phase::Resuming { work, deadline };
    }

    /// Takes the cursor that was opened, or judges the error of the command, which is the caller's:
    /// another call tries it once more, unless a server has refused it for good.
    fn resumed(&mut self, (watch, opened): Resumed<R>, deadline: Option<Instant>) -> Option<Error> {
        (self.watch, self.phase) = (watch, Phase::Lost);
        let error = match opened {
            Ok(mut reader) => {
                reader.goes_on(self.call());
                (self.reader, self.phase) = (reader, Phase::Reading);
                self.hears();
                return None;
            }
            Err(error) => error,
        };
        let is_resumable = is_resumable(&error, self.watch.opening().max_wire_version);
        if !is_resumable && !error.is_timeout() && !error.is_session_in_use() {
            self.ends(error);
            return None;
        }
        // The time of an earlier call was over, which was given up: this one has its own.
        let is_of_other = deadline.is_some() && deadline != self.call().deadline();
        (!(is_of_other && error.is_timeout() && !self.is_late())).then_some(error)
    }

    /// Leaves the cursor that is being opened to a task, which closes it.
    fn leave_resuming(&mut self) {
        if let Phase::Resuming { work, .. } = std::mem::replace(&mut self.phase, Phase::Over) {
            work.end_within(&self.handle.client, GRACE);
        }
    }
}

/// Opens the cursor of a change stream within the time of a call; its getMores have the times of
/// others.
async fn open_until<R: Runtime>(
    handle: &Handle<R>,
    deadline: Option<Instant>,
    scope: &Scope,
    watch: &mut Watch,
) -> Result<Reader<R>, Error> {
    let mut limited = handle.with(|it| {
        it.has_checked_times = true;
        it.timeout = it.timeout.filter(|_| deadline.is_none());
    });
    if let Some(deadline) = deadline {
        limited.client = limited.client.with_deadline(deadline);
    }
    let mut reader = Reader::open(&limited, scope, watch).await?;
    reader.handle = handle.clone();
    Ok(reader.beginning_elsewhere())
}

/// Asks the store of a change stream for its place, within the time of the call that opens it.
async fn load<R: Runtime>(
    client: &Topology<R>,
    watch: &mut Watch,
    deadline: Option<Instant>,
) -> Result<Option<ResumeToken>, Error> {
    let mut late = pin!(late(client.clone(), deadline, "loaded"));
    let mut loaded = pin!(watch.load());
    poll_fn(|cx| match loaded.as_mut().poll(cx) {
        Poll::Pending => late.as_mut().poll(cx).map(Err),
        loaded => loaded,
    })
    .await
}

/// Waits until the time of a call is over, or its client is closed, and returns the error of a
/// stream whose store is still to answer then.
async fn late<R: Runtime>(
    client: Topology<R>,
    deadline: Option<Instant>,
    what: &'static str,
) -> Error {
    loop {
        let until = deadline.unwrap_or_else(|| client.now() + LONG);
        client.sleep_until(until).await;
        if let Some(ended) = client.host().why_ended() {
            return ended;
        }
        if deadline.is_some_and(|deadline| deadline <= client.now()) {
            return too_late(what);
        }
    }
}

/// Returns the error of a stream whose store took longer than a call may.
fn too_late(what: &str) -> Error {
    let reason = format!(
        "the place of the change stream was not {what} within the time of the call; see whether \
         its checkpoint store can be reached, or allow more time"
    );
    Error::custom(reason).out_of_time()
}

impl<R: Runtime> Drop for Changes<R> {
    fn drop(&mut self) {
        self.handle.client.change_stream_lags(self.number, None);
        self.leave_resuming();
    }
}
