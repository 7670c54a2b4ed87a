//! The traces of a flight recorder: handed to a callback, or written to files in a folder.
//!
//! Either has a thread of its own, whatever the runtime, so that nothing the client does waits for
//! it; the thread ends when the client is gone.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::Recording;
use sdam_core::bson::DateTime;

#[cfg(test)]
mod tests;

/// The interval at which a thread checks whether there will ever be a client: no event says that
/// there will not.
const GLANCE: Duration = Duration::from_secs(5);

/// The maximum number of files of flight recorders in a folder; no reader needs more, and disks are
/// finite.
pub const MAX_FILES: usize = 100;

/// Calls `callback` with every trace that `recording` hands out.
///
/// # Errors
///
/// The operating system gives no thread.
pub fn on_dump(
    mut recording: Recording,
    mut callback: impl FnMut(String) + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        while let Some(trace) = next(&mut recording) {
            callback(trace);
        }
    };
    thread::Builder::new().name("sdam-flight-recorder".to_owned()).spawn(work).map(drop)
}

/// Writes every trace that `recording` hands out to a file of its own in `folder`, which is created
/// if need be: `sdam-TIME-PROCESS-RANDOM.trace`, in UTC, which only the user that runs the process
/// can read.
///
/// No file is overwritten. Of more than [`MAX_FILES`] files of this form in the folder, whichever
/// process has written them, the oldest are removed; others are left alone.
///
/// `tracing` reports, with target `sdam`, what was written, what cannot be written, and that files
/// begin to be removed.
///
/// ```no_run
/// use sdam_host::{FLIGHT_RECORDER_LEN, Recording};
/// use sdam_host::flight_recorder::dump_to;
///
/// let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
/// // Pass it to the builder of a client: `Topology::builder(options).record(&recording)`.
/// dump_to(recording, "/var/log/shop/sdam".into())?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The operating system gives no thread.
pub fn dump_to(recording: Recording, folder: PathBuf) -> io::Result<()> {
    let mut is_told = false;
    on_dump(recording, move |trace| match write(&folder, &trace, DateTime::now()) {
        Ok(written) => {
            let file = written.file.display();
            tracing::warn!(target: "sdam", "wrote a trace to {file}");
            if let Some(rotated) = written.rotated
                && !std::mem::replace(&mut is_told, true)
            {
                let folder = folder.display();
                match rotated {
                    Ok(()) => tracing::warn!(
                        target: "sdam",
                        "there are {MAX_FILES} traces in {folder}; from now on the oldest are \
                         removed",
                    ),
                    Err(error) => tracing::warn!(
                        target: "sdam",
                        "there are more than {MAX_FILES} traces in {folder}, and the oldest cannot \
                         be removed: {error}",
                    ),
                }
            }
        }
        Err(error) => {
            let folder = folder.display();
            tracing::warn!(target: "sdam", "cannot write a trace to {folder}: {error}");
        }
    })
}

/// A file that was written.
#[derive(Debug)]
struct Written {
    file: PathBuf,
    /// The result of removing the oldest, if there were too many.
    rotated: Option<io::Result<()>>,
}

/// Writes a file that is not there yet, and removes the oldest if there are too many.
fn write(folder: &Path, trace: &str, now: DateTime) -> io::Result<Written> {
    create_folder(folder)?;
    let file = create_file(folder, trace, now)?;
    let rotated = rotate(folder, &file).transpose();
    Ok(Written { file, rotated })
}

fn create_file(folder: &Path, trace: &str, now: DateTime) -> io::Result<PathBuf> {
    let time = now.try_to_rfc3339_string().map_err(io::Error::other)?;
    // 20260825T120000.123Z, with all of its digits, so that names are in the order of time.
    let (seconds, millis) = time.trim_end_matches('Z').split_once('.').unwrap_or((&time, "0"));
    let seconds: String = seconds.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    loop {
        let random = getrandom::u32().map_err(io::Error::other)?;
        let name = format!("sdam-{seconds}.{millis:0<3}Z-{}-{random:08x}.trace", process::id());
        let path = folder.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path).and_then(|mut file| file.write_all(trace.as_bytes())) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                // Half a trace is none, and the disk may be full.
                let _ = fs::remove_file(&path);
                return Err(error);
            }
        }
    }
}

fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Removes the oldest files of flight recorders but not `newest`, and returns whether there were
/// too many.
fn rotate(folder: &Path, newest: &Path) -> io::Result<Option<()>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path != newest && path.file_name().is_some_and(|name| is_ours(&name.to_string_lossy())) {
            files.push(path);
        }
    }
    let Some(excess) = (files.len() + 1).checked_sub(MAX_FILES).filter(|excess| *excess > 0) else {
        return Ok(None);
    };
    files.sort();
    for file in &files[..excess] {
        match fs::remove_file(file) {
            // Another process was as quick.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(Some(()))
}

/// Returns whether a file has the form of name that flight recorders give.
fn is_ours(name: &str) -> bool {
    let parts = name.strip_prefix("sdam-").and_then(|name| name.strip_suffix(".trace"));
    let parts: Vec<&str> = parts.map_or(Vec::new(), |parts| parts.split('-').collect());
    let [time, process, random] = parts[..] else { return false };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    time.len() == "20260825T120000.123Z".len()
        && time.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'.',
            19 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
        && is_digits(process)
        && random.len() == 8
        && random.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn next(recording: &mut Recording) -> Option<String> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match recording.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(trace) => return trace,
            Poll::Pending => thread::park_timeout(GLANCE),
        }
    }
}
