//! Members of the embedded deployment run transactions as real servers do: the same commands in
//! the same order, and the same replies, with the same labels.

use std::ops::RangeFrom;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, Timestamp, doc};
use sdam_cluster::ServerVersion;

/// A command with its database.
type Command = (&'static str, Document);

/// The commands of one session, in which each transaction has a new number.
struct Session {
    id: u8,
    numbers: RangeFrom<i64>,
    number: i64,
}

impl Session {
    fn new(id: u8) -> Self {
        Self { id, numbers: 1.., number: 0 }
    }

    fn lsid(&self) -> Document {
        doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![self.id; 16] } }
    }

    /// A command of the transaction of this number.
    fn numbered(&self, mut command: Document, number: i64) -> Document {
        command.insert("lsid", self.lsid());
        command.insert("txnNumber", number);
        command.insert("autocommit", false);
        command
    }

    /// A command of the newest transaction.
    fn next(&self, command: Document) -> Document {
        self.numbered(command, self.number)
    }

    /// The first command of a new one.
    fn first(&mut self, command: Document) -> Document {
        self.number = self.numbers.next().unwrap_or(i64::MAX);
        let mut command = self.next(command);
        command.insert("startTransaction", true);
        command
    }

    fn commit(&self) -> Command {
        ("admin", self.next(doc! { "commitTransaction": 1 }))
    }

    fn abort(&self) -> Command {
        ("admin", self.next(doc! { "abortTransaction": 1 }))
    }
}

fn find() -> Document {
    doc! { "find": "t", "filter": { "_id": 0 } }
}

fn put(id: i32) -> Document {
    doc! { "insert": "t", "documents": [{ "_id": id }] }
}

fn set(id: i32, value: i32) -> Document {
    doc! { "update": "t", "updates": [{ "q": { "_id": id }, "u": { "$set": { "a": value } } }] }
}

fn delete(id: i32) -> Document {
    doc! { "delete": "t", "deletes": [{ "q": { "_id": id }, "limit": 1 }] }
}

fn with(mut command: Document, fields: Document) -> Document {
    command.extend(fields);
    command
}

/// Returns the commands of transactions, and what surrounds them.
pub(crate) fn script(version: ServerVersion) -> Vec<Command> {
    let documents: Vec<_> = (0..8).map(|id| doc! { "_id": id, "a": 0 }).collect();
    let mut script = vec![
        ("test", doc! { "create": "t" }),
        ("test", doc! { "create": "other" }),
        ("test", doc! { "create": "tcapped", "capped": true, "size": 4096 }),
        ("test", doc! { "insert": "t", "documents": documents }),
    ];
    script.extend(life());
    script.extend(forms());
    script.extend(commands(version));
    script.extend(concerns());
    script.extend(cursors(version));
    script.extend(conflicts());
    script.extend(collections(version));
    script.extend(labels(version));
    for name in ["t", "other", "tcapped"] {
        script.push(("test", doc! { "drop": name }));
    }
    script
}

/// Transactions that begin, go on, and end more than once; and retryable writes between them.
fn life() -> Vec<Command> {
    let mut session = Session::new(1);
    let mut all = Vec::new();
    let retryable = |session: &Session, id: i32, number: i64| {
        ("test", with(put(id), doc! { "lsid": session.lsid(), "txnNumber": number }))
    };
    all.push(("test", session.first(put(10))));
    all.push(("test", session.next(doc! { "find": "t" })));
    all.push(("test", doc! { "find": "t" }));
    all.push(("test", with(session.next(put(11)), doc! { "startTransaction": true })));
    all.push(("test", session.next(find())));
    all.extend([session.commit(), session.commit(), session.abort()]);
    all.push(("test", session.next(find())));
    all.push(("test", with(session.next(find()), doc! { "startTransaction": true })));
    for number in [0, 5] {
        all.push(("test", session.numbered(find(), number)));
        for end in ["commitTransaction", "abortTransaction"] {
            all.push(("admin", session.numbered(doc! { end: 1 }, number)));
        }
    }
    all.push(("test", session.first(put(12))));
    all.extend([session.abort(), session.abort(), session.commit()]);
    all.push(("test", session.next(find())));
    all.push(("test", session.first(put(12))));
    all.push(("test", session.first(find())));
    all.push(("test", session.numbered(find(), session.number - 1)));
    all.extend([session.commit(), session.commit()]);
    all.push(retryable(&session, 13, session.number));
    session.number = session.numbers.next().unwrap_or_default();
    all.push(retryable(&session, 13, session.number));
    all.push(("test", session.next(find())));
    all.push(("test", with(session.next(find()), doc! { "startTransaction": true })));
    all.push(session.commit());
    all.push(("test", session.first(put(14))));
    all.push(retryable(&session, 15, session.number));
    session.number = session.numbers.next().unwrap_or_default();
    all.push(retryable(&session, 15, session.number));
    all.push(("test", session.numbered(find(), session.number - 1)));
    for kill in ["endSessions", "refreshSessions", "killSessions"] {
        all.push(("test", session.first(put(14))));
        all.push(("admin", doc! { kill: [session.lsid()] }));
        all.push(("test", session.next(find())));
    }
    all.push(session.commit());
    all.push(("test", doc! { "find": "t" }));
    all
}

