//! Members of the embedded deployment report changes as real servers do: the same commands in the
//! same order, and the same events, tokens aside.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Timestamp, doc};
use sdam_cluster::ServerVersion;

/// A command with its database.
type Command = (&'static str, Document);

/// The scope of a stream.
#[derive(Clone, Copy)]
enum Watched {
    Collection,
    Database,
    Cluster,
}

impl Watched {
    fn open(self, stage: Document, rest: Vec<Document>) -> Command {
        let (database, name) = match self {
            Self::Collection => ("test", Bson::from("cs")),
            Self::Database => ("test", 1.into()),
            Self::Cluster => ("admin", 1.into()),
        };
        let mut stage = stage;
        if let Self::Cluster = self {
            stage.insert("allChangesForCluster", true);
        }
        let first = doc! { "$changeStream": stage };
        let pipeline: Vec<Document> = [first].into_iter().chain(rest).collect();
        (database, doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} })
    }

    /// A command that waits as long as it may take for what is known to come.
    fn more(self, wait: i32) -> Command {
        let (database, collection) = match self {
            Self::Collection => ("test", "cs"),
            Self::Database => ("test", "$cmd.aggregate"),
            Self::Cluster => ("admin", "$cmd.aggregate"),
        };
        let command = doc! { "getMore": "the cursor", "collection": collection };
        (database, with(command, doc! { "maxTimeMS": wait }))
    }
}

fn with(mut command: Document, fields: Document) -> Document {
    command.extend(fields);
    command
}

fn insert(id: i32) -> Document {
    doc! { "insert": "cs", "documents": [{ "_id": id, "a": 1 }] }
}

fn update(change: impl Into<Bson>) -> Document {
    doc! { "update": "cs", "updates": [{ "q": { "_id": 1 }, "u": change.into() }] }
}

fn delete(id: i32) -> Document {
    doc! { "delete": "cs", "deletes": [{ "q": { "_id": id }, "limit": 1 }] }
}

/// The time that a getMore may take for an event that has happened, and for none.
const EVENT: i32 = 5000;
const NONE: i32 = 1;

/// Returns commands that open streams, and those that they report.
pub(crate) fn script(version: ServerVersion) -> Vec<Command> {
    let mut script = writes(version);
    script.extend(updates(version));
    script.extend(images(version));
    script.extend(options_for_images());
    script.extend(catalogue(version));
    script.extend(transactions());
    script.extend(ends());
    script.extend(stages(version));
    script.extend(refusals(version));
    script.extend(tokens());
    script.extend(elsewhere());
    script.extend(left_out());
    script.extend(failures(version));
    if version >= ServerVersion::V6_0 {
        script.extend(large());
    }
    script.into_iter().map(|(database, command)| (database, acknowledged(command))).collect()
}

/// Has a majority acknowledge a write, which is reported then.
fn acknowledged(command: Document) -> Document {
    const WRITES: [&str; 10] = [
        "insert",
        "update",
        "delete",
        "findAndModify",
        "create",
        "drop",
        "renameCollection",
        "collMod",
        "createIndexes",
        "dropIndexes",
    ];
    let is_write = command.keys().next().is_some_and(|it| WRITES.contains(&it.as_str()));
    match is_write && !command.contains_key("autocommit") {
        true => with(command, doc! { "writeConcern": { "w": "majority" } }),
        false => command,
    }
}

/// Each kind of a write, one by one.
fn writes(version: ServerVersion) -> Vec<Command> {
    let modify =
        doc! { "findAndModify": "cs", "query": { "_id": 1 }, "update": { "$inc": { "a": 1 } } };
    let upsert = doc! { "q": { "_id": 7 }, "u": { "$set": { "a": 1 } }, "upsert": true };
    let commands = [
        insert(1),
        doc! { "insert": "cs", "documents": [{ "_id": 2 }] },
        update(doc! { "$set": { "a": 2 } }),
        update(doc! { "z": 1, "a": 1 }),
        doc! { "update": "cs", "updates": [upsert] },
        modify,
        delete(2),
    ];
    let mut all = Vec::new();
    let mut stages = vec![doc! {}];
    if version >= ServerVersion::V6_0 {
        stages.push(doc! { "showExpandedEvents": true });
    }
    for watched in [Watched::Collection, Watched::Database, Watched::Cluster] {
        for stage in &stages {
            all.push(("test", doc! { "create": "cs" }));
            all.push(watched.open(stage.clone(), Vec::new()));
            all.push(watched.more(NONE));
            for command in &commands {
                all.push(("test", command.clone()));
                all.push(watched.more(EVENT));
            }
            // Nothing changes, and nothing is reported.
            all.push(("test", update(doc! { "$set": { "z": 1 } })));
            all.push(watched.more(NONE));
            all.push(("test", doc! { "drop": "cs" }));
            all.push(watched.more(EVENT));
        }
    }
    all
}

