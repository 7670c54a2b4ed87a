//! Members of the embedded deployment that keep data answer as real servers do: the same commands
//! in the same order, and the same replies.

use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};
use libtest_mimic::{Failed, Trial};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_conformance::mongod::{self, Connection, Options, ReplicaSet};

use super::{change_replies, named_as_newest, transaction_replies};

type Outcome<T = ()> = Result<T, Failed>;

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// The fields of replies, and of errors in them, that depend on when and by whom they are given,
/// and messages: each server words them differently from version to version.
const VOLATILE: [&str; 18] = [
    "$clusterTime",
    "operationTime",
    "topologyVersion",
    "opTime",
    "electionId",
    "errmsg",
    "errInfo",
    "id",
    "uuid",
    "sizeOnDisk",
    "totalSize",
    "totalSizeMb",
    "atClusterTime",
    "commitQuorum",
    "idIndex",
    "ns",
    "clusterTime",
    "wallTime",
];

pub(crate) fn trials(binaries: &[mongod::Binary]) -> Vec<Trial> {
    let mut trials =
        vec![Trial::test("a_token_is_of_the_kind_that_its_place_says", kinds_of_tokens)];
    for binary in binaries {
        let name = format!("members_that_keep_data_reply_as_mongod_{}", binary.version());
        let (of_data, of_transactions, of_changes) =
            (binary.clone(), binary.clone(), binary.clone());
        trials.push(Trial::test(name, move || compare(&of_data, script, &twice_identified())));
        let name =
            format!("members_that_keep_data_run_transactions_as_mongod_{}", binary.version());
        let script = transaction_replies::script;
        trials.push(Trial::test(name, move || compare(&of_transactions, script, &[])));
        let name = format!("members_that_keep_data_report_changes_as_mongod_{}", binary.version());
        trials.push(Trial::test(name, move || compare(&of_changes, changes_of(&of_changes), &[])));
    }
    trials
}

/// Returns the commands about change streams that a server knows: since 6.0.9 it splits large
/// events, and 6.0.27 looks for the event of a token behind `$redact`, which 6.0.5 does not.
fn changes_of(
    binary: &mongod::Binary,
) -> impl FnOnce(ServerVersion) -> Vec<(&'static str, Document)> {
    let splits = binary.version() >= mongod::Version { major: 6, minor: 0, patch: 9 };
    let is_known = move |command: &Document| {
        let text = command.to_string();
        let of_later = ["$changeStreamSplitLargeEvent", change_replies::FOUND_BEHIND_REDACT];
        splits || !of_later.iter().any(|it| text.contains(it))
    };
    move |version| {
        let script = change_replies::script(version).into_iter();
        script.filter(|(_, command)| is_known(command) || version < ServerVersion::V6_0).collect()
    }
}

fn compare(
    binary: &mongod::Binary,
    script: impl FnOnce(ServerVersion) -> Vec<(&'static str, Document)>,
    raw: &[RawDocumentBuf],
) -> Outcome {
    let version = match (binary.version().major, binary.version().minor) {
        (4, 2) => ServerVersion::V4_2,
        (4, 4) => ServerVersion::V4_4,
        (5, 0) => ServerVersion::V5_0,
        (6, 0) => ServerVersion::V6_0,
        _ => return Ok(()),
    };
    let real = ReplicaSet::start(binary, 1, &Options::default())?;
    let address = real.members()[real.primary()?].address();
    let mut theirs = Server::open(&address)?;

    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let options = EmbeddedOptions::default().with_members(1).with_version(version);
    let embedded = runtime.block_on(async {
        let embedded = EmbeddedCluster::start(options.with_keeps_data(true)).await?;
        embedded.elected().await.map(|_| embedded)
    })?;
    let mut own = Server::open(&embedded.addresses()[0].to_string().parse()?)?;

    let mut different = Vec::new();
    for (database, command) in script(version) {
        let (mut theirs, own) = (theirs.ask(database, &command)?, own.ask(database, &command)?);
        named_as_newest(version, &mut theirs);
        // Servers count for how long they run how often a fail point has struck.
        if own != theirs && !command.contains_key("configureFailPoint") {
            different.push(format!("{command}\n    here  {own:?}\n    there {theirs:?}"));
        }
    }
    for command in raw {
        let theirs = theirs.answer(command)?;
        let own = own.answer(command)?;
        if own != theirs {
            different.push(format!("{command:?}\n    here  {own:?}\n    there {theirs:?}"));
        }
    }
    match different.is_empty() {
        true => Ok(()),
        false => Err(different.join("\n").into()),
    }
}

/// A server, the cursor that it has opened last, and its last resume token.
struct Server {
    connection: Connection,
    cursor: i64,
    token: Option<Document>,
}

impl Server {
    fn open(address: &sdam_core::config::ServerAddress) -> Outcome<Self> {
        Ok(Self { connection: Connection::open(address, LIMIT)?, cursor: 0, token: None })
    }

    /// Runs a command, in which the texts "the cursor" and "the token" stand for these, and returns
    /// what does not depend on the moment.
    fn ask(&mut self, database: &str, command: &Document) -> Outcome<Document> {
        let placed = place(command.clone().into(), self.cursor, self.token.as_ref());
        let placed = placed.as_document().cloned().unwrap_or_default();
        let reply = self.connection.reply(database, &placed, LIMIT)?;
        let id = reply.get_document("cursor").and_then(|it| it.get_i64("id")).unwrap_or_default();
        if id != 0 {
            self.cursor = id;
        }
        let cursor = reply.get_document("cursor");
        if let Ok(token) = cursor.and_then(|it| it.get_document("postBatchResumeToken")) {
            self.token = Some(token.clone());
        }
        Ok(lasting(reply.into(), self.cursor).as_document().cloned().unwrap_or_default())
    }
}

impl Server {
    /// Answers a command that no [`Document`] can be.
    fn answer(&mut self, command: &RawDocument) -> Outcome<Bson> {
        let reply = self.connection.reply_to(command, LIMIT)?;
        Ok(lasting(reply.into(), self.cursor))
    }
}

/// Puts a cursor's id, and a resume token, where they belong.
fn place(value: Bson, cursor: i64, token: Option<&Document>) -> Bson {
    match value {
        Bson::String(text) if text == "the cursor" => Bson::Int64(cursor),
        Bson::String(text) if text == "the token" => token.cloned().into(),
        Bson::Document(document) => {
            let placed =
                document.into_iter().map(|(name, value)| (name, place(value, cursor, token)));
            Bson::Document(placed.collect())
        }
        Bson::Array(list) => list.into_iter().map(|it| place(it, cursor, token)).collect(),
        other => other,
    }
}

/// Says of a resume token whether it is that of an event, of an `invalidate`, or of a time only: as
/// the hexadecimal digits behind its time and its version have it. Those of an event go on with the
/// place in its transaction, zero or of one byte, and with whether it is an `invalidate`.
fn kind_of_token(token: &Document) -> &'static str {
    let data = token.get_str("_data").unwrap_or_default();
    let kind = data.get(22..).unwrap_or_default();
    if kind.starts_with("2929") {
        return "the token of a time";
    }
    let Some(place) = kind.strip_prefix("2C0100") else { return "another token" };
    let behind = place.strip_prefix("29").or_else(|| place.strip_prefix("2B")?.get(2..));
    match behind.and_then(|it| it.get(..2)) {
        Some("6F") => "the token of an invalidate",
        Some("6E") => "the token of an event",
        _ => "another token",
    }
}

