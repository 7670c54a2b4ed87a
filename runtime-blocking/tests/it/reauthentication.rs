//! Logging in once more, while the connection is in the hands of a thread that blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::fake_server::{FakeServer, error, first_key, sasl};
use sdam_blocking::Topology;
use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::bson::{RawDocument, rawdoc};
use sdam_core::config::{AuthMechanism, Options};

/// Authentication, "Reauthentication".
#[test]
fn a_provider_on_another_thread_is_waited_for() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let expired = AtomicBool::new(true);
    let answer = move |_, command: &RawDocument| match first_key(command).as_str() {
        "ping" if expired.swap(false, Ordering::Relaxed) => Some(error(391)),
        "saslStart" => Some(sasl(true, b"")),
        _ => Some(rawdoc! { "ok": 1 }),
    };
    let server = runtime.block_on(FakeServer::start(Arc::new(answer)));
    let options = Options::builder()
        .uri(&format!("mongodb://{}", server.address))
        .unwrap()
        .auth_mechanism(AuthMechanism::Oidc)
        .oidc_callback(true);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let client = Topology::builder(options.build().unwrap())
        .credential_provider(move |_: CredentialRequest| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            // It may block, and as long as that the reply is not to be waited for.
            std::thread::sleep(Duration::from_millis(20));
            async move {
                Ok::<_, String>(CredentialResponse::Oidc(OidcToken::new(format!("token-{number}"))))
            }
        })
        .build()
        .unwrap();
    client
        .with_timeout(Duration::from_secs(90))
        .run_command("admin", &rawdoc! { "ping": 1 })
        .unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), server.count("saslStart")), (2, 2));
}
