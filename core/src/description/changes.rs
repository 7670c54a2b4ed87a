//! The differences between two descriptions, for a person to read.

use std::fmt::Display;

use serde::Serialize;

use super::server::ServerDescription;

/// One field that differs between two descriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// The name that the specification gives the field.
    pub field: &'static str,
    /// The old value, empty if there was none.
    pub old: String,
    /// The new value, empty if there is none.
    pub new: String,
}

/// Collects the fields that differ.
#[derive(Default)]
pub(super) struct Changes(pub(super) Vec<Change>);

impl Changes {
    pub(super) fn compare<T: PartialEq>(
        &mut self,
        field: &'static str,
        old: &T,
        new: &T,
        show: impl Fn(&T) -> String,
    ) {
        if old != new {
            self.0.push(Change { field, old: show(old), new: show(new) });
        }
    }
}

pub(super) fn optional<T: Display>(value: &Option<T>) -> String {
    value.as_ref().map(T::to_string).unwrap_or_default()
}

pub(super) fn list<T: Display>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

impl ServerDescription {
    /// Lists what differs from `self` to `new`, among the fields that events report.
    ///
    /// It is empty exactly if the two are the [same](Self::same_as).
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let (mut changes, old) = (Changes::default(), self);
        changes.compare("address", &old.address, &new.address, ToString::to_string);
        changes.compare("type", &old.server_type, &new.server_type, ToString::to_string);
        changes.compare("error", &old.error, &new.error, optional);
        changes.compare("setName", &old.set_name, &new.set_name, optional);
        changes.compare("setVersion", &old.set_version, &new.set_version, optional);
        changes.compare("electionId", &old.election_id, &new.election_id, optional);
        changes.compare("primary", &old.primary, &new.primary, optional);
        changes.compare("me", &old.me, &new.me, optional);
        changes.compare("hosts", &old.hosts, &new.hosts, |hosts| list(hosts));
        changes.compare("passives", &old.passives, &new.passives, |hosts| list(hosts));
        changes.compare("arbiters", &old.arbiters, &new.arbiters, |hosts| list(hosts));
        changes.compare("tags", &old.tags, &new.tags, |tags| {
            let tags: Vec<_> = tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            tags.join(",")
        });
        let show = ToString::to_string;
        changes.compare("minWireVersion", &old.min_wire_version, &new.min_wire_version, show);
        changes.compare("maxWireVersion", &old.max_wire_version, &new.max_wire_version, show);
        changes.compare(
            "logicalSessionTimeoutMinutes",
            &old.logical_session_timeout_minutes,
            &new.logical_session_timeout_minutes,
            optional,
        );
        let (old_version, new_version) = (&old.topology_version, &new.topology_version);
        changes.compare("topologyVersion", old_version, new_version, optional);
        changes.compare("iscryptd", &old.iscryptd, &new.iscryptd, ToString::to_string);
        changes.0
    }
}
