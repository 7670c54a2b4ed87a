//! A run of the official suites in the unified format, on deployments and runtimes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use sdam_cluster::ServerVersion;

use super::flaky;
use super::format::{self, File, FormatError, Test};
use super::perform::{self, Deployment, Internal, Kind, Obstacle, Simulated};
use super::play::{self, Fault};
use super::report::{NONE, Report, Row, Verdict};
use crate::adapter::Adapter;
use crate::mongod::{Availability, Binary, Version};
use crate::spec::{self, Difference, FolderError};

/// The suites whose files are refused.
const INVALID: &str = "unified-test-format/invalid";

/// The suites whose tests fail.
const FAILING: &str = "unified-test-format/valid-fail";

/// The suites that take longest.
const TIMEOUTS: &str = "client-side-operations-timeout";
const RETRYABLE_READS: &str = "retryable-reads/unified";
const RETRYABLE_WRITES: &str = "retryable-writes/unified";
const BACKPRESSURE: &str = "client-backpressure";

/// The number of times that a test is played which fails and has times of its own: those of the
/// files are short, and a machine that is busy does not always do in them what is expected.
const TIMES: usize = 5;

/// The parts of names of arguments and options that are such times.
const OWN_TIMES: [&str; 2] = ["blockTimeMS", "imeoutMS"];

/// The compressors that clients have.
const COMPRESSORS: [&str; 3] = ["snappy", "zlib", "zstd"];

/// The number of deployments that are played on at once: tests wait most of their time.
const AT_ONCE: usize = 7;

/// The members of the larger replica set that tests are played on.
const MEMBERS: usize = 3;

/// The versions that the embedded deployment imitates, the newest last: that of the newest real
/// server, and those that no real server here has.
const IMITATED: [ServerVersion; 5] = [
    ServerVersion::V6_0,
    ServerVersion::V7_0,
    ServerVersion::V8_0,
    ServerVersion::V8_2,
    ServerVersion::V9_0,
];

/// The version that servers in virtual time imitate.
const NEWEST: ServerVersion = ServerVersion::V9_0;

/// The name of the servers in virtual time.
const VIRTUAL: &str = "virtual";

/// The first version to which clients can declare a version of the API.
const DECLARING: Version = Version { major: 5, minor: 0, patch: 0 };

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

impl Loaded {
    /// Returns what rows call a test of the file.
    fn name_of(&self, test: &Test) -> String {
        format!("{}: {}", self.name, test.description)
    }

    /// Returns a file of nothing but the test that a row is of, if it is here and has times of its
    /// own; a test that has to fail is not flaky.
    pub(super) fn flaky(&self, row: &Row) -> Option<Self> {
        let file = self.file.as_ref().ok().filter(|_| self.has_times && self.suite == row.suite)?;
        let test = file.tests.iter().find(|test| self.name_of(test) == row.test)?.clone();
        let (suite, name) = (self.suite.clone(), self.name.clone());
        let file = Ok(File { tests: vec![test], ..file.clone() });
        (suite != FAILING).then_some(Self { suite, name, file, has_times: true })
    }
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

/// A name that no compressor has.
#[derive(Debug, thiserror::Error)]
#[error("there is no compressor {name:?}; known are {}", COMPRESSORS.join(", "))]
pub struct UnknownCompressor {
    name: String,
}

/// A name that no server has.
#[derive(Debug, thiserror::Error)]
#[error("there are no servers {name:?}; known are {known}, and all")]
pub struct UnknownServer {
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
    /// True if one runtime was chosen, which that of virtual time is not.
    is_one: bool,
    compressor: Option<String>,
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
        self.is_one = true;
        match self.runtimes.is_empty() {
            true => Err(UnknownRuntime { name: runtime.to_owned(), known }),
            false => Ok(self),
        }
    }

