//! The report of a run: a table, the failures, and what was left out.

use std::fmt;

use serde::Serialize;

use super::difference::{Difference, Differences};
use super::folder::NotCovered;

/// The result of a run.
///
/// It displays as a table of the suites, then what is not compared, then each skip with its reason,
/// then each failure with what was expected and what came. Serialised, it holds the same.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The suites, in order.
    pub suites: Vec<SuiteReport>,
    /// The files that were found and are not run.
    #[serde(rename = "notCovered")]
    pub not_covered: Vec<NotCovered>,
}

/// The report of a suite.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The suite.
    pub name: &'static str,
    /// Its files, in order.
    pub files: Vec<FileReport>,
    /// The fields of its cases that are not compared, and why.
    #[serde(rename = "notCompared", skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<&'static str>,
}

/// The report of a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The file's path below the folder of the specifications.
    pub file: String,
    /// Its cases, in order.
    pub cases: Vec<CaseReport>,
}

/// The report of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The file's description of the case; empty if it has none.
    pub name: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl CaseReport {
    pub(super) fn new(name: impl Into<String>, differences: Differences) -> Self {
        let differences = differences.into_vec();
        let verdict = match differences.is_empty() {
            true => Verdict::Passed,
            false => Verdict::Failed { differences },
        };
        Self { name: name.into(), verdict }
    }

    /// Says that a case could not be run, which is a failure.
    pub(super) fn cannot_run(error: impl fmt::Display) -> Self {
        let differences = vec![Difference::cannot_run(error)];
        Self { name: String::new(), verdict: Verdict::Failed { differences } }
    }
}

/// The report of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub enum Verdict {
    /// All is as expected.
    Passed,
    /// Something is not.
    Failed {
        /// The differences.
        differences: Vec<Difference>,
    },
    /// The case was not run.
    Skipped {
        /// The cause.
        reason: String,
    },
}

/// The number of cases by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    files: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn of<'a>(files: impl IntoIterator<Item = &'a FileReport>) -> Self {
        let mut counts = Self::default();
        for file in files {
            counts.files += 1;
            for case in &file.cases {
                match case.verdict {
                    Verdict::Passed => counts.passed += 1,
                    Verdict::Failed { .. } => counts.failed += 1,
                    Verdict::Skipped { .. } => counts.skipped += 1,
                }
            }
        }
        counts
    }

    /// The columns of the table behind the name.
    fn columns(self) -> [usize; 5] {
        let cases = self.passed + self.failed + self.skipped;
        [self.files, cases, self.passed, self.failed, self.skipped]
    }
}

impl Report {
    /// Returns whether any case failed.
    pub fn has_failures(&self) -> bool {
        Counts::of(self.files()).failed > 0
    }

    fn files(&self) -> impl Iterator<Item = &FileReport> {
        self.suites.iter().flat_map(|suite| &suite.files)
    }

    fn cases(&self) -> impl Iterator<Item = (&FileReport, &CaseReport)> {
        self.files().flat_map(|file| file.cases.iter().map(move |case| (file, case)))
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_width = self.suites.iter().map(|suite| suite.name.len()).max().unwrap_or(0).max(5);
        write!(f, "{:name_width$}", "suite")?;
        for column in ["files", "cases", "passed", "failed", "skipped"] {
            write!(f, "  {column:>7}")?;
        }
        writeln!(f)?;
        let mut row = |name: &str, counts: Counts| {
            write!(f, "{name:name_width$}")?;
            for number in counts.columns() {
                write!(f, "  {number:>7}")?;
            }
            writeln!(f)
        };
        for suite in &self.suites {
            row(suite.name, Counts::of(&suite.files))?;
        }
        row("total", Counts::of(self.files()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table(f)?;
        for suite in self.suites.iter().filter(|suite| !suite.files.is_empty()) {
            if let Some(not_compared) = suite.not_compared {
                writeln!(f, "\nnot compared in {}: {not_compared}", suite.name)?;
            }
        }
        if !self.not_covered.is_empty() {
            writeln!(f, "\nnot covered:")?;
            for NotCovered { folder, files } in &self.not_covered {
                let files = if *files == 1 { "1 file".into() } else { format!("{files} files") };
                writeln!(f, "  {folder} ({files})")?;
            }
        }
        for (file, case) in self.cases() {
            if let Verdict::Skipped { .. } = case.verdict {
                write!(f, "\n{}\n{case}", file.file)?;
            }
        }
        for (file, case) in self.cases() {
            if let Verdict::Failed { .. } = case.verdict {
                write!(f, "\n{}\n{case}", file.file)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "the case" } else { &self.name };
        match &self.verdict {
            Verdict::Passed => writeln!(f, "  passed: {name}"),
            Verdict::Skipped { reason } => writeln!(f, "  skipped: {name}: {reason}"),
            Verdict::Failed { differences } => {
                writeln!(f, "  FAILED: {name}")?;
                for Difference { place, expected, found } in differences {
                    writeln!(
                        f,
                        "    {place}\n      expected: {expected}\n      found:    {found}"
                    )?;
                }
                Ok(())
            }
        }
    }
}
