//! Reads a trace, and says which line is not as it should be.

use std::ops::Range;

use super::criteria::{Answers, PredicateResult};
use super::{
    ACTION, ANSWERS, Header, LineError, MAX_TRACE_LEN, OMITTED, Seal, TraceError, input, time,
};
use crate::time::{Instant, Time};

/// A trace that was read: every line has its form, every input can be given to a machine.
#[derive(Clone, Debug)]
pub struct Trace {
    header: Header,
    sealed: bool,
    lines: Lines,
    calls: Vec<Call>,
    /// The first call whose input was too long to be kept.
    gap: Option<usize>,
}

/// All lines, without their checksums. One takes four bytes besides its own.
#[derive(Clone, Debug, Default)]
struct Lines {
    text: String,
    ends: Vec<u32>,
}

impl Lines {
    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.ends.push(u32::try_from(self.text.len()).expect("no trace is that long"));
    }

    const fn len(&self) -> usize {
        self.ends.len()
    }

    fn line(&self, index: usize) -> &str {
        let end = |index: usize| self.ends[index] as usize;
        &self.text[index.checked_sub(1).map_or(0, end)..end(index)]
    }

    /// Returns lines with their numbers.
    fn of(&self, indices: Range<usize>) -> impl Iterator<Item = (usize, &str)> + use<'_> {
        indices.map(|index| (index + 1, self.line(index)))
    }
}

/// A call of the machine, by the indices of its lines.
#[derive(Clone, Debug)]
struct Call {
    time: Time,
    lines: Range<usize>,
}

/// One call of the machine: its input, and its actions.
#[derive(Clone, Copy, Debug)]
pub struct TraceStep<'t> {
    trace: &'t Trace,
    call: &'t Call,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    ///
    /// The text is too long, or a line is not what it should be; the error names the first.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, TraceError> {
        let text = text.as_ref();
        if text.len() > MAX_TRACE_LEN {
            return Err(TraceError::TooLong(text.len()));
        }
        let mut reader = Reader::default();
        let whole = text.strip_suffix(b"\n").unwrap_or(text);
        for (index, line) in whole.split(|byte| *byte == b'\n').enumerate() {
            let read = std::str::from_utf8(line).map_err(|_| LineError::NoText);
            let read = read.and_then(|line| reader.line(line));
            read.map_err(|error| TraceError::Line { line: index + 1, error })?;
        }
        let line = reader.lines.len() + 1;
        reader.finish().map_err(|error| TraceError::Line { line, error })
    }

    /// Returns what the machine is made of.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns every line with its number, from 1, and without its checksum.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines.of(0..self.lines.len())
    }

    /// Returns whether every line but the first had a checksum.
    pub const fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Returns the first call whose input was too long for a flight recorder to keep, if there is
    /// one: what the machine did from there on can be read, and not be replayed.
    pub fn gap(&self) -> Option<TraceStep<'_>> {
        self.step(self.gap?)
    }

    pub(super) fn step(&self, index: usize) -> Option<TraceStep<'_>> {
        self.calls.get(index).map(|call| TraceStep { trace: self, call })
    }

    /// Returns the calls of the machine, in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = TraceStep<'_>> {
        self.calls.iter().map(|call| TraceStep { trace: self, call })
    }
}

impl<'t> TraceStep<'t> {
    /// Returns the number of its first line, from 1.
    pub const fn line(&self) -> usize {
        self.call.lines.start + 1
    }

    /// Returns when the machine was called.
    pub const fn at(&self) -> Instant {
        self.call.time.judged
    }

    /// Returns whether actions of it were left out, which a replay cannot compare.
    pub fn omits_actions(&self) -> bool {
        self.actions().any(|(_, action)| is_omitted(action))
    }

    /// Returns its lines: the input, the answers of predicates, the actions and comments.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &'t str)> + use<'t> {
        self.trace.lines.of(self.call.lines.clone())
    }

    pub(super) const fn time(&self) -> Time {
        self.call.time
    }

    /// Reads the input, whose predicates take their answers from `answers`.
    pub(super) fn call(&self, answers: &Answers) -> Result<input::Call, LineError> {
        let line = self.trace.lines.line(self.call.lines.start);
        input::read(line.split_once(' ').map_or("", |(_, words)| words), answers)
    }

    pub(super) fn answers(&self) -> impl Iterator<Item = PredicateResult> + use<'t> {
        let said = self.lines().filter_map(|(_, line)| line.strip_prefix(ANSWERS));
        // They were read before.
        said.flat_map(|said| said.split(' ')).filter_map(|answer| answer.parse().ok())
    }

    pub(super) fn actions(&self) -> impl Iterator<Item = (usize, &'t str)> + use<'t> {
        self.lines().filter_map(|(number, line)| Some((number, line.strip_prefix(ACTION)?)))
    }
}

