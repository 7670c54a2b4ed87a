//! Rules for sessions, cluster times and transactions, as far as they write nothing.

use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Bson, Document, Timestamp};

use super::{CAUSAL, SESSIONS, TRANSACTIONS, has};
use crate::lint::evidence::{
    Evidence, Judged, Kind, Topic, broken, is_ok, not_tried, number, refusal, type_name,
};
use crate::lint::rule::{ERROR, Rule, WARNING};

/// The members of a set that bear data.
const TIMED: &[Kind] = &[Kind::Primary, Kind::Secondary];

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "session-id",
        text: "a command with lsid is answered as without, if logicalSessionTimeoutMinutes is \
               there",
        source: (SESSIONS, "Sending the session ID to the server on all commands"),
        breaks: "every operation of every driver fails, as all of them have it",
        judge: session_id,
        ..ERROR
    },
    Rule {
        name: "start-session",
        text: "startSession returns id, a document with a UUID as its id",
        source: (SESSIONS, "startSession"),
        breaks: "applications that call it have no session; drivers make their own",
        judge: start_session,
        ..WARNING
    },
    Rule {
        name: "end-sessions",
        text: "endSessions succeeds",
        source: (SESSIONS, "endSessions"),
        breaks: "sessions stay with the server for half an hour after a client was closed",
        judge: |evidence| evidence.must_succeed(Topic::EndSessions).map(|_| ()),
        ..WARNING
    },
    Rule {
        name: "cluster-time",
        text: "replies of a set's members have $clusterTime, with clusterTime, a timestamp, and \
               signature, with hash, binary data, and keyId, an int64",
        source: (SESSIONS, "Receiving the current cluster time"),
        breaks: "drivers send back what no server understands, or have no cluster time for causal \
                 reads",
        judge: cluster_time,
        ..ERROR
    },
    Rule {
        name: "cluster-time-grows",
        text: "clusterTime never goes back",
        source: (SESSIONS, "Receiving the current cluster time"),
        breaks: "a causally consistent read waits for a time that the server has forgotten",
        judge: cluster_time_grows,
        ..ERROR
    },
    Rule {
        name: "operation-time",
        text: "replies of a set's members have operationTime, a timestamp",
        source: (CAUSAL, "Server Command Responses"),
        breaks: "a causally consistent session does not read its own writes",
        judge: operation_time,
        ..ERROR
    },
    Rule {
        name: "gossip",
        text: "a command is answered that has the $clusterTime of an earlier reply",
        source: (SESSIONS, "Sending the highest seen cluster time"),
        breaks: "every operation fails but the first",
        judge: |evidence| evidence.must_succeed(Topic::Gossip).map(|_| ()),
        ..ERROR
    },
    Rule {
        name: "transient-label",
        text: "a command in a transaction that the server does not know fails with \
               NoSuchTransaction (251) and the label TransientTransactionError",
        source: (TRANSACTIONS, "Transient Transaction Error"),
        breaks: "transactions that a failover has ended are not begun again",
        judge: transient_label,
        ..ERROR
    },
];

fn session_id(evidence: &Evidence) -> Judged {
    if !has(evidence.hello()?, "logicalSessionTimeoutMinutes") {
        return not_tried("it has no sessions");
    }
    evidence.success(Topic::FindNothing)?;
    let reply = evidence.reply(Topic::WithSession)?;
    match is_ok(reply) {
        true => Ok(()),
        false => broken("success, as without lsid", format!("it fails: {}", refusal(reply))),
    }
}

