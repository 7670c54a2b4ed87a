//! The lines that the code under test writes to the log.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

struct Lines<W> {
    lines: Arc<Mutex<Vec<String>>>,
    /// Called while a line is written.
    within: W,
}

impl<W: Fn() + Send + Sync + 'static> Subscriber for Lines<W> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sdam"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.lines));
        (self.within)();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Mutex<Vec<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().expect("no thread panicked").push(format!("{value:?}"));
        }
    }
}

/// Returns what was written to the log with target `sdam` meanwhile, by this thread.
pub(crate) fn log_lines(work: impl FnOnce()) -> Vec<String> {
    log_lines_with(|| (), work)
}

/// As [`log_lines`]; `within` is called while a line is written.
pub(crate) fn log_lines_with(
    within: impl Fn() + Send + Sync + 'static,
    work: impl FnOnce(),
) -> Vec<String> {
    let lines = Arc::default();
    tracing::subscriber::with_default(Lines { lines: Arc::clone(&lines), within }, work);
    let lines = lines.lock().expect("no thread panicked");
    lines.clone()
}