/// The descriptions of updates.
fn updates(version: ServerVersion) -> Vec<Command> {
    let watched = Watched::Collection;
    let stage = match version >= ServerVersion::V6_0 {
        true => doc! { "showExpandedEvents": true },
        false => doc! {},
    };
    let whole = doc! {
        "_id": 1, "a": [1, 2, 3, 4], "o": { "p": [{ "q": 1 }, { "q": 2 }] }, "n": { "1": 1 }, "s": 1,
        "text": "that is long enough to make what has changed the shorter part of it all",
    };
    let mut all = vec![
        ("test", doc! { "create": "cs" }),
        ("test", doc! { "insert": "cs", "documents": [whole] }),
        watched.open(stage, Vec::new()),
    ];
    let operators = [
        doc! { "$set": { "s": 2, "b.c": 1 } },
        doc! { "$set": { "new.deep.er": 1, "new.deep.er2": 2 } },
        doc! { "$unset": { "new.deep.er": 1, "none": 1 } },
        doc! { "$set": { "a.0": 9, "n.1": 2 } },
        doc! { "$push": { "a": 5 } },
        doc! { "$push": { "a": { "$each": [6, 7] } } },
        doc! { "$push": { "brandnew": 1 } },
        doc! { "$pop": { "a": 1 } },
        doc! { "$addToSet": { "a": 70 } },
        doc! { "$pull": { "a": 70 } },
        doc! { "$pullAll": { "a": [6] } },
        doc! { "$set": { "o.p.$[].q": 5 } },
        doc! { "$set": { "o.p.0.q": 6 } },
        doc! { "$unset": { "o.p.1": 1 } },
        doc! { "$rename": { "s": "m" } },
        doc! { "$inc": { "m": 1, "z.y": 1 } },
        doc! { "$mul": { "m": 3 }, "$min": { "z.y": 0 }, "$max": { "none": 1 } },
        doc! { "$set": { "a": [1, 2] }, "$setOnInsert": { "q": 1 } },
    ];
    for operators in operators {
        all.push(("test", update(operators)));
        all.push(watched.more(EVENT));
    }
    let filtered = doc! {
        "q": { "_id": 1 }, "u": { "$set": { "o.p.$[e].q": 7 } }, "arrayFilters": [{ "e.q": 6 }],
    };
    all.push(("test", doc! { "update": "cs", "updates": [filtered] }));
    all.push(watched.more(EVENT));
    for stage in [
        doc! { "$set": { "a": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] } },
        doc! { "$set": { "a": [1, 2, 3, 4, 5, 6] } },
        doc! { "$set": { "a": [1, 2, 9] } },
        doc! { "$set": { "n": { "1": 2, "2": 3 }, "b": { "c": 5 } } },
        doc! { "$unset": ["a", "o"] },
        doc! { "$replaceWith": { "_id": 1, "other": 1 } },
    ] {
        all.push(("test", update(vec![stage])));
        all.push(watched.more(EVENT));
    }
    all.push(("test", doc! { "drop": "cs" }));
    all
}

