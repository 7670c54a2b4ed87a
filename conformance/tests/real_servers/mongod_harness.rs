//! The harness for real servers proves itself: on every mongod that there is.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bson::doc;
use libtest_mimic::{Failed, Trial};
use sdam_conformance::mongod::{
    self, Binary, CommandError, Config, HarnessError, Member, Options, ReplicaSet, Server,
};

type Outcome = Result<(), Failed>;
type Scenario = (&'static str, fn(&Binary) -> Outcome);

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Names the version of the server that this program shall start and wait with.
pub(crate) const WAIT_WITH_SERVER: &str = "SDAM_TEST_WAIT_WITH_SERVER";

const SCENARIOS: [Scenario; 5] = [
    ("a_replica_set_survives_what_tests_do_to_it", replica_set),
    ("members_are_what_they_were_configured_to_be", members),
    ("a_standalone_keeps_its_data_when_killed", standalone),
    ("a_server_that_cannot_start_says_why", early_end),
    (ORPHAN, orphan),
];

const ORPHAN: &str = "no_server_outlives_the_process_that_started_it";

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let mut trials = Vec::new();
    // Without setpriv the harness does not promise that servers end with the process that started
    // them.
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if !has_setpriv {
        eprintln!("left out: {ORPHAN}, as there is no setpriv");
    }
    for (name, scenario) in SCENARIOS {
        let left_out = name == ORPHAN && !has_setpriv;
        for binary in binaries {
            let binary = binary.clone();
            let name = format!("{name}_on_mongod_{}", binary.version());
            let trial = Trial::test(name, move || scenario(&binary));
            trials.push(trial.with_ignored_flag(left_out));
        }
        if binaries.is_empty() {
            let skipped = Trial::test(name, || Err("there is no mongod".into()));
            trials.push(skipped.with_ignored_flag(true));
        }
    }
    trials
}

fn replica_set(binary: &Binary) -> Outcome {
    let mut set = ReplicaSet::start(binary, 3, &Options::default())?;
    assert_eq!(set.seed_list().len(), 3);
    set.wait_until_settled(LIMIT)?;
    let first = set.wait_for_primary(LIMIT)?;
    set.step_down()?;
    let second = set.wait_for_primary(LIMIT)?;
    assert_ne!(second, first, "who stepped down stays out of elections");
    set.wait_until_settled(LIMIT)?;

    set.kill(first)?;
    assert!(!is_alive(set.members()[first].pid()));
    assert!(set.members()[first].hello().is_err());
    assert_ne!(set.wait_for_primary(LIMIT)?, first, "a majority remains");
    set.restart(first)?;
    set.wait_until_settled(LIMIT)?;

    let second = set.wait_for_primary(LIMIT)?;
    set.freeze(second)?;
    let hello = doc! { "isMaster": 1 };
    let silence = set.members()[second].command(&hello, Duration::from_millis(200));
    assert!(matches!(silence, Err(CommandError::Io { .. })));
    let third = set.wait_for_primary(LIMIT)?;
    assert_ne!(third, second, "the others elect one of them");
    set.thaw(second)?;
    set.wait_until_settled(LIMIT)?;

    set.add_member(&Member::default())?;
    assert_eq!(hosts(&set)?.len(), 4, "the primary knows the new member");
    let version = set_version(&set)?;
    let removed = set.remove_member(set.wait_for_primary(LIMIT)?)?;
    set.wait_until_settled(LIMIT)?;
    assert_eq!(hosts(&set)?.len(), 3);
    assert!(!hosts(&set)?.contains(&removed.address().to_string()));
    assert_eq!(set_version(&set)?, version + 1, "nothing else was changed");

    let pids: Vec<u32> = set.members().iter().map(Server::pid).collect();
    assert!(pids.iter().all(|&pid| is_alive(pid)) && is_alive(removed.pid()));
    let removed_pid = removed.pid();
    set.freeze(0)?;
    drop((set, removed));
    assert!(!pids.iter().any(|&pid| is_alive(pid)) && !is_alive(removed_pid));
    Ok(())
}

