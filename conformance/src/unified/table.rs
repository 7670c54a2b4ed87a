//! The table of results as the files that the repository has of it: `unified.json`, and the page
//! `UNIFIED.md`, which has the same as numbers.

use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::Baseline;

/// The lines around the tables of the page.
const BEGIN: &str = "<!-- The tables of results: UPDATE_PAGE=1 rewrites them. -->\n";
const END: &str = "<!-- The end of the tables. -->\n";

/// The files of the table.
#[derive(Clone, Debug)]
pub struct Table {
    page: PathBuf,
    list: PathBuf,
}

/// The reason why a file of the table cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TableError {
    path: PathBuf,
    reason: String,
}

impl Table {
    /// Names the files of a folder.
    pub fn of_folder(folder: &Path) -> Self {
        Self { page: folder.join("UNIFIED.md"), list: folder.join("unified.json") }
    }

    /// Reads the baseline.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be read.
    pub fn read(&self) -> Result<Baseline, TableError> {
        let list = fs::read_to_string(&self.list).map_err(of(&self.list))?;
        serde_json::from_str(&list).map_err(of(&self.list))
    }

    /// Changes the baseline, and writes it to both files; returns it.
    ///
    /// Processes that do so at the same time wait for each other, and none loses what another has
    /// written.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or written, and if the page has no place for the tables.
    pub fn update(&self, change: impl FnOnce(&mut Baseline)) -> Result<Baseline, TableError> {
        let locked = File::open(&self.list).map_err(of(&self.list))?;
        locked.lock().map_err(of(&self.list))?;
        let mut baseline = self.read()?;
        change(&mut baseline);
        let page = fs::read_to_string(&self.page).map_err(of(&self.page))?;
        let around = page.split_once(BEGIN).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some((before, after))
        });
        let (before, after) =
            around.ok_or("has no place for the tables").map_err(of(&self.page))?;
        let page = [before, BEGIN, &baseline.page(), END, after].concat();
        let list = serde_json::to_string_pretty(&baseline).map_err(of(&self.list))? + "\n";
        fs::write(&self.page, page).map_err(of(&self.page))?;
        fs::write(&self.list, list).map_err(of(&self.list))?;
        Ok(baseline)
    }
}

/// Says which file an error is about.
fn of<E: Display>(path: &Path) -> impl FnOnce(E) -> TableError {
    let path = path.to_owned();
    move |error| TableError { path, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Barrier;
    use std::thread;

    use super::{BEGIN, END, Table};
    use crate::unified::{Baseline, Report, Row, Verdict};

    fn report(server: &str) -> Report {
        let row = Row {
            suite: "crud".to_owned(),
            server: server.to_owned(),
            runtime: "tokio".to_owned(),
            test: "a.json: it works".to_owned(),
            verdict: Verdict::Passed,
        };
        Report { rows: vec![row], ..Report::default() }
    }

    #[test]
    fn updates_at_the_same_time_lose_nothing_of_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = Table::of_folder(folder.path());
        let page = folder.path().join("UNIFIED.md");
        fs::write(&page, format!("before\n{BEGIN}{END}after\n")).expect("it can be written");
        fs::write(folder.path().join("unified.json"), "{}").expect("it can be written");
        let servers: Vec<String> = (0..8).map(|minor| format!("8.{minor} single")).collect();
        let all_at_once = Barrier::new(servers.len());
        thread::scope(|scope| {
            for server in &servers {
                scope.spawn(|| {
                    let run = Baseline::of(&report(server));
                    all_at_once.wait();
                    table.update(|baseline| baseline.update(run)).expect("it can be updated");
                });
            }
        });
        let mut expected = Report::default();
        servers.iter().for_each(|server| expected.extend(report(server)));
        let baseline = table.read().expect("it can be read");
        assert_eq!(baseline, Baseline::of(&expected));
        let page = fs::read_to_string(&page).expect("it can be read");
        assert_eq!(page, format!("before\n{BEGIN}{}{END}after\n", baseline.page()));
    }

    #[test]
    fn a_page_without_a_place_for_the_tables_is_refused_and_the_list_is_left_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = Table::of_folder(folder.path());
        fs::write(folder.path().join("UNIFIED.md"), BEGIN).expect("it can be written");
        fs::write(folder.path().join("unified.json"), "{}").expect("it can be written");
        let error = table.update(|baseline| baseline.update(Baseline::of(&report("8.0 single"))));
        let error = error.expect_err("there is no end").to_string();
        assert!(error.ends_with("UNIFIED.md: has no place for the tables"), "{error}");
        assert_eq!(table.read().expect("it can be read"), Baseline::default());
    }
}
