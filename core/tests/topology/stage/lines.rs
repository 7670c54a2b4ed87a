//! What the machine does, in one short line each.

use sdam_core::description::TopologyDescription;
use sdam_core::id::LinkId;
use sdam_core::pool::Command;
use sdam_core::topology::EventKind;

pub(super) fn number(link: LinkId) -> String {
    link.to_string().split_once('.').unwrap().1.to_owned()
}

pub(super) fn summary(description: &TopologyDescription) -> String {
    let mut text = description.topology_type.to_string();
    for server in description.servers().iter() {
        text += &format!(" {}={}", server.address.host(), server.server_type);
    }
    text
}

pub(super) fn command_line(command: &Command) -> String {
    match command {
        Command::Ready => "ready".into(),
        Command::Clear { to, interrupt, .. } => {
            format!("clear to {to}{}", if *interrupt { ", interrupting" } else { "" })
        }
        Command::ClearService { service, to, .. } => format!("clear {service} to {to}"),
        _ => "?".into(),
    }
}

pub(super) fn event_line(kind: &EventKind) -> String {
    let awaited = |awaited: &bool| if *awaited { " awaited" } else { "" };
    match kind {
        EventKind::TopologyOpening => "topology opening".into(),
        EventKind::TopologyClosed => "topology closed".into(),
        EventKind::TopologyDescriptionChanged { previous, new } => {
            format!("topology {} -> {}", summary(previous), summary(new))
        }
        EventKind::ServerOpening { address, .. } => format!("opening {}", address.host()),
        EventKind::ServerClosed { address, .. } => format!("closed {}", address.host()),
        EventKind::ServerDescriptionChanged { previous, new } => {
            format!("server {} {} -> {}", new.address.host(), previous.server_type, new.server_type)
        }
        EventKind::ServerHeartbeatStarted { address, awaited: a, .. } => {
            format!("started {}{}", address.host(), awaited(a))
        }
        EventKind::ServerHeartbeatSucceeded { address, awaited: a, duration, .. } => {
            format!("succeeded {}{} {}ms", address.host(), awaited(a), duration.as_millis())
        }
        EventKind::ServerHeartbeatFailed { address, awaited: a, failure, .. } => {
            format!("failed {}{}: {failure}", address.host(), awaited(a))
        }
        EventKind::SrvHostRefused { error } => format!("refused: {error}"),
        EventKind::SrvRescanFailed { error } => format!("rescan failed: {error}"),
        _ => "?".into(),
    }
}
