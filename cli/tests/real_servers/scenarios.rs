//! Incidents of real servers, and the lines that a watch must print.

use std::process::Command;

use sdam_conformance::mongod::{Binary, Config, Member, Options, ReplicaSet, Server};

use crate::Outcome;
use crate::lint;
use crate::own_log::the_own_log_of_a_step_down_and_a_kill_is_innocent;
use crate::recordings::recordings_replay_exactly;
use crate::watch::{GENEROUS, Watch};

/// A scenario on a set of three that has settled.
type OnASet = fn(&mut ReplicaSet) -> Outcome;

/// A scenario that starts servers of its own.
type OnItsOwn = fn(&Binary) -> Outcome;

/// Scenarios that leave a replica set of three as they found it.
pub(crate) const ON_A_SHARED_SET: &[(&str, OnASet)] = &[
    ("discovery_from_one_seed", discovery_from_one_seed),
    ("step_down", step_down),
    ("kill_and_restart_of_the_primary", kill_and_restart_of_the_primary),
    ("freeze_and_thaw_of_the_primary", freeze_and_thaw_of_the_primary),
    ("own_log", the_own_log_of_a_step_down_and_a_kill_is_innocent),
    ("wrong_set_name", wrong_set_name),
    ("a_member_added_and_one_removed", a_member_added_and_one_removed),
    ("recordings_replay_exactly", recordings_replay_exactly),
    ("a_set_breaks_no_rule", lint::a_set_breaks_no_rule),
    ("an_end_at_any_time_leaves_nothing", lint::an_end_at_any_time_leaves_nothing),
];

/// Scenarios that start servers of their own.
pub(crate) const ON_THEIR_OWN: &[(&str, OnItsOwn)] = &[
    ("standalone", standalone),
    ("seed_is_a_hidden_member", seed_is_a_hidden_member),
    ("a_standalone_breaks_no_rule", lint::a_standalone_breaks_no_rule),
];

const WHOLE: &[&str] = &["RSPrimary", "RSSecondary", "RSSecondary"];

/// Heartbeats quick enough that polling servers keep no test waiting; on a machine that is busy, an
/// answer may take its time.
const QUICK: &str = "heartbeatFrequencyMS=1000&connectTimeoutMS=20000";

/// The same, where a time-out is waited for.
const HASTY: &str = "heartbeatFrequencyMS=1000&connectTimeoutMS=2000";

/// Watches the whole set, until everything is known of it.
fn watch(set: &ReplicaSet) -> Result<Watch, Box<dyn std::error::Error>> {
    watch_with(set, QUICK)
}

fn watch_with(set: &ReplicaSet, options: &str) -> Result<Watch, Box<dyn std::error::Error>> {
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let name = set.set_name();
    let uri = format!("mongodb://{}/?replicaSet={name}&{options}", seeds.join(","));
    let mut watch = Watch::start(&uri)?;
    watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    Ok(watch)
}

fn address(set: &ReplicaSet, index: usize) -> String {
    set.members()[index].address().to_string()
}

/// Returns whether servers of that version stream their heartbeats.
fn streams(server: &Server) -> Result<bool, Box<dyn std::error::Error>> {
    Ok(server.hello()?.contains_key("topologyVersion"))
}

fn discovery_from_one_seed(set: &mut ReplicaSet) -> Outcome {
    for seed in set.seed_list() {
        // Ten minutes between heartbeats, so that nothing but discovery itself finds the others.
        let mut watch = Watch::start(&format!("mongodb://{seed}/?heartbeatFrequencyMS=600000"))?;
        watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
        watch.end()?;
    }
    Ok(())
}

fn step_down(set: &mut ReplicaSet) -> Outcome {
    let mut watch = watch(set)?;
    let primary = set.wait_for_primary(GENEROUS)?;
    let (old, streams) = (address(set, primary), streams(&set.members()[primary])?);
    set.step_down()?;
    watch.expect_change(&old, "RSSecondary")?;
    watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    let failed = watch.all("serverHeartbeatFailed", &old);
    if !failed.is_empty() {
        return Err(format!("a member that steps down keeps its connections: {failed:?}").into());
    }
    let awaited =
        watch.all("serverHeartbeatSucceeded", &old).iter().any(|event| event["awaited"] == true);
    if awaited != streams {
        return Err(format!("streaming: {awaited}, although the server can: {streams}").into());
    }
    watch.end()
}