/// Fails unless the kind of a token is that of its place, whatever the bytes of an identifier are.
fn kinds_of_tokens() -> Outcome {
    let token = |kind: &str| doc! { "_data": format!("8265F0C0A0000000012B04{kind}") };
    let cases = [
        ("29296E1404", "the token of a time"),
        ("2C0100296E5A10040123456789ABCDEF0123456789ABCD6F04", "the token of an event"),
        ("2C01002B046E5A10040123456789ABCDEF0123456F5A100404", "the token of an event"),
        ("2C0100296F5A10040123456789ABCDEF0123456789ABCDEF04", "the token of an invalidate"),
        ("2C0100296F04", "the token of an invalidate"),
        ("2C01", "another token"),
    ];
    let wrong = cases.iter().find(|(kind, expected)| kind_of_token(&token(kind)) != *expected);
    wrong.map_or(Ok(()), |(kind, expected)| Err(format!("{kind} is {expected}").into()))
}

/// Leaves out of a reply what depends on the moment; fields are in the order of their names.
fn lasting(value: Bson, cursor: i64) -> Bson {
    match value {
        Bson::Document(document) if document.contains_key("_data") => {
            Bson::String(kind_of_token(&document).to_owned())
        }
        Bson::Document(document) => {
            let is_of_statement = document.contains_key("index");
            let is_event = document.contains_key("operationType");
            let is_duplicate = document.get_i32("code").is_ok_and(|code| code == 11000);
            let mut lasting: Vec<(String, Bson)> = document
                .into_iter()
                .filter(|(name, _)| {
                    !VOLATILE.contains(&name.as_str())
                        || (is_duplicate && is_of_statement && name == "errmsg")
                        || (is_event && name == "ns")
                })
                .map(|(name, value)| (name, self::lasting(value, cursor)))
                .collect();
            lasting.sort_by(|(a, _), (b, _)| a.cmp(b));
            Bson::Document(lasting.into_iter().collect())
        }
        Bson::Array(list) => list.into_iter().map(|it| lasting(it, cursor)).collect(),
        Bson::Binary(id) if id.subtype == BinarySubtype::Uuid => Bson::String("a UUID".to_owned()),
        Bson::Int64(id) if id == cursor && id != 0 => Bson::String("the cursor".to_owned()),
        Bson::ObjectId(_) => Bson::String("an ObjectId".to_owned()),
        other => other,
    }
}

/// Returns the commands, each with its database.
fn script(version: ServerVersion) -> Vec<(&'static str, Document)> {
    let scripts = [inserts(), updates(version), find_and_modify(), reads(), pipelines(), cursors()];
    let scripts = scripts.into_iter().chain([catalogue(version), retries(version)]);
    let more = [forms(), validators(), read_concerns(), unknown_fields()];
    let scripts = scripts.chain(more).chain([unique_indexes(version), declared(version)]);
    let scripts = scripts.chain([names(version), nesting(version), lengths(version)]);
    let on_test = scripts.flatten().map(|command| ("test", command));
    let rename = |to: &str, drops: bool| {
        doc! { "renameCollection": "test.x", "to": to, "dropTarget": drops }
    };
    let on_admin = [
        doc! { "listDatabases": 1, "nameOnly": true },
        doc! { "listDatabases": 1, "filter": { "name": "test" } },
        rename("test.view", false),
        rename("test.renamed", false),
        rename("test.renamed", true),
    ];
    let after = [
        doc! { "listCollections": 1, "nameOnly": true, "filter": { "name": "renamed" } },
        doc! { "dropDatabase": 1 },
        doc! { "listCollections": 1 },
        doc! { "find": "renamed" },
    ];
    let on_admin = on_admin.into_iter().map(|command| ("admin", command));
    let after = after.map(|command| ("test", command));
    on_test.chain(on_admin).chain(after).chain(on_databases()).collect()
}

/// Databases of all kinds of names.
fn on_databases() -> Vec<(&'static str, Document)> {
    const LONG: &str = "ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd";
    const TOO_LONG: &str = "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd";
    let names = ["a.b", "a b", "a/b", "a\\b", "a\"b", "", LONG, TOO_LONG, "a*b", "a$b"];
    let each = names.into_iter().flat_map(|name| {
        let insert = doc! { "insert": "x", "documents": [{ "_id": 1 }] };
        // Old servers refuse a dollar sign later, statement by statement.
        let insert = Some(insert).filter(|_| name != "a$b");
        let commands = [Some(doc! { "ping": 1 }), insert, Some(doc! { "find": "x" })];
        let drop = Some(doc! { "dropDatabase": 1 }).filter(|_| matches!(name, LONG | "a*b"));
        commands.into_iter().chain([drop]).flatten().map(move |command| (name, command))
    });
    each.collect()
}

