//! Providers of tokens have the limits that they have with every runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fake_server::{FakeServer, error, first_key, payload, sasl, soon};
use sdam_async_std::smol::Topology;
use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::bson::{RawDocument, rawdoc};
use sdam_core::config::{AuthMechanism, Options};

/// A server that wants a new login before the second ping.
async fn serve() -> FakeServer {
    let pings = AtomicU32::new(0);
    FakeServer::start(Arc::new(move |_, command: &RawDocument| {
        Some(match first_key(command).as_str() {
            "saslStart" => {
                let token = RawDocument::from_bytes(payload(command)).unwrap();
                assert_eq!(token.get_str("jwt").unwrap(), "token");
                sasl(true, b"")
            }
            "ping" if pings.fetch_add(1, Ordering::Relaxed) == 1 => error(391),
            _ => rawdoc! { "ok": 1 },
        })
    }))
    .await
}

/// MONGODB-OIDC, "OIDC Callback": the driver itself enforces the time-out that the callback
/// receives. No connection is being established here, whose own time-out would end it.
#[tokio::test]
async fn a_provider_that_hangs_is_given_up() {
    let server = serve().await;
    let options = Options::builder()
        .uri(&format!("mongodb://{}/?connectTimeoutMS=2000", server.address))
        .unwrap()
        .auth_mechanism(AuthMechanism::Oidc)
        .oidc_callback(true)
        .build()
        .unwrap();
    let asked = AtomicU32::new(0);
    let client = Topology::builder(options)
        .credential_provider(move |_: CredentialRequest| {
            let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                match first {
                    true => Ok::<_, String>(CredentialResponse::Oidc(OidcToken::new("token"))),
                    false => std::future::pending().await,
                }
            }
        })
        .build()
        .unwrap();
    let ping = rawdoc! { "ping": 1 };
    soon(client.run_command("admin", &ping)).await.unwrap();
    let error = soon(client.run_command("admin", &ping)).await.unwrap_err().to_string();
    assert!(error.contains("gave none within 2s"), "{error}");
    assert_eq!((server.count("saslStart"), server.count("ping")), (1, 2));
}
