//! The log of a client, collected through `tracing` as applications do it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bson::{Bson, Document};
use sdam_core::logging::{Component as Logs, LogSettings};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level as Severity, Metadata, Subscriber};

use crate::unified::format::{Component, Level};
use crate::unified::play::Logged;

/// The maximum length of documents in messages, in code points.
const LONGEST_DOCUMENT: usize = 100_000;

/// The messages of a client that were not read yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<LogState>>);

#[derive(Debug, Default)]
struct LogState {
    messages: Vec<Logged>,
    waker: Option<Waker>,
}

impl Log {
    /// Returns the collector that a client is to be made with: of each component, messages of this
    /// level and of graver ones.
    pub(super) fn collector(&self, levels: &[(Component, Level)]) -> Dispatch {
        Dispatch::new(Collector { log: self.clone(), levels: levels.to_vec() })
    }

    /// Returns the settings of clients whose log is read: documents are whole, as they are parsed.
    pub(super) fn settings() -> LogSettings {
        let mut settings = LogSettings::default();
        settings.max_document_length = LONGEST_DOCUMENT;
        settings
    }

    /// Returns what was logged since the last call, and arranges for a wake-up.
    pub(super) fn read(&self, cx: &Context<'_>) -> Vec<Logged> {
        let mut state = self.lock();
        state.waker = Some(cx.waker().clone());
        std::mem::take(&mut state.messages)
    }

    fn add(&self, message: Logged) {
        let mut state = self.lock();
        state.messages.push(message);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscriber of `tracing` that keeps the messages of one client.
struct Collector {
    log: Log,
    levels: Vec<(Component, Level)>,
}

impl Subscriber for Collector {
    /// Each client has another subscriber, so that none answers for all.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let Some(component) = component(metadata.target()) else { return false };
        let severity = level(metadata.level());
        self.levels.iter().any(|(of, least)| *of == component && severity <= *least)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if let Some(component) = component(metadata.target()) {
            let mut fields = Fields(Document::new());
            event.record(&mut fields);
            self.log.add(Logged { level: level(metadata.level()), component, data: fields.0 });
        }
    }

    // No span is ever opened.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Finds the component of a target.
fn component(target: &str) -> Option<Component> {
    let of = Logs::ALL.into_iter().find(|component| component.target() == target)?;
    let named = Component::NAMES.iter().find(|(name, _)| *name == of.name());
    named.map(|(_, component)| *component)
}

fn level(severity: &Severity) -> Level {
    match *severity {
        Severity::ERROR => Level::Error,
        Severity::WARN => Level::Warning,
        Severity::INFO => Level::Info,
        Severity::DEBUG => Level::Debug,
        _ => Level::Trace,
    }
}

/// The fields of a message.
struct Fields(Document);

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), Bson::String(format!("{value:?}")));
    }
}
