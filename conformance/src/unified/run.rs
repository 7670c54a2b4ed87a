//! A run of the official suites in the unified format, on deployments and runtimes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::format::{self, File, FormatError};
use super::perform::{self, Deployment, Internal, Kind};
use super::play::{self, Fault};
use super::report::{Report, Row, Verdict};
use crate::adapter::Adapter;
use crate::mongod::Binary;
use crate::spec::{self, Difference, FolderError};

/// The suites whose files are refused.
const INVALID: &str = "unified-test-format/invalid";

/// The suites whose tests fail.
const FAILING: &str = "unified-test-format/valid-fail";

/// The number of times that a test is played which fails and has times of its own: those of the
/// files are short, and a machine that is busy does not always do in them what is expected.
const TIMES: usize = 3;

/// The parts of names of arguments and options that are such times.
const OWN_TIMES: [&str; 2] = ["blockTimeMS", "imeoutMS"];

/// The members of the replica set that tests are played on.
const MEMBERS: usize = 3;

/// A file of a suite, read.
#[derive(Debug)]
pub struct Loaded {
    /// The suite, as in `transactions/unified`.
    pub suite: String,
    /// The file's name.
    pub name: String,
    /// Its contents, or why it is refused.
    pub file: Result<File, FormatError>,
    /// True if its tests depend on how long something takes.
    pub has_times: bool,
}

/// The reason why a run is not possible.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is nothing to run.
    #[error("{} has no file in the unified test format of suite {suite:?}", path.display())]
    Nothing {
        /// The folder.
        path: PathBuf,
        /// The suite that was asked for.
        suite: String,
    },
}

/// A name that no runtime has.
#[derive(Debug, thiserror::Error)]
#[error("there is no runtime {name:?}; known are {known}")]
pub struct UnknownRuntime {
    name: String,
    known: String,
}

/// Plays files on a deployment.
type PlayAll = Box<dyn Fn(&Deployment, &[&Loaded]) -> Result<Vec<Row>, String> + Send + Sync>;

/// The runtimes that suites are run with.
#[derive(Default)]
pub struct Runner {
    runtimes: Vec<(String, PlayAll)>,
    takes_turns: bool,
}

impl Runner {
    /// Adds a runtime.
    #[must_use]
    pub fn with<A: Adapter>(mut self, adapter: A) -> Self {
        let (name, adapter) = (adapter.name().to_owned(), Arc::new(adapter));
        let play =
            move |deployment: &Deployment, files: &[&Loaded]| play_all(&adapter, deployment, files);
        self.runtimes.push((name, Box::new(play)));
        self
    }

    /// Takes every runtime of the facade.
    ///
    /// # Panics
    ///
    /// Panics if the system has no threads or sockets left.
    #[cfg(feature = "runtimes")]
    pub fn all() -> Self {
        use crate::runtimes::{AsyncStd, Blocking, Smol, Tokio};
        let runner = Self::default().with(Tokio::multi_thread()).with(Smol);
        runner.with(AsyncStd).with(Blocking)
    }

    /// Leaves one runtime, of this name.
    ///
    /// # Errors
    ///
    /// Lists those that there are if none has this name.
    pub fn only(mut self, runtime: &str) -> Result<Self, UnknownRuntime> {
        let known = self.runtimes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        let known = known.join(", ");
        self.runtimes.retain(|(name, _)| name == runtime);
        match self.runtimes.is_empty() {
            true => Err(UnknownRuntime { name: runtime.to_owned(), known }),
            false => Ok(self),
        }
    }

    /// Has the runtimes take turns, so that each file is played with one of them.
    #[must_use]
    pub const fn in_turn(mut self) -> Self {
        self.takes_turns = true;
        self
    }

