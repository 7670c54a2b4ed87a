//! The fields of descriptions besides the server's type, each from a reply, or absent.
//!
//! Replies and descriptions are logged concurrently. So a description may say what the last reply
//! has said, or what any other one has that is logged at nearly the same time, before or after.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdam_core::bson::RawDocumentBuf;
use sdam_core::config::ServerAddress;
use sdam_core::description::{Change, ServerDescription, ServerType, TopologyVersion};
use serde_json::Value;

use super::clock::{FEWEST_RECORDS, REORDERED_RECORDS, REORDERING};
use super::finding::Broken;
use super::model::described;
use super::read::hello;
use super::record::{Found, Record, What};
use super::rule::Rule;
use super::shape::{ServerShape, Shape};

/// The fields that servers report of themselves and that are compared (SDAM, "Server Description
/// Equality").
const COMPARED: [&str; 13] = [
    "arbiters",
    "electionId",
    "hosts",
    "logicalSessionTimeoutMinutes",
    "maxWireVersion",
    "me",
    "minWireVersion",
    "passives",
    "primary",
    "setName",
    "setVersion",
    "tags",
    "topologyVersion",
];

/// The number of replies of a server that are remembered.
const MAX_REPLIES: usize = 64;

/// A reply, and when it came.
#[derive(Debug)]
struct Reply<'a> {
    at: Option<Duration>,
    number: usize,
    /// `None` if the log does not report it.
    said: Option<&'a RawDocumentBuf>,
}

/// The replies of one server.
#[derive(Debug, Default)]
struct Heard<'a> {
    replies: VecDeque<Reply<'a>>,
    /// The newest topologyVersion since the last failure.
    version: Option<TopologyVersion>,
}

/// The replies of the servers of a topology, as far as descriptions may be made of them.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    servers: BTreeMap<&'a ServerAddress, Heard<'a>>,
    /// Replies that descriptions may not show yet.
    fresh: VecDeque<Fresh<'a>>,
}

/// A reply that the next descriptions have to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh<'a> {
    pub(super) record: &'a Record,
    pub(super) number: usize,
    /// The description before it.
    pub(super) before: Option<&'a Shape>,
}

/// The expectation of a server's description, and the text found there.
pub(super) type Wrong = (String, String);

impl<'a> Fields<'a> {
    /// Notes that a heartbeat has ended, as the record of that number in its topology, and what was
    /// described before it.
    pub(super) fn heard(&mut self, record: &'a Record, number: usize, before: Option<&'a Shape>) {
        let What::Ended { address, found, .. } = &record.what else { return };
        let heard = self.servers.entry(address).or_default();
        let said = match found {
            Found::Failure(_) => {
                heard.version = None;
                return;
            }
            Found::Reply(reply) => Some(reply),
            Found::UnseenReply => None,
        };
        let version = said.and_then(|reply| described(address, reply)?.topology_version);
        if let (Some(last), Some(version)) = (&heard.version, &version)
            && version.is_older_than(last)
        {
            return;
        }
        heard.version = version;
        self.fresh.push_back(Fresh { record, number, before });
        heard.replies.push_back(Reply { at: record.at, number, said });
        let is_settled = |reply: &Reply<'_>| is_late((reply.at, reply.number), (record.at, number));
        // What the last settled one has said was replaced by the next.
        while heard.replies.get(1).is_some_and(is_settled) || heard.replies.len() > MAX_REPLIES {
            heard.replies.pop_front();
        }
    }

