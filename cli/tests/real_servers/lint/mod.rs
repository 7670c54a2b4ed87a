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
use sdam_conformance::mongod::{Binary, Config, Options, ReplicaSet, Server, command};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::gateway::Wrong;
use self::wrongs::{Case, Role, cases, step_downs};
use crate::{Outcome, report};

/// The number of gateways that are asked at once.
const AT_ONCE: usize = 12;

/// The time that a step may take which depends on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

/// The number of times that a server is asked of which not just that is said which it does wrong.
const TRIES: usize = 3;

/// The time after which members elect another primary: so long that none is missed on a machine
/// that is busy, and less than `sdam lint` waits for the next one.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(20);

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

/// Looks again if something is wrong: a machine that is busy may hide what depends on time, or look
/// like what is wrong, but not each time.
fn repeatedly(look: impl Fn() -> Outcome) -> Outcome {
    let mut looked = look();
    for _ in 1..TRIES {
        if looked.is_ok() {
            break;
        }
        looked = look();
    }
    looked
}

/// Fails unless something is so.
fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if is_so { Ok(()) } else { Err(otherwise().into()) }
}

/// A real set breaks no rule, and every rule is tried on it that its version promises.
pub(crate) fn a_set_breaks_no_rule(set: &mut ReplicaSet) -> Outcome {
    repeatedly(|| {
        set.wait_until_settled(GENEROUS)?;
        look_at_a_set(set)
    })
}

fn look_at_a_set(set: &ReplicaSet) -> Outcome {
    let primary = set.wait_for_primary(GENEROUS)?;
    allow_user(set, primary)?;
    thaw(set, primary)?;
    let wire_version = set.members()[primary].hello()?.get_i32("maxWireVersion")?;
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let name = set.set_name();
    let uri = format!("mongodb://{USER}:{PASSWORD}@{}/?replicaSet={name}", seeds.join(","));
    let arguments = ["--write", "--step-down", "--idle", "1s"];
    let (servers, code) = lint(&uri, &arguments)?;
    ensure((servers.len(), code) == (3, 0), || format!("{code}: {servers:#?}"))?;
    let rules = rules()?;
    let address = set.members()[primary].advertised().to_string();
    let of_primary = &servers[&address];
    let mut left_out: BTreeSet<&str> = OF_SECONDARIES.into();
    if wire_version < 9 {
        left_out.extend(SINCE_4_4);
        left_out.extend(["step-down-streamed"]);
    }
    if wire_version < 13 {
        left_out.extend(["hello-ok", "hello-command"]);
    }
    // Once it has stepped down, a primary refuses nothing that a secondary does.
    left_out.insert("state-error-version");
    let not_tried: BTreeSet<&str> = of_primary.not_tried.keys().map(String::as_str).collect();
    ensure(not_tried == left_out, || format!("not just {left_out:?}: {of_primary:#?}"))?;
    for said in servers.values() {
        let is_judged = said.kept.len() + said.not_tried.len() == rules.len();
        let is_well = said.broken.is_empty() && said.error.is_none();
        ensure(is_well && is_judged, || format!("{said:#?}"))?;
    }
    // What a primary leaves out is tried on a secondary.
    let secondary = servers.iter().find(|(it, _)| **it != address).map(|(_, said)| said);
    let kept = &secondary.ok_or("no secondary")?.kept;
    let tried = OF_SECONDARIES.iter().filter(|it| wire_version >= 9 || **it != "retryable-label");
    for rule in tried {
        ensure(kept.contains(*rule), || format!("{rule}: {kept:?}"))?;
    }
    let is_tried = wire_version < 9 || kept.contains("state-error-version");
    ensure(is_tried, || format!("state-error-version: {kept:?}"))
}

/// A real standalone breaks no rule.
pub(crate) fn a_standalone_breaks_no_rule(binary: &Binary) -> Outcome {
    let server = Server::start(binary, Config::default())?;
    let uri = format!("mongodb://{}", server.address());
    let least = if server.hello()?.contains_key("topologyVersion") { 62 } else { 50 };
    repeatedly(|| {
        let (servers, code) = lint(&uri, &["--write"])?;
        let said = servers.values().next().ok_or("no server")?;
        ensure((said.broken.len(), code) == (0, 0), || format!("{code}: {said:#?}"))?;
        let kept = said.kept.len();
        ensure(kept >= least, || format!("{kept} rules, {said:#?}"))
    })
}