/// Fields that do not fit together.
fn forms() -> Vec<Command> {
    let session = Session::new(2);
    let lsid = session.lsid();
    let fields = [
        doc! { "lsid": lsid.clone(), "txnNumber": 1_i64, "autocommit": true },
        doc! { "lsid": lsid.clone(), "autocommit": false },
        doc! { "txnNumber": 1_i64, "autocommit": false },
        doc! { "lsid": lsid.clone(), "txnNumber": 1_i64, "startTransaction": true },
        doc! { "lsid": lsid.clone(), "startTransaction": true },
        doc! { "lsid": lsid.clone(), "txnNumber": -1_i64, "autocommit": false },
    ];
    let mut all: Vec<Command> =
        fields.into_iter().map(|fields| ("test", with(find(), fields))).collect();
    let number = doc! { "lsid": lsid.clone(), "txnNumber": 1_i64 };
    all.push(("test", with(doc! { "ping": 1 }, number.clone())));
    let wrong = with(session.numbered(find(), 1), doc! { "startTransaction": false });
    all.push(("test", wrong));
    for end in ["commitTransaction", "abortTransaction"] {
        let end = doc! { end: 1 };
        all.push(("admin", end.clone()));
        all.push(("admin", with(end.clone(), doc! { "lsid": lsid.clone() })));
        all.push(("test", session.numbered(end.clone(), 1)));
        let start = doc! { "startTransaction": true };
        all.push(("admin", with(session.numbered(end, 1), start)));
    }
    all
}

/// Commands on `test` that may not be in a transaction, or fail in it.
fn on_test() -> Vec<Document> {
    let stage = |stage: Document| doc! { "aggregate": "t", "pipeline": [stage], "cursor": {} };
    let index = |collection: &str, key: &str| {
        doc! { "createIndexes": collection, "indexes": [{ "key": { key: 1 }, "name": "n" }] }
    };
    vec![
        doc! { "count": "t" },
        doc! { "listCollections": 1 },
        doc! { "listIndexes": "t" },
        doc! { "drop": "other" },
        doc! { "create": "tnew" },
        doc! { "create": "t" },
        index("t", "a"),
        index("tnew", "a"),
        index("tcapped", "a"),
        doc! { "insert": "tnew", "documents": [{ "_id": 1 }] },
        doc! { "dropIndexes": "t", "index": "*" },
        doc! { "collMod": "t" },
        doc! { "dropDatabase": 1 },
        doc! { "distinct": "t", "key": "a" },
        stage(doc! { "$match": { "_id": 0 } }),
        stage(doc! { "$out": "tout" }),
        stage(doc! { "$merge": "tout" }),
        stage(doc! { "$collStats": { "count": {} } }),
        doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} },
        doc! { "aggregate": "t", "pipeline": [], "explain": true },
        doc! { "explain": { "find": "t" } },
        doc! { "ping": 1 },
        doc! { "killCursors": "t", "cursors": [7_i64] },
        doc! { "getMore": 7_i64, "collection": "t" },
        doc! { "findAndModify": "t", "query": { "_id": 0 }, "update": { "$set": { "a": 1 } } },
        set(99, 1),
        doc! { "delete": "t", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "insert": "tcapped", "documents": [{ "_id": 1 }] },
        doc! { "insert": "system.js", "documents": [{ "_id": 1 }] },
        put(0),
        doc! { "insert": "t", "documents": [{ "_id": 0 }, { "_id": 90 }], "ordered": false },
        doc! { "find": "t", "filter": { "$nonsense": 1 } },
        doc! { "find": "t", "nonsense": 1 },
        doc! { "update": "t", "updates": [{ "q": { "_id": 0 }, "u": { "$nonsense": 1 } }] },
        doc! { "update": "t", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "_id": 1 } } }] },
        doc! { "find": "t", "filter": { "_id": 0 }, "maxTimeMS": 10_000 },
        doc! { "find": "tcapped", "tailable": true },
    ]
}

