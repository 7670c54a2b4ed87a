//! The replies of the embedded deployment are those of real servers: the same fields, of the same
//! types, and the same errors.

use std::thread;
use std::time::{Duration, Instant};

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use libtest_mimic::{Failed, Trial};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_conformance::mongod::{self, CommandError, Member, Options, ReplicaSet};
use sdam_core::config::ServerAddress;
use sdam_core::wire::ReplyFlags;

use super::named_as_newest;

type Outcome<T = ()> = Result<T, Failed>;

/// A reply to OP_QUERY.
type Queried = (ReplyFlags, Document);

/// The number of `UnsupportedOpQueryCommand`.
const UNSUPPORTED_OP_QUERY_COMMAND: i32 = 352;

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// The members of both sets, by index.
const ARBITER: usize = 2;
const HIDDEN: usize = 3;

pub(crate) fn trials(binaries: &[mongod::Binary]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for binary in binaries {
        let binary = binary.clone();
        let name = format!("the_embedded_deployment_replies_as_mongod_{}", binary.version());
        trials.push(Trial::test(name, move || compare(&binary)));
    }
    trials
}

fn compare(binary: &mongod::Binary) -> Outcome {
    let version = match (binary.version().major, binary.version().minor) {
        (4, 2) => ServerVersion::V4_2,
        (4, 4) => ServerVersion::V4_4,
        (5, 0) => ServerVersion::V5_0,
        (6, 0) => ServerVersion::V6_0,
        _ => return Ok(()),
    };
    let mut members = vec![Member::default(); 4];
    members[ARBITER].arbiter_only = true;
    (members[HIDDEN].hidden, members[HIDDEN].priority) = (true, 0.0);
    // The primary is to be the same for all that is asked.
    let calm = Options { election_timeout: Duration::from_secs(30), ..Options::default() };
    let real = ReplicaSet::start_with(binary, &members, &calm)?;
    real.wait_until_settled(LIMIT)?;
    let addresses: Vec<_> = real.members().iter().map(mongod::Server::address).collect();
    let real = Set { primary: real.primary()?, addresses };
    let everywhere = doc! { "w": 3 };
    real.command(real.primary, "test", &doc! { "create": "x", "writeConcern": everywhere })?;

    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let options = EmbeddedOptions::default().with_members(4).with_version(version);
    let embedded = runtime.block_on(async {
        let embedded = EmbeddedCluster::start_with(options, |id, member| match id.0 {
            ARBITER => member.arbiter = true,
            HIDDEN => (member.hidden, member.priority) = (true, 0),
            _ => {}
        });
        let embedded = embedded.await?;
        embedded.elected().await.map(|primary| (embedded, primary))
    });
    let (embedded, primary) = embedded?;
    let addresses = embedded.addresses().iter().map(|it| it.to_string().parse());
    let ours = Set { primary: primary.0, addresses: addresses.collect::<Result<_, _>>()? };
    ours.wait_until_settled()?;

    for (theirs, own) in real.roles().into_iter().zip(ours.roles()) {
        // Arbiters of 4.2 answer more than any others.
        if own == ARBITER && version < ServerVersion::V4_4 {
            continue;
        }
        for (database, command) in questions(version) {
            let theirs = real.reply(theirs, database, &command)?;
            let own = ours.reply(own, database, &command)?;
            let misfits = misfits("", &own.into(), &theirs.into());
            assert!(misfits.is_empty(), "{command}: {misfits:#?}");
        }
        for (database, command) in queries() {
            let mut theirs = real.query(theirs, database, &command)?;
            named_as_newest(version, &mut theirs.1);
            let own = ours.query(own, database, &command)?;
            same_kind_of_reply(&command, &own, &theirs);
        }
    }
    if version >= ServerVersion::V6_0 {
        // Older ones had other numbers for what makes no sense.
        for (database, command) in mistakes() {
            let mut theirs = real.reply(real.primary, database, &command)?;
            named_as_newest(version, &mut theirs);
            let own = ours.reply(ours.primary, database, &command)?;
            assert_eq!(own.get("code"), theirs.get("code"), "{command}");
            assert_eq!(own.get("codeName"), theirs.get("codeName"), "{command}");
        }
    }
    Ok(())
}

/// A replica set of either kind.
struct Set {
    primary: usize,
    addresses: Vec<ServerAddress>,
}

impl Set {
    /// The primary, a secondary, the arbiter, and the hidden member.
    fn roles(&self) -> [usize; 4] {
        [self.primary, 1 - self.primary, ARBITER, HIDDEN]
    }

    fn command(&self, member: usize, database: &str, command: &Document) -> Outcome<Document> {
        let mut command = command.clone();
        command.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
        Ok(mongod::command(&self.addresses[member], database, &command, LIMIT)?)
    }