/// Collections of all kinds of names.
fn names(version: ServerVersion) -> Vec<Document> {
    let own = ["a.$b", "$x", "a$", "system.x", "system.", "a.system.x"];
    let others = ["system.js", "system", "a..b", "a.", "a b", ".a"];
    // What is kept of views is not imitated.
    let profile = Some("system.profile").filter(|_| version >= ServerVersion::V5_0);
    let each = own.into_iter().chain(others).chain(profile).flat_map(|name| {
        let update = doc! { "q": {}, "u": { "$set": { "a": 1 } } };
        let mut commands = vec![
            doc! { "insert": name, "documents": [{ "_id": 1 }] },
            doc! { "update": name, "updates": [update] },
            doc! { "find": name },
            doc! { "count": name },
            doc! { "aggregate": name, "pipeline": [], "cursor": {} },
            doc! { "delete": name, "deletes": [{ "q": {}, "limit": 0 }] },
        ];
        // Before 4.4, dropping a name with a dollar sign fails without a code.
        let is_kept = ["system.js", "system.profile"].contains(&name)
            || (version < ServerVersion::V4_4 && name.contains('$'));
        commands.extend((!is_kept).then(|| doc! { "drop": name }));
        commands
    });
    each.collect()
}

/// Documents that are nested up to the limits of messages and of what is kept, and beyond.
fn nesting(version: ServerVersion) -> Vec<Document> {
    let nested = |levels| (1..levels).fold(doc! {}, |inner, _| doc! { "a": inner });
    let lists =
        |levels: usize| (1..levels / 2).fold(doc! {}, |inner, _| doc! { "a": [Bson::from(inner)] });
    let insert = |document: Document| doc! { "insert": "deep", "documents": [document] };
    let mut commands = Vec::new();
    for levels in [100, 179, 180, 181, 182, 199, 200, 201, 300] {
        commands.push(insert(nested(levels)));
        commands.push(insert(lists(levels)));
    }
    for levels in [199, 200, 201, 300] {
        commands.push(doc! { "find": "deep", "filter": nested(levels) });
    }
    commands.push(doc! { "delete": "deep", "deletes": [{ "q": {}, "limit": 0 }] });
    commands.push(insert(doc! { "_id": 1, "a": nested(100) }));
    let grow = |parts: usize| {
        let path = vec!["a"; parts].join(".");
        doc! { "update": "deep", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { path: 1 } } }] }
    };
    // An empty document is no value of an expression before 5.0.
    let most = if version >= ServerVersion::V5_0 { 181 } else { 180 };
    commands.extend([grow(150), grow(most - 10)]);
    commands.push(doc! { "count": "deep" });
    commands
}

/// Insertions of documents with two `_id`s.
fn twice_identified() -> Vec<RawDocumentBuf> {
    let mut twice = rawdoc! { "_id": 1 };
    twice.append(cstr!("_id"), 2);
    let mut other = rawdoc! { "a": 1 };
    other.append(cstr!("a"), 2);
    let insert = |ordered: bool| {
        let documents = [rawdoc! { "_id": 8 }, twice.clone(), other.clone(), rawdoc! { "_id": 9 }];
        let documents: RawArrayBuf = documents.iter().map(AsRef::as_ref).collect();
        let mut insert = rawdoc! { "insert": "twice", "ordered": ordered, "$db": "test" };
        insert.append(cstr!("documents"), documents);
        insert
    };
    vec![insert(true), insert(false), rawdoc! { "count": "twice", "$db": "test" }]
}

/// Declarations of a version of the API, which servers know since 5.0.
fn declared(version: ServerVersion) -> Vec<Document> {
    if version < ServerVersion::V5_0 {
        return Vec::new();
    }
    let pipeline = |stage: Document| doc! { "aggregate": "x", "pipeline": [stage], "cursor": {} };
    let strict = |mut command: Document| {
        command.extend(doc! { "apiVersion": "1", "apiStrict": true });
        command
    };
    let strictly = [
        doc! { "ping": 1 },
        doc! { "isMaster": 1 },
        doc! { "buildInfo": 1 },
        doc! { "find": "x", "limit": 1 },
        doc! { "find": "x", "tailable": true },
        doc! { "find": "x", "min": { "a": 1 }, "hint": { "a": 1 } },
        doc! { "distinct": "x", "key": "a" },
        doc! { "count": "x" },
        doc! { "create": "declared", "capped": true, "size": 4096 },
        doc! { "create": "declared" },
        doc! { "drop": "declared" },
        pipeline(doc! { "$match": { "_id": 0 } }),
        pipeline(doc! { "$indexStats": {} }),
        pipeline(doc! { "$collStats": { "storageStats": {} } }),
        doc! { "aggregate": "x", "pipeline": [], "explain": true },
    ];
    let declarations = [
        doc! { "ping": 1, "apiVersion": "1" },
        doc! { "ping": 1, "apiVersion": "2" },
        doc! { "ping": 1, "apiVersion": 1 },
        doc! { "ping": 1, "apiStrict": true },
        doc! { "ping": 1, "apiDeprecationErrors": false },
        doc! { "ping": 1, "apiVersion": "1", "apiStrict": 1 },
        doc! { "ping": 1, "apiVersion": "1", "apiDeprecationErrors": true },
    ];
    strictly.map(strict).into_iter().chain(declarations).collect()
}