/// Commands that may not be in a transaction, or fail in it: first in one, and second; each is
/// followed by one that shows whether the transaction goes on.
fn commands(version: ServerVersion) -> Vec<Command> {
    let on_admin = [
        doc! { "listDatabases": 1 },
        doc! { "renameCollection": "test.other", "to": "test.another" },
        doc! { "find": "none" },
        doc! { "endSessions": [Session::new(9).lsid()] },
        doc! { "serverStatus": 1 },
        doc! { "configureFailPoint": "failCommand", "mode": "off" },
    ];
    let elsewhere = [
        ("local", doc! { "find": "none" }),
        ("local", doc! { "insert": "none", "documents": [{ "_id": 1 }] }),
        ("config", doc! { "find": "none" }),
        ("config", doc! { "insert": "none", "documents": [{ "_id": 1 }] }),
    ];
    let on_test = on_test().into_iter().map(|command| ("test", command));
    let on_admin = on_admin.into_iter().map(|command| ("admin", command));
    let mut session = Session::new(3);
    let mut all = Vec::new();
    for (database, command) in on_test.chain(on_admin).chain(elsewhere) {
        all.push((database, session.first(command.clone())));
        all.push(("test", session.next(find())));
        all.push(session.abort());
        all.push(("test", session.first(find())));
        all.push((database, session.next(command)));
        all.push(("test", session.next(find())));
        all.push(session.abort());
    }
    if version >= ServerVersion::V5_0 {
        all.push(("test", session.first(find())));
        let mut commit = session.commit();
        commit.1.insert("nonsense", 1);
        all.extend([commit, session.commit()]);
    }
    all
}

/// Read and write concerns, of commands and of commits.
fn concerns() -> Vec<Command> {
    let level = |level: &str| doc! { "readConcern": { "level": level } };
    let levels = ["local", "majority", "snapshot", "linearizable", "available", "nonsense"];
    let mut fields: Vec<Document> = levels.into_iter().map(level).collect();
    let long_ago = Timestamp { time: 1, increment: 1 };
    fields.extend([
        doc! { "readConcern": {} },
        doc! { "readConcern": { "afterClusterTime": long_ago } },
        doc! { "readConcern": { "level": "local", "atClusterTime": long_ago } },
        doc! { "writeConcern": {} },
        doc! { "writeConcern": { "w": 1 } },
        doc! { "writeConcern": { "w": "majority" } },
        doc! { "writeConcern": { "w": 0 } },
        doc! { "writeConcern": { "wtimeout": 5 } },
        doc! { "$readPreference": { "mode": "secondary" } },
    ]);
    let mut session = Session::new(4);
    let mut all = Vec::new();
    for fields in fields {
        for command in [find(), put(20)] {
            // A write concern of a read is refused for another reason.
            if fields.contains_key("writeConcern") && command.contains_key("find") {
                continue;
            }
            all.push(("test", session.first(with(command.clone(), fields.clone()))));
            all.push(("test", session.next(find())));
            all.push(session.abort());
            all.push(("test", session.first(find())));
            all.push(("test", session.next(with(command, fields.clone()))));
            all.push(("test", session.next(find())));
            all.push(session.abort());
        }
    }
    for concern in [doc! { "w": 2, "wtimeout": 50 }, doc! { "w": "majority" }, doc! { "w": 1 }] {
        let concern = doc! { "writeConcern": concern };
        all.push(("test", session.first(set(7, i32::from(session.id)))));
        for (database, command) in [session.commit(), session.commit(), session.abort()] {
            all.push((database, with(command, concern.clone())));
        }
        all.push(("test", session.first(set(7, 9))));
        let (database, abort) = session.abort();
        all.push((database, with(abort, concern)));
    }
    all.push(("test", session.first(find())));
    let (database, commit) = session.commit();
    let token = doc! { "recoveryToken": { "recoveryShardId": "a" }, "maxTimeMS": 10_000 };
    all.push((database, with(commit.clone(), level("majority"))));
    all.push((database, with(commit, token)));
    all
}

