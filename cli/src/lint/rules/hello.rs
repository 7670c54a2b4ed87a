//! Rules for hello in each of its forms, whatever the server is.

use sdam_core::bson::{Bson, Document};
use sdam_core::description::{CLIENT_MAX_WIRE_VERSION, CLIENT_MIN_WIRE_VERSION};

use super::{HANDSHAKE, SDAM, SELECTION, each_hello, field, if_there, is_int32, is_text, is_truth};
use crate::lint::evidence::{
    End, Evidence, Judged, Kind, Topic, broken, is_mongos, is_true, kind_of, not_tried, number,
    refusal, shown,
};
use crate::lint::rule::{ERROR, NOTE, Rule, WARNING};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "hello-by-query",
        text: "legacy hello is answered that comes by OP_QUERY as the first message",
        source: (HANDSHAKE, "Connection handshake"),
        breaks: "drivers from before the summer of 2026 cannot open a connection",
        judge: |evidence| answers_hello(evidence, Topic::Query),
        ..ERROR
    },
    Rule {
        name: "hello-by-msg",
        text: "legacy hello is answered that comes by OP_MSG as the first message",
        source: (HANDSHAKE, "Connection handshake"),
        breaks: "drivers that speak nothing but OP_MSG cannot open a connection",
        judge: |evidence| evidence.must_succeed(Topic::Legacy).map(|_| ()),
        ..ERROR
    },
    Rule {
        name: "lower-case",
        text: "ismaster is the same command as isMaster",
        source: (HANDSHAKE, "Terms"),
        breaks: "drivers that spell it so cannot open a connection",
        judge: lower_case,
        ..ERROR
    },
    Rule {
        name: "hello-ok",
        text: "the reply to a legacy hello with helloOk: true has helloOk: true, from MongoDB 5.0 \
               on",
        source: (HANDSHAKE, "Connection handshake"),
        breaks: "drivers go on with legacy hello",
        judge: hello_ok,
        ..WARNING
    },
    Rule {
        name: "hello-command",
        text: "hello is answered if helloOk says so, and from MongoDB 5.0 on",
        source: (HANDSHAKE, "Connection handshake"),
        breaks: "monitors send it after helloOk, and take the server for dead",
        judge: hello_command,
        ..ERROR
    },
    Rule {
        name: "hello-forms-agree",
        text: "hello and legacy hello, by OP_QUERY and by OP_MSG, say the same",
        source: (SDAM, "Parsing a hello or legacy hello response"),
        breaks: "the server is another one with each driver, and with each connection of a driver",
        judge: agree,
        ..ERROR
    },
    Rule {
        name: "primary-field",
        text: "hello has isWritablePrimary and legacy hello ismaster, a boolean",
        source: (SDAM, "Parsing a hello or legacy hello response"),
        breaks: "a primary is taken for something else, and writes find none",
        judge: primary_field,
        ..ERROR
    },
    Rule {
        name: "wire-version",
        text: "minWireVersion and maxWireVersion are int32, and the first is not the greater",
        source: (SDAM, "Checking wire protocol compatibility"),
        breaks: "drivers take it for 0, and the server for one that is too old for them",
        judge: wire_version,
        ..ERROR
    },
    Rule {
        name: "wire-version-supported",
        text: "the wire versions have some in common with those of drivers, 8 (MongoDB 4.2) to 25 \
               (8.0)",
        source: (SDAM, "Checking wire protocol compatibility"),
        breaks: "every operation fails, as the deployment is not compatible",
        judge: wire_version_supported,
        ..ERROR
    },
    Rule {
        name: "sizes",
        text: "maxBsonObjectSize, maxMessageSizeBytes and maxWriteBatchSize are int32 above 0, and \
               a message has room for a document",
        source: ("Write Commands", "Request Size Limits"),
        breaks: "drivers split batches wrongly, or do not send what they could",
        judge: sizes,
        ..ERROR
    },
    Rule {
        name: "session-timeout",
        text: "logicalSessionTimeoutMinutes is an int32, and is there on all that bear data",
        source: (SDAM, "logicalSessionTimeoutMinutes"),
        breaks: "drivers refuse sessions, transactions and retryable writes",
        judge: session_timeout,
        ..ERROR
    },
    Rule {
        name: "connection-id",
        text: "connectionId, where it is, is a whole number above 0",
        source: ("Command Logging and Monitoring", "Events API"),
        breaks: "a line in a driver's log cannot be found in that of the server",
        judge: connection_id,
        ..NOTE
    },
    Rule {
        name: "one-role",
        text: "a server is one of standalone, mongos, primary, secondary and arbiter; a mongos has \
               no setName",
        source: (SDAM, "type"),
        breaks: "which one it is differs between drivers; a set whose members call themselves \
                 mongos is removed where the connection string has replicaSet",
        judge: one_role,
        ..ERROR
    },
    Rule {
        name: "unknown-client-fields",
        text: "hello is answered whatever fields of it and of its client document are new",
        source: (HANDSHAKE, "Hello Command"),
        breaks: "the next version of a driver, which says something more of itself, cannot connect",
        judge: unknown_client_fields,
        ..ERROR
    },
    Rule {
        name: "other-metadata",
        text: "a second hello with other metadata is refused or passed over, and the connection \
               goes on",
        source: (HANDSHAKE, "Connection handshake"),
        breaks: "a driver whose metadata has grown loses the connection",
        judge: other_metadata,
        ..WARNING
    },
    Rule {
        name: "tags",
        text: "tags, where they are, are a document of strings",
        source: (SELECTION, "tag_sets"),
        breaks: "reads by tags find no server, or drivers refuse the whole reply",
        judge: tags,
        ..ERROR
    },
    Rule {
        name: "booleans",
        text: "readOnly, secondary, arbiterOnly, hidden, passive and isreplicaset are booleans \
               where they are",
        source: (SDAM, "type"),
        breaks: "drivers with strict parsers refuse the reply, and others take 1 for false",
        judge: truths,
        ..NOTE
    },
];