/// Documents before and after their changes.
fn images(version: ServerVersion) -> Vec<Command> {
    let has_images = version >= ServerVersion::V6_0;
    let has_pre_images = version >= ServerVersion::V4_4;
    let watched = Watched::Collection;
    let mut all = Vec::new();
    let mut modes =
        vec![doc! { "fullDocument": "default" }, doc! { "fullDocument": "updateLookup" }];
    let mut creations = vec![doc! { "create": "cs" }];
    if has_images {
        creations
            .push(doc! { "create": "cs", "changeStreamPreAndPostImages": { "enabled": true } });
        modes.extend(["whenAvailable", "required"].map(|mode| doc! { "fullDocument": mode }));
    }
    if has_pre_images {
        creations.push(doc! { "create": "cs", "recordPreImages": true });
        let each = ["whenAvailable", "required", "off"];
        modes.extend(each.map(|mode| doc! { "fullDocumentBeforeChange": mode }));
    }
    for creation in creations {
        for mode in &modes {
            all.push(("test", creation.clone()));
            all.push(watched.open(mode.clone(), Vec::new()));
            let last = update(doc! { "a": 3 });
            for command in [insert(1), update(doc! { "$set": { "a": 2 } }), last, delete(1)] {
                all.push(("test", command));
                all.push(watched.more(EVENT));
            }
            all.push(("test", doc! { "drop": "cs" }));
        }
    }
    all
}

/// The options by which collections keep images, and what is listed of them.
fn options_for_images() -> Vec<Command> {
    let both = |fields: Document| doc! { "changeStreamPreAndPostImages": fields };
    let before = |value: Bson| doc! { "recordPreImages": value };
    let (on, off) = (doc! { "enabled": true }, doc! { "enabled": false });
    let options = [
        before(true.into()),
        both(on.clone()),
        before(1.into()),
        before(false.into()),
        both(off.clone()),
        with(before(false.into()), both(on.clone())),
        with(before(true.into()), both(off)),
        with(before(true.into()), both(on.clone())),
        before("a".into()),
        both(doc! {}),
        both(doc! { "enabled": 1 }),
        both(with(on, doc! { "a": 1 })),
        doc! { "changeStreamPreAndPostImages": true },
    ];
    let view = |name: &str| doc! { "create": name, "viewOn": "m", "pipeline": [] };
    let mut all = vec![("test", doc! { "create": "m" }), ("test", view("w"))];
    let listed = |name: &str| doc! { "listCollections": 1, "filter": { "name": name } };
    for options in options {
        for (name, command) in [
            ("cs", doc! { "create": "cs" }),
            ("m", doc! { "collMod": "m" }),
            ("v", view("v")),
            ("w", doc! { "collMod": "w" }),
        ] {
            all.push(("test", with(command, options.clone())));
            all.push(("test", listed(name)));
        }
        all.push(("admin", with(doc! { "create": "cs" }, options)));
        all.extend([("test", doc! { "drop": "cs" }), ("test", doc! { "drop": "v" })]);
        all.push(("admin", doc! { "drop": "cs" }));
    }
    all.extend(["w", "m"].map(|name| ("test", doc! { "drop": name })));
    all
}

/// Changes of collections and databases.
fn catalogue(version: ServerVersion) -> Vec<Command> {
    let is_expanded = version >= ServerVersion::V6_0;
    let mut stages = vec![doc! {}];
    if is_expanded {
        stages.push(doc! { "showExpandedEvents": true });
    }
    let rename = |to: &str| {
        let drops = to.ends_with("c2");
        let command = doc! { "renameCollection": "test.c3", "to": to, "dropTarget": drops };
        ("admin", command)
    };
    let index = |key: &str| doc! { "key": { key: 1 }, "name": key };
    let mut all = Vec::new();
    for stage in stages {
        all.push(("test", doc! { "create": "cs" }));
        all.push(Watched::Database.open(stage.clone(), Vec::new()));
        // Streams that report little wait for what comes last.
        let wait = if stage.is_empty() { NONE } else { EVENT };
        let quietly = [
            doc! { "create": "capped", "capped": true, "size": 4096 },
            doc! { "create": "view", "viewOn": "cs", "pipeline": [{ "$match": { "a": 1 } }] },
            doc! { "collMod": "view", "viewOn": "capped", "pipeline": [] },
            doc! { "drop": "view" },
            doc! { "createIndexes": "cs", "indexes": [index("a")] },
            doc! { "createIndexes": "c2", "indexes": [index("a")] },
            doc! { "dropIndexes": "c2", "index": "a" },
            doc! { "collMod": "cs", "validator": { "a": { "$exists": true } } },
        ];
        for command in quietly {
            all.push(("test", command));
            all.push(Watched::Database.more(wait));
        }
        all.push(("test", doc! { "insert": "c3", "documents": [{ "_id": 1 }] }));
        all.push(Watched::Database.more(EVENT));
        for to in ["test.c4", "test.c2"] {
            let back = ("admin", doc! { "renameCollection": to, "to": "test.c3" });
            all.extend([rename(to), Watched::Database.more(EVENT)]);
            all.extend([back, Watched::Database.more(EVENT)]);
        }
        for name in ["c3", "cs", "capped"] {
            all.push(("test", doc! { "drop": name }));
            all.push(Watched::Database.more(EVENT));
        }
        all.push(("test", insert(1)));
        all.push(Watched::Database.more(EVENT));
        all.push(("test", doc! { "drop": "cs" }));
    }
    all
}