/// Cursors, within transactions and without.
fn cursors(version: ServerVersion) -> Vec<Command> {
    let find = || doc! { "find": "t", "filter": { "_id": { "$lt": 6 } }, "batchSize": 2 };
    let more = || doc! { "getMore": "the cursor", "collection": "t", "batchSize": 1 };
    let kill = || doc! { "killCursors": "t", "cursors": ["the cursor"] };
    let mut session = Session::new(5);
    let (lsid, other) = (session.lsid(), Session::new(6).lsid());
    let mut all = Vec::new();
    let mut add = |command: Document| all.push(("test", command));
    add(session.first(find()));
    add(more());
    add(with(more(), doc! { "lsid": lsid.clone() }));
    add(with(more(), doc! { "lsid": other }));
    add(session.next(more()));
    add(session.next(kill()));
    add(session.next(more()));
    add(with(find(), doc! { "lsid": lsid.clone() }));
    add(session.first(find()));
    add(session.next(more()));
    add(session.next(find()));
    add(with(more(), doc! { "lsid": lsid.clone() }));
    add(find());
    add(with(more(), doc! { "lsid": lsid.clone() }));
    add(more());
    add(session.first(find()));
    let end = session.abort().1;
    all.push(("admin", end));
    all.push(("test", with(more(), doc! { "lsid": lsid })));
    if version >= ServerVersion::V4_4 {
        all.push(("test", session.first(more())));
    }
    all
}

/// Two that change the same.
fn conflicts() -> Vec<Command> {
    let (mut one, mut two) = (Session::new(7), Session::new(8));
    let mut all = Vec::new();
    let modify =
        doc! { "findAndModify": "t", "query": { "_id": 1 }, "update": { "$set": { "a": 9 } } };
    let unique = |id: i32| doc! { "insert": "t", "documents": [{ "_id": id, "u": 1 }] };
    let upsert = doc! { "q": { "_id": 33 }, "u": { "$set": { "a": 1 } }, "upsert": true };
    let upsert = doc! { "update": "t", "updates": [upsert] };
    let index = doc! { "key": { "u": 1 }, "name": "u", "unique": true, "sparse": true };
    all.push(("test", doc! { "createIndexes": "t", "indexes": [index] }));
    // What others have changed since it began.
    for (outside, inside) in [
        (set(0, 1), set(0, 2)),
        (set(0, 1), set(0, 2)),
        (put(30), put(30)),
        (set(1, 1), modify.clone()),
        (set(2, 1), delete(2)),
        (delete(30), set(30, 1)),
        (delete(5), put(5)),
    ] {
        all.push(("test", one.first(find())));
        all.push(("test", outside));
        all.push(("test", one.next(inside)));
        all.push(("test", one.next(find())));
        all.push(one.commit());
    }
    // What another transaction has changed.
    for (first, second) in [
        (set(1, 1), set(1, 2)),
        (set(1, 8), set(1, 2)),
        (set(1, 7), modify),
        (set(1, 6), delete(1)),
        (delete(1), set(1, 3)),
        (put(31), put(31)),
        (unique(32), unique(33)),
        (upsert.clone(), upsert),
        (set(3, 0), set(3, 4)),
    ] {
        all.push(("test", one.first(first)));
        all.push(("test", two.first(second)));
        all.push(("test", two.next(find())));
        all.push(("test", one.next(find())));
        all.extend([one.abort(), two.abort()]);
    }
    // A write outside waits, and gives up.
    let limited = |command| with(command, doc! { "maxTimeMS": 100 });
    all.push(("test", one.first(set(1, 1))));
    all.push(("test", one.next(put(34))));
    for command in [set(1, 5), put(34), delete(1), set(2, 5)] {
        all.push(("test", limited(command)));
    }
    all.push(one.commit());
    all.push(("test", doc! { "find": "t", "sort": { "_id": 1 } }));
    all
}

