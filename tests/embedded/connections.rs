//! Connections that lie in the pool, or are on their way to one who waits for them.

use std::future::{Future, poll_fn};
use std::sync::Barrier;
use std::task::Poll;

use bson::{Document, doc, rawdoc};
use sdam::generic::Client;
use sdam_core::config::Options;

use super::scripted::{Answer, Scripted, name};
use super::{Fixture, LIMIT};

/// Connection Monitoring and Pooling, "Checking Out a Connection": a connection on which its server
/// has hung up meanwhile is not handed out, also to an operation that is not sent twice.
#[tokio::test]
async fn a_connection_on_which_the_server_has_hung_up_is_not_used_again() {
    let both = Barrier::new(2);
    let server = Scripted::start(move |command| {
        let hangs_up_others = name(command) == "hangUp";
        if name(command) == "both" {
            both.wait();
        }
        Answer { hangs_up_others, ..Answer::of(rawdoc! { "ok": 1 }) }
    });
    let client = sdam_tokio::Topology::new(Options::parse(&server.uri()).unwrap()).unwrap();
    let database = Client::from(client).database("admin");
    // Each needs a connection of its own, as neither is answered before the other has arrived.
    let both = || async {
        let [one, other] = [(); 2].map(|()| database.run_command(doc! { "both": 1 }).into_future());
        let done = async { tokio::try_join!(one, other) };
        tokio::time::timeout(LIMIT, done).await.expect("both arrive")
    };
    both().await.unwrap();
    // Its reply comes after the end of the other connection.
    database.run_command(doc! { "hangUp": 1 }).await.unwrap();
    both().await.unwrap();
}

/// Connection Monitoring and Pooling, "Checking Out a Connection": one that gives up at the very
/// time when a connection comes back to it leaves the connection to the next.
#[tokio::test]
async fn a_connection_that_is_not_taken_is_there_for_the_next_operation() {
    let fixture = Fixture::new().await;
    let options = Options::parse(&format!("{}&maxPoolSize=1", fixture.uri())).unwrap();
    let client = Client::from(sdam_tokio::Topology::new(options).unwrap());
    let things = client.database("app").collection::<Document>("things");
    things.find_one(doc! {}).await.unwrap();
    let mut uses = things.find_one(doc! {}).into_future();
    let mut waits = things.find_one(doc! {}).into_future();
    for future in [uses.as_mut(), waits.as_mut()] {
        is_pending(future).await;
    }
    uses.await.unwrap();
    // It would have the connection if it was polled.
    drop(waits);
    let next = tokio::time::timeout(LIMIT, things.find_one(doc! {})).await;
    next.expect("the connection is in the pool").unwrap();
}

/// Polls a future, which is pending.
async fn is_pending(mut future: std::pin::Pin<&mut (impl Future + ?Sized)>) {
    let is_pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending);
}