/// Transactions and retryable writes.
fn transactions() -> Vec<Command> {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![101; 16] };
    let numbered = |command: Document, number: i64| {
        with(command, doc! { "lsid": { "id": id.clone() }, "txnNumber": number })
    };
    let within = |command: Document| with(numbered(command, 1), doc! { "autocommit": false });
    vec![
        ("test", doc! { "create": "cs" }),
        Watched::Collection.open(doc! {}, Vec::new()),
        ("test", with(within(insert(1)), doc! { "startTransaction": true })),
        ("test", insert(2)),
        ("test", within(update(doc! { "$set": { "a": 1, "b": 2 } }))),
        ("test", within(delete(1))),
        Watched::Collection.more(EVENT),
        ("admin", within(doc! { "commitTransaction": 1 })),
        Watched::Collection.more(EVENT),
        ("test", numbered(insert(5), 2)),
        Watched::Collection.more(EVENT),
        ("test", numbered(insert(5), 2)),
        Watched::Collection.more(NONE),
        ("test", doc! { "drop": "cs" }),
    ]
}

/// The ends of streams, in batches of one and of all.
fn ends() -> Vec<Command> {
    let one = |(database, command): Command| (database, with(command, doc! { "batchSize": 1 }));
    let mut all = Vec::new();
    let rename = |from: &str, to: &str| ("admin", doc! { "renameCollection": from, "to": to });
    let drop = |name: &str| ("test", doc! { "drop": name });
    for end in [drop("cs"), rename("test.cs", "test.c2")] {
        all.push(("test", doc! { "create": "cs" }));
        all.push(Watched::Collection.open(doc! {}, Vec::new()));
        all.push(end);
        for _ in 0..4 {
            all.push(one(Watched::Collection.more(EVENT)));
        }
    }
    all.push(Watched::Collection.open(doc! {}, Vec::new()));
    all.extend([rename("test.c2", "test.cs"), Watched::Collection.more(EVENT)]);
    all.extend([Watched::Collection.more(NONE), drop("cs")]);
    all
}

