//! The trace of a client: all of it as it is written, or the last of it when something goes wrong.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sdam_core::description::TopologyDescription;
use sdam_core::time::Instant;
use sdam_core::topology::Event;
use sdam_core::trace::{Header, Journal, Seal, description_comment, pool_comment};

use crate::sync::{Gate, GateState as Waited, Place, wake_all};

/// The maximum unread length of a recording, in bytes, before it ends: a trace with a gap is none.
const MAX_UNREAD_LEN: usize = 1 << 24;

/// The number of bytes that a flight recorder keeps, by default.
pub const FLIGHT_RECORDER_LEN: usize = 256 << 10;

/// A flight recorder keeps at least so many entries, however long they would be: it says of a
/// longer one how long it was.
const FEWEST_KEPT: usize = 4;

/// The number of dumps of a flight recorder that may be unread; the oldest make room.
const MAX_UNREAD_DUMPS: usize = 4;

/// The least time from one dump to the next: what one cause brings about is in one dump.
const DUMP_INTERVAL: Duration = Duration::from_secs(1);

/// The least time from one failed attempt that a flight recorder keeps to the next.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);

/// The trace of a client, given to the builder that creates it, and read by a clone. Each client
/// needs one of its own: a second client that is given it is not recorded. Of several clones that
/// wait for more, all are woken and one gets it; all of them see the end.
///
/// A recording of [`everything`](Self::everything) is read as it is written, line after line, for
/// as long as the client lives. A [`flight recorder`](Self::flight_recorder) keeps the last calls
/// in memory only, and hands them out when a selection fails or a pool is cleared.
///
/// See [`sdam_core::trace`] for what is in a trace, and what never is.
#[derive(Debug)]
pub struct Recording {
    tape: Arc<Tape>,
    place: Place,
}

#[derive(Debug)]
struct Tape {
    /// The number of bytes kept until something goes wrong; `None` to hand out everything.
    keeps: Option<usize>,
    /// The clones have a place each; they are counted there, so that a clone that waits misses
    /// nothing when another one is dropped.
    state: Gate<RecordingState>,
}

#[derive(Debug, Default)]
struct RecordingState {
    header: Option<Header>,
    seal: Seal,
    /// Whole, and not read yet.
    unread: String,
    /// The calls that a flight recorder keeps, their length, and how many it has let go.
    kept: VecDeque<Arc<str>>,
    kept_len: usize,
    lost: u64,
    dumps: VecDeque<Dump>,
    dumped: Option<Instant>,
    /// The time of the last failed attempt that a flight recorder has kept, and the number of those
    /// since then.
    attempt: Option<Instant>,
    left_out: u64,
    closed: bool,
}

/// The unread items of a reader.
#[derive(Debug)]
enum Unread {
    Lines(String),
    Dump(Dump),
}

#[derive(Debug)]
struct Dump {
    header: Header,
    calls: Vec<Arc<str>>,
    lost: u64,
    reason: String,
    view: Arc<TopologyDescription>,
}

impl Recording {
    /// Records all inputs and actions of the client's topology, from its beginning to its end; it
    /// ends early, and says so, if more than 16 MiB of it are unread.
    pub fn everything() -> Self {
        Self::new(None)
    }

    /// Keeps the last calls, up to so many bytes, and hands them out as a trace of its own when a
    /// selection fails or a pool is cleared, at most once a second.
    ///
    /// Such a trace can be replayed if nothing had to be let go yet; else it can be read only, and
    /// its first line says `tail`. An input that would take more than an eighth of the bytes is
    /// left out: a replay ends there, and what came before is not lost.
    pub fn flight_recorder(bytes: usize) -> Self {
        Self::new(Some(bytes))
    }

    fn new(keeps: Option<usize>) -> Self {
        Self::of(Arc::new(Tape { keeps, state: Gate::default() }))
    }

    fn of(tape: Arc<Tape>) -> Self {
        let place = tape.state.enter();
        Self { tape, place }
    }

