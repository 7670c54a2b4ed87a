//! `sdam lint`: real servers break no rule, and of a gateway that is wrong in one way, that one
//! rule is named.

mod gateway;
mod wrongs;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bson::doc;
use libtest_mimic::Trial;
use sdam_conformance::mongod::{Binary, Config, ReplicaSet, Server, command};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::gateway::Wrong;
use self::wrongs::{Case, Role, cases, step_downs};
use crate::{Outcome, Shared, report};

/// The number of gateways that are asked at once.
const AT_ONCE: usize = 12;

/// The time that a step may take which depends on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

/// The number of times that a gateway is asked if not just its own rule is named.
const TRIES: usize = 3;

/// The user that gateways let through.
const USER: &str = "lint";
const PASSWORD: &str = "secret";

/// The judgement of one server, by rule.
#[derive(Debug, Default)]
struct Said {
    broken: BTreeSet<String>,
    /// The values that were expected, and those found.
    details: Vec<String>,
    kept: BTreeSet<String>,
    not_tried: BTreeMap<String, String>,
    error: Option<String>,
}

/// Runs `sdam lint`, and returns what it says of each server, and its exit code.
fn lint(uri: &str, arguments: &[&str]) -> Outcome<(BTreeMap<String, Said>, i32)> {
    let output = Command::new(env!("CARGO_BIN_EXE_sdam"))
        .args(["lint", "--json", "--for", "5m", uri])
        .args(arguments)
        .env_remove("SDAM_URI")
        .stdin(Stdio::null())
        .output()?;
    let Output { status, stdout, stderr } = output;
    let (mut servers, mut counts) = (BTreeMap::<String, Said>::new(), 0);
    for line in String::from_utf8(stdout)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let text =
            |object: &Value, name: &str| object[name].as_str().unwrap_or_default().to_owned();
        if let Some(server) = line.get("server") {
            let said = servers.entry(text(server, "address")).or_default();
            let kept = server["kept"].as_array().into_iter().flatten();
            said.kept = kept.filter_map(|it| Some(it.as_str()?.to_owned())).collect();
            said.error = server["error"].as_str().map(str::to_owned);
        }
        if let Some(finding) = line.get("finding") {
            for field in ["severity", "text", "specification", "section", "expected", "found"] {
                assert!(finding[field].is_string(), "{finding}");
            }
            let said = servers.entry(text(finding, "server")).or_default();
            said.broken.insert(text(finding, "rule"));
            said.details.push(format!("{}; {}", finding["expected"], finding["found"]));
        }
        if let Some(it) = line.get("notTried") {
            let said = servers.entry(text(it, "server")).or_default();
            said.not_tried.insert(text(it, "rule"), text(it, "reason"));
        }
        counts += usize::from(line.get("counts").is_some());
    }
    match (counts, status.code()) {
        (1, Some(code)) => Ok((servers, code)),
        (_, code) => Err(format!("{code:?}: {}", String::from_utf8_lossy(&stderr)).into()),
    }
}

/// Every rule, and its severity.
fn rules() -> Outcome<BTreeMap<String, String>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    let output = command.args(["lint", "--list", "--json"]).output()?;
    let mut rules = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let text = |name: &str| line["rule"][name].as_str().unwrap_or_default().to_owned();
        rules.insert(text("rule"), text("severity"));
    }
    Ok(rules)
}

/// The rules that are about members other than a primary.
const OF_SECONDARIES: [&str; 4] =
    ["secondary-read", "secondary-ok", "secondary-write", "retryable-label"];

/// The rules that MongoDB 4.4 is the first to promise, and that are tried on a primary.
const SINCE_4_4: [&str; 15] = [
    "topology-version",
    "process-id",
    "counter",
    "state-error-version",
    "await-waits",
    "await-ends",
    "await-other-process",
    "await-older-counter",
    "await-arguments",
    "await-blocks",
    "stream",
    "stream-continues",
    "stream-waits",
    "stream-chain",
    "speculative-login",
];