fn kill_and_restart_of_the_primary(set: &mut ReplicaSet) -> Outcome {
    let mut watch = watch(set)?;
    let primary = set.wait_for_primary(GENEROUS)?;
    let old = address(set, primary);
    set.kill(primary)?;
    watch.expect_loss(&old)?;
    watch.expect_types("ReplicaSetWithPrimary", &["RSPrimary", "RSSecondary", "Unknown"])?;
    set.restart(primary)?;
    watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    watch.end()
}

fn freeze_and_thaw_of_the_primary(set: &mut ReplicaSet) -> Outcome {
    let mut watch = watch_with(set, HASTY)?;
    let primary = set.wait_for_primary(GENEROUS)?;
    let old = address(set, primary);
    set.freeze(primary)?;
    // Another is elected before or after the time-out, and either makes the old one Unknown.
    watch.expect_change(&old, "Unknown")?;
    watch.expect_types("ReplicaSetWithPrimary", &["RSPrimary", "RSSecondary", "Unknown"])?;
    watch.expect(format!("a time-out of {old}"), |event| {
        event["event"] == "serverHeartbeatFailed"
            && event["address"] == *old
            && event["failure"]["cause"] == "timeout"
    })?;
    set.thaw(primary)?;
    watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    watch.end()
}

fn a_member_added_and_one_removed(set: &mut ReplicaSet) -> Outcome {
    let mut watch = watch(set)?;
    set.add_member(&Member::default())?;
    let new = address(set, set.members().len() - 1);
    watch.expect_change(&new, "RSSecondary")?;
    let removed = usize::from(set.wait_for_primary(GENEROUS)? == 0);
    let removed = set.remove_member(removed)?;
    let gone = removed.address().to_string();
    watch.expect(format!("the end of {gone}"), |event| {
        event["event"] == "serverClosed" && event["address"] == *gone
    })?;
    watch.end()
}

fn wrong_set_name(set: &mut ReplicaSet) -> Outcome {
    let seed = address(set, 0);
    let uri = format!("mongodb://{seed}/?replicaSet=wrong&{QUICK}");
    let mut watch = Watch::start(&uri)?;
    watch.expect(format!("the end of {seed}"), |event| {
        event["event"] == "serverClosed" && event["address"] == *seed
    })?;
    watch.expect_types("ReplicaSetNoPrimary", &[])?;
    watch.end()?;
    let plain = Command::new(env!("CARGO_BIN_EXE_sdam"))
        .args(["watch", "--plain", "--for", "6s", &uri])
        .output()?;
    let printed = String::from_utf8_lossy(&plain.stdout).into_owned();
    let (found, wanted) = (format!("{:?}", set.set_name()), "\"wrong\"");
    let explained = printed.lines().any(|line| {
        line.contains("correct replicaSet") && line.contains(&found) && line.contains(wanted)
    });
    // A watch that has found no server of the deployment fails.
    match explained && plain.status.code() == Some(1) {
        true => Ok(()),
        false => Err(format!("the watch does not say what is wrong:\n{printed}").into()),
    }
}

fn standalone(binary: &Binary) -> Outcome {
    let mut server = Server::start(binary, Config::default())?;
    let address = server.address().to_string();
    let mut watch = Watch::start(&format!("mongodb://{address}/?{QUICK}"))?;
    watch.expect_types("Single", &["Standalone"])?;
    server.kill()?;
    watch.expect_change(&address, "Unknown")?;
    server.restart()?;
    watch.expect_change(&address, "Standalone")?;
    watch.end()?;
    // The same server by its Unix domain socket.
    let socket = server.socket().to_string().replace('/', "%2F");
    let mut watch = Watch::start(&format!("mongodb://{socket}/?{QUICK}"))?;
    watch.expect_types("Single", &["Standalone"])?;
    watch.end()
}

fn seed_is_a_hidden_member(binary: &Binary) -> Outcome {
    let hidden = Member { priority: 0.0, hidden: true, ..Member::default() };
    let set = ReplicaSet::start_with(binary, &[Member::default(), hidden], &Options::default())?;
    set.wait_until_settled(GENEROUS)?;
    let seed = address(&set, 1);
    let mut watch = Watch::start(&format!("mongodb://{seed}/?{QUICK}"))?;
    watch.expect_change(&seed, "RSOther")?;
    watch.expect(format!("the end of {seed}"), |event| {
        event["event"] == "serverClosed" && event["address"] == *seed
    })?;
    watch.expect_types("ReplicaSetWithPrimary", &["RSPrimary"])?;
    watch.end()?;
    // Connected to directly, it stays what it is.
    let mut watch = Watch::start(&format!("mongodb://{seed}/?directConnection=true&{QUICK}"))?;
    watch.expect_types("Single", &["RSOther"])?;
    watch.end()
}