fn inserts() -> Vec<Document> {
    let twice = vec![doc! { "_id": 1 }, doc! { "_id": 1 }, doc! { "_id": 2 }];
    let filled = (1..=4).map(|id| doc! { "_id": id, "x": id * 11, "s": "text" });
    vec![
        doc! { "insert": "x", "documents": [{ "_id": 1, "a": 1 }] },
        doc! { "insert": "x", "documents": twice.clone() },
        doc! { "insert": "x", "documents": twice, "ordered": false },
        doc! { "insert": "x", "documents": [{ "_id": 1.0 }] },
        doc! { "insert": "x", "documents": [{ "_id": "text" }, { "_id": "text" }] },
        doc! { "insert": "x", "documents": [{ "_id": { "a": 1 } }, { "_id": { "a": 1 } }] },
        doc! { "insert": "x", "documents": [{ "_id": [1] }] },
        doc! { "insert": "x", "documents": [{ "_id": { "$a": 1 } }] },
        doc! { "insert": "x", "documents": [{ "_id": "dollar", "$a": 1 }] },
        doc! { "insert": "x", "documents": [] },
        doc! { "insert": "", "documents": [{}] },
        doc! { "find": "x" },
        doc! { "delete": "x", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
        doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "delete": "x", "deletes": [{ "q": { "$foo": 1 }, "limit": 0 }] },
        doc! { "delete": "none", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "insert": "x", "documents": filled.collect::<Vec<_>>() },
    ]
}

fn updates(version: ServerVersion) -> Vec<Document> {
    let mut statements = vec![
        doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 12, "b.c": 1 } } },
        doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 12 } } },
        doc! { "q": { "_id": { "$gt": 1 } }, "u": { "$inc": { "x": 1 } }, "multi": true },
        doc! { "q": { "_id": 1 }, "u": { "$unset": { "b": "" }, "$mul": { "x": 2 } } },
        doc! { "q": { "_id": 1 }, "u": { "list": [1, 2, 3], "x": 1 } },
        doc! { "q": { "_id": 1 }, "u": { "$push": { "list": 1 } } },
        doc! { "q": { "_id": 1 }, "u": { "$push": { "list": { "$each": [1, 0] } } } },
        doc! { "q": { "_id": 1 }, "u": { "$currentDate": { "n": "nonsense" } } },
        doc! { "q": { "_id": 1 }, "u": { "$addToSet": { "list": { "$each": [1, 5] } } } },
        doc! { "q": { "_id": 1 }, "u": { "$pull": { "list": { "$gte": 3 } } } },
        doc! { "q": { "_id": 1 }, "u": { "$pop": { "list": 1 } } },
        doc! { "q": { "_id": 1 }, "u": { "$set": { "list.$[i]": 7 } }, "arrayFilters": [{ "i": 2 }] },
        doc! { "q": { "_id": 1 }, "u": { "$set": { "list.$[]": 8 } } },
        doc! { "q": { "_id": 1 }, "u": { "$set": { "list.3": 9 } } },
        doc! { "q": { "_id": 1 }, "u": { "$rename": { "x": "y" } } },
        doc! { "q": { "_id": 1 }, "u": { "$min": { "y": 0 }, "$max": { "z": 3 } } },
        doc! { "q": { "_id": 1 }, "u": [{ "$set": { "p": { "$add": ["$y", 1] } } }] },
        doc! { "q": { "_id": 1 }, "u": [{ "$unset": "p" }, { "$replaceWith": { "x": 11 } }] },
        doc! { "q": { "_id": 5, "a": 1 }, "u": { "$set": { "x": 5 } }, "upsert": true },
        doc! { "q": { "_id": 6, "a": { "$gt": 1 } }, "u": { "x": 6 }, "upsert": true },
        doc! { "q": { "a": 7 }, "u": { "_id": 7 }, "upsert": true },
        doc! { "q": { "none": 1 }, "u": { "$setOnInsert": { "x": 8 } }, "upsert": true },
        doc! { "q": { "none": 2 }, "u": { "x": 8 } },
        doc! { "q": { "_id": 1 }, "u": { "$foo": { "x": 1 } } },
        doc! { "q": { "_id": 1 }, "u": { "$set": { "_id": 2 } } },
        doc! { "q": { "_id": 1 }, "u": { "_id": 2 } },
        doc! { "q": { "_id": 2 }, "u": { "$inc": { "s": 1 } } },
        doc! { "q": { "_id": 2 }, "u": { "$mul": { "s": 1 } } },
        doc! { "q": { "_id": 2 }, "u": { "$push": { "s": 1 } } },
        doc! { "q": { "_id": 2 }, "u": { "$set": { "s.a": 1 } } },
        doc! { "q": {}, "u": { "$set": { "a": 1 }, "$inc": { "a.b": 1 } } },
        doc! { "q": {}, "u": { "$set": { "a.$[i]": 1 } } },
        doc! { "q": {}, "u": { "x": 1 }, "multi": true },
        doc! { "q": { "$foo": 1 }, "u": { "x": 1 } },
        doc! { "q": { "x": { "$foo": 1 } }, "u": { "x": 1 } },
        doc! { "q": { "$expr": { "$eq": ["$_id", "$$id"] } }, "u": { "x": 1 } },
        doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 11 } }, "collation": { "locale": "simple" } },
    ];
    if version >= ServerVersion::V5_0 {
        let set = doc! { "field": { "$literal": "$a" }, "value": 1, "input": "$$ROOT" };
        statements
            .push(doc! { "q": { "_id": 1 }, "u": [{ "$replaceWith": { "$setField": set } }] });
        statements.push(doc! { "q": { "_id": 1 }, "u": [{ "$unset": "x" }] });
    }
    if version >= ServerVersion::V4_4 {
        let keys = doc! { "_id": 1 };
        statements.push(doc! { "q": { "_id": 1 }, "u": { "x": 11 }, "hint": "_id_" });
        statements.push(doc! { "q": { "_id": 1 }, "u": { "x": 11 }, "hint": keys });
        statements.push(doc! { "q": { "_id": 1 }, "u": { "x": 11 }, "hint": "none" });
    }
    let mut commands = Vec::new();
    for statement in statements {
        commands.push(doc! { "update": "x", "updates": [statement] });
        commands.push(doc! { "find": "x", "filter": { "_id": { "$lt": 100 } } });
    }
    commands.push(doc! { "delete": "x", "deletes": [{ "q": { "_id": { "$not": { "$lt": 5 } } }, "limit": 0 }] });
    commands
}

