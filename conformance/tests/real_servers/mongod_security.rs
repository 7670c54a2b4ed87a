//! Real servers with users, certificates and compressors: on every mongod that there is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary as Payload, Document, RawDocumentBuf, doc};
use libtest_mimic::{Failed, Trial};
use sdam_cluster::certificates::Authority;
use sdam_cluster::{self as cluster, EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_conformance::mongod::{
    Binary, CommandError, Config, Options, ReplicaSet, Server, Tls, User,
};
use sdam_core::wire::{Flags, Frames, write_op_msg};

use super::named_as_newest;

type Outcome = Result<(), Failed>;
type Scenario = (&'static str, fn(&Binary) -> Outcome);

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(60);

const SCENARIOS: [Scenario; 6] = [
    ("a_standalone_has_its_users_and_demands_authentication", standalone),
    ("a_replica_set_settles_again_with_authentication", replica_set),
    ("a_server_that_requires_tls_has_users_with_certificates", certificates),
    ("a_replica_set_speaks_tls_and_demands_authentication", replica_set_with_tls),
    ("a_server_offers_the_compressors_it_was_given", compressors),
    ("the_embedded_deployment_refuses_what_this_server_refuses", embedded),
];

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, scenario) in SCENARIOS {
        for binary in binaries {
            let binary = binary.clone();
            let name = format!("{name}_on_mongod_{}", binary.version());
            trials.push(Trial::test(name, move || scenario(&binary)));
        }
    }
    trials
}

fn users() -> Vec<User> {
    vec![
        User::new("sha1", "sha1").with_mechanisms(&["SCRAM-SHA-1"]),
        User::new("sha256", "sha256").with_mechanisms(&["SCRAM-SHA-256"]),
        User::new("both", "both"),
        User::new("IX", "IX").with_mechanisms(&["SCRAM-SHA-256"]),
        User::new("\u{2168}", "\u{2163}").with_mechanisms(&["SCRAM-SHA-256"]),
    ]
}

/// The mechanisms that a user may use, in alphabetical order.
fn mechanisms(server: &Server, user: &str) -> Result<Vec<String>, Failed> {
    let question = doc! { "isMaster": 1, "saslSupportedMechs": format!("admin.{user}") };
    let reply = server.command(&question, LIMIT)?;
    let names = reply.get_array("saslSupportedMechs").cloned().unwrap_or_default();
    let mut names: Vec<String> =
        names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

fn demands_authentication(server: &Server) -> Outcome {
    for command in [doc! { "listDatabases": 1 }, doc! { "createUser": "x", "roles": [] }] {
        let error = server.command(&command, LIMIT).unwrap_err();
        assert!(matches!(error, CommandError::Refused { code: 13, .. }), "{error}");
    }
    assert_eq!(mechanisms(server, "sha1")?, ["SCRAM-SHA-1"]);
    for user in ["sha256", "IX", "\u{2168}"] {
        assert_eq!(mechanisms(server, user)?, ["SCRAM-SHA-256"], "{user}");
    }
    assert_eq!(mechanisms(server, "both")?, ["SCRAM-SHA-1", "SCRAM-SHA-256"]);
    assert!(mechanisms(server, "nobody")?.is_empty());
    Ok(())
}

fn standalone(binary: &Binary) -> Outcome {
    let mut server = Server::start(binary, Config::default())?;
    server.command(&doc! { "listDatabases": 1 }, LIMIT)?;
    server.enable_auth(&users())?;
    demands_authentication(&server)?;
    server.restart()?;
    demands_authentication(&server)
}

fn replica_set(binary: &Binary) -> Outcome {
    let mut set = ReplicaSet::start(binary, 3, &Options::default())?;
    set.enable_auth(&users())?;
    set.members().iter().try_for_each(demands_authentication)?;
    let first = set.primary()?;
    set.kill(first)?;
    let second = set.wait_for_primary(LIMIT)?;
    assert_ne!(second, first, "the members believe each other");
    set.restart(first)?;
    set.wait_until_settled(LIMIT)?;
    Ok(())
}

fn certificates(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let key = authority.issue("server", &["127.0.0.1"])?;
    let client = authority.issue_client("alice")?;
    assert_eq!(client.subject, "CN=alice,OU=clients,O=sdam");
    let tls = Tls::new(key, authority.file()).required();
    let mut server = Server::start(binary, Config { tls: Some(tls), ..Config::default() })?;
    let refused = server.hello().unwrap_err();
    assert!(matches!(refused, CommandError::Io { .. }), "it wants TLS: {refused}");
    server.enable_auth(&[User::with_certificate(client.subject)])?;
    assert!(matches!(server.hello(), Err(CommandError::Io { .. })), "it still does");
    assert!(server.is_running());
    Ok(())
}

fn replica_set_with_tls(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let key = authority.issue("server", &["127.0.0.1"])?;
    let options = Options { tls: Some(Tls::new(key, authority.file())), ..Options::default() };
    let mut set = ReplicaSet::start(binary, 2, &options)?;
    let mut users = users();
    users.push(User::with_certificate(authority.issue_client("alice")?.subject));
    set.enable_auth(&users)?;
    set.members().iter().try_for_each(demands_authentication)
}

fn compressors(binary: &Binary) -> Outcome {
    let question = doc! { "isMaster": 1, "compression": ["zstd", "zlib", "snappy"] };
    let offered = |compressors: &[&str]| -> Result<Vec<String>, Failed> {
        let compressors = compressors.iter().map(|it| (*it).to_owned()).collect();
        let server = Server::start(binary, Config { compressors, ..Config::default() })?;
        let reply: Document = server.command(&question, LIMIT)?;
        let names = reply.get_array("compression")?.iter();
        Ok(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
    };
    assert_eq!(offered(&["zlib"])?, ["zlib"]);
    assert_eq!(offered(&[])?.len(), 3, "all of its version");
    Ok(())
}

/// Asks a real server and the embedded deployment the same, each sequence on one connection, and
/// compares the errors, and which fields there are.
fn embedded(binary: &Binary) -> Outcome {
    let version = match (binary.version().major, binary.version().minor) {
        (4, 2) => ServerVersion::V4_2,
        (4, 4) => ServerVersion::V4_4,
        (5, 0) => ServerVersion::V5_0,
        (6, 0) => ServerVersion::V6_0,
        _ => return Ok(()),
    };
    let mut server = Server::start(binary, Config::default())?;
    server.enable_auth(&[User::new("both", "both")])?;
    let users = vec![cluster::User::new("both", "both")];
    let options =
        EmbeddedOptions::default().with_members(1).with_version(version).with_users(users);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let embedded = EmbeddedCluster::start(options).await?;
        for commands in questions(version) {
            let mut real = answers(&server.address().to_string(), &commands)?;
            real.iter_mut().for_each(|reply| named_as_newest(version, reply));
            let (address, asked) = (embedded.addresses()[0].to_string(), commands.clone());
            let ours = tokio::task::spawn_blocking(move || answers(&address, &asked)).await??;
            assert_eq!(ours, real, "{commands:?}");
        }
        Ok(())
    })
}