fn start_session(evidence: &Evidence) -> Judged {
    let reply = evidence.must_succeed(Topic::StartSession)?;
    let id = reply.get_document("id").ok().and_then(|id| id.get("id"));
    match id {
        Some(Bson::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => Ok(()),
        other => broken("a UUID as id.id", format!("it is {}", type_name(other))),
    }
}

/// Lets a rule pass on a member of a set that knows of no primary: there may never have been one,
/// and with it no time, and no keys to sign that with.
fn has_time(evidence: &Evidence, dated: &[(Topic, &Document)], name: &str) -> Judged {
    let has_primary = has(evidence.hello()?, "primary");
    match has_primary || dated.iter().any(|(_, reply)| has(reply, name)) {
        true => Ok(()),
        false => not_tried("it knows of no primary, and perhaps there was none yet"),
    }
}

/// Returns the replies to commands that a set's member has to date.
fn dated(evidence: &Evidence) -> Vec<(Topic, &Document)> {
    let topics = [Topic::Ping, Topic::FindNothing, Topic::WithSession, Topic::Gossip];
    let is_dated = |(topic, reply): &(Topic, &Document)| topics.contains(topic) && is_ok(reply);
    evidence.documents().into_iter().filter(is_dated).collect()
}

fn cluster_time(evidence: &Evidence) -> Judged {
    evidence.only(TIMED, "members of replica sets that bear data")?;
    let dated = dated(evidence);
    has_time(evidence, &dated, "$clusterTime")?;
    for (topic, reply) in &dated {
        let time = reply.get_document("$clusterTime").ok();
        let signature = time.and_then(|time| time.get_document("signature").ok());
        let stamp = time.and_then(|time| time.get("clusterTime"));
        let part = |name| signature.and_then(|signature| signature.get(name));
        let fits = matches!(stamp, Some(Bson::Timestamp(_)))
            && matches!(part("hash"), Some(Bson::Binary(_)))
            && matches!(part("keyId"), Some(Bson::Int64(_)));
        if !fits {
            return broken(
                format!("$clusterTime with its signature in the reply to {}", topic.words()),
                format!(
                    "$clusterTime is {}, clusterTime is {}, hash is {}, keyId is {}",
                    type_name(reply.get("$clusterTime")),
                    type_name(stamp),
                    type_name(part("hash")),
                    type_name(part("keyId"))
                ),
            );
        }
    }
    some_reply(&dated)
}

fn some_reply(dated: &[(Topic, &Document)]) -> Judged {
    match dated.is_empty() {
        true => not_tried("no command has succeeded"),
        false => Ok(()),
    }
}

fn cluster_time_grows(evidence: &Evidence) -> Judged {
    evidence.only(TIMED, "members of replica sets that bear data")?;
    let stamp_of = |reply: &Document| -> Option<Timestamp> {
        reply.get_document("$clusterTime").ok()?.get_timestamp("clusterTime").ok()
    };
    // They were asked one after the other.
    let mut last: Option<(Topic, Timestamp)> = None;
    for (topic, reply) in dated(evidence) {
        let Some(stamp) = stamp_of(reply) else { continue };
        let as_pair = |it: Timestamp| (it.time, it.increment);
        if let Some((before, most)) = last.filter(|(_, most)| as_pair(*most) > as_pair(stamp)) {
            return broken(
                format!("{most} or later, as {} has said", before.words()),
                format!("{stamp} in the reply to {}", topic.words()),
            );
        }
        last = Some((topic, stamp));
    }
    match last {
        Some(_) => Ok(()),
        None => not_tried("there was no clusterTime"),
    }
}

fn operation_time(evidence: &Evidence) -> Judged {
    evidence.only(TIMED, "members of replica sets that bear data")?;
    let dated = dated(evidence);
    has_time(evidence, &dated, "operationTime")?;
    for (topic, reply) in &dated {
        let time = reply.get("operationTime");
        if !matches!(time, Some(Bson::Timestamp(_))) {
            return broken(
                format!("a timestamp as operationTime in the reply to {}", topic.words()),
                format!("it is {}", type_name(time)),
            );
        }
    }
    some_reply(&dated)
}

fn transient_label(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Primary], "primaries")?;
    let reply = evidence.must_fail(Topic::UnknownTransaction, &[251])?;
    has_label(reply, "TransientTransactionError")
}

/// Expects an error to have a label.
pub(super) fn has_label(reply: &Document, label: &str) -> Judged {
    let labels = reply.get_array("errorLabels").map_or(&[][..], Vec::as_slice);
    match labels.iter().any(|it| it.as_str() == Some(label)) {
        true => Ok(()),
        false => broken(
            format!("errorLabels with {label}"),
            match reply.get("errorLabels") {
                Some(labels) => labels.to_string(),
                None => {
                    let code = reply.get("code").and_then(number).unwrap_or_default();
                    format!("no errorLabels in an error of code {code}")
                }
            },
        ),
    }
}