fn find_and_modify() -> Vec<Document> {
    let modify = |fields: Document| {
        let mut command = doc! { "findAndModify": "x" };
        command.extend(fields);
        command
    };
    let all = [
        doc! { "query": { "_id": { "$gt": 1 } }, "sort": { "x": -1 }, "update": { "$inc": { "x": 1 } } },
        doc! { "query": { "_id": 2 }, "update": { "$set": { "x": 1 } }, "new": true, "fields": { "x": 1 } },
        doc! { "query": { "_id": 2 }, "update": { "y": 1 }, "new": true },
        doc! { "query": { "_id": 9 }, "update": { "y": 1 } },
        doc! { "query": { "_id": 9 }, "update": { "y": 1 }, "new": true, "upsert": true },
        doc! { "query": { "_id": 10 }, "update": { "y": 1 }, "upsert": true },
        doc! { "query": { "_id": 9 }, "remove": true },
        doc! { "query": { "_id": 9 }, "remove": true },
        doc! { "query": { "_id": 10 }, "remove": true, "fields": { "_id": 0 } },
        doc! { "query": { "_id": 2 }, "remove": true, "update": {} },
        doc! { "query": { "_id": 2 } },
        doc! { "query": { "_id": 2 }, "update": { "_id": 3 } },
        doc! { "query": { "_id": 2 }, "update": { "$foo": { "a": 1 } } },
        doc! { "query": { "_id": 77 }, "update": { "$set": { "_id": 1 } }, "upsert": true },
        doc! { "query": { "none": 1 }, "update": { "_id": 1 }, "upsert": true },
    ];
    all.into_iter().map(modify).collect()
}

fn filters() -> Vec<Document> {
    vec![
        doc! { "x": { "$gt": 1, "$lte": 33 } },
        doc! { "x": { "$ne": 33 } },
        doc! { "x": null },
        doc! { "x": { "$in": [1, 44] } },
        doc! { "x": { "$nin": [1, 44] } },
        doc! { "list": 2 },
        doc! { "list": [1, 2] },
        doc! { "list": { "$size": 2 } },
        doc! { "list": { "$all": [1, 2] } },
        doc! { "list.1": 2 },
        doc! { "in.a": 1 },
        doc! { "in.a": null },
        doc! { "in": { "$elemMatch": { "a": 2 } } },
        doc! { "list": { "$elemMatch": { "$gt": 1, "$lt": 3 } } },
        doc! { "in.a": { "$exists": false } },
        doc! { "s": { "$type": "string" } },
        doc! { "x": { "$type": ["number", "null"] } },
        doc! { "x": { "$mod": [11, 0] } },
        doc! { "$or": [{ "_id": 1 }, { "s": "b" }] },
        doc! { "$nor": [{ "_id": 1 }, { "s": "b" }] },
        doc! { "x": { "$not": { "$gt": 20 } } },
        doc! { "$expr": { "$gt": ["$x", 20] } },
        doc! { "$expr": { "$eq": ["$_id", "$$id"] } },
        doc! { "$or": [] },
        doc! { "$foo": 1 },
        doc! { "x": { "$foo": 1 } },
        doc! { "x": { "$in": 1 } },
    ]
}

fn reads() -> Vec<Document> {
    let mut commands = vec![
        doc! { "delete": "r", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "insert": "r", "documents": [
            { "_id": 1, "x": 11, "s": "b", "list": [1, 2] },
            { "_id": 2, "x": 22_i64, "s": "B", "in": { "a": 1 } },
            { "_id": 3, "x": 33.0, "s": "a", "in": [{ "a": 1 }, { "a": 2 }] },
            { "_id": 4, "x": null, "list": [] },
            { "_id": 5, "x": "text" },
        ] },
    ];
    commands.extend(
        filters()
            .into_iter()
            .map(|filter| doc! { "find": "r", "filter": filter, "sort": { "_id": 1 } }),
    );
    let finds = [
        doc! { "sort": { "x": -1 } },
        doc! { "sort": { "list": 1, "_id": -1 }, "skip": 1, "limit": 3 },
        doc! { "sort": { "s": 1, "_id": 1 }, "collation": { "locale": "en_US", "strength": 2 } },
        doc! { "projection": { "x": 1 } },
        doc! { "projection": { "x": 1, "_id": 0 } },
        doc! { "projection": { "in.a": 1 } },
        doc! { "projection": { "in.a": 0, "list": 0 } },
        doc! { "projection": { "_id": 1 } },
        doc! { "projection": { "_id": 0 } },
        doc! { "limit": 2, "singleBatch": true },
        doc! { "skip": -1 },
        doc! { "limit": -1 },
        doc! { "batchSize": -1 },
        doc! { "sort": { "x": 2 } },
        doc! { "filter": 1 },
        doc! { "hint": "none" },
        doc! { "hint": { "_id": 1 } },
    ];
    for find in finds {
        let mut command = doc! { "find": "r" };
        command.extend(find);
        commands.push(command);
    }
    commands.extend([
        doc! { "count": "r" },
        doc! { "count": "r", "query": { "x": { "$gt": 1 } }, "skip": 1, "limit": 5 },
        doc! { "count": "r", "limit": -2 },
        doc! { "count": "none" },
        doc! { "distinct": "r", "key": "in.a" },
        doc! { "distinct": "r", "key": "list", "query": { "_id": 1 } },
        doc! { "distinct": "none", "key": "x" },
        doc! { "distinct": "r" },
    ]);
    commands
}

