//! The table of the suite: what became of each test with each adapter.

use std::fmt;

/// The outcome of a test with an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was not asked for.
    NotRun,
    /// It passed.
    Passed,
    /// It failed, for a reason.
    Failed(String),
    /// It was left out, for a reason.
    LeftOut(String),
}

impl Outcome {
    /// Returns how a cell of the table shows it.
    const fn sign(&self) -> &'static str {
        match self {
            Self::NotRun => "",
            Self::Passed => "ok",
            Self::Failed(_) => "FAILED",
            Self::LeftOut(_) => "-",
        }
    }
}

/// An adapter, and what became of each test with it.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the adapter.
    pub name: String,
    /// An outcome for each row.
    pub outcomes: Vec<Outcome>,
}

impl Column {
    /// Returns how many tests passed.
    pub fn passed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| **outcome == Outcome::Passed).count()
    }

    /// Returns how many tests there are.
    pub fn total(&self) -> usize {
        self.outcomes.len()
    }
}

/// Tests by adapters. Printed, what failed or was left out is listed below, with the reasons.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The names of the tests.
    pub rows: Vec<&'static str>,
    /// The adapters, in the order in which they were added.
    pub columns: Vec<Column>,
}

impl Table {
    /// Returns whether every test was run or left out for a reason.
    pub fn is_complete(&self) -> bool {
        let mut outcomes = self.columns.iter().flat_map(|column| &column.outcomes);
        outcomes.all(|outcome| *outcome != Outcome::NotRun)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.len()).max().unwrap_or_default();
        let line = |row: &str, cell: &dyn Fn(&Column) -> String| {
            let cells = self.columns.iter().map(|column| {
                let cell_width = column.name.len().max(MIN_WIDTH);
                format!("  {:>cell_width$}", cell(column))
            });
            let line = format!("{row:width$}{}", cells.collect::<String>());
            line.trim_end().to_owned()
        };
        writeln!(f, "{}", line("test", &|column| column.name.clone()))?;
        for (index, row) in self.rows.iter().enumerate() {
            let sign = |column: &Column| column.outcomes[index].sign().to_owned();
            writeln!(f, "{}", line(row, &sign))?;
        }
        writeln!(f, "{}", line("passed", &|column| column.passed().to_string()))?;
        for Column { name, outcomes } in &self.columns {
            for (row, outcome) in self.rows.iter().zip(outcomes) {
                match outcome {
                    Outcome::Failed(reason) => writeln!(f, "FAILED {name}::{row}: {reason}")?,
                    Outcome::LeftOut(reason) => writeln!(f, "left out {name}::{row}: {reason}")?,
                    Outcome::NotRun | Outcome::Passed => {}
                }
            }
        }
        Ok(())
    }
}

/// The minimum width of a column: that of `FAILED`.
const MIN_WIDTH: usize = 6;

#[cfg(test)]
mod tests {
    use super::{Column, Outcome, Table};

    #[test]
    fn the_table_shows_what_happened_and_below_it_why() {
        let column = |name: &str, outcomes: [Outcome; 2]| Column {
            name: name.to_owned(),
            outcomes: outcomes.to_vec(),
        };
        let table = Table {
            rows: vec!["one", "another"],
            columns: vec![
                column("tokio", [Outcome::Passed, Outcome::Failed("too late".to_owned())]),
                column("blocking", [Outcome::NotRun, Outcome::LeftOut("no TLS".to_owned())]),
            ],
        };
        let expected = "test      tokio  blocking\n\
                        one          ok\n\
                        another  FAILED         -\n\
                        passed        1         0\n\
                        FAILED tokio::another: too late\n\
                        left out blocking::another: no TLS\n";
        assert_eq!(table.to_string(), expected);
        assert!(!table.is_complete());
    }
}