/// Stages behind the first, those that are allowed and others.
fn stages(version: ServerVersion) -> Vec<Command> {
    let watched = Watched::Collection;
    let mut all = vec![("test", doc! { "create": "cs" })];
    for stage in [
        doc! { "$match": { "operationType": "insert" } },
        doc! { "$match": { "operationType": "delete" } },
        doc! { "$project": { "operationType": 1 } },
        doc! { "$project": { "_id": 0 } },
        doc! { "$addFields": { "more": "$documentKey._id" } },
        doc! { "$addFields": { "_id": 5 } },
        doc! { "$set": { "a.b": 1 } },
        doc! { "$unset": "ns" },
        doc! { "$unset": "_id" },
        doc! { "$replaceRoot": { "newRoot": { "_id": "$_id", "x": 1 } } },
        doc! { "$replaceWith": "$$ROOT" },
        doc! { "$redact": "$$KEEP" },
        doc! { "$redact": "$$PRUNE" },
        doc! { "$redact": "$$DESCEND" },
        doc! { "$redact": { "$cond": [{ "$eq": ["$coll", "cs"] }, "$$PRUNE", "$$DESCEND"] } },
        doc! { "$redact": "$operationType" },
        doc! { "$redact": "$none" },
    ] {
        let text = stage.to_string();
        let is_none = text.contains("delete") || text.contains(r#""$$PRUNE" }"#);
        let wait = if is_none { NONE } else { EVENT };
        all.push(watched.open(doc! {}, vec![stage]));
        all.push(("test", doc! { "insert": "cs", "documents": [{ "_id": 1 }] }));
        all.push(watched.more(wait));
        all.push(("test", delete(1)));
    }
    let mut refused = vec![
        doc! { "$limit": 1 },
        doc! { "$skip": 1 },
        doc! { "$sort": { "a": 1 } },
        doc! { "$group": { "_id": 1 } },
        doc! { "$count": "n" },
        doc! { "$sortByCount": "$a" },
        doc! { "$out": "z" },
        doc! { "$merge": "z" },
        doc! { "$lookup": { "from": "y", "as": "a", "pipeline": [] } },
        doc! { "$unwind": "$a" },
        doc! { "$facet": { "a": [{ "$match": {} }] } },
        doc! { "$sample": { "size": 1 } },
        doc! { "$indexStats": {} },
        doc! { "$collStats": {} },
        doc! { "$changeStream": {} },
        doc! { "$nonsense": 1 },
        doc! { "$match": { "$nonsense": 1 } },
        doc! { "$addFields": { "a": { "$nonsense": 1 } } },
        doc! { "$match": 1 },
        doc! { "$redact": { "$nonsense": 1 } },
        doc! { "$redact": "$$nonsense" },
        doc! { "a": 1, "b": 1 },
        doc! {},
    ];
    if version >= ServerVersion::V4_4 {
        refused.push(doc! { "$unionWith": "y" });
    }
    for spec in [Bson::from(doc! {}), doc! { "a": 1 }.into(), 1.into()] {
        refused.push(doc! { "$changeStreamSplitLargeEvent": spec });
    }
    all.extend(refused.into_iter().map(|stage| watched.open(doc! {}, vec![stage])));
    let split = doc! { "$changeStreamSplitLargeEvent": {} };
    let all_match = doc! { "$match": {} };
    all.push(watched.open(doc! {}, vec![split, all_match.clone()]));
    let late = vec![all_match, doc! { "$changeStream": {} }];
    all.push(("test", doc! { "aggregate": "cs", "pipeline": late, "cursor": {} }));
    all.push(("test", doc! { "drop": "cs" }));
    all
}

/// Options that make no sense, and what may not be watched.
fn refusals(version: ServerVersion) -> Vec<Command> {
    let time = Timestamp { time: u32::MAX, increment: 1 };
    let mut stages = vec![
        doc! { "nonsense": 1 },
        doc! { "fullDocument": "nonsense" },
        doc! { "fullDocument": 1 },
        doc! { "startAtOperationTime": 5 },
        doc! { "startAtOperationTime": time },
        doc! { "resumeAfter": {} },
        doc! { "resumeAfter": 5 },
        doc! { "resumeAfter": "a" },
        doc! { "startAfter": { "_data": 5 } },
        doc! { "resumeAfter": { "_data": "zz" } },
        doc! { "resumeAfter": { "_data": "826" } },
        doc! { "resumeAfter": { "_data": "" } },
        doc! { "resumeAfter": { "_data": "8200" } },
        doc! { "allChangesForCluster": true },
        doc! { "fullDocumentBeforeChange": "nonsense" },
    ];
    if version >= ServerVersion::V6_0 {
        stages.push(doc! { "showExpandedEvents": 1 });
    }
    let mut all: Vec<Command> =
        stages.into_iter().map(|it| Watched::Collection.open(it, Vec::new())).collect();
    let open = |database: &'static str, name: Bson| {
        let pipeline = vec![doc! { "$changeStream": {} }];
        (database, doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} })
    };
    all.push(("test", doc! { "create": "view", "viewOn": "cs", "pipeline": [] }));
    all.extend([
        open("admin", 1.into()),
        open("admin", "x".into()),
        open("config", 1.into()),
        open("local", "x".into()),
        open("test", "system.js".into()),
        open("test", "view".into()),
        open("test", "none".into()),
        open("nowhere", 1.into()),
        ("test", doc! { "aggregate": "cs", "pipeline": [{ "$changeStream": 1 }], "cursor": {} }),
        ("test", doc! { "aggregate": "cs", "pipeline": [{ "$changeStream": {} }] }),
    ]);
    for level in ["local", "available", "majority", "linearizable", "snapshot"] {
        // It is refused before anything is known of the stage.
        if level == "snapshot" && version < ServerVersion::V5_0 {
            continue;
        }
        let (database, command) = Watched::Collection.open(doc! {}, Vec::new());
        all.push((database, with(command, doc! { "readConcern": { "level": level } })));
    }
    let more = doc! { "getMore": "the cursor", "collection": "other" };
    all.extend([("test", more), ("test", doc! { "drop": "view" })]);
    all
}

