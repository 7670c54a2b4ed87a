//! The bugs that `scripts/planted-bugs` plants can still be planted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

fn patches() -> io::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sim/planted");
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

#[test]
fn every_planted_bug_says_what_it_plants() {
    let patches = patches().unwrap();
    assert_eq!(patches.len(), 91, "{patches:?}");
    for patch in patches {
        let text = fs::read_to_string(&patch).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("# Plants: "), "{} begins with {first:?}", patch.display());
    }
}

#[test]
fn every_planted_bug_applies_to_what_is_simulated() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    for patch in patches().unwrap() {
        // Git succeeds too if it finds that a patch is none of its business, and says nothing then.
        let mut git = Command::new("git");
        let command = git.arg("apply").args(["--check", "--verbose"]).arg(&patch);
        let output = command.current_dir(root).env("LC_ALL", "C").output().expect("git");
        let said = String::from_utf8_lossy(&output.stderr);
        let simulated = ["core/src/", "host/src/", "src/"];
        let checked = simulated.iter().any(|it| said.contains(&format!("Checking patch {it}")));
        let applies = output.status.success() && checked;
        assert!(applies, "{}: {said}", patch.display());
    }
}