    /// Has the runtimes take turns, so that each file is played with one of them, and the real
    /// deployments that are alike take turns with the longest suites.
    #[must_use]
    pub const fn in_turn(mut self) -> Self {
        self.takes_turns = true;
        self
    }

    /// Has the clients that are tested compress what they send to real servers; the embedded
    /// deployment offers no compressor. A deployment that has read nothing that was compressed is a
    /// failure of its own in the report.
    ///
    /// # Errors
    ///
    /// Lists those that there are if none has this name.
    pub fn with_compressor(mut self, compressor: &str) -> Result<Self, UnknownCompressor> {
        let Some(known) = COMPRESSORS.into_iter().find(|it| *it == compressor) else {
            return Err(UnknownCompressor { name: compressor.to_owned() });
        };
        self.compressor = Some(known.to_owned());
        Ok(self)
    }

    /// Returns the files that a runtime plays on a deployment of this kind.
    fn files_of<'a>(&self, runtime: usize, files: &'a [Loaded], kind: &Kind) -> Vec<&'a Loaded> {
        let is_its = |index: usize| !self.takes_turns || index % self.runtimes.len() == runtime;
        let files = files.iter().enumerate();
        let files = files.filter(|(index, loaded)| is_its(*index) && is_wanted(loaded, kind));
        let is_spared = |file: &Loaded| self.takes_turns && is_played_on_one_alike(file, kind);
        files.map(|(_, file)| file).filter(|file| !is_spared(file)).collect()
    }

    /// Runs files on deployments of these kinds; those that do not start are a failure of their
    /// own in the report.
    pub fn run(&self, files: &[Loaded], kinds: &[Kind]) -> Report {
        let mut rows: Vec<Row> = files.iter().filter_map(refused).collect();
        let left = Mutex::new(kinds.iter());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let play = || {
            let mut rows = Vec::new();
            while let Some(kind) = next() {
                rows.extend(self.run_on(files, kind));
            }
            rows
        };
        let played = thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Vec<Row>>| match thread.join() {
                Ok(rows) => rows,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().flat_map(join).collect::<Vec<Row>>()
        });
        rows.extend(played);
        let mut report = Report { rows, ..Report::default() };
        self.play_flaky(files, kinds, &mut report);
        report
    }

    /// Plays flaky tests once more.
    fn play_flaky(&self, files: &[Loaded], kinds: &[Kind], report: &mut Report) {
        let start = |kind: &Kind| self.start(kind).ok();
        let play = |runtime: &str, deployment: &Deployment, file: &Loaded| {
            let runtime = self.runtimes.iter().find(|(name, _)| name == runtime);
            runtime.and_then(|(_, play)| play(deployment, &[file]).ok()).unwrap_or_default()
        };
        flaky::play_again(report, files, kinds, start, play);
    }

    /// Starts a deployment for clients that compress as they are to.
    fn start(&self, kind: &Kind) -> Result<Deployment, perform::StartError> {
        Ok(perform::start(kind)?.with_compressor(self.compressor.as_deref()))
    }

    fn run_on(&self, files: &[Loaded], kind: &Kind) -> Vec<Row> {
        let broken = |runtime: &str, found: String| Row {
            suite: "the deployment".to_owned(),
            server: kind.name(),
            runtime: runtime.to_owned(),
            test: "it starts and answers".to_owned(),
            verdict: failed("the deployment", "answers", found),
        };
        let is_left_out = self.is_one && matches!(kind, Kind::Simulated(_));
        if is_left_out || !files.iter().any(|loaded| is_wanted(loaded, kind)) {
            return Vec::new();
        }
        let deployment = match self.start(kind) {
            Ok(deployment) => deployment,
            Err(error) => return vec![broken("all", error.to_string())],
        };
        if let Kind::Simulated(version) = kind {
            let files: Vec<&Loaded> = files.iter().filter(|it| is_wanted(it, kind)).collect();
            let played = simulate_all(*version, &deployment, &files);
            return played.unwrap_or_else(|reason| vec![broken(perform::VIRTUAL, reason)]);
        }
        let play = |(index, (name, play)): (usize, &(String, PlayAll))| {
            let files = self.files_of(index, files, kind);
            play(&deployment, &files).unwrap_or_else(|reason| vec![broken(name, reason)])
        };
        self.runtimes.iter().enumerate().flat_map(play).collect()
    }
}

