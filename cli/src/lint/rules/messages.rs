//! Rules for messages of any kind.

use super::{COMPRESSION, OP_MSG, POOLING, SDAM};
use crate::lint::evidence::{
    Answer, End, Evidence, Judged, Topic, broken, not_tried, op_code_of_reply, type_name,
};
use crate::lint::rule::{ERROR, Needs, Rule, WARNING};

use sdam_core::bson::Bson;
use sdam_core::wire::op_code;

/// The flags that clients know of in replies: checksumPresent and moreToCome.
const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 2;

/// The bits that a receiver has to understand.
const REQUIRED: u32 = 0xffff;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "no-reply",
        text: "every command is answered, within connectTimeoutMS if it has nothing to wait for, \
               and its connection stays open",
        source: (OP_MSG, "moreToCome"),
        breaks: "operations hang or fail with network errors; after one, the server is taken for \
                 dead and its pool is cleared",
        judge: no_reply,
        ..ERROR
    },
    Rule {
        name: "response-to",
        text: "responseTo of a reply is the requestID of the request",
        source: (OP_MSG, "OP_MSG"),
        breaks: "drivers close the connection, as replies seem to belong to other operations",
        judge: response_to,
        ..ERROR
    },
    Rule {
        name: "malformed-reply",
        text: "a reply is a whole message with one body, which is valid BSON",
        source: (OP_MSG, "sections"),
        breaks: "drivers cannot read the reply, and close the connection",
        judge: malformed_reply,
        ..ERROR
    },
    Rule {
        name: "reply-form",
        text: "OP_QUERY is answered by OP_REPLY, and OP_MSG by OP_MSG",
        source: (OP_MSG, "Usage"),
        breaks: "drivers expect that opcode and no other, and close the connection",
        judge: reply_form,
        ..ERROR
    },
    Rule {
        name: "unasked-more-to-come",
        text: "a reply has the flag moreToCome only if the request has exhaustAllowed",
        source: (OP_MSG, "exhaustAllowed"),
        breaks: "drivers wait for a further reply that they have not asked for, or close the \
                 connection",
        judge: |evidence| flags(evidence, MORE_TO_COME, "moreToCome"),
        ..ERROR
    },
    Rule {
        name: "unknown-flags",
        text: "a reply has none of the required flag bits (0 to 15) that are not defined",
        source: (OP_MSG, "flagBits"),
        breaks: "clients MUST error if they see such a bit, so that each reply with it is lost",
        judge: unknown_flags,
        ..ERROR
    },
    Rule {
        name: "unasked-checksum",
        text: "a reply has no checksum, which is reserved, unless the request has one",
        source: (OP_MSG, "checksumPresent"),
        breaks: "drivers that leave checksums to the future read four bytes as a section that is \
                 none",
        judge: |evidence| flags(evidence, CHECKSUM_PRESENT, "checksum"),
        ..ERROR
    },
    Rule {
        name: "ok-field",
        text: "every reply has ok, a number: 1 if the command has succeeded and else 0",
        source: (SDAM, "type"),
        breaks: "a reply without \"ok: 1\" is an error; if it is to hello, the server is Unknown",
        judge: ok_field,
        ..ERROR
    },
    Rule {
        name: "unasked-compression",
        text: "nothing is compressed on a connection whose client has offered no compressor",
        source: (COMPRESSION, "MongoDB Handshake Amendment"),
        breaks: "drivers without that compressor cannot read the reply",
        judge: unasked_compression,
        ..ERROR
    },
    Rule {
        name: "compressors-offered",
        text: "hello names those compressors that both sides know, and has no compression field \
               if there is none",
        source: (COMPRESSION, "MongoDB Handshake Amendment"),
        breaks: "drivers compress what the server or they themselves cannot read",
        judge: compressors_offered,
        ..ERROR
    },
    Rule {
        name: "compressed-request",
        text: "a command is answered that is compressed with what was agreed on",
        source: (COMPRESSION, "Compressible messages"),
        breaks: "every operation of clients with the option compressors fails",
        judge: compressed_request,
        ..ERROR
    },
    Rule {
        name: "optional-flags",
        text: "optional flag bits (16 to 31) that are not known are ignored",
        source: (OP_MSG, "flagBits"),
        breaks: "drivers that come to use a new optional flag cannot talk to this server",
        judge: |evidence| answered_well(evidence, Topic::UnknownOptionalFlag),
        ..WARNING
    },
    Rule {
        name: "required-flags",
        text: "a request with a required flag bit (0 to 15) that is not known is refused",
        source: (OP_MSG, "flagBits"),
        breaks: "a request is carried out otherwise than it was meant, and its sender never knows",
        judge: |evidence| refused(evidence, Topic::UnknownRequiredFlag),
        ..WARNING
    },
    Rule {
        name: "silent-request",
        text: "a request with the flag moreToCome has no reply",
        source: (OP_MSG, "moreToCome On Requests"),
        breaks: "after an unacknowledged write each operation gets the reply of the one before it",
        judge: silent_request,
        ..ERROR
    },
    Rule {
        name: "database-required",
        text: "a command without $db is refused, by an error or by closing the connection",
        source: (OP_MSG, "Global Command Arguments"),
        breaks: "a driver that leaves it out by mistake works here, and on no other server",
        judge: |evidence| refused(evidence, Topic::WithoutDatabase),
        ..WARNING
    },
    Rule {
        name: "large-document",
        text: "a command as large as maxBsonObjectSize is answered",
        source: ("Write Commands", "Request Size Limits"),
        breaks: "documents that drivers believe to be allowed cannot be sent",
        judge: |evidence| answered_well(evidence, Topic::LargeDocument),
        ..ERROR
    },
    Rule {
        name: "too-large-message",
        text: "a message that claims to exceed maxMessageSizeBytes ends its connection",
        source: (OP_MSG, "OP_MSG"),
        breaks: "a client that sends one hangs, or fills the server's memory",
        judge: too_large_message,
        ..WARNING
    },
    Rule {
        name: "idle-connection",
        needs: Needs::Idle,
        text: "a connection that is idle stays open",
        source: (POOLING, "Connection Pool Options"),
        breaks: "pools are full of connections that are dead, and the next operation on each fails \
                 with a network error, after which the whole pool is cleared",
        judge: |evidence| answered_well(evidence, Topic::Idle),
        ..WARNING
    },
];