fn pipelines() -> Vec<Document> {
    let group = doc! { "_id": null, "sum": { "$sum": "$_id" }, "n": { "$sum": 1 }, "max": { "$max": "$_id" } };
    let by_type = doc! { "_id": { "$type": "$x" }, "ids": { "$push": "$_id" } };
    let pipelines = [
        vec![doc! { "$match": { "_id": { "$gt": 3 } } }, doc! { "$count": "n" }],
        vec![doc! { "$group": group }],
        vec![
            doc! { "$sort": { "_id": 1 } },
            doc! { "$group": by_type },
            doc! { "$sort": { "_id": 1 } },
        ],
        vec![doc! { "$sort": { "_id": -1 } }, doc! { "$skip": 1 }, doc! { "$limit": 2 }],
        vec![
            doc! { "$match": { "_id": 1 } },
            doc! { "$replaceRoot": { "newRoot": { "s": "$s" } } },
        ],
        vec![
            doc! { "$match": { "_id": 1 } },
            doc! { "$addFields": { "y": { "$concat": ["$s", "!"] } } },
        ],
        vec![
            doc! { "$match": { "_id": 1 } },
            doc! { "$project": { "t": { "$cond": [true, 1, 2] } } },
        ],
        vec![
            doc! { "$match": { "_id": 2 } },
            doc! { "$project": { "t": { "$ifNull": ["$q", "$x"] } } },
        ],
        vec![doc! { "$sort": { "_id": 1 } }, doc! { "$project": { "x": 1 } }, doc! { "$out": "y" }],
        vec![doc! { "$match": { "_id": { "$lt": 3 } } }, doc! { "$merge": { "into": "y" } }],
        vec![doc! { "$merge": { "into": "y", "whenMatched": "fail" } }],
        vec![doc! { "$out": "y" }, doc! { "$limit": 1 }],
        vec![doc! { "$project": { "x": 1, "s": 0 } }],
        vec![doc! { "$project": {} }],
        vec![doc! { "$group": { "n": 1 } }],
        vec![doc! { "$nonsense": 1 }],
        vec![doc! { "$project": { "x": { "$nonsense": 1 } } }],
        vec![doc! { "$match": { "$expr": { "$eq": ["$$none", 1] } } }],
    ];
    let of =
        |pipeline: Vec<Document>| doc! { "aggregate": "r", "pipeline": pipeline, "cursor": {} };
    let mut commands: Vec<Document> = pipelines.into_iter().map(of).collect();
    commands.push(doc! { "find": "y", "sort": { "_id": 1 } });
    commands.push(doc! { "aggregate": "none", "pipeline": [{ "$count": "n" }], "cursor": {} });
    commands
}

/// The lengths of data, which servers compute from 4.4 on; in the old subtype of BSON they have it a
/// second time.
fn lengths(version: ServerVersion) -> Vec<Document> {
    if version < ServerVersion::V4_4 {
        return Vec::new();
    }
    let binary = |subtype| Binary { subtype, bytes: vec![1, 2, 3] };
    let documents = vec![
        doc! { "_id": 1, "data": binary(BinarySubtype::Generic) },
        doc! { "_id": 2, "data": binary(BinarySubtype::BinaryOld) },
        doc! { "_id": 3, "data": "aé" },
        doc! { "_id": 4, "data": null },
        doc! { "_id": 5 },
        doc! { "_id": 6, "data": 7 },
    ];
    let length = |filter: Document, length: Document| {
        let stages = vec![
            doc! { "$match": filter },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$project": { "length": length } },
        ];
        doc! { "aggregate": "lengths", "pipeline": stages, "cursor": {} }
    };
    let plain = doc! { "$binarySize": "$data" };
    let is_binary = doc! { "$eq": [{ "$type": "$data" }, "binData"] };
    let guarded = doc! { "$cond": { "if": is_binary, "then": plain.clone(), "else": -1 } };
    vec![
        doc! { "insert": "lengths", "documents": documents },
        length(doc! { "_id": { "$lt": 6 } }, plain.clone()),
        length(doc! { "_id": 6 }, plain),
        length(doc! {}, guarded),
    ]
}

fn cursors() -> Vec<Document> {
    let more = |size: i32| doc! { "getMore": "the cursor", "collection": "c", "batchSize": size };
    vec![
        doc! { "insert": "c", "documents": (0..5).map(|id| doc! { "_id": id }).collect::<Vec<_>>() },
        doc! { "find": "c", "batchSize": 2 },
        more(2),
        doc! { "getMore": "the cursor", "collection": "other" },
        more(2),
        more(2),
        doc! { "find": "c", "batchSize": 0 },
        doc! { "killCursors": "c", "cursors": ["the cursor", 77_i64] },
        more(1),
        doc! { "getMore": 1, "collection": "c" },
        doc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": 4 } },
        more(9),
        doc! { "create": "capped", "capped": true, "size": 4096, "max": 2 },
        doc! { "insert": "capped", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] },
        doc! { "find": "capped" },
        doc! { "find": "capped", "tailable": true, "awaitData": true },
        doc! { "getMore": "the cursor", "collection": "capped", "maxTimeMS": 10 },
        doc! { "insert": "capped", "documents": [{ "_id": 4 }] },
        doc! { "getMore": "the cursor", "collection": "capped", "maxTimeMS": 10 },
        doc! { "find": "c", "tailable": true },
        doc! { "create": "nosize", "capped": true },
    ]
}

