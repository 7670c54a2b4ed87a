//! Golden traces, files of a test's own, and `sdam` as a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs, process};

pub(crate) fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(arguments).stdin(Stdio::null()).output().expect("a process")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A golden trace.
pub(crate) fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/transcripts");
    folder.join(name).to_str().expect("a path").to_owned()
}

/// A path of a test's own, and what is there in the end goes with it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Nothing is there yet.
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("sdam-traces-{}-{name}", process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    /// A file with this content.
    pub(crate) fn with(name: &str, content: &str) -> Self {
        let scratch = Self::new(name);
        fs::write(&scratch.0, content).expect("a file");
        scratch
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
