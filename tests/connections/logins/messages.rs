//! OP_MSG in all its forms: sequences, large messages, streams of replies, and no reply at all.

use sdam_conformance::mongod::Binary;
use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Binary as Bytes, RawDocument, RawDocumentBuf, doc, rawdoc};
use sdam_core::config::Options;
use sdam_core::operation::{InvalidCommand, OperationError};
use sdam_core::selection::Criteria;
use sdam_host::ErrorKind;
use sdam_tokio::{CheckedOut, Topology};

use super::fixture::{client, open_server, play, uri};
use super::recorder::Recorder;
use super::{Outcome, Scenario, V4_2};

pub(crate) const SCENARIOS: [Scenario; 5] = [
    ("documents_travel_in_sequences", V4_2, sequences),
    ("large_documents_take_one_round_trip", V4_2, large),
    ("what_is_too_long_is_not_sent", V4_2, too_long),
    ("replies_are_streamed", V4_2, exhaust),
    ("an_unacknowledged_write_has_no_reply", V4_2, unacknowledged),
];

async fn checked_out(client: &Topology) -> Outcome<CheckedOut> {
    Ok(client.select(Criteria::write()).await?.check_out().await?)
}

async fn count(checked_out: &mut CheckedOut) -> Outcome<i32> {
    let reply = checked_out.command("test", &rawdoc! { "count": "things" }).await?;
    Ok(reply.get_i32("n")?)
}