    /// Waits for more: whole lines, or of a flight recorder a whole trace; `None` once the client
    /// is gone and all was read, or if there never was one and there is no other clone of this
    /// recording.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<String> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns more if there is any already.
    pub fn try_next(&mut self) -> Option<String> {
        let unread = self.tape.state.lock().inner.next();
        unread.map(Unread::written)
    }

    /// Returns more, or arranges for a wake-up when there is.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        let next = |state: &mut Waited<RecordingState>| match state.inner.next() {
            Some(unread) => Some(Some(unread)),
            // A client that could not be created has dropped its clone.
            None => (state.inner.closed || is_of_nobody(state)).then_some(None),
        };
        let unread = self.tape.state.poll(&self.place, cx, next);
        unread.map(|unread| unread.map(Unread::written))
    }

    /// Adds a comment, a line for the readers of the trace; nothing before the client is created.
    pub fn note(&self, text: &str) {
        if self.tape.state.lock().inner.header.is_some() {
            self.put(&format!("# {}\n", text.replace(char::is_control, " ")));
            wake_all(self.take_wakers());
        }
    }

    /// Returns what writes down calls as this recording takes them.
    pub(crate) fn journal(&self) -> Journal {
        let keeps = self.tape.keeps;
        keeps.map_or_else(Journal::default, |keeps| Journal::of_calls_up_to(keeps / FEWEST_KEPT))
    }

    /// Begins with the header; false if it has begun before, with another client.
    pub(crate) fn begin(&self, header: Header) -> bool {
        let state = &mut self.tape.state.lock().inner;
        if state.header.is_some() {
            return false;
        }
        if self.tape.keeps.is_none() {
            let (first, rest) = header.lines(true);
            let sealed = state.seal.seal(&rest);
            state.unread.push_str(&first);
            state.unread.push_str(&sealed);
        }
        state.header = Some(header);
        true
    }

    /// Takes whole lines of one call; readers are then to be woken.
    pub(crate) fn put(&self, lines: &str) {
        let state = &mut self.tape.state.lock().inner;
        if state.closed {
            return;
        }
        if let Some(limit) = self.tape.keeps {
            return state.keep(lines, limit);
        }
        match state.unread.len() + lines.len() > MAX_UNREAD_LEN {
            true => {
                let end = state.seal.seal("# the recording ends here, as it is not read\n");
                state.unread.push_str(&end);
                state.closed = true;
            }
            false => {
                let sealed = state.seal.seal(lines);
                state.unread.push_str(&sealed);
            }
        }
    }

    /// Takes the comment on an attempt that has failed. A flight recorder keeps one a second, and
    /// counts the others: an application whose commands are refused is no reason to forget the
    /// topology's inputs.
    pub(crate) fn put_attempt(&self, now: Instant, comment: &str) {
        let mut lines = String::new();
        if self.tape.keeps.is_some() {
            let state = &mut self.tape.state.lock().inner;
            if state.attempt.is_some_and(|last| now < last + ATTEMPT_INTERVAL) {
                state.left_out += 1;
                return;
            }
            state.attempt = Some(now);
            let left_out = std::mem::take(&mut state.left_out);
            if left_out > 0 {
                let _ = writeln!(lines, "# {left_out} attempts that failed before are left out");
            }
        }
        lines.push_str(comment);
        self.put(&lines);
    }

    /// Returns whom to wake, if there is something to read.
    #[must_use = "readers are to be woken"]
    pub(crate) fn take_wakers(&self) -> Vec<Waker> {
        let mut state = self.tape.state.lock();
        match state.inner.has_news() {
            true => state.take_wakers(),
            false => Vec::new(),
        }
    }

    /// Something has gone wrong: a flight recorder hands out what it has kept, and readers are then
    /// to be woken.
    pub(crate) fn dump(
        &self,
        now: Instant,
        view: &Arc<TopologyDescription>,
        reason: impl FnOnce() -> String,
    ) {
        let state = &mut self.tape.state.lock().inner;
        let header = state.header.clone().filter(|_| self.tape.keeps.is_some());
        let is_soon = state.dumped.is_some_and(|dumped| now < dumped + DUMP_INTERVAL);
        let Some(header) = header.filter(|_| !is_soon) else { return };
        state.dumped = Some(now);
        let calls = state.kept.iter().cloned().collect();
        let (lost, reason) = (state.lost, reason());
        if state.dumps.len() == MAX_UNREAD_DUMPS {
            state.dumps.pop_front();
        }
        let view = Arc::clone(view);
        state.dumps.push_back(Dump { header, calls, lost, reason, view });
    }

    /// Nothing will follow.
    pub(crate) fn end(&self) {
        self.tape.state.change(|state| {
            state.closed = true;
            true
        });
    }
}

