//! MONGODB-OIDC with the token that a file holds.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use sdam::bson::{RawDocument, rawdoc};
use sdam::core::config::{AuthMechanism, OptionsBuilder};
use sdam::host::CredentialSources;

use crate::fake_server::{FakeServer, first_key, payload, sasl};
use crate::runtimes::{Runtime, failed, is_configuration, ping};

crate::scenarios! {
    a_pods_token_is_read_for_each_login,
    an_environment_that_is_not_built_in_is_named,
}

/// A server that notes the tokens it is shown.
async fn server(shown: &Arc<Mutex<Vec<String>>>) -> FakeServer {
    let shown = Arc::clone(shown);
    FakeServer::start(Arc::new(move |_, command: &RawDocument| {
        if first_key(command) != "saslStart" {
            return Some(rawdoc! { "ok": 1 });
        }
        let token = RawDocument::from_bytes(payload(command)).unwrap();
        shown.lock().unwrap().push(token.get_str("jwt").unwrap().to_owned());
        Some(sasl(true, b""))
    }))
    .await
}

fn environment(name: &'static str) -> impl Fn(OptionsBuilder) -> OptionsBuilder {
    move |options| {
        options.auth_mechanism(AuthMechanism::Oidc).auth_mechanism_property("ENVIRONMENT", name)
    }
}

async fn a_pods_token_is_read_for_each_login(runtime: Runtime) {
    let shown = Arc::default();
    let server = server(&shown).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"first-token\n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let sources = CredentialSources::default()
        .variables(move |name| (name == "AWS_WEB_IDENTITY_TOKEN_FILE").then(|| path.clone()));
    let other = runtime.client(&server, environment("k8s"), sources.clone());
    ping(&*runtime.client(&server, environment("k8s"), sources)).await.unwrap();
    std::fs::write(file.path(), "second-token").unwrap();
    ping(&*other).await.unwrap();
    assert_eq!(*shown.lock().unwrap(), ["first-token", "second-token"]);
    file.close().unwrap();
}

async fn an_environment_that_is_not_built_in_is_named(runtime: Runtime) {
    let server = server(&Arc::default()).await;
    let azure =
        |options| environment("azure")(options).auth_mechanism_property("TOKEN_RESOURCE", "api");
    let failure = failed(&*runtime.client(&server, azure, CredentialSources::default())).await;
    assert!(
        is_configuration(&failure) && failure.detail.contains("ENVIRONMENT:azure"),
        "{failure}"
    );
}
