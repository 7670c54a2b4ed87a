//! Rules for what hello says of logins.

use sdam_core::bson::Bson;

use super::{AUTHENTICATION, HANDSHAKE, field, is_texts};
use crate::lint::evidence::{Evidence, Judged, Topic, broken, not_tried, number, type_name};
use crate::lint::rule::{ERROR, Rule, WARNING};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "sasl-mechanisms",
        text: "hello with saslSupportedMechs names the mechanisms of a user that there is, in an \
               array of strings",
        source: (AUTHENTICATION, "Mechanism Negotiation via Handshake"),
        breaks: "drivers try SCRAM-SHA-1, which may be one that the user cannot log in with",
        judge: mechanisms,
        ..ERROR
    },
    Rule {
        name: "speculative-login",
        text: "hello with speculativeAuthenticate has the reply to the first step of SCRAM in it: \
               conversationId, done and payload",
        source: (HANDSHAKE, "Speculative Authentication"),
        breaks: "each connection costs a round trip more",
        judge: speculation,
        ..WARNING
    },
];

fn mechanisms(evidence: &Evidence) -> Judged {
    let reply = evidence.success(Topic::Mechanisms)?;
    let words = Topic::Mechanisms.words();
    let is_names =
        |value: &Bson| is_texts(value) && value.as_array().is_some_and(|it| !it.is_empty());
    field(words, reply, "saslSupportedMechs", "an array of strings as", is_names).map(|_| ())
}

fn speculation(evidence: &Evidence) -> Judged {
    evidence.since(9, "MongoDB 4.4")?;
    let reply = evidence.success(Topic::Speculation)?;
    let Ok(step) = reply.get_document("speculativeAuthenticate") else {
        let found = type_name(reply.get("speculativeAuthenticate"));
        return broken("a document as speculativeAuthenticate", format!("it is {found}"));
    };
    let fits = step.get("conversationId").and_then(number).is_some()
        && matches!(step.get("done"), Some(Bson::Boolean(false)))
        && matches!(step.get("payload"), Some(Bson::Binary(_)));
    match fits {
        true => Ok(()),
        false if step.is_empty() => not_tried("the document is empty"),
        // What the server says in it may help to guess a password.
        false => broken(
            "a number as conversationId, done: false and binary data as payload",
            format!(
                "conversationId is {}, done is {}, payload is {}",
                type_name(step.get("conversationId")),
                type_name(step.get("done")),
                type_name(step.get("payload")),
            ),
        ),
    }
}
