//! The beginnings and the ends of streams (Change Streams, "Resume Process").

use bson::{Document, doc};
use sdam_core::bson;

use super::{aggregate, more, reported, rest, token, watch};
use crate::tests::data::{ask, batch, client, code, cursor_id, insert, keeping, must};
use crate::tests::{ConnectionId, MemberId, World, options};
use crate::{Deployment, ServerVersion};

/// A stream that has reported three documents, and the tokens of these events.
fn three() -> (World, ConnectionId, Vec<Document>) {
    let (mut world, connection) = client();
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    insert(&mut world, connection, vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    insert(&mut world, connection, vec![doc! { "_id": 3 }]);
    let events = batch(&must(&mut world, connection, more(id, 0)));
    let tokens = events.iter().map(|it| it.get_document("_id").unwrap().clone()).collect();
    (world, connection, tokens)
}

#[test]
fn a_stream_goes_on_behind_a_token() {
    let (mut world, connection, tokens) = three();
    for option in ["resumeAfter", "startAfter"] {
        let from = |world: &mut World, token: &Document| {
            reported(&must(world, connection, watch(doc! { option: token.clone() })))
        };
        assert_eq!(from(&mut world, &tokens[0]), ["insert 2", "insert 3"]);
        assert_eq!(from(&mut world, &tokens[1]), ["insert 3"]);
        assert!(from(&mut world, &tokens[2]).is_empty());
    }
    // Without an event, the token that the stream had stays.
    let again = must(&mut world, connection, watch(doc! { "resumeAfter": tokens[2].clone() }));
    assert_eq!(token(&again), tokens[2]);
}

#[test]
fn a_stream_begins_at_a_time() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let pong = world.ask(connection, &super::super::raw(doc! { "ping": 1 }));
    let time = pong.get_timestamp("operationTime").unwrap();
    insert(&mut world, connection, vec![doc! { "_id": 2 }]);
    let mut stream = watch(doc! { "startAtOperationTime": time });
    stream.insert("cursor", doc! { "batchSize": 0 });
    let opened = must(&mut world, connection, stream);
    assert!(batch(&opened).is_empty());
    assert_eq!(rest(&mut world, connection, cursor_id(&opened)), ["insert 1", "insert 2"]);
}

/// Change Streams, "startAfter": behind an invalidate only that goes on.
#[test]
fn a_collection_that_is_dropped_ends_its_stream() {
    let (mut world, connection, tokens) = three();
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    must(&mut world, connection, doc! { "drop": "x" });
    let ended = must(&mut world, connection, more(id, 1000));
    assert_eq!(
        (reported(&ended), cursor_id(&ended)),
        (vec!["drop".into(), "invalidate".into()], 0)
    );
    assert!(ended.get_document("cursor").unwrap().get_bool("invalidated").unwrap());
    let invalidate = batch(&ended)[1].get_document("_id").unwrap().clone();
    assert_eq!(token(&ended), invalidate);
    insert(&mut world, connection, vec![doc! { "_id": 4 }]);
    let refused = ask(&mut world, connection, watch(doc! { "resumeAfter": invalidate.clone() }));
    assert_eq!(code(&refused), 260);
    let again = must(&mut world, connection, watch(doc! { "startAfter": invalidate }));
    assert_eq!(reported(&again), ["insert 4"]);
    let before = must(&mut world, connection, watch(doc! { "resumeAfter": tokens[2].clone() }));
    assert_eq!(
        (reported(&before), cursor_id(&before)),
        (vec!["drop".into(), "invalidate".into()], 0)
    );
    let drop = batch(&ended)[0].get_document("_id").unwrap().clone();
    let after = must(&mut world, connection, watch(doc! { "resumeAfter": drop }));
    assert_eq!((reported(&after), cursor_id(&after)), (vec!["invalidate".into()], 0));
}

#[test]
fn an_invalidate_that_fills_a_batch_is_followed_by_an_empty_one() {
    let (mut world, connection, _) = three();
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    must(
        &mut world,
        connection,
        doc! { "renameCollection": "test.x", "to": "test.y", "$db": "admin" },
    );
    for expected in ["rename", "invalidate"] {
        let mut one = more(id, 1000);
        one.insert("batchSize", 1);
        let reply = must(&mut world, connection, one);
        assert_eq!((reported(&reply), cursor_id(&reply)), (vec![expected.to_owned()], id));
    }
    let last = must(&mut world, connection, more(id, 1000));
    assert_eq!((reported(&last), cursor_id(&last)), (Vec::new(), 0));
}

#[test]
fn tokens_that_lead_nowhere_are_refused() {
    let (mut world, connection, tokens) = three();
    must(&mut world, connection, doc! { "insert": "y", "documents": [{ "_id": 1 }] });
    let mut elsewhere = watch(doc! { "resumeAfter": tokens[0].clone() });
    elsewhere.insert("aggregate", "y");
    assert_eq!(code(&ask(&mut world, connection, elsewhere)), 280);
    let time = bson::Timestamp { time: 1, increment: 1 };
    let (first, second) = (tokens[0].clone(), tokens[1].clone());
    for (stage, expected) in [
        (doc! { "resumeAfter": {} }, 40647),
        (doc! { "resumeAfter": { "_data": "zz" } }, 9),
        (doc! { "resumeAfter": 5 }, 14),
        (doc! { "resumeAfter": first.clone(), "startAfter": second }, 50865),
        (doc! { "startAfter": first, "startAtOperationTime": time }, 40674),
        (doc! { "startAtOperationTime": 5 }, 14),
        (doc! { "fullDocument": "nonsense" }, 2),
        (doc! { "nonsense": 1 }, 40415),
    ] {
        assert_eq!(code(&ask(&mut world, connection, watch(stage.clone()))), expected, "{stage}");
    }
    let mut local = watch(doc! {});
    local.insert("readConcern", doc! { "level": "local" });
    assert_eq!(code(&ask(&mut world, connection, local)), 72);
}