fn catalogue(version: ServerVersion) -> Vec<Document> {
    let index = |key: &str, name: &str| doc! { "key": { key: 1 }, "name": name };
    let mut unique = index("x", "x_1");
    unique.insert("unique", true);
    let mut clash = index("s", "s_unique");
    clash.insert("unique", true);
    let create = |index: &Document| doc! { "createIndexes": "i", "indexes": [index.clone()] };
    let mut commands = vec![
        doc! { "create": "i" },
        doc! { "create": "i", "capped": true, "size": 4096 },
        create(&unique),
        create(&unique),
        create(&index("x", "other")),
        create(&index("y", "x_1")),
        create(&doc! { "key": { "y": 1 } }),
        doc! { "insert": "i", "documents": [{ "_id": 1, "x": 1, "s": 1 }, { "_id": 2, "x": 2, "s": 1 }] },
        doc! { "insert": "i", "documents": [{ "_id": 3, "x": 1 }] },
        doc! { "update": "i", "updates": [{ "q": { "_id": 2 }, "u": { "$set": { "x": 1 } } }] },
        create(&clash),
        doc! { "find": "i", "hint": "x_1" },
        doc! { "dropIndexes": "i", "index": "x_1" },
        doc! { "dropIndexes": "i", "index": "x_1" },
        doc! { "dropIndexes": "i", "index": "_id_" },
        create(&index("z", "z_1")),
        doc! { "dropIndexes": "i", "index": "*" },
        doc! { "dropIndexes": "none", "index": "*" },
        doc! { "listIndexes": "i" },
        doc! { "listIndexes": "none" },
        doc! { "create": "view", "viewOn": "r", "pipeline": [{ "$match": { "_id": 1 } }] },
        doc! { "find": "view" },
        doc! { "count": "view" },
        doc! { "listCollections": 1, "filter": { "name": "view" }, "nameOnly": true },
        doc! { "listCollections": 1, "filter": { "name": "capped" } },
        doc! { "collMod": "i", "validator": { "v": { "$type": "string" } } },
        doc! { "insert": "i", "documents": [{ "_id": 9 }] },
        doc! { "insert": "i", "documents": [{ "_id": 9 }], "bypassDocumentValidation": true },
        doc! { "findAndModify": "i", "query": { "_id": 9 }, "update": { "$set": { "v": 1 } } },
        doc! { "listCollections": 1, "filter": { "name": "i" } },
        doc! { "collMod": "none", "validator": {} },
        doc! { "drop": "i" },
        doc! { "drop": "i" },
        doc! { "listCollections": 1, "filter": { "name": "none" } },
    ];
    if version >= ServerVersion::V5_0 {
        commands.push(doc! { "create": "other", "expireAfterSeconds": 9 });
    }
    if version >= ServerVersion::V4_4 {
        // Names of indexes that are not asked for are refused since then.
        commands.push(doc! { "createIndexes": "i", "indexes": [] });
    }
    commands
}

fn retries(version: ServerVersion) -> Vec<Document> {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let numbered = |mut command: Document, number: i64| {
        command.insert("lsid", doc! { "id": id.clone() });
        command.insert("txnNumber", number);
        command
    };
    let insert = doc! { "insert": "n", "documents": [{ "_id": 1, "a": 0 }, { "_id": 2 }] };
    let update = doc! { "update": "n", "updates": [
        { "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } },
        { "q": { "_id": 9 }, "u": { "$inc": { "a": 1 } }, "upsert": true },
    ] };
    let modify =
        doc! { "findAndModify": "n", "query": { "_id": 1 }, "update": { "$inc": { "a": 1 } } };
    let remove = doc! { "delete": "n", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] };
    let all = doc! { "delete": "n", "deletes": [{ "q": { "_id": 2 }, "limit": 0 }] };
    let mut commands = vec![doc! { "create": "n" }];
    for (number, command) in (1..).zip([insert, update, modify, remove]) {
        commands.push(numbered(command.clone(), number));
        commands.push(numbered(command, number));
        commands.push(doc! { "find": "n", "sort": { "_id": 1 } });
    }
    commands.push(numbered(doc! { "insert": "n", "documents": [{ "_id": 5 }] }, 1));
    commands.push(numbered(all, 9));
    if version >= ServerVersion::V4_4 {
        commands.push(doc! { "insert": "n", "documents": [{ "_id": 5 }], "txnNumber": 1_i64 });
    }
    commands
}

/// Keys, numbers and bounds of what is found.
fn forms() -> Vec<Document> {
    let finds = [
        doc! { "filter": { "x": 1 }, "returnKey": true },
        doc! { "filter": { "x": 1 }, "returnKey": true, "showRecordId": true },
        doc! { "filter": { "x": 1 }, "showRecordId": true },
        doc! { "filter": { "y": -1 }, "returnKey": true },
        doc! { "sort": { "x": 1 }, "returnKey": true },
        doc! { "hint": "xy" },
        doc! { "hint": { "$natural": -1 } },
        doc! { "sort": { "$natural": -1 } },
        doc! { "min": { "_id": 2 }, "max": { "_id": 4 }, "hint": "_id_" },
        doc! { "min": { "x": 1, "y": -1 }, "hint": "xy" },
        doc! { "max": { "x": 1, "y": -1 }, "hint": "xy" },
        doc! { "min": { "_id": 2 } },
        doc! { "min": { "q": 2 }, "hint": "_id_" },
        doc! { "min": { "_id": 4 }, "max": { "_id": 2 }, "hint": "_id_" },
    ];
    let documents = (0..6).map(|id| doc! { "_id": id, "x": id % 3, "y": -id });
    let index = doc! { "key": { "x": 1, "y": -1 }, "name": "xy" };
    let mut commands = vec![
        doc! { "insert": "f", "documents": documents.collect::<Vec<_>>() },
        doc! { "createIndexes": "f", "indexes": [index] },
        doc! { "create": "fv", "viewOn": "f", "pipeline": [] },
    ];
    for find in finds {
        let mut command = doc! { "find": "f" };
        command.extend(find);
        commands.push(command);
    }
    commands.push(doc! { "find": "fv", "showRecordId": true });
    commands.push(doc! { "find": "fv", "returnKey": true });
    commands.push(doc! { "drop": "f" });
    commands.push(doc! { "drop": "fv" });
    commands
}