fn questions(version: ServerVersion) -> Vec<Vec<Document>> {
    let payload = |text: &str| Payload { subtype: BinarySubtype::Generic, bytes: text.into() };
    let start = |mechanism: &str, text: &str| {
        doc! { "saslStart": 1, "mechanism": mechanism, "payload": payload(text) }
    };
    let first = || start("SCRAM-SHA-256", "n,,n=both,r=abcdefgh");
    let proceed = |id: i32, text: &str| {
        doc! { "saslContinue": 1, "conversationId": id, "payload": payload(text) }
    };
    let mut commands: Vec<Vec<Document>> = vec![
        vec![doc! { "ping": 1 }],
        vec![doc! { "noSuchCommand": 1 }],
        vec![first(), first()],
        vec![start("SCRAM-SHA-1", "n,,n=both,r=abcdefgh")],
        vec![start("FOO", "n,,n=both,r=abcdefgh")],
        vec![proceed(1, "x")],
        vec![first(), proceed(1, "x"), proceed(1, "x"), doc! { "ping": 1 }],
        vec![first(), proceed(2, "x"), proceed(1, "x")],
    ];
    if version >= ServerVersion::V5_0 {
        // Older ones had other numbers for what makes no sense.
        commands.extend([
            vec![doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "!" }],
            vec![doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256" }],
            vec![doc! { "saslStart": 1, "payload": "" }],
            vec![first(), doc! { "saslContinue": 1, "payload": "" }, proceed(1, "x")],
        ]);
    }
    const GUARDED: [&str; 17] = [
        "aggregate",
        "count",
        "distinct",
        "endSessions",
        "find",
        "getCmdLineOpts",
        "getLog",
        "getParameter",
        "hostInfo",
        "insert",
        "killCursors",
        "listCollections",
        "listDatabases",
        "logout",
        "replSetGetConfig",
        "replSetGetStatus",
        "serverStatus",
    ];
    for name in GUARDED.into_iter().chain(["buildInfo", "connectionStatus", "whatsmyuri"]) {
        commands.push(vec![doc! { name: "c" }]);
    }
    for text in ["", "x", "n,,", "n,,n=nobody,r=abcdefgh", "z,,n=both,r=abcdefgh"] {
        commands.push(vec![start("SCRAM-SHA-256", text), proceed(1, "x")]);
    }
    for user in ["admin.both", "admin.nobody", "both"] {
        commands.push(vec![doc! { "isMaster": 1, "saslSupportedMechs": user }]);
    }
    for name in ["both", "nobody"] {
        let mut first = start("SCRAM-SHA-256", &format!("n,,n={name},r=abcdefgh"));
        first.insert("db", "admin");
        commands.push(vec![doc! { "isMaster": 1, "speculativeAuthenticate": first }]);
    }
    commands
}

/// Returns a server's answers: the errors, and the fields that are about logins.
fn answers(address: &str, commands: &[Document]) -> Result<Vec<Document>, Failed> {
    const TOLD: [&str; 6] =
        ["ok", "code", "codeName", "saslSupportedMechs", "conversationId", "done"];
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let (mut frames, mut answers) = (Frames::new(), Vec::new());
    for command in commands {
        let mut command = command.clone();
        command.insert("$db", "admin");
        let mut request = Vec::new();
        let command = RawDocumentBuf::try_from(&command)?;
        write_op_msg(&mut request, 1, 0, Flags::NONE, &command);
        stream.write_all(&request)?;
        let message = loop {
            if let Some(message) = frames.next()? {
                break message;
            }
            let count = stream.read(frames.spare())?;
            assert_ne!(count, 0, "it hangs up after {command:?}");
            frames.fill(count);
        };
        let reply = Document::try_from(message.op_msg()?.body)?;
        let told = reply.iter().filter(|(name, _)| TOLD.contains(&name.as_str()));
        let mut answer: Document = told.map(|(name, it)| (name.clone(), it.clone())).collect();
        if let Ok(mechanisms) = answer.get_array_mut("saslSupportedMechs") {
            mechanisms.sort_by_key(|it| it.as_str().map(str::to_owned));
        }
        if let Ok(speculation) = reply.get_document("speculativeAuthenticate") {
            let fields: Vec<&str> = speculation.keys().map(String::as_str).collect();
            answer.insert("speculativeAuthenticate", fields.join(","));
        }
        answers.push(answer);
    }
    Ok(answers)
}