/// Returns the deployments that tests are played on: those of a version of mongod, as in `6.0`; the
/// embedded ones as servers of a version, as in `embedded-8.0`; `virtual` ones in virtual time;
/// `all` that there are; or without a name those of the newest mongod, if there is one, the
/// embedded ones of the newest version, and those in virtual time.
///
/// # Errors
///
/// Lists those that there are if none has this name.
pub fn servers(wanted: &str) -> Result<Vec<Kind>, UnknownServer> {
    let availability = Availability::look();
    let binaries = newest_of_series(availability.binaries(), Binary::version);
    let name = |binary: &Binary| format!("{}.{}", binary.version().major, binary.version().minor);
    let mut named: Vec<(String, Vec<Kind>)> =
        binaries.iter().map(|binary| (name(binary), real(binary))).collect();
    named.extend(IMITATED.map(|version| {
        let (major, minor) = version.number();
        (format!("embedded-{major}.{minor}"), embedded(version))
    }));
    named.push((VIRTUAL.to_owned(), vec![Kind::Simulated(NEWEST)]));
    let newest_real = binaries.last().map(|binary| name(binary));
    let is_wanted = |index: usize, name: &String| match wanted {
        "all" => true,
        "" => index + 1 >= binaries.len() + IMITATED.len() || newest_real.as_ref() == Some(name),
        wanted => name == wanted,
    };
    let known = named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let kinds = named.into_iter().enumerate().filter(|(index, (name, _))| is_wanted(*index, name));
    let kinds: Vec<Kind> = kinds.flat_map(|(_, (_, kinds))| kinds).collect();
    match kinds.is_empty() {
        true => Err(UnknownServer { name: wanted.to_owned(), known }),
        false => Ok(kinds),
    }
}

/// The newest of each series of versions, the oldest series first.
fn newest_of_series<T>(all: &[T], version: impl Fn(&T) -> Version) -> Vec<&T> {
    let series = |one: &T| (version(one).major, version(one).minor);
    let alike = all.chunk_by(|a, b| series(a) == series(b));
    alike.filter_map(|of_series| of_series.last()).collect()
}

/// The deployments of real servers of a version.
fn real(binary: &Binary) -> Vec<Kind> {
    let binary = || binary.clone();
    let mut kinds = vec![
        Kind::Set(binary(), MEMBERS),
        Kind::Set(binary(), 1),
        Kind::Single(binary()),
        Kind::SingleWithAuth(binary()),
        Kind::SetWithAuth(binary()),
    ];
    if binary().version() >= DECLARING {
        kinds.push(Kind::SingleWithApiVersion2(binary()));
    }
    kinds
}

