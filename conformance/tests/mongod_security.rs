//! Real servers with users, certificates and compressors: on every mongod that there is.

use std::process::ExitCode;
use std::time::Duration;

use bson::{Document, doc};
use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::certificates::Authority;
use sdam_conformance::mongod::{
    Availability, Binary, CommandError, Config, Options, ReplicaSet, Server, Tls, User,
};

type Outcome = Result<(), Failed>;
type Scenario = (&'static str, fn(&Binary) -> Outcome);

/// How long anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(60);

const SCENARIOS: [Scenario; 5] = [
    ("a_standalone_has_its_users_and_demands_authentication", standalone),
    ("a_replica_set_settles_again_with_authentication", replica_set),
    ("a_server_that_requires_tls_has_users_with_certificates", certificates),
    ("a_replica_set_speaks_tls_and_demands_authentication", replica_set_with_tls),
    ("a_server_offers_the_compressors_it_was_given", compressors),
];

fn main() -> ExitCode {
    let availability = Availability::look();
    let mut trials = Vec::new();
    for (name, scenario) in SCENARIOS {
        for binary in availability.binaries().to_vec() {
            let name = format!("{name}_on_mongod_{}", binary.version());
            trials.push(Trial::test(name, move || scenario(&binary)));
        }
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    availability.conclude(!conclusion.has_failed())
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
