//! MONGODB-OIDC, with a member that takes tokens.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bson::{Document, doc, rawdoc};
use sdam::generic::Client;
use sdam::options::CursorType;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MemberId, ServerVersion};
use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::config::{AuthMechanism, Options};
use sdam_core::topology::Topics;

use super::{names, session, started};

/// A deployment that takes two tokens, a client whose provider gives them out one after the other,
/// and how often that was asked.
async fn deployment() -> (EmbeddedCluster, sdam_tokio::Topology, Arc<AtomicU32>) {
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
    (cluster, client.build().unwrap(), calls)
}

/// Has the next command of a name ask for another login.
async fn expire(cluster: &EmbeddedCluster, command: &str) {
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand",
        "mode": { "times": 1 },
        "data": { "failCommands": [command], "errorCode": 391 },
    };
    cluster.run_command(MemberId(0), fail_point).await.unwrap();
}

/// OIDC-M4.5: "Reauthentication Succeeds when a Session is involved".
#[tokio::test]
async fn a_new_login_keeps_the_session_of_the_application() {
    let (cluster, client, calls) = deployment().await;
    let mut events = client.subscribe_to(Topics::COMMANDS);
    let client = Client::from(client);
    expire(&cluster, "find").await;

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

/// Authentication, "Reauthentication": also a cursor whose batches come in a stream goes on behind
/// another login.
#[tokio::test]
async fn a_new_login_keeps_a_cursor_that_is_streamed() {
    let (cluster, client, calls) = deployment().await;
    let things = Client::from(client).database("test").collection::<Document>("things");
    let all = [1, 2, 3, 4, 5].map(|id| doc! { "_id": id });
    things.insert_many(&all).await.unwrap();
    expire(&cluster, "getMore").await;
    let find = things.find(doc! {}).batch_size(2).cursor_type(CursorType::Exhaust);
    let mut cursor = find.await.unwrap();
    for document in all {
        assert_eq!(cursor.next().await.unwrap().unwrap(), document);
    }
    assert!(cursor.next().await.is_none());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