fn no_reply(evidence: &Evidence) -> Judged {
    let silent = evidence.needing_answers().find_map(|(topic, exchange)| {
        let end = exchange.end.as_ref().filter(|it| !matches!(it, End::Malformed(_)))?;
        exchange.answers.is_empty().then_some((topic, end))
    });
    match silent {
        Some((topic, end)) => broken(format!("a reply to {}", topic.words()), end.words()),
        None if evidence.needing_answers().all(|(_, it)| it.answers.is_empty()) => {
            not_tried("nothing was answered that has to be")
        }
        None => Ok(()),
    }
}

fn response_to(evidence: &Evidence) -> Judged {
    for (topic, exchange, answer) in evidence.answers() {
        let is_first = exchange.answers.first().is_some_and(|it| it.came == answer.came);
        if is_first && topic != Topic::AfterSilent && answer.response_to != exchange.request_id {
            return broken(
                format!("responseTo {} in the reply to {}", exchange.request_id, topic.words()),
                format!("responseTo {}", answer.response_to),
            );
        }
    }
    some_answer(evidence)
}

fn malformed_reply(evidence: &Evidence) -> Judged {
    for (topic, exchange) in evidence.answered() {
        let faults = exchange.answers.iter().filter_map(|answer| answer.document.as_ref().err());
        let ends = exchange.end.iter().filter_map(|end| match end {
            End::Malformed(reason) => Some(reason),
            End::Silent(_) | End::Closed(_) => None,
        });
        if let Some(fault) = faults.chain(ends).next() {
            return broken(format!("a valid reply to {}", topic.words()), fault.as_str());
        }
    }
    some_answer(evidence)
}

fn reply_form(evidence: &Evidence) -> Judged {
    for (topic, exchange, answer) in evidence.answers() {
        let expected = op_code_of_reply(exchange.form);
        if answer.op_code != expected {
            return broken(
                format!("opcode {expected} in the reply to {}", topic.words()),
                format!("opcode {}", answer.op_code),
            );
        }
    }
    some_answer(evidence)
}

/// Judges the flags of each OP_MSG.
fn flags(evidence: &Evidence, unwanted: u32, words: &str) -> Judged {
    for (topic, exchange, answer) in evidence.answers() {
        let is_allowed = unwanted == MORE_TO_COME && exchange.exhaust_allowed;
        if answer.flags & unwanted != 0 && !is_allowed {
            return broken(
                format!("no {words} in the reply to {}", topic.words()),
                format!("flags {:#010x}", answer.flags),
            );
        }
    }
    let has_flags = |answer: &Answer| answer.op_code == op_code::OP_MSG;
    match evidence.answers().iter().any(|(_, _, answer)| has_flags(answer)) {
        true => Ok(()),
        false => not_tried("no OP_MSG has come, which alone has flags"),
    }
}