/// A real set breaks no rule, and every rule is tried on it that its version promises.
pub(crate) fn a_set_breaks_no_rule(set: &mut ReplicaSet) -> Outcome {
    let primary = set.primary()?;
    allow_user(set, primary)?;
    thaw(set, primary)?;
    let wire_version = set.members()[primary].hello()?.get_i32("maxWireVersion")?;
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let name = set.set_name();
    let uri = format!("mongodb://{USER}:{PASSWORD}@{}/?replicaSet={name}", seeds.join(","));
    let arguments = ["--write", "--step-down", "--idle", "1s"];
    let (servers, code) = lint(&uri, &arguments)?;
    assert_eq!((servers.len(), code), (3, 0), "{servers:#?}");
    let rules = rules()?;
    let address = set.members()[primary].advertised().to_string();
    let of_primary = &servers[&address];
    let mut left_out: BTreeSet<&str> = OF_SECONDARIES.into();
    if wire_version < 9 {
        left_out.extend(SINCE_4_4);
        left_out.extend(["step-down-told"]);
    }
    if wire_version < 13 {
        left_out.extend(["hello-ok", "hello-command"]);
    }
    // Once it has stepped down, a primary refuses nothing that a secondary does.
    left_out.insert("state-error-version");
    let not_tried: BTreeSet<&str> = of_primary.not_tried.keys().map(String::as_str).collect();
    assert_eq!(not_tried, left_out, "{of_primary:#?}");
    for said in servers.values() {
        assert!(said.broken.is_empty() && said.error.is_none(), "{said:#?}");
        assert_eq!(said.kept.len() + said.not_tried.len(), rules.len(), "{said:#?}");
    }
    // What a primary leaves out is tried on a secondary.
    let secondary = servers.iter().find(|(it, _)| **it != address).map(|(_, said)| said);
    let kept = &secondary.ok_or("no secondary")?.kept;
    let tried = OF_SECONDARIES.iter().filter(|it| wire_version >= 9 || **it != "retryable-label");
    for rule in tried {
        assert!(kept.contains(*rule), "{rule}: {kept:?}");
    }
    if wire_version >= 9 {
        assert!(kept.contains("state-error-version"), "{kept:?}");
    }
    Ok(())
}

/// A real standalone breaks no rule.
pub(crate) fn a_standalone_breaks_no_rule(binary: &Binary) -> Outcome {
    let server = Server::start(binary, Config::default())?;
    let uri = format!("mongodb://{}", server.address());
    let (servers, code) = lint(&uri, &["--write"])?;
    let said = servers.values().next().ok_or("no server")?;
    assert_eq!((said.broken.len(), code), (0, 0), "{said:#?}");
    let least = if server.hello()?.contains_key("topologyVersion") { 62 } else { 50 };
    assert!(said.kept.len() >= least, "{} rules, {said:#?}", said.kept.len());
    Ok(())
}

/// Whatever ends it, nothing stays of what was written, not even in a transaction.
pub(crate) fn an_end_at_any_time_leaves_nothing(set: &mut ReplicaSet) -> Outcome {
    let member = &set.members()[set.primary()?];
    let target: SocketAddr = member.address().to_string().parse()?;
    let runtime = tokio::runtime::Runtime::new()?;
    // The transaction stays open while its beginner waits for the reply.
    let after = |asked: &gateway::Asked, said: &mut gateway::Said| {
        said.is_dropped = asked.command.contains_key("startTransaction");
    };
    let gateway = runtime.block_on(gateway::start(target, Wrong { after, ..Wrong::NONE }))?;
    let uri = format!("mongodb://{gateway}/?directConnection=true&connectTimeoutMS=60000");
    let deadline = Instant::now() + GENEROUS;
    // A machine that is busy may not drop it in time; then its name is told.
    while is_left_by_an_interruption(member, &uri)? {
        assert!(Instant::now() < deadline, "it is never dropped in time");
        member.command(&doc! { "killAllSessions": [] }, GENEROUS)?;
        command(&member.address(), "sdam_lint", &doc! { "dropDatabase": 1 }, GENEROUS)?;
    }
    // A connection that ends takes nothing else with it.
    let before = |asked: &mut gateway::Asked| match asked.is("delete") {
        true => gateway::Reaction::Close,
        false => gateway::Reaction::Forward,
    };
    let gateway = runtime.block_on(gateway::start(target, Wrong { before, ..Wrong::NONE }))?;
    let uri = format!("mongodb://{gateway}/?directConnection=true");
    let (servers, code) = lint(&uri, &["--write"])?;
    assert_eq!((code, is_left(member)?), (0, false), "{servers:#?}");
    Ok(())
}