/// An end at any time leaves nothing of what was written, not even in a transaction.
pub(crate) fn an_end_at_any_time_leaves_nothing(set: &mut ReplicaSet) -> Outcome {
    let runtime = tokio::runtime::Runtime::new()?;
    // The transaction stays open while its beginner waits for the reply.
    let after = |asked: &gateway::Asked, said: &mut gateway::Said| {
        said.is_dropped = asked.command.contains_key("startTransaction");
    };
    let deadline = Instant::now() + GENEROUS;
    loop {
        let member = &set.members()[set.wait_for_primary(GENEROUS)?];
        let target = member.address().to_string().parse()?;
        let gateway = runtime.block_on(gateway::start(target, Wrong { after, ..Wrong::NONE }))?;
        let uri = format!("mongodb://{gateway}/?directConnection=true&connectTimeoutMS=60000");
        if !is_left_by_an_interruption(member, &uri)? {
            break;
        }
        // A machine that is busy may not drop it in time; then its name is reported.
        assert!(Instant::now() < deadline, "it is never dropped in time");
        drop_what_is_left(member)?;
    }
    // A connection that ends takes nothing else with it.
    let before = |asked: &mut gateway::Asked| match asked.is("delete") {
        true => gateway::Reaction::Close,
        false => gateway::Reaction::Forward,
    };
    repeatedly(|| {
        let member = &set.members()[set.wait_for_primary(GENEROUS)?];
        let target = member.address().to_string().parse()?;
        let gateway = runtime.block_on(gateway::start(target, Wrong { before, ..Wrong::NONE }))?;
        let uri = format!("mongodb://{gateway}/?directConnection=true");
        let (servers, code) = lint(&uri, &["--write"])?;
        let is_left = is_left(member)?;
        if is_left {
            drop_what_is_left(member)?;
        }
        ensure((code, is_left) == (0, false), || format!("{code}, {is_left}: {servers:#?}"))
    })
}

fn drop_what_is_left(server: &Server) -> Outcome {
    server.command(&doc! { "killAllSessions": [] }, GENEROUS)?;
    command(&server.address(), "sdam_lint", &doc! { "dropDatabase": 1 }, GENEROUS)?;
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
    let is_reported = String::from_utf8(ended.stderr)?.contains("the collection sdam_lint.probe_");
    // A drop of which nothing was heard may have been done nevertheless.
    assert!(is_reported || !is_left, "it is left, and no message says so");
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

/// Lets every other member become primary, even one that has just stepped down.
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
pub(crate) fn trials(binary: &Binary) -> Vec<Trial> {
    let named = Arc::<OnceLock<Result<Named, String>>>::default();
    let mut trials = Vec::new();
    let names: Vec<_> = cases().into_iter().chain(step_downs()).map(|case| case.rule).collect();
    for rule in names.into_iter().chain(["nothing"]) {
        let (binary, named) = (binary.clone(), Arc::clone(&named));
        let name = format!("{}::lint_of_a_gateway_that_breaks::{rule}", binary.version());
        trials.push(Trial::test(name, move || {
            let found = || find(&binary).map_err(|error| error.to_string());
            report(judge(rule, named.get_or_init(found)))
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
fn find(binary: &Binary) -> Outcome<Named> {
    let options = Options { election_timeout: ELECTION_TIMEOUT, ..Options::default() };
    let set = Arc::new(ReplicaSet::start(binary, 3, &options)?);
    allow_user(&set, set.wait_for_primary(GENEROUS)?)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let mut named = ask_all(&set, cases().into_iter().chain([faultless()])).await?;
        for case in step_downs() {
            named.extend(ask_all(&set, [case]).await?);
        }
        Ok(named)
    })
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

async fn ask_all(set: &Arc<ReplicaSet>, cases: impl IntoIterator<Item = Case>) -> Outcome<Named> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut asking = tokio::task::JoinSet::new();
    for case in cases {
        let (set, turns) = (Arc::clone(set), Arc::clone(&turns));
        asking.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let mut found = ask_a_member(&set, &case).await;
            // A machine that is busy may hide what depends on time, or look like what is wrong.
            for _ in 1..TRIES {
                if is_named_alone(case.rule, &found) {
                    break;
                }
                found = ask_a_member(&set, &case).await;
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

async fn ask_a_member(set: &Arc<ReplicaSet>, case: &Case) -> Result<(Said, i32), String> {
    let (set, role) = (Arc::clone(set), case.role);
    let steps_down = case.arguments.contains(&"--step-down");
    let looking = tokio::task::spawn_blocking(move || {
        member(&set, role, steps_down).map_err(|error| error.to_string())
    });
    ask(case, looking.await.map_err(|error| error.to_string())??).await
}

/// Returns the address of a member that has this part now.
fn member(set: &ReplicaSet, role: Role, steps_down: bool) -> Outcome<SocketAddr> {
    if steps_down {
        set.wait_until_settled(GENEROUS)?;
    }
    let primary = set.wait_for_primary(GENEROUS)?;
    if steps_down {
        thaw(set, primary)?;
    }
    let index = match role {
        Role::Primary => primary,
        Role::Secondary => (primary + 1) % set.members().len(),
    };
    Ok(set.members()[index].address().to_string().parse()?)
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
        Some(error) if !["hello-by-msg", "hosts"].contains(&case.rule) => Err(error.clone()),
        _ => Ok((said, code)),
    }
}