fn unknown_flags(evidence: &Evidence) -> Judged {
    let unknown = REQUIRED & !(CHECKSUM_PRESENT | MORE_TO_COME);
    flags(evidence, unknown, "unknown required flag")
}

fn ok_field(evidence: &Evidence) -> Judged {
    for (topic, document) in evidence.documents() {
        let ok = document.get("ok");
        let is_number = match ok {
            Some(Bson::Double(value)) => [0.0, 1.0].contains(value),
            Some(Bson::Int32(value)) => [0, 1].contains(value),
            Some(Bson::Int64(value)) => [0, 1].contains(value),
            _ => false,
        };
        if !is_number {
            let found = match ok {
                Some(value) => format!("it is {}, {value}", type_name(ok)),
                None => "it is missing".to_owned(),
            };
            return broken(format!("ok: 1 or 0 in the reply to {}", topic.words()), found);
        }
    }
    some_answer(evidence)
}

fn some_answer(evidence: &Evidence) -> Judged {
    match evidence.answers().is_empty() {
        true => not_tried("nothing was answered"),
        false => Ok(()),
    }
}

fn unasked_compression(evidence: &Evidence) -> Judged {
    for (topic, exchange, answer) in evidence.answers() {
        if answer.is_compressed && !exchange.offers_compression {
            let expected = format!("a reply to {} as it is", topic.words());
            return broken(expected, "it is compressed, and no compressor was offered");
        }
    }
    some_answer(evidence)
}

fn compressors_offered(evidence: &Evidence) -> Judged {
    for (topic, reply) in evidence.hellos() {
        let exchange = evidence.exchange(topic)?;
        let offered = exchange.request.get_array("compression").map_or(&[][..], Vec::as_slice);
        let Some(named) = reply.get("compression") else { continue };
        let is_subset = named.as_array().is_some_and(|named| {
            !named.is_empty() && named.iter().all(|name| offered.contains(name))
        });
        if !is_subset {
            let offered = Bson::Array(offered.to_vec());
            return broken(
                format!("some of {offered} in the reply to {}, or no field", topic.words()),
                format!("compression: {named}"),
            );
        }
    }
    evidence.success(Topic::Compression).map(|_| ())
}

fn compressed_request(evidence: &Evidence) -> Judged {
    let agreed = evidence.success(Topic::Compression)?.get_array("compression");
    if agreed.map_or(true, Vec::is_empty) {
        return not_tried("the server knows neither snappy nor zlib");
    }
    evidence.must_succeed(Topic::CompressedPing).map(|_| ())
}

/// Expects a reply that says `ok`.
fn answered_well(evidence: &Evidence, topic: Topic) -> Judged {
    let exchange = evidence.exchange(topic)?;
    match &exchange.end {
        Some(end @ (End::Closed(_) | End::Silent(_))) => {
            broken(format!("a reply to {}", topic.words()), end.words())
        }
        Some(End::Malformed(_)) | None => evidence.must_succeed(topic).map(|_| ()),
    }
}

/// Expects an error, or the end of the connection.
fn refused(evidence: &Evidence, topic: Topic) -> Judged {
    let exchange = evidence.exchange(topic)?;
    let expected = || format!("an error, or the end of the connection, after {}", topic.words());
    match &exchange.end {
        Some(End::Closed(_)) => Ok(()),
        Some(end @ End::Silent(_)) => broken(expected(), end.words()),
        Some(End::Malformed(_)) | None => {
            match crate::lint::evidence::is_ok(evidence.reply(topic)?) {
                true => broken(expected(), "it succeeds"),
                false => Ok(()),
            }
        }
    }
}

fn silent_request(evidence: &Evidence) -> Judged {
    let exchange = evidence.exchange(Topic::AfterSilent)?;
    let expected = "the reply to the second of two pings, the first of which wants none";
    match (exchange.answers.first(), &exchange.end) {
        (Some(answer), _) if answer.response_to == exchange.request_id => Ok(()),
        (Some(answer), _) => broken(expected, format!("a reply to {}", answer.response_to)),
        (None, Some(end)) => broken(expected, end.words()),
        (None, None) => not_tried("there was no reply"),
    }
}

fn too_large_message(evidence: &Evidence) -> Judged {
    let exchange = evidence.exchange(Topic::TooLarge)?;
    match &exchange.end {
        Some(End::Closed(_)) => Ok(()),
        Some(end @ End::Silent(_)) => broken("the end of the connection", end.words()),
        Some(End::Malformed(_)) | None => broken("the end of the connection", "a reply"),
    }
}
