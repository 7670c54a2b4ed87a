//! Operations of the runner that are done at once: they look at what clients have reported, or keep
//! it.

use bson::Document;

use super::entities::{Entity, Topology};
use super::machine::Play;
use super::{arguments, events, wrong};
use crate::spec::Difference;
use crate::unified::format::{ExpectedEvent, Node, Operation};
use crate::unified::matching::Matcher;

/// The end of an operation that need not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// It is done.
    Done,
    /// It is none of those here.
    Unknown,
}

/// Does an operation at once, if it is one of those here.
pub(super) fn check(
    play: &mut Play,
    place: &str,
    operation: &Operation,
) -> Result<Checked, Difference> {
    let given = &operation.arguments;
    match operation.name.as_str() {
        "assertEventCount" => {
            let (client, event, count) = event_arguments(place, given)?;
            let matcher = Matcher::new(&play.entities);
            let found = events::count(play.entities.client(place, &client)?, &event, matcher);
            let wanted = format!("{count} times {} {}", event.kind.name(), event.fields);
            ensure(found == count, place, wanted, found)?;
        }
        "assertNumberConnectionsCheckedOut" => {
            let (client, wanted) = arguments::read(place, given, |arguments| {
                let client = arguments.required("client", Node::string)?;
                Ok((client, arguments.required("connections", Node::integer)?))
            })?;
            let found = play.entities.client(place, &client)?.checked_out;
            ensure(found == wanted, place, format!("{wanted} connections checked out"), found)?;
        }
        "assertSameLsidOnLastTwoCommands" | "assertDifferentLsidOnLastTwoCommands" => {
            let client = arguments::read(place, given, |it| it.required("client", Node::string))?;
            let is_same = operation.name == "assertSameLsidOnLastTwoCommands";
            let found = play.entities.client(place, &client)?.has_same_lsid();
            let words = |is_same: bool| format!("{} lsid", if is_same { "one" } else { "another" });
            let found_words = found.map_or_else(|| "no two commands with lsid".to_owned(), words);
            ensure(found == Some(is_same), place, words(is_same), found_words)?;
        }
        "recordTopologyDescription" => {
            let (client, id) = arguments::read(place, given, |arguments| {
                let client = arguments.required("client", Node::string)?;
                Ok((client, arguments.required("id", Node::string)?))
            })?;
            let topology = play.entities.client(place, &client)?.topology();
            play.entities.add(place, &id, Entity::Topology(topology))?;
        }
        "assertTopologyType" => {
            let (topology, wanted) = arguments::read(place, given, |arguments| {
                let topology = arguments.required("topologyDescription", Node::string)?;
                Ok((topology, arguments.required("topologyType", Node::string)?))
            })?;
            let Topology { topology_type: found, .. } = play.entities.topology(place, &topology)?;
            ensure(found.name() == wanted, place, wanted.clone(), found.name())?;
        }
        _ => return Ok(Checked::Unknown),
    }
    Ok(Checked::Done)
}

fn ensure(
    is_so: bool,
    place: &str,
    wanted: String,
    found: impl std::fmt::Display,
) -> Result<(), Difference> {
    match is_so {
        true => Ok(()),
        false => Err(wrong(place, wanted, found)),
    }
}

/// Reads the arguments of operations that count events.
pub(super) fn event_arguments(
    place: &str,
    given: &Document,
) -> Result<(String, ExpectedEvent, usize), Difference> {
    arguments::read(place, given, |arguments| {
        let client = arguments.required("client", Node::string)?;
        let event = arguments.required("event", ExpectedEvent::read)?;
        let count = arguments.required("count", Node::count)?;
        Ok((client, event, usize::try_from(count).unwrap_or(usize::MAX)))
    })
}