/// Returns whether there is no client, and only the reader could create one.
fn is_of_nobody(state: &Waited<RecordingState>) -> bool {
    state.inner.header.is_none() && state.places() == 1
}

impl Clone for Recording {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.tape))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.tape.state.leave(&self.place);
        let mut state = self.tape.state.lock();
        let wakers = if is_of_nobody(&state) { state.take_wakers() } else { Vec::new() };
        drop(state);
        wake_all(wakers);
    }
}

impl RecordingState {
    /// Takes what is to be read next.
    fn next(&mut self) -> Option<Unread> {
        match self.unread.is_empty() {
            false => Some(Unread::Lines(std::mem::take(&mut self.unread))),
            true => self.dumps.pop_front().map(Unread::Dump),
        }
    }

    /// Returns whether a reader would not wait.
    fn has_news(&self) -> bool {
        self.closed || !self.unread.is_empty() || !self.dumps.is_empty()
    }

    fn keep(&mut self, lines: &str, limit: usize) {
        if lines.is_empty() {
            return;
        }
        // Calls are short; comments may be as long as the application likes.
        let lines: Arc<str> = match lines.starts_with('#') && lines.len() > limit / FEWEST_KEPT {
            true => format!("# a comment of {} bytes is left out\n", lines.len()).into(),
            false => lines.into(),
        };
        self.kept_len += lines.len();
        self.kept.push_back(lines);
        while self.kept_len > limit
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_len -= oldest.len();
            self.lost += 1;
        }
    }
}

impl Unread {
    /// Returns its text, which takes a while and no lock.
    fn written(self) -> String {
        match self {
            Self::Lines(lines) => lines,
            Self::Dump(dump) => dump.written(),
        }
    }
}

impl Dump {
    fn written(self) -> String {
        let Self { mut header, calls, lost, reason, view } = self;
        header.is_tail |= lost > 0;
        let (first, mut rest) = header.lines(true);
        let _ = writeln!(rest, "# dumped by a flight recorder: {reason}");
        if lost > 0 {
            let _ = writeln!(rest, "# it begins in the middle: {lost} earlier entries are lost");
        }
        calls.iter().for_each(|lines| rest.push_str(lines));
        rest.push_str(&description_comment(&view));
        first + &Seal::new().seal(&rest)
    }
}

/// The recording of a client, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Tracing(OnceLock<Recording>);

impl Tracing {
    /// Returns the recording.
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.0.get()
    }

    /// Has a recording from now on; only the first one counts.
    pub(crate) fn set(&self, recording: Recording) {
        let _ = self.0.set(recording);
    }

    /// Notes what happened to a pool, but for what happens with every operation.
    pub(crate) fn note(&self, event: &Event, wakers: &mut Vec<Waker>) {
        if let Some(recording) = self.0.get()
            && let Some(comment) = pool_comment(event)
        {
            recording.put(&comment);
            wakers.extend(recording.take_wakers());
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(recording) = self.0.get() {
            recording.end();
        }
    }
}
