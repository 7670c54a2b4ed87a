//! The view at a moment, and the reason why a selection chooses or fails.

use std::io::{self, Write};
use std::sync::Arc;

use sdam_core::config::{Options, Warning};
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::diagnosis::SelectionError;
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use serde_json::{Value, json};

use crate::duration::precise;
use crate::text::escaped;

/// Reads what a selection needs: `write`, or a read preference as connection strings have it.
pub(crate) fn criteria(text: &str) -> Result<Criteria, String> {
    if text == "write" {
        return Ok(Criteria::write());
    }
    let query = match text.starts_with("readPreference") {
        true => text.to_owned(),
        false => format!("readPreference={text}"),
    };
    let options = Options::parse(&format!("mongodb://localhost/?{query}"));
    let options = options.map_err(|error| error.to_string())?;
    match options.warnings().first() {
        Some(Warning::InvalidValue { option: "readPreference", allowed }) => {
            let mode = text.split('&').next().unwrap_or_default();
            Err(format!("{mode:?} is neither write nor {allowed}"))
        }
        Some(Warning::InvalidValue { option, allowed }) => {
            Err(format!("{option} must be {allowed}"))
        }
        Some(Warning::InvalidElement { option, allowed }) => {
            Err(format!("each element of {option} must be {allowed}"))
        }
        Some(Warning::UnknownOption { option }) => Err(format!("there is no {option}")),
        Some(Warning::EmptyValue { option }) => Err(format!("{option} has no value")),
        Some(warning) => Err(warning.to_string()),
        None => Ok(Criteria::read(options.read_preference().clone())),
    }
}

/// Shows the deployment, and a line for each server.
pub(super) fn show(
    view: &TopologyDescription,
    now: Instant,
    out: &mut dyn Write,
) -> io::Result<()> {
    let set = view.set_name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    writeln!(out, "{}{}", view.topology_type, escaped(&set))?;
    let width = view.servers().iter().map(|server| server.address.to_string().len()).max();
    for server in view.servers().iter() {
        let address = server.address.to_string();
        let address = escaped(&address);
        let what = of_server(server, now);
        writeln!(out, "  {address:0$}  {what}", width.unwrap_or(0))?;
    }
    Ok(())
}

fn of_server(server: &ServerDescription, now: Instant) -> String {
    let mut words = vec![server.server_type.to_string()];
    words.extend(server.round_trip_time.map(|time| format!("rtt {}", precise(time))));
    words.extend(server.last_update_time.map(|at| format!("checked {} ago", precise(now - at))));
    let tags: Vec<String> = server
        .tags
        .iter()
        .map(|(name, value)| escaped(&format!("{name}:{value}")).into_owned())
        .collect();
    words.extend(Some(tags.join(",")).filter(|tags| !tags.is_empty()));
    words.extend(server.error.as_ref().map(|error| escaped(&error.to_string()).into_owned()));
    words.join(", ")
}

/// Asks a copy of the machine for a server, now or never; `None` if it would look for one first.
pub(crate) fn selected(
    topology: &Topology,
    criteria: &Criteria,
    now: Instant,
) -> Option<Result<(), Box<SelectionError>>> {
    let (mut copy, mut actions) = (topology.clone(), Vec::new());
    let (waiter, criteria) = (WaiterId(u64::MAX), Arc::new(criteria.clone()));
    copy.handle(now.into(), Input::Wait { waiter, criteria, deadline: Some(now) }, &mut actions);
    actions.into_iter().find_map(|action| match action {
        Action::Wake { waiter: woken, outcome } if woken == waiter => Some(outcome),
        _ => None,
    })
}

/// Says why each server is picked from or not, and if none is, the error of the operation.
pub(super) fn explain(
    topology: &Topology,
    criteria: &Criteria,
    now: Instant,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "for {}:", escaped(&criteria.to_string()))?;
    for server in &topology.snapshot().explain(criteria).servers {
        let address = server.address.to_string();
        let address = escaped(&address);
        writeln!(out, "  {address}  {}, {}", server.server_type, server.reason)?;
    }
    match selected(topology, criteria, now) {
        Some(Err(error)) => writeln!(out, "{}", escaped(&error.to_string())),
        _ => Ok(()),
    }
}

/// The same as JSON.
pub(super) fn explained(topology: &Topology, criteria: &Criteria, now: Instant) -> Value {
    let explanation = topology.snapshot().explain(criteria);
    let error = selected(topology, criteria, now).and_then(Result::err);
    let error = error.map(|error| {
        let mut fields = serde_json::to_value(&*error).expect("it has the form of JSON");
        // What was asked for and each server's reason stand beside it.
        if let Value::Object(fields) = &mut fields {
            fields.retain(|name, _| !["criteria", "servers"].contains(&&**name));
            let finding = serde_json::to_value(error.verdict.finding());
            if let Value::Object(words) = finding.expect("it has the form of JSON") {
                fields.extend(words);
            }
            fields.insert("text".to_owned(), error.to_string().into());
        }
        fields
    });
    json!({ "criteria": criteria.to_string(), "servers": explanation.servers, "error": error })
}