/// Streams that begin behind tokens, and at none: here each token is that of the last reply.
fn tokens() -> Vec<Command> {
    let watched = Watched::Collection;
    let token = |name: &str| doc! { name: "the token" };
    let none = doc! { "batchSize": 0 };
    let mut all = vec![("test", doc! { "create": "cs" }), watched.open(doc! {}, Vec::new())];
    let again = |option: &str| {
        let (database, command) = watched.open(token(option), Vec::new());
        (database, with(command, doc! { "cursor": none.clone() }))
    };
    for option in ["resumeAfter", "startAfter"] {
        all.extend([
            ("test", insert(1)),
            ("test", insert(2)),
            watched.open(token(option), Vec::new()),
        ]);
        all.extend([watched.more(NONE), again(option), ("test", insert(3)), watched.more(EVENT)]);
        all.extend([1, 2, 3].map(|id| ("test", delete(id))));
        all.push(watched.more(EVENT));
        let both = with(
            token(option),
            doc! { "startAtOperationTime": Timestamp { time: 9, increment: 1 } },
        );
        all.push(watched.open(both, Vec::new()));
    }
    all.push(watched.open(with(token("resumeAfter"), token("startAfter")), Vec::new()));
    all.extend([("test", doc! { "create": "c2" }), ("test", doc! { "drop": "cs" })]);
    // The stream ends, and its last token is that of the invalidate.
    all.extend([watched.open(token("resumeAfter"), Vec::new()), ("test", insert(4))]);
    all.push(watched.open(token("resumeAfter"), Vec::new()));
    all.push(Watched::Database.open(token("startAfter"), Vec::new()));
    all.push(watched.open(token("startAfter"), Vec::new()));
    // That of one collection is not found in another.
    let mut elsewhere = watched.open(token("startAfter"), Vec::new());
    elsewhere.1.insert("aggregate", "c2");
    all.extend([("test", doc! { "insert": "c2", "documents": [{ "_id": 1 }] }), elsewhere]);
    all.extend(["cs", "c2"].map(|name| ("test", doc! { "drop": name })));
    all
}

/// The text of the streams whose tokens are looked for behind `$redact`.
pub(crate) const FOUND_BEHIND_REDACT: &str = r#"{ "$match": {} }, { "$redact""#;

/// The tokens of events where streams have no such events: they are of another collection.
fn elsewhere() -> Vec<Command> {
    let on = |name: &str, (database, command): Command| {
        let field = if command.contains_key("aggregate") { "aggregate" } else { "collection" };
        (database, with(command, doc! { field: name }))
    };
    let insert_into = |name: &str| doc! { "insert": name, "documents": [{ "_id": 1 }] };
    let watched = Watched::Collection;
    let pruned = doc! { "$redact": "$$PRUNE" };
    let other = doc! { "$match": { "operationType": "delete" } };
    let mut all = Vec::new();
    for stages in [vec![], vec![other.clone()], vec![doc! { "$match": {} }, pruned]] {
        for option in ["resumeAfter", "startAfter"] {
            let open =
                |name: &str| on(name, watched.open(doc! { option: "the token" }, stages.clone()));
            all.extend(["cs", "c2"].map(|name| ("test", doc! { "create": name })));
            all.push(watched.open(doc! {}, Vec::new()));
            all.extend([("test", insert(1)), watched.more(EVENT)]);
            all.extend([open("none"), open("c2"), ("test", insert_into("c2"))]);
            let wait = if stages.is_empty() { EVENT } else { NONE };
            all.extend([on("c2", watched.more(wait)), open("c2"), on("c2", watched.more(NONE))]);
            all.extend(["cs", "c2"].map(|name| ("test", doc! { "drop": name })));
        }
    }
    all
}

