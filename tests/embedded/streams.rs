//! Cursors whose batches come in a stream of replies that breaks.

use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use sdam::generic::Client;
use sdam::options::CursorType;
use sdam_cluster::{Deployment, EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_core::config::Options;
use sdam_core::topology::Topics;
use sdam_core::wire::Flags;
use sdam_host::ErrorKind;

use super::relay::Relay;
use super::scripted::{Answer, Scripted, name};

/// Makes a batch of one document.
fn batch(field: &'static bson::raw::CStr, id: i32) -> RawDocumentBuf {
    let mut cursor = rawdoc! { "id": 7_i64, "ns": "app.things" };
    cursor.append(field, bson::RawArrayBuf::from_iter([rawdoc! { "_id": id }]));
    rawdoc! { "cursor": cursor, "ok": 1 }
}

/// Makes a message of these bytes behind the header, as the answer to this one.
fn message(answered: i32, rest: &[u8]) -> Vec<u8> {
    let length = i32::try_from(16 + rest.len()).unwrap();
    let header = [length, 9000, answered, 2013].map(i32::to_le_bytes);
    [header.as_flattened(), rest].concat()
}

/// The ways in which a reply of a stream is none: a section of an unknown kind, a document that
/// goes on behind its end, a field whose value does, a length that no message has, a reply to
/// another message.
const BROKEN: [fn(i32) -> Vec<u8>; 5] = [
    |answered| message(answered, &[0, 0, 0, 0, 9, 5, 0, 0, 0, 0]),
    |answered| message(answered, &[0, 0, 0, 0, 0, 0x7f, 0, 0, 0, 0]),
    |answered| message(answered, &[0, 0, 0, 0, 0, 13, 0, 0, 0, 2, b'a', 0, 0x7f, 0, 0, 0, 0, 0]),
    |_| vec![1, 0, 0, 0, 0, 0, 0, 0],
    |answered| {
        let mut other = Vec::new();
        let reply = rawdoc! { "ok": 1 };
        sdam_core::wire::write_op_msg(&mut other, 1, answered + 5, Default::default(), &reply);
        other
    },
];

/// OP_MSG, "exhaustAllowed"; find, getMore and killCursors, "Exhaust": what came before a stream
/// broke by bytes that are no reply is read, then there is one error, and an end. The connection is
/// of no more use, and the cursor is closed over another one.
#[tokio::test]
async fn a_stream_that_breaks_by_malformed_bytes_ends_its_cursor_after_what_came_before() {
    for then in BROKEN {
        let streams = AtomicBool::new(false);
        let server = Scripted::start(move |command| match &*name(command) {
            "find" => Answer::of(batch(bson::cstr!("firstBatch"), 1)),
            "getMore" => {
                assert!(!streams.swap(true, Ordering::SeqCst), "it is asked for no more");
                let replies = [2, 3].map(|id| batch(bson::cstr!("nextBatch"), id));
                Answer { replies: replies.into(), then: Some(then), ..Answer::default() }
            }
            _ => Answer::of(rawdoc! { "ok": 1 }),
        });
        let client = sdam_tokio::Topology::new(Options::parse(&server.uri()).unwrap()).unwrap();
        let mut events = client.subscribe_to(Topics::COMMANDS);
        let things = Client::from(client).database("app").collection::<Document>("things");
        let mut cursor = things.find(doc! {}).cursor_type(CursorType::Exhaust).await.unwrap();
        for id in [1, 2, 3] {
            assert_eq!(cursor.next().await.unwrap().unwrap(), doc! { "_id": id });
        }
        let error = cursor.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(cursor.next().await.is_none() && !cursor.is_alive());
        drop(cursor);
        let sent = super::sent_until(&mut events, "killCursors").await;
        // Each batch counts as an answer to a getMore.
        let of = |name| sent.iter().filter(move |(command, _)| super::name(command) == name);
        let (kill, other) = of("killCursors").next().unwrap();
        assert_eq!(kill.get_array("cursors").unwrap(), &[7_i64.into()]);
        let first = sent[0].1;
        assert!(of("getMore").all(|(_, over)| *over == first) && *other != first, "{sent:?}");
        // The server is good for further operations.
        assert!(things.find_one(doc! {}).await.is_ok());
    }
}

/// Mongos streams the batches of a cursor from 7.1 on; find, getMore and killCursors, "Exhaust":
/// "drivers MAY fallback to a non-exhaust cursor".
#[tokio::test]
async fn mongos_streams_batches_if_it_is_new_enough() {
    for (version, asked) in [(ServerVersion::V7_0, 2), (ServerVersion::V8_0, 1)] {
        let options = EmbeddedOptions::default().with_deployment(Deployment::Sharded);
        let options = options.with_members(1).with_version(version).with_keeps_data(true);
        let cluster = EmbeddedCluster::start(options).await.unwrap();
        let relay = Relay::start(cluster.addresses()[0]).await;
        let uri = format!("mongodb://{}", relay.address);
        let client = sdam_tokio::Topology::new(Options::parse(&uri).unwrap()).unwrap();
        let things = Client::from(client).database("app").collection::<Document>("things");
        let all = [1, 2, 3, 4, 5].map(|id| doc! { "_id": id });
        things.insert_many(&all).await.unwrap();
        let find = things.find(doc! {}).batch_size(2).cursor_type(CursorType::Exhaust);
        let mut cursor = find.await.unwrap();
        for document in all {
            assert_eq!(cursor.next().await.unwrap().unwrap(), document, "{version:?}");
        }
        assert!(cursor.next().await.is_none());
        let streams = version == ServerVersion::V8_0;
        let sent = relay.passed("getMore");
        let allows = sent.iter().all(|(_, flags)| flags.contains(Flags::EXHAUST_ALLOWED));
        assert_eq!((allows, sent.len()), (streams, asked), "{version:?}");
    }
}
