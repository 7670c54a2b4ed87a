//! The words for what traces and logs say of servers.

use std::borrow::Cow;

use sdam_core::config::ServerAddress;
use serde_json::Value;

use crate::check_log::server_type;
use crate::text::of_server;
use crate::watch::{State, Tone, clause};

/// Returns the state that the name of a server's type stands for; Unknown is not checked yet until
/// something is known to have failed.
pub(super) fn state(name: &str) -> State {
    server_type(name).map_or(State::Other, |it| State::of_type(it, false))
}

/// Returns the word for a server's type.
fn named(kind: &str) -> &'static str {
    match state(kind) {
        State::Unchecked => "unknown",
        state => state.name(),
    }
}

/// Leaves out of an error what is shown beside it; of one whose words no trace has, its fields
/// stand there.
pub(super) fn error<'t>(text: &'t str, address: &str) -> Cow<'t, str> {
    if let Ok(fields) = serde_json::from_str::<Value>(text)
        && fields.is_object()
    {
        return command_error(&fields["name"], &fields["code"])
            .or_else(|| fields["cause"].as_str().map(str::to_owned))
            .map_or(Cow::Borrowed(text), Cow::Owned);
    }
    Cow::Borrowed(match address.parse::<ServerAddress>() {
        Ok(address) => of_server(text, &address),
        Err(_) => text,
    })
}

/// Names the error of a command: `NotWritablePrimary (10107)`.
pub(super) fn command_error(name: &Value, code: &Value) -> Option<String> {
    let name = name.as_str().filter(|name| !name.is_empty());
    match (name, code.as_i64()) {
        (Some(name), Some(code)) => Some(format!("{name} ({code})")),
        (Some(name), None) => Some(name.to_owned()),
        (None, Some(code)) => Some(self::code(code)),
        (None, None) => None,
    }
}

/// Names the error of a command of which only the number is known.
pub(super) fn code(code: i64) -> String {
    format!("the server's error {code}")
}

/// A change of a description: the name of the field, and both values.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldChange<'t> {
    field: &'t str,
    old: &'t str,
    new: &'t str,
}

impl<'t> FieldChange<'t> {
    /// Reads the changes of an event.
    pub(super) fn all(event: &'t Value) -> Vec<Self> {
        let changes = event["changes"].as_array().map_or(&[][..], Vec::as_slice);
        let text = |change: &'t Value, name: &str| change[name].as_str().unwrap_or_default();
        let change = |it: &'t Value| Self {
            field: text(it, "field"),
            old: text(it, "old"),
            new: text(it, "new"),
        };
        changes.iter().map(change).collect()
    }

    /// Returns the new value of a field, if it has changed.
    pub(super) fn of(changes: &[Self], field: &str) -> Option<&'t str> {
        changes.iter().find(|change| change.field == field).map(|change| change.new)
    }
}

/// Says what has become of a server, and whether that is good; `None` if that goes without saying,
/// or was said: `failed` is its last failure that was described.
pub(super) fn server(
    changes: &[FieldChange<'_>],
    address: &str,
    failed: Option<&str>,
) -> Option<(Tone, String)> {
    let change_of = |field: &str| changes.iter().find(|change| change.field == field);
    let kind = change_of("type");
    let is_blank = |name: &str| matches!(name, "Unknown" | "RSGhost");
    let (was_blank, is_blank) = match kind {
        Some(kind) => (is_blank(kind.old), is_blank(kind.new)),
        // Of a server that stays Unknown, nothing but its error can change.
        None => [change_of("error").is_some(); 2].into(),
    };
    let mut clauses = Vec::new();
    for change in changes {
        match change.field {
            // The line about a new primary has the time that there was none.
            "type" if change.new == "RSPrimary" => {}
            "type" => {
                let [old, new] = [change.old, change.new].map(named);
                clauses.push(format!("{old} → {new}"));
            }
            "error" if change.new.is_empty() || failed == Some(change.new) => {}
            "error" => clauses.push(error(change.new, address).into_owned()),
            "tags" | "setName" | "hosts" | "passives" | "arbiters" if !was_blank && !is_blank => {
                clauses.push(clause(change.field, change.old, change.new));
            }
            "electionId" if kind.is_none() && !change.old.is_empty() && !change.new.is_empty() => {
                clauses.push("elected again".to_owned());
            }
            _ => {}
        }
    }
    let tone = match (was_blank, is_blank) {
        (_, true) => Tone::Bad,
        (true, false) => Tone::Good,
        (false, false) => Tone::Neutral,
    };
    (!clauses.is_empty()).then(|| (tone, clauses.join(", ")))
}

/// Says what has become of the topology; changes between the types of replica sets are described
/// with their primaries.
pub(super) fn topology(changes: &[FieldChange<'_>]) -> Option<(Tone, String)> {
    let is_set = |name: &str| name.starts_with("ReplicaSet");
    let is_worth_it = |change: &&FieldChange<'_>| match change.field {
        "type" => !(is_set(change.old) && is_set(change.new)),
        "incompatibility" => true,
        _ => false,
    };
    let worthy = changes.iter().filter(is_worth_it);
    let words: Vec<String> = worthy.map(|it| clause(it.field, it.old, it.new)).collect();
    let is_bad = FieldChange::of(changes, "incompatibility").is_some_and(|it| !it.is_empty());
    let tone = if is_bad { Tone::Bad } else { Tone::Neutral };
    (!words.is_empty()).then(|| (tone, words.join(", ")))
}
