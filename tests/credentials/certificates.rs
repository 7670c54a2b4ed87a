//! The certificate of the client itself, from a function of the application's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::bson::rawdoc;
use sdam::core::config::{OptionsBuilder, Secret};

use crate::fake_server::FakeServer;
use crate::runtimes::{Asked, Client, Runtime, ping};

crate::scenarios! {
    a_provider_of_certificates_that_hangs_is_named_and_asked_once,
}

/// A provider whose vault is sealed.
#[derive(Clone)]
pub(crate) struct Vault {
    asked: Arc<AtomicU32>,
    /// Blocks until the other end is dropped.
    blocks: Arc<Mutex<Receiver<()>>>,
}

impl Vault {
    pub(crate) fn open(&self) -> Result<Secret, &'static str> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let _ = self.blocks.lock().unwrap().recv();
        Err("the vault is sealed")
    }
}

/// Pings until the error says this, as a check may be under way when the first one is due.
async fn until_said(client: &dyn Client, wanted: &[&str]) {
    let mut last = String::new();
    for _ in 0..30 {
        last = ping(client).await.unwrap_err();
        if wanted.iter().all(|wanted| last.contains(wanted)) {
            return;
        }
    }
    panic!("{last}");
}

/// It holds one thread, however many connections want the certificate, and it is what they wait for.
async fn a_provider_of_certificates_that_hangs_is_named_and_asked_once(runtime: Runtime) {
    if matches!(runtime, Runtime::SingleThreaded) {
        // The caller does what blocks, as it has no threads.
        return;
    }
    let server = FakeServer::start(Arc::new(|_, _| Some(rawdoc! { "ok": 1 }))).await;
    let (end, ended) = channel();
    let vault = Vault { asked: Arc::default(), blocks: Arc::new(Mutex::new(ended)) };
    let hurried = |options: OptionsBuilder| {
        options
            .tls(true)
            .connect_timeout(Duration::from_millis(200))
            .server_selection_timeout(Duration::from_secs(1))
    };
    let client = runtime.client(&server, hurried, Asked::vault(vault.clone()));
    let waited = ["certificates that TLS needs", "within 200ms", "the application's"];
    until_said(&*client, &waited).await;
    assert_eq!(vault.asked.load(Ordering::Relaxed), 1);
    drop(end);
    until_said(&*client, &["certificates that TLS needs", "vault is sealed"]).await;
}
