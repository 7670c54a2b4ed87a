//! The process of a competitor, as the runner sees it.
//!
//! A process sets up a task once, and writes `ready`, or `without` and a reason if its driver has
//! no such operation. To each line `run` it answers with the nanoseconds that an iteration took,
//! and those of its CPU time in it; with the end of its input it ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use sdam_bench::Failure;

use crate::score::{Timing, Timings};

/// The time, and the iterations, for which a task is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The iterations that are not counted.
    pub(crate) warm_up: usize,
    /// The iterations that are enough.
    pub(crate) iterations: usize,
    /// The time of all iterations that is enough.
    pub(crate) least: Duration,
    /// The time of all iterations after which nothing else counts.
    pub(crate) most: Duration,
}

impl Limits {
    /// Returns whether these timings are enough.
    fn are_met(&self, timings: &Timings) -> bool {
        let (total, count) = (timings.total(), timings.0.len());
        count > 0 && (total >= self.most || (total >= self.least && count >= self.iterations))
    }
}

/// The process of a competitor, in one task.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    warm: usize,
    timings: Timings,
}

/// The beginning of a task.
pub(crate) enum Start {
    /// The process waits for iterations.
    Ready(Process),
    /// The driver cannot do it, for this reason.
    Without(String),
}

impl Process {
    /// Starts it, and waits until it has set up the task.
    pub(crate) fn start(command: &mut Command) -> Result<Start, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a process has no output")?;
        let (output, timings) = (BufReader::new(output), Timings::default());
        let mut process = Self { child, input, output, warm: 0, timings };
        let line = process.line()?;
        match line.split_once(' ') {
            None if line == "ready" => Ok(Start::Ready(process)),
            Some(("without", reason)) => {
                let reason = reason.to_owned();
                process.end()?;
                Ok(Start::Without(reason))
            }
            _ => Err(format!("{command:?} has said {line:?}, and not that it is ready").into()),
        }
    }

    /// Has it do an iteration, and returns whether there is to be another one.
    pub(crate) fn iterate(&mut self, limits: &Limits) -> Result<bool, Failure> {
        let input = self.input.as_mut().ok_or("a process has no input")?;
        input.write_all(b"run\n")?;
        let timing: Timing = self.line()?.parse()?;
        match self.warm < limits.warm_up {
            true => self.warm += 1,
            false => self.timings.0.push(timing),
        }
        Ok(!limits.are_met(&self.timings))
    }

    /// Ends it, and returns its timings.
    pub(crate) fn end(mut self) -> Result<Timings, Failure> {
        self.input = None;
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(std::mem::take(&mut self.timings)),
            false => Err(format!("a competitor ended with {status}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("a competitor ended without an answer".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Process {
    /// Ends it, after an error of another one.
    fn drop(&mut self) {
        if self.input.take().is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Limits, Process, Start};
    use crate::score::{Timing, Timings};

    #[test]
    fn iterations_and_time_are_to_be_enough_or_the_time_to_be_too_much() {
        let [least, most] = [60, 300].map(Duration::from_secs);
        let limits = Limits { warm_up: 1, iterations: 100, least, most };
        let are_met = |count, seconds| {
            let timing = Timing { wall: Duration::from_secs(seconds), cpu: Duration::ZERO };
            limits.are_met(&Timings(vec![timing; count]))
        };
        assert!(!are_met(0, 1) && !are_met(60, 1) && are_met(100, 1) && !are_met(99, 3));
        assert!(!are_met(2, 149) && are_met(2, 150));
    }

    #[test]
    fn a_process_is_driven_by_lines() {
        let [least, most] = [Duration::ZERO, Duration::from_secs(1)];
        let limits = Limits { warm_up: 1, iterations: 2, least, most };
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; while read line; do echo 7 5; done"]);
        let Start::Ready(mut process) = Process::start(&mut command).unwrap() else { panic!() };
        assert_eq!([(); 3].map(|()| process.iterate(&limits).unwrap()), [true, true, false]);
        assert_eq!(process.end().unwrap().0.len(), 2);

        let mut command = Command::new("sh");
        command.args(["-c", "echo without bulk writes"]);
        let start = Process::start(&mut command).unwrap();
        assert!(matches!(start, Start::Without(reason) if reason == "bulk writes"));
    }
}
