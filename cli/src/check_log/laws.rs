//! The rules that a description breaks by itself, or by what was described before.

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use serde_json::Value;

use super::finding::Broken;
use super::rule::Rule;
use super::shape::{ServerShape, Shape};

/// From this wire version on, that of MongoDB 6.0, electionId is compared before setVersion.
const ELECTION_FIRST: i64 = 17;

/// Returns the rules that a change from what was `reported` last breaks.
pub(super) fn broken(reported: &Shape, previous: Option<&Shape>, new: &Shape) -> Vec<Broken> {
    let mut broken = Vec::new();
    if let Some(previous) = previous.filter(|previous| !previous.agrees_with(reported)) {
        let expected = format!("previously {reported}");
        broken.push(Broken::new(Rule::DescriptionChain, expected, previous.to_string()));
    }
    let is_primary = |(_, it): &(_, ServerType)| *it == ServerType::RsPrimary;
    if new.types().filter(is_primary).count() > 1 {
        let expected = "one primary at most".to_owned();
        broken.push(Broken::new(Rule::TwoPrimaries, expected, new.to_string()));
    }
    broken.extend(election_backwards(reported, new));
    broken
}

/// Returns the rules that a change breaks, whose types are right, by what it says of the topology
/// besides.
pub(super) fn wrong(reported: &Shape, new: &Shape) -> Vec<Broken> {
    wrong_election(reported, new).into_iter().chain(wrong_session_timeout(new)).collect()
}

fn election_backwards(reported: &Shape, new: &Shape) -> Option<Broken> {
    let (old_id, old_version) = reported.max_election.as_ref()?;
    let (id, version) = new.max_election.as_ref()?;
    let is_back =
        (id < old_id && version <= old_version) || (id <= old_id && version < old_version);
    is_back.then(|| {
        let expected = format!("at least electionId {old_id}, setVersion {old_version}");
        let found = format!("electionId {id}, setVersion {version}");
        Broken::new(Rule::ElectionBackwards, expected, found)
    })
}

/// The largest electionId and setVersion are those of the primary, and else stay as they are.
fn wrong_election(reported: &Shape, new: &Shape) -> Option<Broken> {
    let (id, version) = new.max_election.as_ref()?;
    let servers = || new.servers.iter().flatten();
    let primary = servers().find(|(_, server)| server.server_type == ServerType::RsPrimary);
    let (expected, is_right) = match primary {
        Some((address, server)) => {
            let (own_id, own_version) = own_election(server)?;
            let wire = server.details.get("maxWireVersion").and_then(Value::as_i64)?;
            let is_right = *id == own_id
                && (*version == own_version || wire < ELECTION_FIRST && *version > own_version);
            let whose =
                format!("electionId {own_id}, setVersion {own_version}, those of {address}");
            (whose, is_right)
        }
        None => {
            let old = reported.max_election.as_ref()?;
            let (old_id, old_version) = old;
            let expected = format!("electionId {old_id}, setVersion {old_version}, as before");
            (expected, (id, version) == (old_id, old_version))
        }
    };
    let found = format!("electionId {id}, setVersion {version}");
    (!is_right).then(|| Broken::new(Rule::WrongElection, expected, found))
}

/// Reads the electionId and the setVersion of a server.
fn own_election(server: &ServerShape) -> Option<(String, i64)> {
    let id = server.details.get("electionId")?;
    let id = id.as_str().or_else(|| id.get("$oid")?.as_str())?;
    Some((id.to_owned(), server.details.get("setVersion")?.as_i64()?))
}

/// The topology's logicalSessionTimeoutMinutes is the smallest of servers that bear data.
fn wrong_session_timeout(new: &Shape) -> Option<Broken> {
    let stated = new.session_timeout?;
    let bear_data =
        |(_, server): &(&ServerAddress, &ServerShape)| server.server_type.is_data_bearing();
    let servers = new.servers.as_ref()?.iter().filter(bear_data);
    let stated_of = |(_, server): (&ServerAddress, &ServerShape)| {
        server.details.get("logicalSessionTimeoutMinutes").map(Value::as_i64)
    };
    let each: Vec<Option<i64>> = servers.map(stated_of).collect::<Option<_>>()?;
    // Of no such servers it is not said what holds. No value is less than any.
    let least = *each.iter().min()?;
    let shown = |minutes: Option<i64>| match minutes {
        Some(minutes) => format!("logicalSessionTimeoutMinutes {minutes}"),
        None => "no logicalSessionTimeoutMinutes".to_owned(),
    };
    let wrong = || Broken::new(Rule::WrongSessionTimeout, shown(least), shown(stated));
    (stated != least).then(wrong)
}