/// A write command and its sequence: its name, the sequence's, and the statements.
type Write<'a> = (&'static str, &'static str, &'a [&'a RawDocument]);

async fn write(
    checked_out: &mut CheckedOut,
    (name, sequence, statements): Write<'_>,
) -> Outcome<i32> {
    let command = RawDocumentBuf::try_from(&doc! { name: "things" })?;
    let sequences = [(sequence, statements)];
    let reply = checked_out.command_with_sequences("test", &command, &sequences).await?;
    assert!(reply.get("writeErrors")?.is_none(), "{:?}", reply.document());
    Ok(reply.get_i32("n")?)
}

/// MSG-P1, MSG-P2 and MSG-P3: one document within a command, and two of each kind beside it.
fn sequences(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    play(async {
        let recorder = Recorder::default();
        let options = Options::parse(&uri(&server, "", ""))?;
        let client = Topology::builder(options).dialer(recorder.clone()).build()?;
        let mut checked_out = checked_out(&client).await?;
        let one = rawdoc! { "insert": "things", "documents": [{ "_id": 0 }] };
        assert_eq!(checked_out.command("test", &one).await?.get_i32("n")?, 1);
        let documents = [&*rawdoc! { "_id": 1 }, &*rawdoc! { "_id": 2 }];
        let updates = [1, 2].map(|id| rawdoc! { "q": { "_id": id }, "u": { "$set": { "x": id } } });
        let deletes = [1, 2].map(|id| rawdoc! { "q": { "x": id }, "limit": 1 });
        let writes: [Write<'_>; 3] = [
            ("insert", "documents", &documents),
            ("update", "updates", &[&updates[0], &updates[1]]),
            ("delete", "deletes", &[&deletes[0], &deletes[1]]),
        ];
        for (name, sequence, statements) in writes {
            assert_eq!(write(&mut checked_out, (name, sequence, statements)).await?, 2, "{name}");
            let messages = recorder.messages();
            let message = messages.iter().rfind(|message| {
                message.op_msg().is_ok_and(|it| matches!(it.body.get(name), Ok(Some(_))))
            });
            let sent = message.ok_or("nothing was sent")?.op_msg()?;
            assert!(sent.body.get(sequence)?.is_none(), "it is not in the body");
            let sections: Vec<_> = sent.sequences().collect();
            assert_eq!(sections.len(), 1);
            assert_eq!(sections[0].identifier, sequence);
            let found: Result<Vec<_>, _> = sections[0].documents().collect();
            assert_eq!(found?, statements);
        }
        assert_eq!(count(&mut checked_out).await?, 1);
        Ok(())
    })
}

/// A document of exactly so many bytes.
fn document_of(id: i32, length: usize) -> Outcome<RawDocumentBuf> {
    let with = |length| {
        let bytes = Bytes { subtype: BinarySubtype::Generic, bytes: vec![7; length] };
        RawDocumentBuf::try_from(&doc! { "_id": id, "bytes": bytes })
    };
    let around = with(0)?.as_bytes().len();
    Ok(with(length - around)?)
}

/// MSG-P4 and MSG-P5: the limits are those of hello.
fn large(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    play(async {
        let recorder = Recorder::default();
        let options = Options::parse(&uri(&server, "", ""))?;
        let client = Topology::builder(options).dialer(recorder.clone()).build()?;
        let mut checked_out = checked_out(&client).await?;
        let connection_description = checked_out.connection_description().clone();
        for (field, size) in [
            ("maxBsonObjectSize", connection_description.max_bson_object_size),
            ("maxMessageSizeBytes", connection_description.max_message_size_bytes),
            ("maxWriteBatchSize", connection_description.max_write_batch_size),
        ] {
            assert_eq!(
                usize::try_from(connection_description.hello.get_i32(field)?)?,
                size,
                "{field}"
            );
        }
        let small = rawdoc! { "_id": 1 };
        let large = document_of(2, connection_description.max_bson_object_size)?;
        let update = |document: &RawDocumentBuf, id| {
            let mut update = rawdoc! { "q": { "_id": id } };
            update.append(sdam_core::bson::cstr!("u"), document.clone());
            update
        };
        let updates = [update(&small, 1), update(&large, 2)];
        let deletes = [1, 2].map(|id| rawdoc! { "q": { "_id": id }, "limit": 1 });
        let writes: [Write<'_>; 3] = [
            ("insert", "documents", &[&small, &large]),
            ("update", "updates", &[&updates[0], &updates[1]]),
            ("delete", "deletes", &[&deletes[0], &deletes[1]]),
        ];
        for (name, sequence, statements) in writes {
            assert_eq!(write(&mut checked_out, (name, sequence, statements)).await?, 2, "{name}");
            assert_eq!(recorder.count(name), 1);
        }
        Ok(())
    })
}

/// OP_MSG, "maxMessageSizeBytes": a longer message is refused before a byte of it is sent, and the
/// connection goes on; so it does where the server itself refuses a document.
fn too_long(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    play(async {
        let client = client(&uri(&server, "", ""))?;
        let mut checked_out = checked_out(&client).await?;
        let (number, limit) = (
            checked_out.connection_id(),
            checked_out.connection_description().max_message_size_bytes,
        );
        let large = document_of(1, checked_out.connection_description().max_bson_object_size)?;
        let insert = rawdoc! { "insert": "things" };
        let three: &[&RawDocument] = &[&large, &large, &large];
        let refused = checked_out
            .command_with_sequences("test", &insert, &[("documents", three)])
            .await
            .unwrap_err();
        let Some(OperationError::Invalid(InvalidCommand::TooLong { length, limit: allowed })) =
            refused.as_operation()
        else {
            return Err(refused.into());
        };
        assert!(*length > limit && *allowed == limit, "{length} {allowed}");

        // One that is almost as long as may be is one that the server takes.
        let rest = limit - 8192 - insert.as_bytes().len() - "test".len() - 6 - "documents".len();
        let last = document_of(3, rest - 2 * large.as_bytes().len())?;
        let other = document_of(2, checked_out.connection_description().max_bson_object_size)?;
        assert_eq!(
            write(&mut checked_out, ("insert", "documents", &[&large, &other, &last])).await?,
            3
        );
        let mut longer = insert.clone();
        longer.append(sdam_core::bson::cstr!("x"), "x".repeat(8192));
        let three: &[&RawDocument] = &[&large, &other, &last];
        let refused =
            checked_out.command_with_sequences("test", &longer, &[("documents", three)]).await;
        assert_eq!(refused.map_err(|error| error.kind()).err(), Some(ErrorKind::Invalid));

        let larger = document_of(4, checked_out.connection_description().max_bson_object_size + 1)?;
        let one: &[&RawDocument] = &[&larger];
        let refused =
            checked_out.command_with_sequences("test", &insert, &[("documents", one)]).await;
        match refused {
            Err(error) => assert_eq!(error.code(), Some(10334), "{error:?}"),
            Ok(reply) => assert!(reply.get("writeErrors")?.is_some(), "{:?}", reply.document()),
        }
        assert_eq!(count(&mut checked_out).await?, 3);
        drop(checked_out);
        assert_eq!(self::checked_out(&client).await?.connection_id(), number);
        Ok(())
    })
}

/// OP_MSG, "exhaustAllowed": a getMore is answered by all batches that are left.
fn exhaust(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    play(async {
        let client = client(&uri(&server, "", ""))?;
        let mut checked_out = checked_out(&client).await?;
        let documents: Vec<_> = (0..7).map(|id| rawdoc! { "_id": id }).collect();
        let documents: Vec<&RawDocument> = documents.iter().map(|it| &**it).collect();
        assert_eq!(write(&mut checked_out, ("insert", "documents", &documents)).await?, 7);
        let find = rawdoc! { "find": "things", "batchSize": 1, "sort": { "_id": 1 } };
        let cursor =
            checked_out.command("test", &find).await?.get_document("cursor")?.get_i64("id")?;
        let more = rawdoc! { "getMore": cursor, "collection": "things", "batchSize": 2 };
        let mut replies = checked_out.command_exhaust("test", &more).await?;
        let mut batches = Vec::new();
        while let Some(reply) = replies.next().await {
            let reply = reply?;
            let batch = reply.get_document("cursor")?.get_array("nextBatch")?;
            batches.push(batch.into_iter().count());
        }
        assert_eq!(batches.iter().sum::<usize>(), 6, "{batches:?}");
        assert!(batches.len() > 2, "{batches:?}");
        assert_eq!(count(&mut checked_out).await?, 7, "the connection goes on");
        Ok(())
    })
}

/// OP_MSG, "moreToCome": the server does not answer, and what is asked next is answered.
fn unacknowledged(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    play(async {
        let client = client(&uri(&server, "", ""))?;
        let mut checked_out = checked_out(&client).await?;
        for id in 0..3 {
            let insert = rawdoc! {
                "insert": "things", "documents": [{ "_id": id }], "writeConcern": { "w": 0 },
            };
            checked_out.command_unacknowledged("test", &insert).await?;
        }
        assert_eq!(count(&mut checked_out).await?, 3);
        Ok(())
    })
}
