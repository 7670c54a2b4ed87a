//! The files of flight recorders, in folders of the tests' own.

use std::fs;
use std::path::{Path, PathBuf};

use sdam_core::bson::DateTime;

use super::{MAX_FILES, is_ours, write};

/// Noon of a day, and so many seconds more.
fn time(seconds: i64) -> DateTime {
    DateTime::from_millis(1_787_659_200_000 + seconds * 1000)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

#[test]
fn names_tell_the_time_and_no_two_are_equal() {
    let folder = tempfile::tempdir().expect("a folder");
    let now = DateTime::from_millis(1_787_659_200_045);
    let write = || write(folder.path(), "a trace", now).expect("a file").file;
    let (first, second) = (write(), write());
    assert_ne!(first, second, "of the same process and millisecond");
    for file in [first, second] {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(is_ours(&name), "{name}");
        let prefix = format!("sdam-20260825T120000.045Z-{}-", std::process::id());
        assert!(name.starts_with(&prefix), "{name}");
        assert_eq!(fs::read_to_string(file).expect("a trace"), "a trace");
    }
    let whole = write_at(folder.path(), time(1));
    assert!(whole.contains("20260825T120001.000Z"), "{whole}");
}

fn write_at(folder: &Path, now: DateTime) -> String {
    write(folder, "a trace", now).expect("a file").file.display().to_string()
}

#[test]
fn beyond_100_files_the_oldest_go_and_others_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let strangers = ["sdam-1-0.trace", "notes.trace", "sdam-20260825T120000.000Z-1-0.trace.gz"];
    for stranger in strangers {
        fs::write(folder.path().join(stranger), "").expect("a file");
    }
    // Some of an earlier process, which in a container has the same number.
    let earlier = |n| format!("sdam-20260824T120000.00{n}Z-1-0000000{n}.trace");
    for n in 0..3 {
        fs::write(folder.path().join(earlier(n)), "").expect("a file");
    }
    let last = i64::try_from(MAX_FILES).expect("a small number");
    for n in 0..last - 3 {
        let written = write(folder.path(), "a trace", time(n)).expect("a file");
        assert!(written.rotated.is_none(), "{n}");
    }
    assert_eq!(files(folder.path()).len(), MAX_FILES + strangers.len());
    for n in last - 3..last + 1 {
        let written = write(folder.path(), "a trace", time(n)).expect("a file");
        assert!(matches!(written.rotated, Some(Ok(()))), "it says so");
        assert!(written.file.exists());
        let left = files(folder.path());
        assert_eq!(left.len(), MAX_FILES + strangers.len());
        assert!(strangers.iter().all(|stranger| left.contains(&(*stranger).to_owned())));
    }
    let left = files(folder.path());
    assert!((0..3).all(|n| !left.contains(&earlier(n))), "{left:?}");
    let first_of_ours = left.iter().find(|name| is_ours(name)).expect("files");
    assert!(first_of_ours.contains("20260825T120001.000Z"), "the fourth to go was of second 0");
}

#[test]
fn a_clock_that_was_set_back_does_not_remove_what_was_just_written() {
    let folder = tempfile::tempdir().expect("a folder");
    for n in 0..MAX_FILES {
        write_at(folder.path(), time(i64::try_from(n).expect("a small number")));
    }
    let written = write(folder.path(), "a trace", time(-60)).expect("a file");
    assert!(written.file.exists());
    assert_eq!(files(folder.path()).len(), MAX_FILES);
}

#[cfg(unix)]
#[test]
fn only_the_user_can_read_traces() {
    use std::os::unix::fs::PermissionsExt as _;
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("deep/er");
    let file = PathBuf::from(write_at(&folder, time(0)));
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(&folder), 0o700);
}

#[test]
fn a_folder_that_cannot_be_is_an_error() {
    let outer = tempfile::tempdir().expect("a folder");
    let file = outer.path().join("a file");
    fs::write(&file, "").expect("a file");
    write(&file, "a trace", time(0)).expect_err("it is no folder");
}