/// The token of an event that the stages of a stream leave out, and those of its end.
fn left_out() -> Vec<Command> {
    let watched = Watched::Collection;
    let matched = |kinds: &[&str]| doc! { "$match": { "operationType": { "$in": kinds } } };
    let after =
        |kinds: &[&str]| watched.open(doc! { "startAfter": "the token" }, vec![matched(kinds)]);
    let one = |(database, command): Command| (database, with(command, doc! { "batchSize": 1 }));
    let mut all = Vec::new();
    for kinds in [&["delete"][..], &["nothing"], &["insert", "delete"]] {
        all.extend([("test", doc! { "create": "cs" }), watched.open(doc! {}, Vec::new())]);
        all.extend([("test", insert(1)), watched.more(EVENT), ("test", delete(1)), after(kinds)]);
        all.push(("test", doc! { "drop": "cs" }));
    }
    let others = [&["insert"][..], &["insert", "invalidate"], &["insert", "drop"]];
    for (count, kinds) in [1, 2].into_iter().flat_map(|count| others.map(|it| (count, it))) {
        all.extend([("test", doc! { "create": "cs" }), watched.open(doc! {}, Vec::new())]);
        all.push(("test", doc! { "drop": "cs" }));
        all.extend((0..count).map(|_| one(watched.more(EVENT))));
        all.extend([("test", insert(1)), after(kinds), ("test", doc! { "drop": "cs" })]);
    }
    all
}

/// Events that are too large for one document, with both images.
fn large() -> Vec<Command> {
    const LEN: usize = 9 << 20;
    let watched = Watched::Collection;
    let images = doc! { "changeStreamPreAndPostImages": { "enabled": true } };
    let whole = doc! { "_id": 1, "text": "a".repeat(LEN) };
    let stage = doc! { "fullDocument": "required", "fullDocumentBeforeChange": "required" };
    let split = vec![doc! { "$changeStreamSplitLargeEvent": {} }];
    let resumed = with(stage.clone(), doc! { "resumeAfter": "the token" });
    vec![
        ("test", with(doc! { "create": "cs" }, images)),
        ("test", doc! { "insert": "cs", "documents": [whole] }),
        watched.open(stage.clone(), split.clone()),
        ("test", update(doc! { "$set": { "a": 1 } })),
        watched.more(EVENT),
        watched.more(EVENT),
        ("test", update(doc! { "$set": { "a": 2 } })),
        watched.more(EVENT),
        // Behind the first fragment is the second.
        watched.open(resumed.clone(), split),
        watched.open(resumed, Vec::new()),
        watched.open(stage, Vec::new()),
        ("test", update(doc! { "$set": { "a": 3 } })),
        watched.more(EVENT),
        ("test", doc! { "drop": "cs" }),
    ]
}

/// Fail points, and the labels of each error.
fn failures(version: ServerVersion) -> Vec<Command> {
    let codes = [
        1, 6, 7, 43, 50, 89, 91, 112, 133, 136, 150, 189, 234, 237, 262, 280, 286, 9001, 10107,
        11600, 11601, 11602, 13435, 13436,
    ];
    let watched = Watched::Collection;
    let fail = |name: &str, data: Document| {
        let mode = doc! { "times": 1 };
        ("admin", doc! { "configureFailPoint": name, "mode": mode, "data": data })
    };
    let mut all = vec![("test", doc! { "create": "cs" })];
    for code in codes {
        for command in ["aggregate", "getMore"] {
            all.push(watched.open(doc! {}, Vec::new()));
            let data = doc! { "failCommands": [command], "errorCode": code };
            all.push(fail("failCommand", data));
            all.push(match command {
                "getMore" => watched.more(NONE),
                _ => watched.open(doc! {}, Vec::new()),
            });
            all.push(watched.more(NONE));
        }
        // 4.2.6 does not have it.
        if version >= ServerVersion::V4_4 {
            all.push(watched.open(doc! {}, Vec::new()));
            all.push(fail("failGetMoreAfterCursorCheckout", doc! { "errorCode": code }));
            all.extend([watched.more(NONE), watched.more(NONE)]);
        }
    }
    all.push(("test", doc! { "drop": "cs" }));
    all
}