/// Collections that transactions create and use.
fn collections(version: ServerVersion) -> Vec<Command> {
    let (mut one, mut two) = (Session::new(17), Session::new(18));
    let mut all = Vec::new();
    let limited = |command| with(command, doc! { "maxTimeMS": 100 });
    let named = |name: &str| {
        ("test", doc! { "listCollections": 1, "nameOnly": true, "filter": { "name": name } })
    };
    if version >= ServerVersion::V4_4 {
        all.push(("test", one.first(doc! { "create": "c1" })));
        all.push(named("c1"));
        all.push(("test", two.first(doc! { "create": "c1" })));
        all.push(("test", two.next(doc! { "insert": "c1", "documents": [{ "_id": 1 }] })));
        all.extend([one.commit(), two.commit(), two.commit(), named("c1")]);
        all.push(("test", one.first(doc! { "create": "c2" })));
        all.push(("test", limited(doc! { "create": "c2" })));
        all.extend([one.commit(), named("c2")]);
        let index = doc! { "key": { "a": 1 }, "name": "a" };
        all.push(("test", one.first(doc! { "create": "c3" })));
        all.push(("test", one.next(doc! { "createIndexes": "c3", "indexes": [index] })));
        all.push(("test", one.next(doc! { "insert": "c3", "documents": [{ "_id": 1 }] })));
        all.extend([one.commit(), ("test", doc! { "find": "c3" })]);
        for name in ["c1", "c2", "c3"] {
            all.push(("test", doc! { "drop": name }));
        }
    }
    all.push(("test", one.first(find())));
    all.push(("test", limited(doc! { "drop": "t" })));
    all.push(("test", limited(doc! { "collMod": "t" })));
    all.push(("test", doc! { "create": "c4" }));
    all.push(("test", one.next(doc! { "find": "c4" })));
    all.push(("test", one.first(find())));
    all.push(("test", doc! { "create": "c5" }));
    all.push(("test", one.next(doc! { "insert": "c5", "documents": [{ "_id": 1 }] })));
    all.push(one.abort());
    all.push(("test", doc! { "drop": "c4" }));
    all.push(("test", doc! { "drop": "c5" }));
    all
}

/// Fail points on the commands of transactions, and the labels of each error.
fn labels(version: ServerVersion) -> Vec<Command> {
    let codes = [
        1, 6, 7, 20, 24, 26, 43, 50, 64, 79, 89, 91, 100, 112, 125, 189, 239, 246, 251, 256, 262,
        263, 267, 9001, 10107, 11600, 11601, 11602, 13435, 13436,
    ];
    let mut session = Session::new(19);
    let mut all = Vec::new();
    let point = |data: Document| {
        let mode = doc! { "times": 1 };
        ("admin", doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data })
    };
    let fail = |name: &str, data: Document| point(with(doc! { "failCommands": [name] }, data));
    all.push(("test", session.first(set(0, 19))));
    for code in codes {
        for end in ["find", "commitTransaction", "abortTransaction"] {
            all.push(fail(end, doc! { "errorCode": code }));
            all.push(match end {
                "find" => ("test", session.next(find())),
                "commitTransaction" => session.commit(),
                _ => session.abort(),
            });
        }
    }
    all.push(("test", session.next(find())));
    for code in [64, 91] {
        let concern = doc! { "code": code, "errmsg": "as wanted" };
        all.push(fail("insert", doc! { "writeConcernError": concern.clone() }));
        all.push(("test", session.next(put(40 + code))));
        all.push(fail("commitTransaction", doc! { "writeConcernError": concern }));
        all.push(session.commit());
        all.push(("test", session.first(find())));
    }
    if version >= ServerVersion::V4_4 {
        for labels in [vec!["Own"], vec![]] {
            all.push(fail("commitTransaction", doc! { "errorCode": 251, "errorLabels": labels }));
            all.push(session.commit());
        }
    }
    all.push(session.commit());
    all.push(("admin", doc! { "configureFailPoint": "failCommand", "mode": "off" }));
    all
}