    /// Returns the files that a runtime plays.
    fn files_of<'a>(&self, runtime: usize, files: &'a [Loaded]) -> Vec<&'a Loaded> {
        let is_its = |index: usize| !self.takes_turns || index % self.runtimes.len() == runtime;
        let files = files.iter().enumerate().filter(|(index, _)| is_its(*index));
        files.map(|(_, file)| file).collect()
    }

    /// Runs files on deployments of these kinds; those that do not start are a failure of their
    /// own in the report.
    pub fn run(&self, files: &[Loaded], kinds: &[Kind]) -> Report {
        let mut rows: Vec<Row> = files.iter().filter_map(refused).collect();
        let played = thread::scope(|scope| {
            let threads: Vec<_> =
                kinds.iter().map(|kind| scope.spawn(|| self.run_on(files, kind))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Vec<Row>>| match thread.join() {
                Ok(rows) => rows,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().flat_map(join).collect::<Vec<Row>>()
        });
        rows.extend(played);
        Report { rows }
    }

    fn run_on(&self, files: &[Loaded], kind: &Kind) -> Vec<Row> {
        let broken = |runtime: &str, found: String| Row {
            suite: "the deployment".to_owned(),
            server: kind.name(),
            runtime: runtime.to_owned(),
            test: "it starts and answers".to_owned(),
            verdict: failed("the deployment", "answers", found),
        };
        let deployment = match perform::start(kind) {
            Ok(deployment) => deployment,
            Err(error) => return vec![broken("all", error.to_string())],
        };
        let play = |(index, (name, play)): (usize, &(String, PlayAll))| {
            let files = self.files_of(index, files);
            play(&deployment, &files).unwrap_or_else(|reason| vec![broken(name, reason)])
        };
        self.runtimes.iter().enumerate().flat_map(play).collect()
    }
}

/// The deployments of real servers of a version that tests are played on.
pub fn real(binary: &Binary) -> Vec<Kind> {
    let binary = || binary.clone();
    vec![Kind::Single(binary()), Kind::SingleWithAuth(binary()), Kind::Set(binary(), MEMBERS)]
}

/// The embedded deployments that tests are played on, where it takes mongos.
pub fn embedded() -> Vec<Kind> {
    vec![Kind::Sharded, Kind::LoadBalanced]
}

/// Reads the files below the folder of the specifications, all or those of a suite, or of a group
/// of suites by what their names begin with.
///
/// # Errors
///
/// Fails if the folder cannot be read, and if there is no such file.
pub fn load(root: &Path, suite: Option<&str>) -> Result<Vec<Loaded>, RunError> {
    let mut loaded = Vec::new();
    for found in spec::files(root)? {
        let Some((folder, name)) = found.name.rsplit_once('/') else { continue };
        let of = folder.replacen("/tests", "", 1);
        if suite.is_some_and(|wanted| !spec::is_below(&of, wanted)) {
            continue;
        }
        let Ok(text) = spec::read(&found.path) else { continue };
        // Other suites have files without a version, and one of ours is invalid for that.
        if of == INVALID || text.contains("\"schemaVersion\"") {
            let file = format::parse(&text);
            let has_times = OWN_TIMES.iter().any(|name| text.contains(name));
            loaded.push(Loaded { suite: of, name: name.to_owned(), file, has_times });
        }
    }
    match loaded.is_empty() {
        true => Err(RunError::Nothing {
            path: root.to_owned(),
            suite: suite.unwrap_or_default().to_owned(),
        }),
        false => Ok(loaded),
    }
}

/// Judges a file by its form: one that is refused, and one that had to be.
fn refused(loaded: &Loaded) -> Option<Row> {
    let (has_to_be, is_failing) = (loaded.suite == INVALID, loaded.suite == FAILING);
    let verdict = match &loaded.file {
        Ok(_) if has_to_be => failed("the file", "is refused", "a file that can be read"),
        Ok(_) => return None,
        Err(FormatError::Unsupported(_)) if is_failing => Verdict::Passed,
        Err(FormatError::Broken { .. }) if has_to_be => Verdict::Passed,
        Err(error) => failed("the file", "can be read", error),
    };
    Some(Row {
        suite: loaded.suite.clone(),
        server: "none".to_owned(),
        runtime: "none".to_owned(),
        test: loaded.name.clone(),
        verdict,
    })
}

fn failed(place: &str, expected: &str, found: impl std::fmt::Display) -> Verdict {
    let (place, expected) = (place.to_owned(), expected.to_owned());
    Verdict::Failed(Difference { place, expected, found: found.to_string() })
}

/// Plays all tests with an adapter; an error is one of the deployment.
fn play_all<A: Adapter>(
    adapter: &Arc<A>,
    deployment: &Deployment,
    files: &[&Loaded],
) -> Result<Vec<Row>, String> {
    let internal = Internal::open(adapter, deployment)?;
    let facts = internal.facts()?;
    let mut rows = Vec::new();
    for loaded in files {
        let Some(file) = loaded.file.as_ref().ok().filter(|_| loaded.suite != INVALID) else {
            continue;
        };
        let has_to_fail = loaded.suite == FAILING;
        let times = if loaded.has_times && !has_to_fail { TIMES } else { 1 };
        for test in &file.tests {
            let play = || verdict(internal.play(file, test), has_to_fail);
            let verdict = match facts.obstacle(file, test) {
                Some(obstacle) => Verdict::CannotRun(obstacle.to_string()),
                None => match play::needs(&loaded.suite, file, test) {
                    needs if !needs.is_empty() => Verdict::Needs(needs),
                    _ => best_of(times, play),
                },
            };
            rows.push(Row {
                suite: loaded.suite.clone(),
                server: deployment.name.clone(),
                runtime: adapter.name().to_owned(),
                test: format!("{}: {}", loaded.name, test.description),
                verdict,
            });
        }
    }
    Ok(rows)
}

/// Plays until a test has passed, or so often; returns the last verdict.
fn best_of(times: usize, play: impl Fn() -> Verdict) -> Verdict {
    let mut verdict = play();
    for _ in 1..times {
        if verdict == Verdict::Passed {
            break;
        }
        verdict = play();
    }
    verdict
}

/// Judges how a test has ended; one of those that have to fail passes if it did, but not because of
/// the runner.
fn verdict(played: Result<(), Fault>, has_to_fail: bool) -> Verdict {
    match (played, has_to_fail) {
        (Ok(()), false) | (Err(Fault::Differs(_)), true) => Verdict::Passed,
        (Ok(()), true) => failed("the test", "fails", "no failure"),
        (Err(Fault::Differs(difference)), false) => Verdict::Failed(difference),
        (Err(Fault::Broken(broken)), _) => Verdict::Failed(broken.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{best_of, failed, verdict};
    use crate::spec::Difference;
    use crate::unified::Verdict;
    use crate::unified::play::{Broken, Fault};

    #[test]
    fn a_test_that_has_to_fail_does_not_pass_by_a_breakdown_of_the_runner() {
        let differs = || Err(Fault::Differs(Difference::from(Broken::new("a", "b"))));
        let broken = || Err(Fault::Broken(Broken::new("its insert", "no primary")));
        assert_eq!(verdict(differs(), true), Verdict::Passed);
        assert!(matches!(verdict(Ok(()), true), Verdict::Failed(_)));
        for has_to_fail in [true, false] {
            assert!(matches!(verdict(broken(), has_to_fail), Verdict::Failed(_)));
        }
    }

    #[test]
    fn a_test_passes_if_it_passes_once_and_fails_if_it_never_does() {
        let played = Cell::new(0);
        let play = |passes_at| {
            played.set(played.get() + 1);
            match played.get() == passes_at {
                true => Verdict::Passed,
                false => failed("its insert", "in time", "late"),
            }
        };
        assert_eq!(best_of(3, || play(2)), Verdict::Passed);
        assert_eq!(played.replace(0), 2);
        assert_eq!(best_of(1, || play(2)), failed("its insert", "in time", "late"));
        assert_eq!(played.replace(0), 1);
        assert_eq!(best_of(3, || play(0)), failed("its insert", "in time", "late"));
        assert_eq!(played.get(), 3);
    }
}