/// Expects a reply that says `ok`.
fn answers_hello(evidence: &Evidence, topic: Topic) -> Judged {
    let exchange = evidence.exchange(topic)?;
    if let Some(end @ (End::Closed(_) | End::Silent(_))) = &exchange.end
        && exchange.answers.is_empty()
    {
        return broken(format!("a reply to {}", topic.words()), end.words());
    }
    evidence.must_succeed(topic).map(|_| ())
}

fn lower_case(evidence: &Evidence) -> Judged {
    evidence.must_succeed(Topic::LowerCase)?;
    // A server that does not answer OP_QUERY at all breaks another rule.
    match evidence.success(Topic::Query) {
        Ok(_) => evidence.must_succeed(Topic::QueryLowerCase).map(|_| ()),
        Err(_) => Ok(()),
    }
}

fn hello_ok(evidence: &Evidence) -> Judged {
    evidence.since(13, "MongoDB 5.0")?;
    let reply = evidence.success(Topic::Legacy)?;
    match reply.get("helloOk") {
        Some(Bson::Boolean(true)) => Ok(()),
        Some(other) => broken("helloOk: true", format!("helloOk: {other}")),
        None => broken("helloOk: true", "it is missing"),
    }
}

fn hello_command(evidence: &Evidence) -> Judged {
    let promised = evidence.hellos().iter().any(|(_, it)| is_true(it, "helloOk"));
    if !promised {
        evidence.since(13, "MongoDB 5.0")?;
    }
    let reply = evidence.reply(Topic::Hello)?;
    match crate::lint::evidence::is_ok(reply) {
        true => Ok(()),
        false => broken("a reply to hello", format!("it fails: {}", refusal(reply))),
    }
}

/// The fields that a server does not change from one moment to the next, unless its configuration
/// is changed.
const SAME: [&str; 12] = [
    "minWireVersion",
    "maxWireVersion",
    "maxBsonObjectSize",
    "maxMessageSizeBytes",
    "maxWriteBatchSize",
    "logicalSessionTimeoutMinutes",
    "setName",
    "me",
    "msg",
    "hosts",
    "passives",
    "arbiters",
];

fn agree(evidence: &Evidence) -> Judged {
    let hellos = evidence.hellos();
    let Some(((first, one), others)) = hellos.split_first() else {
        return not_tried("no hello was answered");
    };
    for (topic, other) in others {
        let is_same_state = one.get("topologyVersion") == other.get("topologyVersion")
            && one.get("setVersion") == other.get("setVersion");
        let named = SAME.into_iter().find(|name| match (one.get(name), other.get(name)) {
            (Some(one), Some(other)) => same(one, other) == Some(false) && is_same_state,
            (None, None) => false,
            _ => is_same_state,
        });
        let words = |name| {
            let text = |it: &Document| it.get(name).map_or("none".into(), ToString::to_string);
            (format!("{name} {} as in {}", text(one), first.words()), text(other))
        };
        if let Some(name) = named {
            let (expected, found) = words(name);
            return broken(expected, format!("{found} in {}", topic.words()));
        }
        // Without topologyVersion nothing says that there was no election in between.
        let is_reported = is_same_state && one.contains_key("topologyVersion");
        if is_reported && kind_of(one) != kind_of(other) {
            return broken(
                format!("type {} as in {}", kind_of(one).name(), first.words()),
                format!("type {} in {}", kind_of(other).name(), topic.words()),
            );
        }
    }
    match others.is_empty() {
        true => not_tried("hello was answered in one form only"),
        false => Ok(()),
    }
}

/// Compares values; `None` of types that are for other rules to judge.
fn same(one: &Bson, other: &Bson) -> Option<bool> {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => Some(one == other),
        _ if std::mem::discriminant(one) == std::mem::discriminant(other) => Some(one == other),
        _ => None,
    }
}

