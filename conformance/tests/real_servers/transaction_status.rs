//! Members of the embedded deployment say of their transactions and of their oplog what real
//! servers do: the same fields, of the same types.

use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use libtest_mimic::{Failed, Trial};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_conformance::mongod::{self, Connection, Options, ReplicaSet};
use sdam_core::config::ServerAddress;

use crate::mongod_replies::misfits;

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// An oplog as large as the members'. Without it its size is a share of the disk, and a number of
/// 64 bits on a large one.
const OPLOG: [&str; 2] = ["--oplogSize", "4"];

pub(crate) fn trials(binaries: &[mongod::Binary]) -> Vec<Trial> {
    let newest = binaries.iter().rfind(|it| it.version().major == 6);
    let trial = newest.cloned().map(|binary| {
        let name = format!("transactions_are_counted_as_by_mongod_{}", binary.version());
        Trial::test(name, move || compare(&binary))
    });
    trial.into_iter().collect()
}

fn compare(binary: &mongod::Binary) -> Result<(), Failed> {
    let arguments = OPLOG.map(str::to_owned).to_vec();
    let real = ReplicaSet::start(binary, 1, &Options { arguments, ..Options::default() })?;
    let theirs = said(&real.members()[0].address())?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let options = EmbeddedOptions::default().with_members(1).with_keeps_data(true);
    let embedded = runtime.block_on(async {
        let embedded = EmbeddedCluster::start(options.with_version(ServerVersion::V6_0)).await?;
        embedded.elected().await?;
        Ok::<_, std::io::Error>(embedded)
    })?;
    let own = said(&embedded.addresses()[0].to_string().parse()?)?;
    for ((own, theirs), question) in own.into_iter().zip(theirs).zip(questions()) {
        let misfits = misfits("", &own.into(), &theirs.into());
        assert!(misfits.is_empty(), "{question:?}: {misfits:#?}");
    }
    Ok(())
}

/// The questions of a tool, each with its database and the field of the reply that matters.
fn questions() -> Vec<(&'static str, Document)> {
    let pipeline = vec![
        doc! { "$currentOp": { "allUsers": true, "idleSessions": true } },
        doc! { "$match": { "active": false, "transaction": { "$exists": true } } },
        doc! { "$limit": 1000 },
        doc! { "$project": { "client": 1, "transaction": 1, "lsid.id": 1 } },
    ];
    vec![
        ("admin", doc! { "serverStatus": 1, "oplog": 1 }),
        ("admin", doc! { "getParameter": 1, "transactionLifetimeLimitSeconds": 1 }),
        ("admin", doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} }),
        ("admin", doc! { "getLog": "global" }),
        ("local", doc! { "collStats": "oplog.rs" }),
    ]
}

/// Returns what a member says of a transaction that is open beside one that was committed, and of
/// one that was refused.
fn said(address: &ServerAddress) -> Result<Vec<Document>, Failed> {
    let mut connection = Connection::open(address, LIMIT)?;
    connection.command("test", &doc! { "insert": "x", "documents": [{ "_id": 1 }] }, LIMIT)?;
    // Those that change nothing would not conflict.
    let update = |value: i32| {
        let updates = vec![doc! { "q": { "_id": 1 }, "u": { "$set": { "a": value } } }];
        doc! { "update": "x", "updates": updates, "startTransaction": true }
    };
    let commit = doc! { "commitTransaction": 1 };
    for (session, database, command) in [
        (1_u8, "test", update(1)),
        (1, "admin", commit),
        (2, "test", update(2)),
        (3, "test", update(3)),
    ] {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![session; 16] };
        let mut command = command;
        command.insert("lsid", doc! { "id": id });
        command.insert("txnNumber", 1_i64);
        command.insert("autocommit", false);
        let reply = connection.reply(database, &command, LIMIT)?;
        // The last one conflicts.
        assert_eq!(reply.get_i32("code").ok(), (session == 3).then_some(112), "{reply}");
    }
    let mut all = Vec::new();
    for (database, question) in questions() {
        let mut reply = connection.command(database, &question, LIMIT)?;
        reply.remove("$clusterTime");
        reply.remove("operationTime");
        all.push(reply);
    }
    let counts = all[0].get_document("transactions")?;
    let names = ["currentOpen", "totalStarted", "totalCommitted", "totalAborted"];
    assert_eq!(names.map(|name| counts.get_i64(name).unwrap_or(-1)), [1, 3, 1, 1]);
    Ok(all)
}