fn members(binary: &Binary) -> Outcome {
    let preferred = Member { priority: 2.0, tags: doc! { "dc": "east" }, ..Member::default() };
    let hidden = Member { priority: 0.0, hidden: true, ..Member::default() };
    let arbiter = Member { arbiter_only: true, ..Member::default() };
    let options = Options { set_name: "other".to_owned(), ..Options::default() };
    let mut set = ReplicaSet::start_with(binary, &[hidden, preferred], &options)?;
    assert_eq!(set.primary()?, 1);
    set.add_member(&arbiter)?;
    let hellos: Vec<_> = set.members().iter().map(|m| m.hello().unwrap()).collect();
    assert!(hellos[0].get_bool("hidden")?);
    assert_eq!(hellos[1].get_document("tags")?, &doc! { "dc": "east" });
    assert!(hellos[2].get_bool("arbiterOnly")?);
    assert!(hellos.iter().all(|h| h.get_str("setName").unwrap() == "other"));
    assert_eq!(set.set_name(), "other");
    Ok(())
}

fn standalone(binary: &Binary) -> Outcome {
    let mut server = Server::start(binary, Config::default())?;
    let insert = doc! {
        "insert": "things", "documents": [{ "_id": 1 }], "writeConcern": { "w": 1, "j": true },
    };
    mongod::command(&server.socket(), "test", &insert, LIMIT)?;
    server.restart()?;
    // Not without a query: that gives the size of the last checkpoint.
    let count = doc! { "count": "things", "query": { "_id": 1 } };
    let reply = mongod::command(&server.address(), "test", &count, LIMIT)?;
    assert_eq!(reply.get_i32("n")?, 1);

    let refusal = server.command(&doc! { "noSuchCommand": 1 }, LIMIT).unwrap_err();
    assert!(matches!(refusal, CommandError::Refused { code: 59, .. }), "{refusal}");
    server.kill()?;
    assert!(server.freeze().is_err(), "there is nothing to freeze");
    Ok(())
}

fn early_end(binary: &Binary) -> Outcome {
    for (arguments, reason) in [
        (["--noSuchOption", "1"], "noSuchOption"),
        (["--storageEngine", "noSuchEngine"], "noSuchEngine"),
    ] {
        let config =
            Config { arguments: arguments.map(str::to_owned).to_vec(), ..Config::default() };
        match Server::start(binary, config) {
            Err(HarnessError::EndedEarly { log, .. }) => assert!(log.contains(reason), "{log}"),
            other => return Err(format!("no early end: {other:?}").into()),
        }
    }
    Ok(())
}

/// Kills this very program while it waits with a server.
fn orphan(binary: &Binary) -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut child = Command::new(std::env::current_exe()?)
        .env(WAIT_WITH_SERVER, binary.version().to_string())
        .env("TMPDIR", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let pid: u32 = line.trim().parse()?;
    assert!(is_alive(pid));
    child.kill()?;
    child.wait()?;
    let start = Instant::now();
    while is_alive(pid) {
        assert!(start.elapsed() < LIMIT, "mongod {pid} goes on");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Starts a server from a thread that ends, prints the number of its process, and waits.
pub(crate) fn wait_with_server(binaries: &[Binary], version: &str) -> ExitCode {
    let binary = binaries.iter().find(|b| b.version().to_string() == version);
    let binary = binary.expect("the version is one of those there are").clone();
    let start = thread::spawn(move || Server::start(&binary, Config::default()).unwrap());
    let server = start.join().expect("the server starts");
    assert!(server.hello().is_ok(), "it outlives the thread");
    println!("{}", server.pid());
    let _ = io::stdin().read_line(&mut String::new());
    ExitCode::FAILURE
}

/// Returns whether there is such a process; a zombie is none.
fn is_alive(pid: u32) -> bool {
    let command_line = Path::new("/proc").join(pid.to_string()).join("cmdline");
    fs::read(command_line).is_ok_and(|bytes| !bytes.is_empty())
}

fn hosts(set: &ReplicaSet) -> Result<Vec<String>, Failed> {
    let hello = set.members()[set.primary()?].hello()?;
    let hosts = hello.get_array("hosts")?.iter();
    Ok(hosts.filter_map(|host| host.as_str().map(str::to_owned)).collect())
}

fn set_version(set: &ReplicaSet) -> Result<i32, Failed> {
    Ok(set.members()[set.primary()?].hello()?.get_i32("setVersion")?)
}
