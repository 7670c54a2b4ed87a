//! What becomes of the traces that a flight recorder hands out: a callback, or files in a folder.
//!
//! Either has a thread of its own, whatever the runtime, so that nothing the client does waits for
//! it; the thread ends when the client is gone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use sdam_core::host::Recording;

/// How often a thread looks whether there will ever be a client: nobody says that there will not.
const GLANCE: Duration = Duration::from_secs(5);

/// How many files of a process there are in a folder at most; nobody reads more, and disks are
/// finite.
pub const MAX_FILES: u32 = 100;

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
/// if need be: `sdam-PROCESS-NUMBER.trace`, with the first free number below [`MAX_FILES`]. No file
/// is overwritten, be it of another client, or of an earlier process of the same number, as there
/// are in containers.
///
/// What cannot be written is told through `tracing` with target `sdam`.
///
/// ```no_run
/// use sdam_core::host::{FLIGHT_RECORDER_LEN, Recording};
/// use sdam_system::flight_recorder::dump_to;
///
/// let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
/// // The builder of a client is told: `Client::builder(options).record(&recording)`.
/// dump_to(recording, "/var/log/shop/sdam".into())?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The operating system gives no thread.
pub fn dump_to(recording: Recording, folder: PathBuf) -> io::Result<()> {
    on_dump(recording, move |trace| match write(&folder, &trace) {
        Ok(Some(file)) => {
            let file = file.display();
            tracing::warn!(target: "sdam", "wrote a trace to {file}");
        }
        Ok(None) => {}
        Err(error) => {
            let folder = folder.display();
            tracing::warn!(target: "sdam", "cannot write a trace to {folder}: {error}");
        }
    })
}

/// Writes a file that is not there yet; `None` if all are.
fn write(folder: &Path, trace: &str) -> io::Result<Option<PathBuf>> {
    fs::create_dir_all(folder)?;
    for number in 0..MAX_FILES {
        let path = folder.join(format!("sdam-{}-{number}.trace", process::id()));
        match File::create_new(&path) {
            Ok(mut file) => return file.write_all(trace.as_bytes()).map(|()| Some(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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
