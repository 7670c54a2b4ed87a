//! Rules that need a step-down of the primary to be tried.

use sdam_core::bson::oid::ObjectId;

use super::versions::version_of;
use super::{MONITORING, SDAM, SURVIVAL};
use crate::lint::evidence::{
    End, Evidence, Judged, Kind, Objection, Topic, broken, kind_of, not_tried, number, shown,
};
use crate::lint::rule::{ERROR, Needs, Rule};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "step-down-answered",
        needs: Needs::StepDown,
        text: "replSetStepDown is answered on its own connection, from MongoDB 4.2 on",
        source: (SURVIVAL, "getMore Iteration"),
        breaks: "who asks for a step-down cannot know whether it has happened",
        judge: answered,
        ..ERROR
    },
    Rule {
        name: "connections-survive",
        needs: Needs::StepDown,
        text: "connections stay open when a primary steps down, from MongoDB 4.2 on",
        source: (SURVIVAL, "getMore Iteration"),
        breaks: "each failover clears every pool, and reads fail that have nothing to do with it",
        judge: survive,
        ..ERROR
    },
    Rule {
        name: "step-down-streamed",
        needs: Needs::StepDown,
        text: "a step-down is sent at once to a streaming hello, with a greater counter",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "drivers believe in the old primary for up to 10 s",
        judge: streamed,
        ..ERROR
    },
    Rule {
        name: "next-election",
        needs: Needs::StepDown,
        text: "the next primary has a greater electionId, and no smaller setVersion",
        source: (SDAM, "updateRSFromPrimary"),
        breaks: "drivers take the new primary for an old one, and have none",
        judge: next_election,
        ..ERROR
    },
];

/// Expects the step-down to have happened; a set that cannot do without its primary says so.
fn stepped_down(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Primary], "primaries")?;
    let exchange = evidence.exchange(Topic::StepDown)?;
    match &exchange.end {
        Some(End::Closed(_)) => Ok(()),
        Some(End::Silent(_) | End::Malformed(_)) | None => {
            evidence.success(Topic::StepDown).map(|_| ())
        }
    }
}

fn answered(evidence: &Evidence) -> Judged {
    stepped_down(evidence)?;
    match &evidence.exchange(Topic::StepDown)?.end {
        Some(end @ End::Closed(_)) => broken("a reply to replSetStepDown", end.words()),
        Some(End::Silent(_) | End::Malformed(_)) | None => Ok(()),
    }
}

fn survive(evidence: &Evidence) -> Judged {
    stepped_down(evidence)?;
    let exchange = evidence.exchange(Topic::AfterStepDown)?;
    match &exchange.end {
        Some(end @ (End::Closed(_) | End::Silent(_))) => {
            broken("a reply to ping after the step-down", end.words())
        }
        Some(End::Malformed(_)) | None => Ok(()),
    }
}

fn streamed(evidence: &Evidence) -> Judged {
    stepped_down(evidence)?;
    evidence.since(9, "MongoDB 4.4")?;
    let stream = evidence.exchange(Topic::StepDownStream)?;
    let step_down = evidence.exchange(Topic::StepDown)?;
    let known = version_of(&stream.request).map(|(_, counter)| counter);
    let documents = stream.answers.iter().filter_map(|it| Some((it, it.document.as_ref().ok()?)));
    let mut news = documents.filter(|(_, reply)| kind_of(reply) != Kind::Primary);
    let Some((answer, reply)) = news.next() else {
        let end =
            stream.end.as_ref().map_or_else(|| "it was a primary still".to_owned(), End::words);
        return broken("a reply that it is no primary any more", end);
    };
    // A reply in time may be read late, where little else runs.
    let waited = answer.came.saturating_sub(step_down.sent);
    let limit = stream.request.get("maxAwaitTimeMS").and_then(number).unwrap_or_default();
    if waited.as_millis() >= u128::from(limit.unsigned_abs()) {
        let expected = format!("that news within {limit} ms");
        return broken(expected, format!("they came after {} ms", waited.as_millis()));
    }
    match (known, version_of(reply)) {
        (Some(known), Some((_, counter))) if counter <= known => {
            broken(format!("a counter greater than {known}"), counter.to_string())
        }
        _ => Ok(()),
    }
}

fn next_election(evidence: &Evidence) -> Judged {
    stepped_down(evidence)?;
    let of = |topic| -> Result<(Option<ObjectId>, Option<i64>), Objection> {
        let reply = evidence.success(topic)?;
        let version = reply.get("setVersion").and_then(number);
        Ok((reply.get_object_id("electionId").ok(), version))
    };
    let (before, after) = (of(Topic::BeforeStepDown)?, of(Topic::NewPrimary)?);
    match (before, after) {
        ((Some(id), version), (Some(next_id), next_version)) => {
            match next_id.bytes() > id.bytes() && next_version >= version {
                true => Ok(()),
                false => broken(
                    format!("electionId after {id}, and setVersion from {} on", shown(version)),
                    format!("electionId {next_id} and setVersion {}", shown(next_version)),
                ),
            }
        }
        _ => not_tried("there is no electionId"),
    }
}