fn primary_field(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let is_hello = evidence.exchange(topic)?.request.contains_key("hello");
        let name = if is_hello { "isWritablePrimary" } else { "ismaster" };
        field(topic.words(), reply, name, "a boolean", is_truth).map(|_| ())
    })
}

fn wire_version(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let words = topic.words();
        let version = |name| field(words, reply, name, "an int32", is_int32).map(number);
        let (min, max) = (version("minWireVersion")?, version("maxWireVersion")?);
        match (min, max) {
            (Some(min), Some(max)) if min > max => broken(
                "minWireVersion up to maxWireVersion",
                format!("{min} and {max} in the reply to {words}"),
            ),
            _ => Ok(()),
        }
    })
}

fn wire_version_supported(evidence: &Evidence) -> Judged {
    let reply = evidence.hello()?;
    let version = |name| reply.get(name).and_then(number);
    let (Some(min), Some(max)) = (version("minWireVersion"), version("maxWireVersion")) else {
        return not_tried("its wire versions are not known");
    };
    let (own_min, own_max) = (CLIENT_MIN_WIRE_VERSION.into(), CLIENT_MAX_WIRE_VERSION.into());
    match min > own_max || max < own_min {
        true => broken(format!("some of {own_min} to {own_max}"), format!("{min} to {max}")),
        false => Ok(()),
    }
}

fn sizes(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let size = |name| {
            let fits = |value: &Bson| value.as_i32().is_some_and(|size| size > 0);
            field(topic.words(), reply, name, "an int32 above 0 as", fits).map(number)
        };
        let (document, message) = (size("maxBsonObjectSize")?, size("maxMessageSizeBytes")?);
        size("maxWriteBatchSize")?;
        match document >= message {
            true => broken(
                "maxMessageSizeBytes above maxBsonObjectSize",
                format!("{} and {}", shown(message), shown(document)),
            ),
            false => Ok(()),
        }
    })
}

fn session_timeout(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let bears_data = !matches!(kind_of(reply), Kind::Arbiter | Kind::Other);
        let name = "logicalSessionTimeoutMinutes";
        match reply.contains_key(name) || bears_data {
            true => field(topic.words(), reply, name, "an int32", is_int32).map(|_| ()),
            false => Ok(()),
        }
    })
}

fn connection_id(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let fits = |value: &Bson| number(value).is_some_and(|number| number > 0);
        if_there(topic.words(), reply, "connectionId", "a number above 0 as", fits)
    })
}

fn one_role(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let is = |name: &str| is_true(reply, name);
        let mut roles = Vec::new();
        let named = [
            ("a mongos", is_mongos(reply)),
            (
                "a primary",
                reply.contains_key("setName") && (is("isWritablePrimary") || is("ismaster")),
            ),
            ("a secondary", is("secondary")),
            ("an arbiter", is("arbiterOnly")),
            ("a member without a configuration", is("isreplicaset")),
        ];
        roles.extend(named.iter().filter(|(_, it)| *it).map(|(name, _)| *name));
        let is_set = reply.contains_key("setName") && is_text(&reply["setName"]);
        let is_set_of_mongos = roles.contains(&"a mongos") && is_set;
        if is_set_of_mongos {
            roles.push("a member of a set");
        }
        let is_ghost = is("isreplicaset") && is_set;
        match roles.len() > 1 || is_ghost {
            true => broken(
                "one role",
                format!("{} in the reply to {}", roles.join(" and "), topic.words()),
            ),
            false => Ok(()),
        }
    })
}

fn unknown_client_fields(evidence: &Evidence) -> Judged {
    evidence.success(Topic::Legacy)?;
    evidence.must_succeed(Topic::UnknownClient).map(|_| ())
}

fn other_metadata(evidence: &Evidence) -> Judged {
    for topic in [Topic::OtherMetadata, Topic::AfterOtherMetadata] {
        let exchange = evidence.exchange(topic)?;
        if let Some(end @ (End::Closed(_) | End::Silent(_))) = &exchange.end {
            return broken(format!("a reply to {}", topic.words()), end.words());
        }
    }
    evidence.must_succeed(Topic::AfterOtherMetadata).map(|_| ())
}

fn tags(evidence: &Evidence) -> Judged {
    each_hello(evidence, |topic, reply| {
        let fits =
            |value: &Bson| value.as_document().is_some_and(|tags| tags.values().all(is_text));
        if_there(topic.words(), reply, "tags", "a document of strings as", fits)
    })
}

fn truths(evidence: &Evidence) -> Judged {
    let names = ["readOnly", "secondary", "arbiterOnly", "hidden", "passive", "isreplicaset"];
    each_hello(evidence, |topic, reply| {
        let judge = |name: &str| if_there(topic.words(), reply, name, "a boolean", is_truth);
        names.into_iter().try_for_each(judge)
    })
}