/// An index that becomes unique, which 6.0 has brought.
fn unique_indexes(version: ServerVersion) -> Vec<Document> {
    if version < ServerVersion::V6_0 {
        return Vec::new();
    }
    let modify = |option: &str| {
        doc! { "collMod": "q", "index": { "keyPattern": { "x": 1 }, option: true } }
    };
    let by_name = |index: Document| doc! { "collMod": "q", "index": index };
    vec![
        doc! { "insert": "q", "documents": [{ "_id": 1, "x": 1 }, { "_id": 2, "x": 1 }] },
        doc! { "createIndexes": "q", "indexes": [{ "key": { "x": 1 }, "name": "x_1" }] },
        modify("unique"),
        modify("prepareUnique"),
        modify("unique"),
        doc! { "insert": "q", "documents": [{ "_id": 3, "x": 1 }] },
        modify("hidden"),
        modify("hidden"),
        doc! { "delete": "q", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] },
        modify("unique"),
        modify("unique"),
        by_name(doc! { "name": "none", "hidden": true }),
        by_name(doc! { "name": "x_1" }),
        by_name(doc! { "name": "x_1", "nonsense": 1 }),
        doc! { "listIndexes": "q" },
        doc! { "drop": "q" },
    ]
}

/// Validators of each level, and what they let pass.
fn validators() -> Vec<Document> {
    let documents = [doc! { "_id": 1, "n": 5 }, doc! { "_id": 2, "n": 5.5 }, doc! { "_id": 3 }];
    let wants = |test: Document, level: &str| {
        doc! { "collMod": "j", "validator": { "n": test }, "validationLevel": level }
    };
    let exists = doc! { "$exists": true };
    let update = |id: i32, update: Document| {
        doc! { "update": "j", "updates": [{ "q": { "_id": id }, "u": update }] }
    };
    let set = doc! { "$set": { "w": 1 } };
    let unset = doc! { "$unset": { "n": 1 } };
    vec![
        doc! { "insert": "j", "documents": documents.to_vec() },
        wants(doc! { "$nonsense": 1 }, "strict"),
        wants(exists.clone(), "strict"),
        doc! { "insert": "j", "documents": [{ "_id": 9 }] },
        doc! { "insert": "j", "documents": [{ "_id": 10, "n": 1 }] },
        update(3, set.clone()),
        wants(exists.clone(), "moderate"),
        update(3, set),
        update(2, unset.clone()),
        wants(exists.clone(), "off"),
        update(2, unset),
        wants(exists, "nonsense"),
        doc! { "find": "j" },
        doc! { "drop": "j" },
    ]
}

fn read_concerns() -> Vec<Document> {
    let out = doc! { "aggregate": "c", "pipeline": [{ "$out": "y" }], "cursor": {} };
    let commands = [
        doc! { "find": "c" },
        doc! { "count": "c" },
        doc! { "distinct": "c", "key": "_id" },
        doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
        out,
        doc! { "insert": "c", "documents": [{}] },
        doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": {} }] },
        doc! { "findAndModify": "c", "query": { "_id": -1 }, "remove": true },
        doc! { "listCollections": 1, "filter": { "name": "none" } },
        doc! { "listIndexes": "c" },
        doc! { "create": "c" },
        doc! { "ping": 1 },
    ];
    let levels = ["snapshot", "majority", "linearizable", "available", "nonsense"];
    let mut all = Vec::new();
    for command in commands {
        for level in levels {
            let mut command = command.clone();
            command.insert("readConcern", doc! { "level": level });
            all.push(command);
        }
    }
    all.push(doc! { "find": "c", "limit": 1, "readConcern": { "level": 5 } });
    all.push(doc! { "find": "c", "limit": 1, "readConcern": { "nonsense": 5 } });
    all.push(doc! { "find": "c", "limit": 1, "readConcern": 5 });
    all
}

/// Fields that no version knows, or not this one; and updates that fail whole.
fn unknown_fields() -> Vec<Document> {
    let set = doc! { "$set": { "a": 1 } };
    let update = |statements: Vec<Document>| doc! { "update": "u", "updates": statements };
    let delete = |statement: Document| doc! { "delete": "u", "deletes": [statement] };
    let modify = doc! { "findAndModify": "u", "query": { "_id": 7 }, "remove": true };
    let mut hinted = modify.clone();
    hinted.insert("hint", "_id_");
    let mut commands = vec![
        doc! { "insert": "u", "documents": [{ "_id": 1 }] },
        doc! { "find": "u", "let": { "a": 1 } },
        update(vec![doc! { "q": {}, "u": set.clone(), "sort": { "_id": 1 } }]),
        update(vec![doc! { "q": {}, "u": set.clone(), "nonsense": 1 }]),
        update(vec![doc! { "q": {}, "u": set.clone() }, doc! { "q": {}, "u": [{ "$no": 1 }] }]),
        update(vec![doc! { "q": {}, "u": [{ "$match": {} }] }]),
        update(vec![doc! { "q": {}, "u": [1] }]),
        update(vec![doc! { "q": {}, "u": 5 }]),
        update(vec![doc! { "q": {} }]),
        update(vec![doc! { "u": set }]),
        delete(doc! { "q": {} }),
        delete(doc! { "q": {}, "limit": 2 }),
        delete(doc! { "q": { "_id": 7 }, "limit": 1, "sort": { "_id": 1 } }),
        delete(doc! { "q": { "_id": 7 }, "limit": 1, "hint": "_id_" }),
        hinted,
        doc! { "find": "u" },
    ];
    let finished = [
        doc! { "find": "u" },
        doc! { "count": "u" },
        doc! { "distinct": "u", "key": "a" },
        doc! { "aggregate": "u", "pipeline": [], "cursor": {} },
        doc! { "insert": "u", "documents": [{}] },
        delete(doc! { "q": { "_id": 7 }, "limit": 1 }),
        modify,
    ];
    for mut command in finished {
        command.insert("nonsense", 1);
        commands.push(command);
    }
    commands
}