/// Interrupts `sdam lint` in a transaction, and returns whether something is left then.
fn is_left_by_an_interruption(server: &Server, uri: &str) -> Outcome<bool> {
    let linting = Command::new(env!("CARGO_BIN_EXE_sdam"))
        .args(["lint", "--write", "--for", "5m", uri])
        .env_remove("SDAM_URI")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let deadline = Instant::now() + GENEROUS;
    while open_transactions(server)? == 0 {
        assert!(Instant::now() < deadline, "no transaction was begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    Command::new("kill").args(["-INT", &linting.id().to_string()]).status()?;
    let ended = linting.wait_with_output()?;
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let is_left = open_transactions(server)? > 0 || is_left(server)?;
    let is_told = String::from_utf8(ended.stderr)?.contains("the collection sdam_lint.probe_");
    // A drop of which nothing was heard may have been done nevertheless.
    assert!(is_told || !is_left, "it is left, and nobody says so");
    Ok(is_left)
}

fn open_transactions(server: &Server) -> Outcome<i64> {
    let status = server.command(&doc! { "serverStatus": 1 }, GENEROUS)?;
    Ok(status.get_document("transactions")?.get_i64("currentOpen")?)
}

/// Returns whether the server has the database of `sdam lint`.
fn is_left(server: &Server) -> Outcome<bool> {
    let list = doc! { "listDatabases": 1, "nameOnly": true, "filter": { "name": "sdam_lint" } };
    Ok(!server.command(&list, GENEROUS)?.get_array("databases")?.is_empty())
}

/// Lets every other member become primary, be it one that has just stepped down.
fn thaw(set: &ReplicaSet, primary: usize) -> Outcome {
    for (_, member) in set.members().iter().enumerate().filter(|(index, _)| *index != primary) {
        member.command(&doc! { "replSetFreeze": 0 }, GENEROUS)?;
    }
    Ok(())
}

/// Lets a user log in to each member of a set that wants no login.
fn allow_user(set: &ReplicaSet, primary: usize) -> Outcome {
    let everywhere = doc! { "w": i32::try_from(set.members().len())? };
    let user = doc! {
        "createUser": USER, "pwd": PASSWORD, "roles": ["root"], "writeConcern": everywhere,
    };
    match set.members()[primary].command(&user, GENEROUS) {
        // A scenario before has done it.
        Err(error) if error.to_string().contains("already exists") => Ok(()),
        created => Ok(created.map(|_| ())?),
    }
}

/// The judgement of each gateway, with the exit code.
type Named = BTreeMap<&'static str, Result<(Said, i32), String>>;

/// Returns one trial for each rule, which share a set and what was found with it.
pub(crate) fn trials(binary: &Binary, shared: &Arc<Shared>) -> Vec<Trial> {
    let named = Arc::<OnceLock<Result<Named, String>>>::default();
    let mut trials = Vec::new();
    let names: Vec<_> = cases().into_iter().chain(step_downs()).map(|case| case.rule).collect();
    for rule in names.into_iter().chain(["nothing"]) {
        let (binary, shared) = (binary.clone(), Arc::clone(shared));
        let named = Arc::clone(&named);
        let name = format!("{}::lint_of_a_gateway_that_breaks::{rule}", binary.version());
        trials.push(Trial::test(name, move || {
            report(judge(rule, named.get_or_init(|| find(&binary, &shared))))
        }));
    }
    trials.push(Trial::test("every_rule_of_lint_has_a_gateway_that_breaks_it", || {
        let broken: BTreeSet<String> =
            cases().iter().chain(&step_downs()).map(|case| case.rule.to_owned()).collect();
        report(rules().map(|rules| assert_eq!(broken, rules.into_keys().collect())))
    }));
    trials
}

fn judge(rule: &str, named: &Result<Named, String>) -> Outcome {
    let severity = rules()?.remove(rule);
    let named = named.as_ref().map_err(String::clone)?;
    let (said, code) = named[rule].as_ref().map_err(String::clone)?;
    let expected: BTreeSet<String> = severity.iter().map(|_| rule.to_owned()).collect();
    let reason = said.not_tried.get(rule);
    assert_eq!(said.broken, expected, "the rules that are named; {reason:?}, {:?}", said.details);
    let is_error = severity.is_some_and(|severity| severity == "error");
    assert_eq!(*code, i32::from(is_error), "the exit code");
    Ok(())
}

/// Runs `sdam lint` on each gateway.
fn find(binary: &Binary, shared: &Shared) -> Result<Named, String> {
    let mut named = Named::new();
    let found = shared.run(binary, |set| {
        let primary = set.primary()?;
        allow_user(set, primary)?;
        let runtime = tokio::runtime::Runtime::new()?;
        let cases: Vec<_> = cases().into_iter().chain([faultless()]).collect();
        named.extend(runtime.block_on(ask_all(set, primary, cases))?);
        for case in step_downs() {
            let primary = set.wait_for_primary(GENEROUS)?;
            thaw(set, primary)?;
            named.extend(runtime.block_on(ask_all(set, primary, vec![case]))?);
            set.wait_until_settled(GENEROUS)?;
        }
        Ok(())
    });
    found.map(|()| named).map_err(|error| error.to_string())
}

/// A gateway that does nothing wrong.
fn faultless() -> Case {
    Case {
        rule: "nothing",
        wrong: Wrong::NONE,
        role: Role::Primary,
        options: "",
        arguments: &["--write"],
        logs_in: true,
    }
}

async fn ask_all(set: &ReplicaSet, primary: usize, cases: Vec<Case>) -> Outcome<Named> {
    let members: Result<Vec<SocketAddr>, _> =
        set.members().iter().map(|it| it.address().to_string().parse()).collect();
    let (members, turns) = (members?, Arc::new(Semaphore::new(AT_ONCE)));
    let secondary = (primary + 1) % members.len();
    let mut asking = tokio::task::JoinSet::new();
    for case in cases {
        let target = match case.role {
            Role::Primary => members[primary],
            Role::Secondary => members[secondary],
        };
        let turns = Arc::clone(&turns);
        asking.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let mut found = ask(&case, target).await;
            // A machine that is busy may hide what depends on time, or look like what is wrong.
            for _ in 1..TRIES {
                if is_named_alone(case.rule, &found) {
                    break;
                }
                found = ask(&case, target).await;
            }
            (case.rule, found)
        });
    }
    let mut named = Named::new();
    while let Some(asked) = asking.join_next().await {
        let (rule, found) = asked?;
        named.insert(rule, found);
    }
    Ok(named)
}

/// Returns whether the one rule is named that the gateway breaks, or none for one that is right.
fn is_named_alone(rule: &str, found: &Result<(Said, i32), String>) -> bool {
    let expected = Some(rule.to_owned()).filter(|rule| rule != "nothing");
    found.as_ref().is_ok_and(|(said, _)| said.broken == expected.into_iter().collect())
}

async fn ask(case: &Case, target: SocketAddr) -> Result<(Said, i32), String> {
    let gateway = gateway::start(target, case.wrong).await.map_err(|error| error.to_string())?;
    let user = if case.logs_in { format!("{USER}:{PASSWORD}@") } else { String::new() };
    let uri = format!("mongodb://{user}{gateway}/?directConnection=true{}", case.options);
    let arguments = case.arguments;
    let linted = tokio::task::spawn_blocking(move || {
        lint(&uri, arguments).map_err(|error| error.to_string())
    });
    let (servers, code) = linted.await.map_err(|error| error.to_string())??;
    let said = servers.into_values().next().ok_or("no server")?;
    match &said.error {
        // The login says hello too.
        Some(error) if !["greeting-by-msg", "hosts"].contains(&case.rule) => Err(error.clone()),
        _ => Ok((said, code)),
    }
}
