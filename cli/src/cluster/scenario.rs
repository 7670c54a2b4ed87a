//! Scenario files: in each line a time since the start, and what happens then.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::step::{Step, StepError};
use crate::duration::{self, DurationError};
use crate::file;

/// The number of bytes that a scenario file may have.
const MAX_LEN: u64 = 1 << 20;

/// The steps that are still to come, each with its time since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scenario(VecDeque<(Duration, Step)>);

/// The reason why a file is no scenario.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    #[error("{file}: {error}", file = .0.display(), error = .1)]
    Read(PathBuf, io::Error),
    #[error("{file}:{line}: {reason}", file = .file.display())]
    Line { file: PathBuf, line: usize, reason: LineError },
}

/// The fault of a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the scenario is not UTF-8")]
    Utf8,
    #[error("{0:?} is not when: {1}")]
    Time(String, DurationError),
    #[error("{0:?} without a step; write a time and what happens then, as in: 5s step down")]
    NoStep(String),
    #[error("{0:?} comes after a later step; write the steps in the order of their times")]
    Order(String),
    #[error(transparent)]
    Step(#[from] StepError),
}

impl Scenario {
    /// Reads a file about a deployment that begins with so many members, or mongos.
    pub(super) fn read(file: &Path, members: usize, mongos: bool) -> Result<Self, ScenarioError> {
        let content = file::read(file, MAX_LEN);
        let content = content.map_err(|error| ScenarioError::Read(file.to_owned(), error))?;
        let text = str::from_utf8(&content).map_err(|error| {
            let before = &content[..error.valid_up_to()];
            (before.iter().filter(|byte| **byte == b'\n').count() + 1, LineError::Utf8)
        });
        let scenario = text.and_then(|text| Self::parse(text, members, mongos));
        scenario.map_err(|(line, reason)| ScenarioError::Line {
            file: file.to_owned(),
            line,
            reason,
        })
    }

    /// Reads the text of such a file; an error comes with the number of its line.
    pub(super) fn parse(
        text: &str,
        members: usize,
        mongos: bool,
    ) -> Result<Self, (usize, LineError)> {
        let (mut steps, mut count, mut last) = (VecDeque::new(), members, Duration::ZERO);
        for (index, line) in text.lines().enumerate() {
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            let (at, step, after) =
                parse_line(line, count, mongos, last).map_err(|reason| (index + 1, reason))?;
            (count, last) = (after, at);
            steps.push_back((at, step));
        }
        Ok(Self(steps))
    }

    /// Returns when the next step is due, if there is one more.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Takes the next step out.
    pub(super) fn take(&mut self) -> Option<Step> {
        self.0.pop_front().map(|(_, step)| step)
    }
}

fn parse_line(
    line: &str,
    count: usize,
    mongos: bool,
    last: Duration,
) -> Result<(Duration, Step, usize), LineError> {
    let (time, step) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let at = duration::parse(time).map_err(|error| LineError::Time(time.to_owned(), error))?;
    if step.is_empty() {
        return Err(LineError::NoStep(time.to_owned()));
    }
    if at < last {
        return Err(LineError::Order(time.to_owned()));
    }
    let step = Step::parse(step)?;
    let after = step.check(count, mongos)?;
    Ok((at, step, after))
}

/// A comment begins with a # that is no part of a word, lest passwords lose theirs.
fn without_comment(line: &str) -> &str {
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(begins);
    &line[..comment.unwrap_or(line.len())]
}
