//! MONGODB-OIDC, with a member that takes tokens.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bson::{Document, doc, rawdoc};
use sdam::generic::Client;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MemberId, ServerVersion};
use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::config::{AuthMechanism, Options};
use sdam_core::topology::Topics;

use super::{names, session, started};

/// OIDC-M4.5: "Reauthentication Succeeds when a Session is involved".
#[tokio::test]
async fn a_new_login_keeps_the_session_of_the_application() {
    let tokens = ["token-1", "token-2"].map(Into::into).to_vec();
    let members = EmbeddedOptions::default().with_members(1).with_keeps_data(true);
    let members = members.with_version(ServerVersion::V7_0).with_oidc_tokens(tokens);
    let cluster = EmbeddedCluster::start(members).await.unwrap();
    cluster.elected().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let provider = move |_: CredentialRequest| {
        let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            Ok::<_, Infallible>(CredentialResponse::Oidc(OidcToken::new(format!("token-{number}"))))
        }
    };
    let options = Options::builder().uri(&cluster.uri()).unwrap();
    let options = options.auth_mechanism(AuthMechanism::Oidc).oidc_callback(true).build().unwrap();
    let client = sdam_tokio::Topology::builder(options).credential_provider(provider);
    let client = client.build().unwrap();
    let mut events = client.subscribe_to(Topics::COMMANDS);
    let client = Client::from(client);
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand",
        "mode": { "times": 1 },
        "data": { "failCommands": ["find"], "errorCode": 391 },
    };
    cluster.run_command(MemberId(0), fail_point).await.unwrap();

    let own = client.start_session().await.unwrap();
    let things = client.database("test").collection::<Document>("things").with_session(&own);
    assert_eq!(things.find_one(doc! {}).await.unwrap(), None);
    assert_eq!(calls.load(Ordering::Relaxed), 2, "at the handshake, and for the new login");
    let mut sent = Vec::new();
    while let Some(event) = events.try_next() {
        sent.extend(started(event).map(|(command, _)| command));
    }
    assert_eq!(names(&sent), ["find", "find"]);
    let id = Document::try_from(own.id().unwrap()).unwrap();
    assert!(sent.iter().all(|command| *session(command) == id), "{sent:?}");
    own.end();
}
