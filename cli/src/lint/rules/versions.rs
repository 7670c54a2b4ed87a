//! Rules for topologyVersion.

use sdam_core::bson::{Bson, Document};

use super::{MONITORING, each_hello};
use crate::lint::evidence::{Evidence, Judged, Topic, broken, is_ok, not_tried, number, type_name};
use crate::lint::rule::{ERROR, Rule};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "topology-version",
        text: "each reply to hello has topologyVersion from MongoDB 4.4 on, with processId, an \
               ObjectId, and counter, an int64 that is not negative",
        source: (MONITORING, "topologyVersion"),
        breaks: "drivers do not stream, so that they notice a failover up to 10 s later, or refuse \
                 the reply",
        judge: topology_version,
        ..ERROR
    },
    Rule {
        name: "process-id",
        text: "processId is the same on all connections while the server runs",
        source: (MONITORING, "processId"),
        breaks: "each reply seems to be of a server that was started again: old news replace new \
                 ones, and awaitable hellos never wait",
        judge: process_id,
        ..ERROR
    },
    Rule {
        name: "counter",
        text: "counter never goes back",
        source: (MONITORING, "counter"),
        breaks: "drivers pass over the reply as old, and believe in a primary that has gone",
        judge: counter,
        ..ERROR
    },
    Rule {
        name: "state-error-version",
        text: "an error that says that the server is not primary has topologyVersion from MongoDB \
               4.4 on",
        source: (MONITORING, "topologyVersion"),
        breaks: "each late error of an old connection makes drivers forget a new primary",
        judge: state_error_version,
        ..ERROR
    },
];

/// The errors by which a server says that its state is another one (SDAM, "not writable primary"
/// and "node is recovering").
const STATE_ERRORS: [i64; 8] = [11600, 11602, 13436, 189, 91, 10107, 13435, 10058];

/// Returns a topologyVersion.
pub(super) fn version_of(reply: &Document) -> Option<(&Bson, i64)> {
    let version = reply.get_document("topologyVersion").ok()?;
    Some((version.get("processId")?, number(version.get("counter")?)?))
}

/// Expects a topologyVersion.
fn versioned(topic: Topic, reply: &Document) -> Judged {
    let version = reply.get_document("topologyVersion").ok();
    let part = |name| version.and_then(|version| version.get(name));
    let (id, counter) = (part("processId"), part("counter"));
    let fits = matches!(id, Some(Bson::ObjectId(_)))
        && matches!(counter, Some(Bson::Int64(counter)) if *counter >= 0);
    match fits {
        true => Ok(()),
        false => broken(
            format!("topologyVersion with processId and counter in the reply to {}", topic.words()),
            match version {
                None => format!("it is {}", type_name(reply.get("topologyVersion"))),
                Some(version) => format!(
                    "{version}, in which processId is {} and counter is {}",
                    type_name(id),
                    type_name(counter)
                ),
            },
        ),
    }
}

fn topology_version(evidence: &Evidence) -> Judged {
    evidence.since(9, "MongoDB 4.4")?;
    each_hello(evidence, versioned)
}

/// Returns the versions of all replies to hello, in the order in which they came.
fn versions(
    evidence: &Evidence,
) -> Result<Vec<(Topic, &Bson, i64)>, super::super::evidence::Objection> {
    evidence.since(9, "MongoDB 4.4")?;
    let of_hello = |topic: &Topic| *topic != Topic::NewPrimary;
    let documents = evidence.documents().into_iter().filter(|(topic, _)| of_hello(topic));
    let versions: Vec<_> = documents
        .filter_map(|(topic, reply)| version_of(reply).map(|(id, count)| (topic, id, count)))
        .collect();
    match versions.len() {
        0 | 1 => not_tried("there are no two replies with topologyVersion"),
        _ => Ok(versions),
    }
}

fn process_id(evidence: &Evidence) -> Judged {
    let versions = versions(evidence)?;
    let (first, id, _) = versions[0];
    let changes = versions.windows(2).filter(|two| two[0].1 != two[1].1).count();
    match versions.iter().find(|(_, other, _)| *other != id) {
        None => Ok(()),
        Some(_) if changes == 1 => not_tried("the server was perhaps restarted meanwhile"),
        Some((topic, other, _)) => broken(
            format!("{id}, as in {}", first.words()),
            format!("{other} in {}", topic.words()),
        ),
    }
}

fn counter(evidence: &Evidence) -> Judged {
    let versions = versions(evidence)?;
    if versions.iter().any(|(_, id, _)| *id != versions[0].1) {
        return not_tried("each process counts from the beginning, and there was more than one");
    }
    let answers = evidence.answers();
    let counted: Vec<_> = answers
        .iter()
        .filter(|(topic, ..)| *topic != Topic::NewPrimary)
        .filter_map(|(topic, exchange, answer)| {
            let (_, count) = version_of(answer.document.as_ref().ok()?)?;
            // Later answers of a stream were asked for when the one before them came.
            let earlier = exchange.answers.iter().rfind(|it| it.came < answer.came);
            let asked = earlier.map_or(exchange.sent, |it| it.came);
            Some((*topic, asked, answer.came, count))
        })
        .collect();
    for (topic, asked, _, count) in &counted {
        // Concurrent answers may arrive in any order.
        let before = counted.iter().filter(|(_, _, came, _)| came < asked);
        if let Some((other, _, _, most)) = before.max_by_key(|(_, _, _, count)| *count)
            && most > count
        {
            return broken(
                format!("counter {most} or more, as {} has said", other.words()),
                format!("{count} in {}", topic.words()),
            );
        }
    }
    Ok(())
}

fn state_error_version(evidence: &Evidence) -> Judged {
    evidence.since(9, "MongoDB 4.4")?;
    let is_state_error = |reply: &Document| {
        let code = reply.get("code").and_then(number);
        !is_ok(reply) && code.is_some_and(|code| STATE_ERRORS.contains(&code))
    };
    let mut seen = false;
    for (topic, reply) in evidence.documents() {
        if is_state_error(reply) {
            seen = true;
            versioned(topic, reply)?;
        }
    }
    match seen {
        true => Ok(()),
        false => not_tried("there was no such error"),
    }
}
