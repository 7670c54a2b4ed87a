//! The lines that every runtime writes to the application's log when a client is created.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use sdam::core::config::Options;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sdam"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(self));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Lines);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

/// Creates a client with lax TLS, an option of revocation and one that does not exist, and looks
/// for one line about each.
fn is_told_once(create: impl FnOnce(Options)) {
    let uri = "mongodb://127.0.0.1:1/?tlsAllowInvalidHostnames=true&\
               tlsDisableCertificateRevocationCheck=true&foo=bar";
    let (options, lines) = (Options::parse(uri).unwrap(), Lines::default());
    tracing::subscriber::with_default(lines.clone(), || create(options));
    let lines = lines.0.lock().unwrap().clone();
    for wanted in ["\"foo\"", "tlsAllowInvalidHostnames", "tlsDisableCertificateRevocationCheck"] {
        assert_eq!(lines.iter().filter(|line| line.contains(wanted)).count(), 1, "{lines:?}");
    }
}

#[test]
fn tokio_tells_what_is_dangerous_or_in_vain_in_the_options() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    is_told_once(|options| {
        runtime.block_on(async { drop(sdam::tokio::Topology::new(options).unwrap()) });
    });
}

#[test]
fn smol_tells_what_is_dangerous_or_in_vain_in_the_options() {
    is_told_once(|options| {
        smol::block_on(async { drop(sdam::smol::Topology::connect(options).await.unwrap()) });
    });
}

#[test]
fn threads_tell_what_is_dangerous_or_in_vain_in_the_options() {
    is_told_once(|options| drop(sdam::blocking::Topology::connect(options).unwrap()));
}