    /// Returns a member's reply, which may be an error.
    fn reply(&self, member: usize, database: &str, command: &Document) -> Outcome<Document> {
        let mut command = command.clone();
        command.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
        match mongod::command(&self.addresses[member], database, &command, LIMIT) {
            Ok(mut reply) => {
                // Every reply has them here; real arbiters have no time to send.
                reply.remove("$clusterTime");
                reply.remove("operationTime");
                Ok(reply)
            }
            Err(CommandError::Refused { code, code_name, .. }) => {
                Ok(doc! { "ok": 0.0, "code": code, "codeName": code_name })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a member's reply to a command that comes by OP_QUERY; it may be an error.
    fn query(&self, member: usize, database: &str, command: &Document) -> Outcome<Queried> {
        let mut connection = mongod::Connection::open(&self.addresses[member], LIMIT)?;
        let (flags, mut document) = connection.query(database, command, LIMIT)?;
        document.remove("$clusterTime");
        document.remove("operationTime");
        Ok((flags, document))
    }

    /// Waits until all members have found their places.
    fn wait_until_settled(&self) -> Outcome {
        let end = Instant::now() + LIMIT;
        loop {
            let status = self.command(self.primary, "admin", &doc! { "replSetGetStatus": 1 })?;
            let members = status.get_array("members")?.iter().filter_map(Bson::as_document);
            let states: Vec<_> = members.filter_map(|it| it.get_i32("state").ok()).collect();
            if states.iter().all(|state| [1, 2, 7].contains(state)) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("the members are in the states {states:?}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the first commands of tools, and those that drivers need to count.
fn questions(version: ServerVersion) -> Vec<(&'static str, Document)> {
    let current = vec![doc! { "$currentOp": {} }];
    let count = vec![doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }];
    let stats = vec![doc! { "$collStats": { "count": {} } }];
    let mut questions = vec![
        ("admin", doc! { "replSetGetStatus": 1 }),
        ("admin", doc! { "replSetGetConfig": 1 }),
        ("admin", doc! { "serverStatus": 1 }),
        ("admin", doc! { "buildInfo": 1 }),
        ("admin", doc! { "hostInfo": 1 }),
        ("admin", doc! { "getCmdLineOpts": 1 }),
        ("admin", doc! { "getLog": "startupWarnings" }),
        ("admin", doc! { "getLog": "*" }),
        ("admin", doc! { "connectionStatus": 1, "showPrivileges": true }),
        ("admin", doc! { "whatsmyuri": 1 }),
        ("admin", doc! { "getParameter": 1, "featureCompatibilityVersion": 1 }),
        ("admin", doc! { "listDatabases": 1 }),
        ("admin", doc! { "listDatabases": 1, "nameOnly": true }),
        ("admin", doc! { "aggregate": 1, "pipeline": current, "cursor": {} }),
        ("test", doc! { "listCollections": 1 }),
        ("test", doc! { "count": "x" }),
        ("test", doc! { "distinct": "x", "key": "a" }),
        ("test", doc! { "aggregate": "x", "pipeline": count, "cursor": {} }),
        ("test", doc! { "aggregate": "x", "pipeline": stats, "cursor": {} }),
        ("test", doc! { "nonsense": 1 }),
        ("test", doc! { "replSetGetStatus": 1 }),
    ];
    if version >= ServerVersion::V4_4 {
        questions.push(("admin", doc! { "getDefaultRWConcern": 1 }));
    }
    questions
}

/// The commands by which drivers of all ages open connections and log in, and some others: after
/// 5.0 servers answer the former by OP_QUERY too, and refuse the latter (MongoDB Handshake,
/// "Connection handshake", has drivers open by a legacy hello in OP_QUERY).
fn queries() -> Vec<(&'static str, Document)> {
    let first =
        Binary { subtype: BinarySubtype::Generic, bytes: b"n,,n=nobody,r=abcdefgh".to_vec() };
    let start = |mechanism: &str| {
        doc! { "saslStart": 1, "mechanism": mechanism, "payload": first.clone() }
    };
    let preference = doc! { "mode": "secondaryPreferred" };
    let on_admin = [
        doc! { "isMaster": 1 },
        doc! { "ismaster": 1, "helloOk": true },
        doc! { "$query": { "isMaster": 1 } },
        doc! { "query": { "ismaster": 1 } },
        doc! { "$query": { "buildInfo": 1 }, "$readPreference": preference.clone() },
        doc! { "buildInfo": 1 },
        doc! { "buildinfo": 1 },
        doc! { "_isSelf": 1 },
        start("SCRAM-SHA-256"),
        start("SCRAM-SHA-1"),
        start("NONSENSE"),
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256" },
        doc! { "saslContinue": 1, "conversationId": 1, "payload": first.clone() },
        doc! { "authenticate": 1 },
        doc! { "authenticate": 1, "mechanism": "NONSENSE" },
        doc! { "authenticate": 1, "mechanism": "MONGODB-X509" },
        doc! { "authenticate": 1, "mechanism": "MONGODB-X509", "user": "CN=nobody" },
        doc! { "authenticate": 1, "mechanism": "SCRAM-SHA-256", "user": "nobody" },
        doc! { "getnonce": 1 },
        doc! { "logout": 1 },
        doc! { "ping": 1 },
        doc! { "$query": { "ping": 1 } },
        doc! { "getLastError": 1 },
        doc! { "getlasterror": 1 },
        doc! { "nonsense": 1 },
    ];
    let on_test = [
        doc! { "isMaster": 1 },
        doc! { "buildInfo": 1 },
        doc! { "count": "x" },
        doc! { "$query": { "count": "x" }, "$readPreference": { "mode": "primary" } },
        doc! { "$query": { "count": "x" }, "$readPreference": preference },
    ];
    let on_test = on_test.into_iter().map(|it| ("test", it));
    let nowhere = [("", doc! { "isMaster": 1 })];
    on_admin.into_iter().map(|it| ("admin", it)).chain(on_test).chain(nowhere).collect()
}

/// Both replies have the same flags, and say the same, or have the same error; of a refusal for how
/// the command came, in the same words.
fn same_kind_of_reply(command: &Document, own: &Queried, theirs: &Queried) {
    let asked = format!("{command} by OP_QUERY: {own:?}, there {theirs:?}");
    assert_eq!(own.0, theirs.0, "{asked}");
    let (own, theirs) = (&own.1, &theirs.1);
    for field in ["ok", "code", "codeName"] {
        assert_eq!(own.get(field), theirs.get(field), "{asked}");
    }
    if theirs.get("code") == Some(&Bson::Int32(UNSUPPORTED_OP_QUERY_COMMAND)) {
        assert_eq!(own.get("errmsg"), theirs.get("errmsg"), "{asked}");
    }
    let misfits = misfits("", &own.clone().into(), &theirs.clone().into());
    assert!(misfits.is_empty(), "{asked}: {misfits:#?}");
}

/// Returns commands that no server can do anything with.
fn mistakes() -> Vec<(&'static str, Document)> {
    let stages = [
        doc! { "$nonsense": 1 },
        doc! { "a": 1, "b": 2 },
        doc! {},
        doc! { "$match": 1 },
        doc! { "$limit": 0 },
        doc! { "$limit": -1 },
        doc! { "$skip": -1 },
        doc! { "$count": "" },
        doc! { "$currentOp": {} },
    ];
    let pipeline = |fixture| doc! { "aggregate": "x", "pipeline": [fixture], "cursor": {} };
    let late = vec![doc! { "$skip": 1 }, doc! { "$collStats": {} }];
    let commands = [
        doc! { "aggregate": "x", "pipeline": late, "cursor": {} },
        doc! { "aggregate": "x", "cursor": {} },
        doc! { "aggregate": "x", "pipeline": 1, "cursor": {} },
        doc! { "aggregate": "x", "pipeline": [1], "cursor": {} },
        doc! { "aggregate": "x", "pipeline": [] },
        doc! { "aggregate": 5, "pipeline": [], "cursor": {} },
        doc! { "aggregate": 1, "pipeline": [], "cursor": {} },
        doc! { "aggregate": 1, "pipeline": [{ "$match": {} }], "cursor": {} },
        doc! { "count": 1 },
        doc! { "count": "x", "skip": -1 },
        doc! { "find": "x", "filter": "a" },
        doc! { "listDatabases": 1 },
        doc! { "replSetGetConfig": 1 },
        doc! { "nonsense": 1 },
    ];
    let on_test = stages.into_iter().map(pipeline).chain(commands).map(|it| ("test", it));
    on_test.chain([("admin", doc! { "getLog": "nonsense" })]).collect()
}

/// Names what is present here and there is not, or is of another type there.
pub(crate) fn misfits(path: &str, own: &Bson, theirs: &Bson) -> Vec<String> {
    match (own, theirs) {
        (Bson::Document(own), Bson::Document(theirs)) => {
            let field = |(name, own): (&String, &Bson)| match theirs.get(name) {
                Some(theirs) => misfits(&format!("{path}.{name}"), own, theirs),
                None => vec![format!("{path}.{name} is not in it")],
            };
            own.iter().flat_map(field).collect()
        }
        // An element is like some other one, if there are any.
        (Bson::Array(own), Bson::Array(theirs)) => {
            let element = |own: &Bson| {
                let found = theirs.iter().map(|theirs| misfits(&format!("{path}[]"), own, theirs));
                found.min_by_key(Vec::len).unwrap_or_default()
            };
            own.iter().flat_map(element).collect()
        }
        (own, theirs) if own.element_type() == theirs.element_type() => Vec::new(),
        (own, theirs) => {
            vec![format!("{path} is {:?}, there {:?}", own.element_type(), theirs.element_type())]
        }
    }
}
