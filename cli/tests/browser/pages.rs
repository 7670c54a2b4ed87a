//! Pages that `sdam report` has made, in files of their own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use crate::chromium::Outcome;

/// The recording that shows most: of a real set, one primary steps down and another one is killed
/// while an application writes.
pub(crate) const FAILOVER: &str = "conformance/transcripts/6.0-writes.trace";

/// A page in a file, which goes with it.
pub(crate) struct Page(PathBuf);

impl Page {
    /// Makes a page of a trace or a log.
    pub(crate) fn of(source: &Path) -> Outcome<Self> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("sdam-page-{}-{number}.html", process::id()));
        let made = Command::new(env!("CARGO_BIN_EXE_sdam"))
            .arg("report")
            .arg(source)
            .args([OsStr::new("--force"), OsStr::new("-o"), path.as_os_str()])
            .stdin(Stdio::null())
            .output()?;
        match made.status.success() {
            true => Ok(Self(path)),
            false => Err(String::from_utf8_lossy(&made.stderr).into_owned().into()),
        }
    }

    /// Makes a page of that recording.
    pub(crate) fn of_failover() -> Outcome<Self> {
        Self::of(&root().join(FAILOVER))
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    pub(crate) fn html(&self) -> Outcome<String> {
        Ok(fs::read_to_string(&self.0)?)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Returns all incidents that are kept: recordings of real sets, and logs of drivers.
pub(crate) fn kept() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (folder, extension) in [("conformance/transcripts", "trace"), ("conformance/logs", "jsonl")]
    {
        let entries = fs::read_dir(root().join(folder)).expect("the folder can be read");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|it| it == extension)));
    }
    found.sort();
    assert!(found.len() >= 30, "there are only {} incidents", found.len());
    found
}