/// Returns whether this is what stands in the place of actions.
pub(super) fn is_omitted(action: &str) -> bool {
    action.split(' ').next() == Some(OMITTED)
}

/// The text read so far.
#[derive(Default)]
struct Reader {
    seal: Option<Seal>,
    is_tail: bool,
    lines: Lines,
    /// The lines of the header that are behind the first, in their order.
    sdam: Option<String>,
    machine: bool,
    uri: Option<String>,
    besides: Option<String>,
    header: Option<Header>,
    calls: Vec<Call>,
    gap: Option<usize>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), LineError> {
        let line = match &mut self.seal {
            Some(seal) => seal
                .open(line)
                .map_err(|(stated, computed)| LineError::Seal { stated, computed })?,
            None => line,
        };
        let index = self.lines.len();
        self.lines.push(line);
        if index == 0 {
            let (sealed, is_tail) = Header::read_first(line)?;
            self.seal = sealed.then(Seal::new);
            self.is_tail = is_tail;
            return Ok(());
        }
        let is_comment = line.is_empty() || line.trim_start().starts_with('#');
        match (&self.header, line.starts_with('+')) {
            (None, _) if is_comment => return Ok(()),
            (None, _) => return self.header_line(line),
            (Some(_), true) => self.call(line, index)?,
            (Some(_), false) if is_comment => {}
            (Some(_), false) => self.below(line)?,
        }
        if let Some(call) = self.calls.last_mut() {
            call.lines.end = index + 1;
        }
        Ok(())
    }

    fn header_line(&mut self, line: &str) -> Result<(), LineError> {
        let due = match (&self.sdam, self.machine, &self.uri) {
            (None, ..) => "sdam",
            (_, false, _) => "machine",
            (.., None) => "options",
            (.., Some(_)) => "seed",
        };
        if let (Some(json), "seed", None) = (line.strip_prefix("besides "), due, &self.besides) {
            self.besides = Some(json.to_owned());
            return Ok(());
        }
        let words = line.strip_prefix(due).and_then(|words| words.strip_prefix(' '));
        let words = words.ok_or(LineError::Due(due))?;
        match due {
            "sdam" => self.sdam = Some(words.to_owned()),
            "machine" if words == "topology" => self.machine = true,
            "machine" => return Err(LineError::Machine(words.to_owned())),
            "options" => self.uri = Some(words.to_owned()),
            _ => {
                let seed = words.parse();
                let seed = seed.map_err(|error| LineError::malformed("the seed", &error))?;
                let uri = self.uri.as_deref().unwrap_or_default();
                let options = Header::read_options(uri, self.besides.as_deref())?;
                let (sdam, is_tail) = (self.sdam.take().unwrap_or_default(), self.is_tail);
                self.header = Some(Header { sdam, options: options.into(), seed, is_tail });
            }
        }
        Ok(())
    }

    fn call(&mut self, line: &str, index: usize) -> Result<(), LineError> {
        let (time, words) = line.split_once(' ').unwrap_or((line, ""));
        let time = time::read_of_call(time)?;
        if time.clock == Instant::from_nanos(u64::MAX) {
            // No deadline would be later.
            return Err(LineError::malformed("the time", &"it is the end of time"));
        }
        if self.calls.last().is_some_and(|last| last.time.judged > time.judged) {
            return Err(LineError::TimeGoesBack(time::written(time.judged)));
        }
        if let input::Call::Omitted = input::read(words, &Answers::default())? {
            self.gap.get_or_insert(self.calls.len());
        }
        self.calls.push(Call { time, lines: index..index + 1 });
        Ok(())
    }

    fn below(&self, line: &str) -> Result<(), LineError> {
        if self.calls.is_empty() {
            return Err(LineError::Stray);
        }
        if let Some(said) = line.strip_prefix(ANSWERS) {
            return said
                .split(' ')
                .try_for_each(|answer| answer.parse::<PredicateResult>().map(drop));
        }
        line.starts_with(ACTION).then_some(()).ok_or(LineError::Stray)
    }

    fn finish(self) -> Result<Trace, LineError> {
        let header = self.header.ok_or(LineError::Due("seed"))?;
        let sealed = self.seal.is_some();
        let Self { lines, calls, gap, .. } = self;
        Ok(Trace { header, sealed, lines, calls, gap })
    }
}