/// As 4.2.6 and 6.0.27 do: a stream takes the token of another collection, and fails with the first
/// event of its own; since 6.0 with the first that its stages let through.
#[test]
fn the_token_of_another_collection_is_refused_with_the_first_event() {
    for version in [ServerVersion::V5_0, ServerVersion::V6_0] {
        let is_new = version >= ServerVersion::V6_0;
        let (mut world, connection) = keeping(version);
        let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
        insert(&mut world, connection, vec![doc! { "_id": 1 }]);
        let event = batch(&must(&mut world, connection, more(id, 0))).remove(0);
        let resumed = |collection: &str, stages: &[Document]| {
            let token = event.get_document("_id").unwrap().clone();
            aggregate(collection, doc! { "resumeAfter": token }, stages.to_vec())
        };
        let taken = must(&mut world, connection, resumed("y", &[]));
        must(&mut world, connection, doc! { "insert": "y", "documents": [{ "_id": 1 }] });
        let mut more = more(cursor_id(&taken), 0);
        more.insert("collection", "y");
        assert_eq!(code(&ask(&mut world, connection, more)), 280);
        assert_eq!(code(&ask(&mut world, connection, resumed("y", &[]))), 280);
        for stage in
            [doc! { "$match": { "operationType": "delete" } }, doc! { "$redact": "$$PRUNE" }]
        {
            let stages = [stage, doc! { "$match": {} }];
            let opened = ask(&mut world, connection, resumed("y", &stages));
            assert_eq!(opened.get_f64("ok").unwrap() == 1.0, is_new, "{opened}");
        }
        // The stages leave out the event that the token is of.
        let delete = doc! { "q": { "_id": 1 }, "limit": 1 };
        must(&mut world, connection, doc! { "delete": "x", "deletes": [delete] });
        let stages = [doc! { "$match": { "operationType": "delete" } }];
        let opened = ask(&mut world, connection, resumed("x", &stages));
        match is_new {
            true => assert_eq!(code(&opened), 280),
            false => assert_eq!(reported(&opened), ["delete 1"]),
        }
    }
}

/// As 5.0.4 and 6.0.27 do: an event that was handed out goes through the stages once more since
/// 6.0, and fails where one does, or where it cannot be made.
#[test]
fn the_event_of_a_token_may_fail_by_itself() {
    for version in [ServerVersion::V5_0, ServerVersion::V6_0] {
        let (mut world, connection) = keeping(version);
        let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
        insert(
            &mut world,
            connection,
            vec![doc! { "_id": 1, "a": 0 }, doc! { "_id": 2, "a": "b" }],
        );
        let change = doc! { "q": { "_id": 2 }, "u": { "$set": { "a": "c" } } };
        must(&mut world, connection, doc! { "update": "x", "updates": [change] });
        let events = batch(&must(&mut world, connection, more(id, 0)));
        let text = doc! { "$set": { "text": { "$concat": ["$fullDocument.a", "!"] } } };
        let before = doc! { "fullDocumentBeforeChange": "required" };
        for (event, options, stages, expected, shown) in [
            (0, doc! {}, vec![text.clone()], 16702, &["insert 2", "update 2"][..]),
            (1, doc! {}, vec![text], 0, &["update 2"]),
            (2, before, vec![], 47, &[]),
        ] {
            let mut options = options;
            options.insert("resumeAfter", events[event].get_document("_id").unwrap());
            let opened = ask(&mut world, connection, aggregate("x", options, stages));
            match version >= ServerVersion::V6_0 && expected != 0 {
                true => assert_eq!(code(&opened), expected, "{opened}"),
                false => assert_eq!(reported(&opened), shown, "{opened}"),
            }
        }
    }
}

/// As 6.0.27 does: an invalidate comes after its own token whatever the stages leave out, and not
/// after that of an event that they leave out.
#[test]
fn an_invalidate_is_found_behind_any_stages() {
    let (mut world, connection) = keeping(ServerVersion::V6_0);
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    must(&mut world, connection, doc! { "create": "x" });
    must(&mut world, connection, doc! { "drop": "x" });
    let ended = batch(&must(&mut world, connection, more(id, 0)));
    insert(&mut world, connection, vec![doc! { "_id": 4 }]);
    let after = |event: &Document, kinds: &[&str]| {
        let stage = doc! { "startAfter": event.get_document("_id").unwrap().clone() };
        let kinds = doc! { "operationType": { "$in": kinds.to_vec() } };
        aggregate("x", stage, vec![doc! { "$match": kinds }])
    };
    let inserts = must(&mut world, connection, after(&ended[1], &["insert"]));
    assert_eq!(reported(&inserts), ["insert 4"]);
    let nothing = must(&mut world, connection, after(&ended[0], &["insert"]));
    assert_eq!((reported(&nothing), cursor_id(&nothing)), (Vec::new(), 0));
    let without_drop = after(&ended[0], &["insert", "invalidate"]);
    assert_eq!(code(&ask(&mut world, connection, without_drop)), 280);
}

#[test]
fn a_server_of_its_own_has_no_streams() {
    let options = options(ServerVersion::V6_0).with_deployment(Deployment::Standalone);
    let mut options = options.with_keeps_data(true);
    options.members.truncate(1);
    let mut world = World::new(options);
    let connection = world.connect(MemberId(0));
    assert_eq!(code(&ask(&mut world, connection, watch(doc! {}))), 40573);
}
