//! Rules for what members of a replica set say of it and of themselves.

use sdam_core::bson::{Bson, Document};
use sdam_core::config::ServerAddress;

use super::{SDAM, STALENESS, each_hello, field, if_there, is_int32, is_text, is_texts};
use crate::lint::evidence::{Evidence, Judged, Kind, Topic, broken, kind_of, not_tried, type_name};
use crate::lint::rule::{ERROR, NOTE, Rule};

/// The members that say which hosts there are.
const MEMBERS: &[Kind] = &[Kind::Primary, Kind::Secondary, Kind::Arbiter];

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "hosts",
        text: "a member names hosts, and passives and arbiters if there are any: arrays of \
               addresses",
        source: (SDAM, "updateRSFromPrimary"),
        breaks: "members are not discovered, or all are removed",
        judge: hosts,
        ..ERROR
    },
    Rule {
        name: "set-version",
        text: "a member has setVersion, an int32",
        source: (SDAM, "updateRSFromPrimary"),
        breaks: "an old primary is believed, or a new one is not",
        judge: set_version,
        ..ERROR
    },
    Rule {
        name: "me",
        text: "me is one of hosts, passives and arbiters, unless the member is hidden",
        source: (SDAM, "updateRSFromPrimary"),
        breaks: "drivers remove the member as soon as it is found",
        judge: me,
        ..ERROR
    },
    Rule {
        name: "primary-address",
        text: "primary, where it is, is one of hosts and passives, and on a primary it is me",
        source: (SDAM, "updateRSWithPrimaryFromMember"),
        breaks: "drivers expect a primary where none is",
        judge: primary_address,
        ..ERROR
    },
    Rule {
        name: "election-id",
        text: "a primary has electionId, an ObjectId",
        source: (SDAM, "updateRSFromPrimary"),
        breaks: "after a split, drivers write to the primary that has lost the election",
        judge: election_id,
        ..ERROR
    },
    Rule {
        name: "last-write",
        text: "a primary or secondary has lastWrite, with lastWriteDate, a date",
        source: (STALENESS, "lastWrite"),
        breaks: "reads with maxStalenessSeconds fail, or read what is older than allowed",
        judge: last_write,
        ..ERROR
    },
    Rule {
        name: "last-write-op-time",
        text: "lastWrite has opTime, a document with a timestamp",
        source: (STALENESS, "lastWrite"),
        breaks: "nothing in most drivers; tools cannot compare members",
        judge: op_time,
        ..NOTE
    },
];

/// Judges what each form of hello says of a set, if it is a member's.
fn each_member(evidence: &Evidence, mut judge: impl FnMut(Topic, &Document) -> Judged) -> Judged {
    evidence.only(MEMBERS, "members of replica sets")?;
    each_hello(evidence, |topic, reply| match MEMBERS.contains(&kind_of(reply)) {
        true => judge(topic, reply),
        false => Ok(()),
    })
}

fn is_addresses(value: &Bson) -> bool {
    let is_address = |it: &Bson| it.as_str().is_some_and(|it| it.parse::<ServerAddress>().is_ok());
    is_texts(value) && value.as_array().is_some_and(|array| array.iter().all(is_address))
}

fn hosts(evidence: &Evidence) -> Judged {
    each_member(evidence, |topic, reply| {
        let expected = "an array of addresses as";
        field(topic.words(), reply, "hosts", expected, is_addresses)?;
        if_there(topic.words(), reply, "passives", expected, is_addresses)?;
        if_there(topic.words(), reply, "arbiters", expected, is_addresses)
    })
}

fn set_version(evidence: &Evidence) -> Judged {
    each_member(evidence, |topic, reply| {
        field(topic.words(), reply, "setVersion", "an int32", is_int32).map(|_| ())
    })
}

/// Returns whether an address is in one of these lists.
fn is_among(reply: &Document, lists: &[&str], address: &str) -> bool {
    lists
        .iter()
        .filter_map(|name| reply.get_array(name).ok())
        .flatten()
        .any(|it| it.as_str().is_some_and(|it| it.eq_ignore_ascii_case(address)))
}

fn me(evidence: &Evidence) -> Judged {
    each_member(evidence, |topic, reply| {
        let me = field(topic.words(), reply, "me", "a string", is_text)?.as_str();
        let me = me.unwrap_or_default();
        match is_among(reply, &["hosts", "passives", "arbiters"], me) {
            true => Ok(()),
            false => broken(
                format!("me among hosts, passives and arbiters in the reply to {}", topic.words()),
                format!("{me}, which is in none"),
            ),
        }
    })
}

fn primary_address(evidence: &Evidence) -> Judged {
    each_member(evidence, |topic, reply| {
        let words = topic.words();
        if_there(words, reply, "primary", "a string", is_text)?;
        let primary = reply.get_str("primary").ok();
        let is_primary = kind_of(reply) == Kind::Primary;
        match (primary, reply.get_str("me")) {
            (Some(primary), Ok(me)) if is_primary && !primary.eq_ignore_ascii_case(me) => {
                broken(format!("primary {me}, which is me, in the reply to {words}"), primary)
            }
            (Some(primary), _) if !is_among(reply, &["hosts", "passives"], primary) => broken(
                format!("primary among hosts and passives in the reply to {words}"),
                format!("{primary}, which is in neither"),
            ),
            (None, _) if is_primary => {
                broken(format!("primary in the reply to {words} of a primary"), "it is missing")
            }
            _ => Ok(()),
        }
    })
}

fn election_id(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Primary], "primaries")?;
    each_hello(evidence, |topic, reply| match kind_of(reply) {
        Kind::Primary => {
            let is_id = |value: &Bson| matches!(value, Bson::ObjectId(_));
            field(topic.words(), reply, "electionId", "an ObjectId as", is_id).map(|_| ())
        }
        _ => Ok(()),
    })
}

/// Judges lastWrite of each member that bears data.
fn each_last_write(
    evidence: &Evidence,
    mut judge: impl FnMut(Topic, Option<&Document>) -> Judged,
) -> Judged {
    evidence.only(&[Kind::Primary, Kind::Secondary], "members that bear data")?;
    each_hello(evidence, |topic, reply| match kind_of(reply) {
        Kind::Primary | Kind::Secondary => judge(topic, reply.get_document("lastWrite").ok()),
        _ => Ok(()),
    })
}

fn last_write(evidence: &Evidence) -> Judged {
    each_last_write(evidence, |topic, last| {
        let date = last.and_then(|last| last.get("lastWriteDate"));
        match date {
            Some(Bson::DateTime(_)) => Ok(()),
            other => broken(
                format!("a date as lastWrite.lastWriteDate in the reply to {}", topic.words()),
                format!("it is {}", type_name(other)),
            ),
        }
    })
}

fn op_time(evidence: &Evidence) -> Judged {
    each_last_write(evidence, |topic, last| {
        let Some(last) = last else { return not_tried("there is no lastWrite") };
        let time = last.get_document("opTime").ok().and_then(|time| time.get("ts"));
        match time {
            Some(Bson::Timestamp(_)) => Ok(()),
            other => broken(
                format!("a timestamp as lastWrite.opTime.ts in the reply to {}", topic.words()),
                format!("it is {}", type_name(other)),
            ),
        }
    })
}
