//! What becomes of the traces that a flight recorder hands out: a callback, or files in a folder.
//!
//! Either has a thread of its own, whatever the runtime, so that nothing the client does waits for
//! it; the thread ends when the client is gone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use sdam_core::host::Recording;

/// How many files a flight recorder writes at most; nobody reads more, and disks are finite.
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
/// if need be: `sdam-PROCESS-NUMBER.trace`, [`MAX_FILES`] of them at most.
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
    let mut number = 0;
    on_dump(recording, move |trace| {
        if number == MAX_FILES {
            return;
        }
        let file = folder.join(format!("sdam-{}-{number}.trace", std::process::id()));
        number += 1;
        let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, trace));
        let file = file.display();
        match written {
            Ok(()) => tracing::warn!(target: "sdam", "wrote a trace to {file}"),
            Err(error) => tracing::warn!(target: "sdam", "cannot write a trace to {file}: {error}"),
        }
    })
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
            Poll::Pending => thread::park(),
        }
    }
}
