//! A case that was written is run before it is handed out: time stands still in it.

use std::collections::BTreeMap;

use bson::{Bson, RawDocumentBuf};
use serde_json::Value;

use super::outcome::outcome;
use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage};
use crate::harness::{CheckOutcome, Harness};
use crate::id::Generation;
use crate::operation::{CommandError, OperationError, OperationFailure};
use crate::topology::Input;

/// Runs a case; an error says what it comes to that the trace did not.
pub(super) fn verify(uri: &str, phases: &[Value]) -> Result<(), String> {
    let mut harness = Harness::new(uri, None).map_err(|error| error.to_string())?;
    for (index, phase) in phases.iter().enumerate() {
        for response in array(phase, "responses") {
            answer(&mut harness, response)?;
        }
        for error in array(phase, "applicationErrors") {
            fail(&mut harness, error)?;
        }
        let expected = &phase["outcome"];
        let found = outcome(harness.view(), generations(&harness, expected).as_ref());
        if let Some((place, expected, found)) = difference(expected, &found) {
            let place = match phase["description"].as_str() {
                Some(description) => format!("phase {} ({description}){place}", index + 1),
                None => format!("phase {}{place}", index + 1),
            };
            return Err(format!("{place}: the trace says {expected}, the test comes to {found}"));
        }
    }
    Ok(())
}

fn array<'v>(phase: &'v Value, name: &str) -> &'v [Value] {
    phase[name].as_array().map_or(&[], Vec::as_slice)
}

fn address(value: &Value) -> Result<ServerAddress, String> {
    let text = value.as_str().unwrap_or_default();
    text.parse().map_err(|error| format!("{text} is no address: {error}"))
}

fn document(value: &Value) -> Result<RawDocumentBuf, String> {
    let document = match Bson::try_from(value.clone()) {
        Ok(Bson::Document(document)) => RawDocumentBuf::try_from(&document),
        Ok(_) => return Err(format!("{value} is no document")),
        Err(error) => Err(error),
    };
    document.map_err(|error| format!("{value} is no document: {error}"))
}

/// Lets a server answer; an empty reply stands for a network error.
fn answer(harness: &mut Harness, response: &Value) -> Result<(), String> {
    let (server, reply) = (address(&response[0])?, document(&response[1])?);
    let answer = match reply.is_empty() {
        true => CheckOutcome::NetworkError,
        false => CheckOutcome::Reply(&reply),
    };
    harness.answer(&server, answer).map_err(|error| error.to_string())
}

/// Reports the error that an operation met.
fn fail(harness: &mut Harness, error: &Value) -> Result<(), String> {
    let server = address(&error["address"])?;
    let known = harness.view().server(&server).map(|server| server.id);
    let id = known.ok_or_else(|| format!("an operation fails on {server}, which is not known"))?;
    let number = |name: &str| error[name].as_i64().unwrap_or_default();
    let stage = match error["when"].as_str() {
        Some("beforeHandshakeCompletes") => Stage::Hello,
        _ => Stage::Operate,
    };
    let stream = |cause| OperationError::Stream(Failure::new(stage, cause, "as in the trace"));
    let error = match error["type"].as_str() {
        Some("command") => {
            let error = CommandError::in_reply(&document(&error["response"])?).unwrap_or_default();
            OperationError::Reply { stage, error }
        }
        Some("timeout") => stream(Cause::Timeout),
        _ => stream(Cause::Closed),
    };
    let failure = OperationFailure {
        generation: Generation::new(u32::try_from(number("generation")).unwrap_or(u32::MAX)),
        service: None,
        max_wire_version: i32::try_from(number("maxWireVersion")).unwrap_or(i32::MAX),
        error,
    };
    harness.input(Input::OperationFailed { server: id, failure });
    Ok(())
}

/// Returns how often pools were cleared, if the case says so.
fn generations(harness: &Harness, expected: &Value) -> Option<BTreeMap<String, u64>> {
    let servers = expected["servers"].as_object()?;
    servers.values().any(|server| server.get("pool").is_some()).then(|| {
        let servers = harness.view().servers().iter();
        let counted = servers
            .map(|server| (server.address.to_string(), harness.generation(&server.address).into()));
        counted.collect()
    })
}

/// Returns the first place in which two values differ, and what is there in each.
fn difference(expected: &Value, found: &Value) -> Option<(String, String, String)> {
    if let (Value::Object(expected), Value::Object(found)) = (expected, found)
        && expected.keys().eq(found.keys())
    {
        return expected.iter().zip(found.values()).find_map(|((name, expected), found)| {
            let (place, expected, found) = difference(expected, found)?;
            Some((format!(", {name}{place}"), expected, found))
        });
    }
    let differ = || (String::new(), expected.to_string(), found.to_string());
    (expected != found).then(differ)
}
