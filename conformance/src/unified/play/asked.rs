//! Needs that no operation names: a test's limits, its fail points and the commands that it
//! expects ask for what stands above one command.

use bson::{Bson, Document};

use crate::unified::format::{ClientEntity, Entity, EventKind, File, Test};

/// Returns what a test asks for without an operation of that name.
pub(super) fn asked(file: &File, test: &Test) -> Vec<&'static str> {
    let mut asked = Vec::new();
    if expects(test, "lsid") {
        asked.push("sessions");
    }
    // A command that has maxTimeMS itself is sent with it as it is.
    let has_its_own = arguments(test).any(|arguments| {
        let command = arguments.get_document("command");
        command.is_ok_and(|command| command.contains_key("maxTimeMS"))
    });
    if (expects(test, "maxTimeMS") && !has_its_own) || has_no_limit(file, test) {
        asked.push("timeoutMS");
    }
    if fails_with(test, "RetryableError") && !forbids_retries(file, test) {
        asked.push("retries");
    }
    asked
}

fn arguments(test: &Test) -> impl Iterator<Item = &Document> {
    test.operations.iter().map(|operation| &operation.arguments)
}

/// Returns whether a command is expected to have a field.
fn expects(test: &Test, field: &str) -> bool {
    let absent = |value: &Bson| {
        let value = value.as_document();
        value.is_some_and(|value| matches!(value.get("$$exists"), Some(Bson::Boolean(false))))
    };
    let events = test.expect_events.iter().flat_map(|expected| &expected.events);
    let mut started = events.filter(|event| event.kind == EventKind::CommandStarted);
    started.any(|event| {
        let command = event.fields.get_document("command").ok();
        command.and_then(|command| command.get(field)).is_some_and(|value| !absent(value))
    })
}

/// Returns whether a limit of the client is lifted for a database or an operation.
fn has_no_limit(file: &File, test: &Test) -> bool {
    let entities = file.entities.iter().cloned().chain(made(test));
    let mut databases = entities.filter_map(|entity| match entity {
        Entity::Database { options, .. } => options.timeout_ms,
        _ => None,
    });
    let is_zero = |value: &Bson| matches!(value, Bson::Int32(0) | Bson::Int64(0));
    databases.any(|limit| limit == 0)
        || arguments(test).any(|arguments| arguments.get("timeoutMS").is_some_and(is_zero))
}

/// Returns the entities that operations make.
fn made(test: &Test) -> impl Iterator<Item = Entity> {
    let making = test.operations.iter().filter(|operation| operation.name == "createEntities");
    making
        .flat_map(|operation| super::runner::entities("", &operation.arguments).unwrap_or_default())
}

/// Returns whether a fail point has servers reply with an error of this label.
fn fails_with(test: &Test, label: &str) -> bool {
    let points = arguments(test).filter_map(|arguments| arguments.get_document("failPoint").ok());
    let mut labels = points.filter_map(|point| point.get_document("data").ok()?.get("errorLabels"));
    let is_it = |value: &Bson| value.as_str() == Some(label);
    labels.any(|labels| labels.as_array().is_some_and(|labels| labels.iter().any(is_it)))
}

/// Returns whether the clients that a test uses are told not to retry.
fn forbids_retries(file: &File, test: &Test) -> bool {
    let clients = file.clients_of(test);
    let is_forbidden = |client: &&ClientEntity| {
        let is_off = |option| client.uri_options.get_bool(option).is_ok_and(|retries| !retries);
        is_off("retryReads") || is_off("retryWrites")
    };
    !clients.is_empty() && clients.iter().all(is_forbidden)
}
