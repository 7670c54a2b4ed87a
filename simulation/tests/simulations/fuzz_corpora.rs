//! Every target of the fuzzer over its committed inputs, as ordinary tests.
//!
//! `corpora/` holds a folder for each target: its seeds, which `UPDATE_CORPORA=1` writes, and what
//! once found something, which stays for ever. With `SDAM_SPECIFICATIONS`, what the official suites
//! contain is tried too.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sdam_core::rng::Rng;
use sdam_simulation::fuzz::{Seed, TARGETS, Target, from_suites};

/// The number of inputs that a target may have in `corpora/`.
const MAX_INPUTS: usize = 80;

/// The number of alterations of each input, and of places at most.
const ALTERATIONS: u64 = 24;
const MAX_PLACES: u64 = 6;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora")
}

fn inputs(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpora().join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| {
        panic!("{}: {error}; UPDATE_CORPORA=1 makes the seeds", folder.display())
    });
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Tries all inputs, and names those that break a law.
fn run<N: std::fmt::Debug>(target: &Target, inputs: impl IntoIterator<Item = (N, Vec<u8>)>) {
    let breaks = |(name, bytes): (N, Vec<u8>)| {
        catch_unwind(AssertUnwindSafe(|| target.run(&bytes))).is_err().then_some(name)
    };
    let broken: Vec<N> = inputs.into_iter().filter_map(breaks).collect();
    assert!(broken.is_empty(), "{}: {broken:?}", target.name);
}

/// The same input with a few bytes altered: what a fuzzer does first, always in the same way.
fn altered((path, bytes): (PathBuf, Vec<u8>)) -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..ALTERATIONS).map(move |number| {
        let (mut rng, mut bytes) = (Rng::new(number), bytes.clone());
        let mut below = |limit: u64| usize::try_from(rng.next_u64() % limit.max(1)).unwrap();
        for _ in 0..=below(MAX_PLACES) {
            let (at, byte) = (below(bytes.len() as u64 + 1), below(256) as u8);
            match below(4) {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ if at < bytes.len() => bytes[at] = byte,
                _ => bytes.push(byte),
            }
        }
        (format!("{} altered with seed {number}", path.display()), bytes)
    })
}

/// Returns the folder of the official suites, which may be missing, but not in CI.
fn suites() -> Option<OsString> {
    let folder = env::var_os("SDAM_SPECIFICATIONS");
    if folder.is_none() {
        assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "SDAM_SPECIFICATIONS is not set");
    }
    folder
}

macro_rules! over_its_inputs {
    ($($name:ident)*) => {
        /// The targets that have a test.
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let target = TARGETS.iter().find(|target| target.name == stringify!($name));
            let target = target.expect("a target of this name");
            run(target, inputs(target));
            run(target, inputs(target).into_iter().flat_map(altered));
            if let Some(folder) = suites() {
                let seeds = from_suites(target.name, Path::new(&folder)).unwrap();
                run(target, seeds.into_iter().map(|seed| (seed.name, seed.bytes)));
            }
        })*
    };
}

over_its_inputs! {
    frames hello documents relay compressed uri dns scram socks5 topology pool operations chunks
    selection traces
}

#[test]
fn every_target_has_a_test_and_a_binary() {
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, TESTED.iter().copied().collect(), "tests");
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let readme = fs::read_to_string(fuzz.join("README.md")).unwrap();
    let binaries = fs::read_dir(fuzz.join("fuzz_targets")).unwrap().count();
    assert_eq!(binaries, names.len(), "each binary runs a target of its name");
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml: {name}");
        let source = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("fuzz::{name}(bytes)")), "{name} is run");
        assert!(readme.contains(&format!("| `{name}` |")), "fuzz/README.md: {name}");
    }
}

#[test]
fn corpora_hold_the_seeds_and_are_small() {
    let update = env::var_os("UPDATE_CORPORA").is_some();
    for target in TARGETS {
        let folder = corpora().join(target.name);
        let seeds = (target.seeds)();
        let names: BTreeSet<&str> = seeds.iter().map(|seed| &*seed.name).collect();
        assert_eq!(names.len(), seeds.len(), "{}: two seeds of one name", target.name);
        if update {
            write(&folder, &seeds);
        }
        for seed in &seeds {
            let committed = fs::read(folder.join(&seed.name));
            let same = committed.is_ok_and(|bytes| bytes == seed.bytes);
            assert!(same, "{}/{}: UPDATE_CORPORA=1 writes it again", target.name, seed.name);
        }
        let inputs = inputs(target);
        assert!(inputs.len() <= MAX_INPUTS, "{}: {} inputs", target.name, inputs.len());
        for (path, bytes) in inputs {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(bytes.len() <= target.max_len, "{}: {} bytes", path.display(), bytes.len());
            let known = names.contains(&*name) || name.starts_with("found-");
            assert!(known, "{}: neither a seed nor a finding", path.display());
        }
    }
}

/// Writes the seeds; what is neither a seed nor a finding is removed.
fn write(folder: &Path, seeds: &[Seed]) {
    fs::create_dir_all(folder).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().starts_with("found-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for seed in seeds {
        fs::write(folder.join(&seed.name), &seed.bytes).unwrap();
    }
}

/// Writes the first inputs for a fuzzer: `scripts/fuzz` names the folder.
#[test]
fn seeds_are_written_for_a_fuzzer_that_asks() {
    let Some(folder) = env::var_os("SDAM_FUZZ_SEEDS") else { return };
    for target in TARGETS {
        let folder = Path::new(&folder).join(target.name);
        fs::create_dir_all(&folder).unwrap();
        let mut seeds = (target.seeds)();
        if let Some(suites) = env::var_os("SDAM_SPECIFICATIONS") {
            seeds.extend(from_suites(target.name, Path::new(&suites)).unwrap());
        }
        for (path, bytes) in inputs(target) {
            fs::write(folder.join(path.file_name().unwrap()), bytes).unwrap();
        }
        for seed in seeds {
            fs::write(folder.join(format!("seed-{}", seed.name)), seed.bytes).unwrap();
        }
    }
}