    /// Returns the next reply that descriptions should show by now.
    pub(super) fn next_late(&mut self, record: &Record, number: usize) -> Option<Fresh<'a>> {
        let next = self.fresh.front()?;
        match is_late((next.record.at, next.number), (record.at, number)) {
            true => self.fresh.pop_front(),
            false => None,
        }
    }

    /// Returns the rules that a description breaks by what it says of servers besides their types,
    /// where that is new; `ahead` is what follows, as far as it may be of the same time, and `None`
    /// if the log ends before that is reported.
    pub(super) fn judge(
        &self,
        reported: &Shape,
        new: &Shape,
        ahead: Option<&[&Record]>,
    ) -> Vec<Broken> {
        let mut broken = Vec::new();
        for (address, server) in new.servers.iter().flatten() {
            let before = reported.servers.as_ref().and_then(|servers| servers.get(address));
            if before.is_some_and(|before| before.says_the_same_as(server)) {
                continue;
            }
            let mut add = |rule, (expected, found)| broken.push(Broken::new(rule, expected, found));
            if let Some(wrong) = self.wrong((address, server), 0, ahead) {
                add(Rule::WrongField, wrong);
            }
            let was_unknown = before.is_none_or(|it| it.server_type == ServerType::Unknown);
            let is_unknown = server.server_type == ServerType::Unknown;
            if let Some(wrong) = wrong_round_trip(address, server) {
                add(Rule::WrongRoundTrip, wrong);
            }
            if !was_unknown && is_unknown && !server.has_error {
                let expected = format!("an error that says why {address} is Unknown");
                add(Rule::NoError, (expected, format!("{address} Unknown without any")));
            }
        }
        broken
    }

    /// Returns the rules that an event about a server breaks.
    pub(super) fn judge_event(
        &self,
        (address, previous, new): (&ServerAddress, Option<&ServerShape>, &ServerShape),
        ahead: Option<&[&Record]>,
    ) -> Vec<Broken> {
        let wrong = self.wrong((address, new), 0, ahead);
        let wrong = wrong.map(|(expected, found)| Broken::new(Rule::WrongField, expected, found));
        let is_same = previous.is_some_and(|previous| {
            previous.says_the_same_as(new)
                && [previous, new].iter().all(|server| self.states_all_of(address, server))
        });
        let same = is_same.then(|| {
            let expected = format!("another description of {address} than before");
            let found = "one that differs in nothing that is compared";
            Broken::new(Rule::NothingChanged, expected, found)
        });
        wrong.into_iter().chain(same).collect()
    }

    /// Returns whether the log reports all of a server that is compared: what is left out may be
    /// what has changed.
    fn states_all_of(&self, address: &ServerAddress, server: &ServerShape) -> bool {
        let is_stated = |field: &str| server.details.contains_key(field);
        let replies = self.servers.get(address).map(|heard| &heard.replies);
        let last = replies.and_then(|replies| replies.back()).and_then(|reply| reply.said);
        let may_be = |field: &str| match last {
            Some(reply) => reply.get(field).is_ok_and(|value| value.is_some()),
            None => true,
        };
        let is_complete = |field: &str| is_stated(field) || !may_be(field);
        match server.server_type {
            ServerType::Unknown => server.tells_error && is_complete("topologyVersion"),
            _ => COMPARED.iter().all(|field| is_complete(field)),
        }
    }

    /// Returns what is wrong with a server's description, by its replies from that number on;
    /// `ahead` is what follows of its topology, as far as it may be of the same time.
    pub(super) fn wrong(
        &self,
        (address, server): (&ServerAddress, &ServerShape),
        since: usize,
        ahead: Option<&[&Record]>,
    ) -> Option<Wrong> {
        if server.has_error && server.server_type != ServerType::Unknown {
            let found = format!("{address} {} with an error", server.server_type);
            return Some((format!("no error of {address}, which is known"), found));
        }
        if server.details.is_empty() || server.server_type == ServerType::LoadBalancer {
            return None;
        }
        let stated = stated(address, server)?;
        if server.server_type == ServerType::Unknown {
            let blank = described(address, &hello(&serde_json::from_str(r#"{"ok":1}"#).ok()?)?)?;
            // An operation's error may have had one.
            return difference(&blank, &stated, server, &["topologyVersion"]);
        }
        let next = ahead?.iter().filter_map(|record| match &record.what {
            What::Ended { address: other, found, .. } if other == address => found.said(),
            _ => None,
        });
        let heard = self.servers.get(address)?.replies.iter();
        let heard = heard.filter(|reply| reply.number >= since).map(|reply| reply.said);
        let mut wrong = None;
        for said in heard.chain(next) {
            wrong = Some(difference(&described(address, said?)?, &stated, server, &[])?);
        }
        wrong
    }
}

/// A server has a round trip time once it has replied, and none while it is Unknown.
fn wrong_round_trip(address: &ServerAddress, server: &ServerShape) -> Option<Wrong> {
    let has = |time: Option<f64>| match time {
        Some(millis) => format!("{address} {} with {millis} ms", server.server_type),
        None => format!("{address} {} without any", server.server_type),
    };
    match (server.server_type, server.round_trip_time?) {
        (ServerType::LoadBalancer, _) | (ServerType::Unknown, None) => None,
        (ServerType::Unknown, time) => {
            Some((format!("no round trip time of {address}, which is Unknown"), has(time)))
        }
        (_, Some(_)) => None,
        (_, None) => Some((format!("a round trip time of {address}"), has(None))),
    }
}

/// Returns whether what was logged then should have had its effect by now.
fn is_late(then: (Option<Duration>, usize), now: (Option<Duration>, usize)) -> bool {
    match (then.0, now.0) {
        (Some(at), Some(it)) => now.1 - then.1 >= FEWEST_RECORDS && it > at + REORDERING,
        _ => now.1 - then.1 > REORDERED_RECORDS,
    }
}

/// Returns what the log reports of a server, as if that were all that a reply had said.
fn stated(address: &ServerAddress, server: &ServerShape) -> Option<ServerDescription> {
    let mut reply = server.details.clone();
    reply.insert("ok".to_owned(), Value::from(1));
    described(address, &hello(&reply)?)
}

/// Returns where a description differs from what a reply has said, in the fields that it states.
fn difference(
    said: &ServerDescription,
    stated: &ServerDescription,
    server: &ServerShape,
    but: &[&str],
) -> Option<Wrong> {
    let mut changes = said.changes(stated);
    changes.retain(|it| server.details.contains_key(it.field) && !but.contains(&it.field));
    let list = |value: fn(&Change) -> &String| {
        let fields = changes.iter().map(|change| match &**value(change) {
            "" => format!("no {}", change.field),
            value => format!("{} {value}", change.field),
        });
        fields.collect::<Vec<_>>().join(", ")
    };
    let address = &said.address;
    (!changes.is_empty()).then(|| {
        let expected = format!("{address} with {}", list(|change| &change.old));
        (expected, format!("{address} with {}", list(|change| &change.new)))
    })
}