/// The embedded deployments, where it takes mongos, or a version that no real server here has.
fn embedded(version: ServerVersion) -> Vec<Kind> {
    let mut kinds = vec![Kind::Sharded(version), Kind::LoadBalanced(version)];
    if version >= ServerVersion::V7_0 {
        kinds.push(Kind::ShardedWithTokens(version));
        kinds.push(Kind::Standalone(version));
    }
    kinds
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

/// Returns whether a file is played on a deployment of this kind.
fn is_wanted(loaded: &Loaded, kind: &Kind) -> bool {
    loaded.file.as_ref().is_ok_and(|file| kind.wants(file))
}

/// Returns whether a file of one of the longest suites is played on another real deployment that is
/// like one of this kind, where deployments take turns. None of these suites is about logins, and
/// the times of some tests are shorter than a login takes on a machine that is busy.
fn is_played_on_one_alike(loaded: &Loaded, kind: &Kind) -> bool {
    match (loaded.suite.as_str(), kind) {
        (TIMEOUTS | RETRYABLE_READS | RETRYABLE_WRITES | BACKPRESSURE, Kind::SingleWithAuth(_))
        | (RETRYABLE_READS | BACKPRESSURE, Kind::Set(_, 1)) => true,
        (TIMEOUTS | RETRYABLE_WRITES, Kind::Set(_, members)) => *members > 1,
        _ => false,
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
        server: NONE.to_owned(),
        runtime: NONE.to_owned(),
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
    let compressed_before = internal.compressed()?;
    let of = |file: &File, test: &Test| {
        facts.obstacle(file, test).map(|obstacle| unplayed(obstacle, file, test))
    };
    let place = (deployment.name.as_str(), adapter.name());
    let rows = play_each(place, files, TIMES, of, |file, test| internal.play(file, test));
    let has_passed = rows.iter().any(|row| row.verdict == Verdict::Passed);
    if has_passed && compressed_before.is_some() && internal.compressed()? == compressed_before {
        return Err("it has read nothing that was compressed".to_owned());
    }
    Ok(rows)
}

/// Judges a test that a deployment cannot play.
fn unplayed(obstacle: Obstacle, file: &File, test: &Test) -> Verdict {
    match obstacle {
        Obstacle::Encryption => Verdict::Needs(play::needs_with_encryption(file, test)),
        obstacle => Verdict::CannotRun(obstacle.to_string()),
    }
}

/// Plays all tests in virtual time, in which none is late by chance; an error is one of the
/// deployment.
fn simulate_all(
    version: ServerVersion,
    deployment: &Deployment,
    files: &[&Loaded],
) -> Result<Vec<Row>, String> {
    let simulated = Simulated::open(version, deployment)?;
    let of = |file: &File, test: &Test| {
        let obstacle = simulated.facts().obstacle(file, test);
        let cannot = || {
            let obstacle = perform::virtual_obstacle(file, test);
            obstacle.map(|reason| Verdict::CannotRun(reason.to_owned()))
        };
        obstacle.map(|obstacle| unplayed(obstacle, file, test)).or_else(cannot)
    };
    let place = (deployment.name.as_str(), perform::VIRTUAL);
    Ok(play_each(place, files, 1, of, |file, test| simulated.play(file, test)))
}

/// Plays each test that can be played: so many times at most, if it has times of its own.
fn play_each(
    (server, runtime): (&str, &str),
    files: &[&Loaded],
    times: usize,
    unplayed: impl Fn(&File, &Test) -> Option<Verdict>,
    play: impl Fn(&File, &Test) -> Result<(), Fault>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for loaded in files {
        let Some(file) = loaded.file.as_ref().ok().filter(|_| loaded.suite != INVALID) else {
            continue;
        };
        let has_to_fail = loaded.suite == FAILING;
        let times = if loaded.has_times && !has_to_fail { times } else { 1 };
        for test in &file.tests {
            let verdict = match unplayed(file, test) {
                Some(verdict) => verdict,
                None => match play::needs(file, test) {
                    needs if !needs.is_empty() => Verdict::Needs(needs),
                    _ => best_of(times, || verdict(play(file, test), has_to_fail)),
                },
            };
            rows.push(Row {
                suite: loaded.suite.clone(),
                server: server.to_owned(),
                runtime: runtime.to_owned(),
                test: loaded.name_of(test),
                verdict,
            });
        }
    }
    rows
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

    use super::{best_of, failed, newest_of_series, verdict};
    use crate::mongod::Version;
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
    fn of_servers_of_one_series_the_newest_is_played_on() {
        let all = ["4.2.6", "5.0.4", "6.0.5", "6.0.27"].map(|it| it.parse::<Version>().unwrap());
        let newest = newest_of_series(&all, |version| *version);
        assert_eq!(newest, [&all[0], &all[1], &all[3]]);
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
