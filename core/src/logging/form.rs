//! The forms of all messages: their components, severities, and their texts for people.

use super::component::{Component, Severity};

/// The form of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) component: Component,
    pub(super) severity: Severity,
    /// The message itself, which never changes.
    pub(super) message: &'static str,
    /// The text for people, in parts that are left out if the field in their braces is absent.
    pub(super) text: &'static [&'static str],
}

const fn debug(component: Component, message: &'static str, text: &'static [&'static str]) -> Form {
    Form { component, severity: Severity::Debug, message, text }
}

const fn command(message: &'static str, text: &'static [&'static str]) -> Form {
    debug(Component::Command, message, text)
}

const fn topology(message: &'static str, text: &'static [&'static str]) -> Form {
    debug(Component::Topology, message, text)
}

const fn connection(message: &'static str, text: &'static [&'static str]) -> Form {
    debug(Component::Connection, message, text)
}

const fn selection(message: &'static str, text: &'static [&'static str]) -> Form {
    debug(Component::ServerSelection, message, text)
}

// Command Logging and Monitoring, "Log Messages".

pub(super) static COMMAND_STARTED: Form = command(
    "Command started",
    &[
        "Command \"{commandName}\" started",
        " on database \"{databaseName}\"",
        " using a connection with driver-generated ID {driverConnectionId}",
        " and server-generated ID {serverConnectionId}",
        " to {serverHost}",
        ":{serverPort}",
        " with service ID {serviceId}",
        ". The requestID is {requestId}",
        " and the operation ID is {operationId}",
        ". Command: {command}",
    ],
);

pub(super) static COMMAND_SUCCEEDED: Form = command(
    "Command succeeded",
    &[
        "Command \"{commandName}\" succeeded",
        " on database \"{databaseName}\"",
        " in {durationMS} ms",
        " using a connection with driver-generated ID {driverConnectionId}",
        " and server-generated ID {serverConnectionId}",
        " to {serverHost}",
        ":{serverPort}",
        " with service ID {serviceId}",
        ". The requestID is {requestId}",
        " and the operation ID is {operationId}",
        ". Command reply: {reply}",
    ],
);

pub(super) static COMMAND_FAILED: Form = command(
    "Command failed",
    &[
        "Command \"{commandName}\" failed",
        " on database \"{databaseName}\"",
        " in {durationMS} ms",
        " using a connection with driver-generated ID {driverConnectionId}",
        " and server-generated ID {serverConnectionId}",
        " to {serverHost}",
        ":{serverPort}",
        " with service ID {serviceId}",
        ". The requestID is {requestId}",
        " and the operation ID is {operationId}",
        ". Error: {failure}",
    ],
);

// SDAM Logging and Monitoring, "Log Messages".

pub(super) static STARTING_TOPOLOGY: Form = topology(
    "Starting topology monitoring",
    &["Starting monitoring for topology with ID {topologyId}"],
);

pub(super) static STOPPED_TOPOLOGY: Form = topology(
    "Stopped topology monitoring",
    &["Stopped monitoring for topology with ID {topologyId}"],
);

pub(super) static STARTING_SERVER: Form = topology(
    "Starting server monitoring",
    &[
        "Starting monitoring for server {serverHost}",
        ":{serverPort}",
        " in topology with ID {topologyId}",
    ],
);

pub(super) static STOPPED_SERVER: Form = topology(
    "Stopped server monitoring",
    &[
        "Stopped monitoring for server {serverHost}",
        ":{serverPort}",
        " in topology with ID {topologyId}",
    ],
);

pub(super) static TOPOLOGY_CHANGED: Form = topology(
    "Topology description changed",
    &[
        "Description changed for topology with ID {topologyId}",
        ". Previous description: {previousDescription}",
        ". New description: {newDescription}",
    ],
);

pub(super) static HEARTBEAT_STARTED: Form = topology(
    "Server heartbeat started",
    &[
        "Heartbeat started for {serverHost}",
        ":{serverPort}",
        " on connection with driver-generated ID {driverConnectionId}",
        " and server-generated ID {serverConnectionId}",
        " in topology with ID {topologyId}",
        ". Awaited: {awaited}",
    ],
);

pub(super) static HEARTBEAT_SUCCEEDED: Form = topology(
    "Server heartbeat succeeded",
    &[
        "Heartbeat succeeded in {durationMS} ms",
        " for {serverHost}",
        ":{serverPort}",
        " on connection with driver-generated ID {driverConnectionId}",
        " and server-generated ID {serverConnectionId}",
        " in topology with ID {topologyId}",
        ". Awaited: {awaited}",
        ". Reply: {reply}",
    ],
);

pub(super) static HEARTBEAT_FAILED: Form = topology(
    "Server heartbeat failed",
    &[
        "Heartbeat failed in {durationMS} ms",
        " for {serverHost}",
        ":{serverPort}",
        " on connection with driver-generated ID {driverConnectionId}",
        " and server-generated ID {serverConnectionId}",
        " in topology with ID {topologyId}",
        ". Awaited: {awaited}",
        ". Failure: {failure}",
    ],
);

// Connection Monitoring and Pooling, "Connection Pool Logging".

pub(super) static POOL_CREATED: Form = connection(
    "Connection pool created",
    &[
        "Connection pool created for {serverHost}",
        ":{serverPort}",
        " using options maxIdleTimeMS={maxIdleTimeMS}",
        ", minPoolSize={minPoolSize}",
        ", maxPoolSize={maxPoolSize}",
        ", maxConnecting={maxConnecting}",
        ", waitQueueTimeoutMS={waitQueueTimeoutMS}",
    ],
);

pub(super) static POOL_READY: Form = connection(
    "Connection pool ready",
    &["Connection pool ready for {serverHost}", ":{serverPort}"],
);

pub(super) static POOL_CLEARED: Form = connection(
    "Connection pool cleared",
    &[
        "Connection pool for {serverHost}",
        ":{serverPort}",
        " cleared",
        " for serviceId {serviceId}",
        ". Error: {error}",
    ],
);

pub(super) static POOL_CLOSED: Form = connection(
    "Connection pool closed",
    &["Connection pool closed for {serverHost}", ":{serverPort}"],
);

pub(super) static CONNECTION_CREATED: Form = connection(
    "Connection created",
    &[
        "Connection created: address={serverHost}",
        ":{serverPort}",
        ", driver-generated ID={driverConnectionId}",
    ],
);

pub(super) static CONNECTION_READY: Form = connection(
    "Connection ready",
    &[
        "Connection ready: address={serverHost}",
        ":{serverPort}",
        ", driver-generated ID={driverConnectionId}",
        ", established in={durationMS} ms",
    ],
);

pub(super) static CONNECTION_CLOSED: Form = connection(
    "Connection closed",
    &[
        "Connection closed: address={serverHost}",
        ":{serverPort}",
        ", driver-generated ID={driverConnectionId}",
        ". Reason: {reason}",
        ". Error: {error}",
    ],
);

pub(super) static CHECK_OUT_STARTED: Form = connection(
    "Connection checkout started",
    &["Checkout started for connection to {serverHost}", ":{serverPort}"],
);

pub(super) static CHECK_OUT_FAILED: Form = connection(
    "Connection checkout failed",
    &[
        "Checkout failed for connection to {serverHost}",
        ":{serverPort}",
        ". Reason: {reason}",
        ". Error: {error}",
        ". Duration: {durationMS} ms",
    ],
);

pub(super) static CHECKED_OUT: Form = connection(
    "Connection checked out",
    &[
        "Connection checked out: address={serverHost}",
        ":{serverPort}",
        ", driver-generated ID={driverConnectionId}",
        ", duration={durationMS} ms",
    ],
);

pub(super) static CHECKED_IN: Form = connection(
    "Connection checked in",
    &[
        "Connection checked in: address={serverHost}",
        ":{serverPort}",
        ", driver-generated ID={driverConnectionId}",
    ],
);

// Server Selection, "Logging".

pub(super) static SELECTION_STARTED: Form = selection(
    "Server selection started",
    &[
        "Server selection started for operation {operation}",
        " with ID {operationId}",
        ". Selector: {selector}",
        ", topology description: {topologyDescription}",
    ],
);

pub(super) static SELECTION_SUCCEEDED: Form = selection(
    "Server selection succeeded",
    &[
        "Server selection succeeded for operation {operation}",
        " with ID {operationId}",
        ". Selected server: {serverHost}",
        ":{serverPort}",
        ". Selector: {selector}",
        ", topology description: {topologyDescription}",
    ],
);

pub(super) static SELECTION_FAILED: Form = selection(
    "Server selection failed",
    &[
        "Server selection failed for operation {operation}",
        " with ID {operationId}",
        ". Failure: {failure}",
        ". Selector: {selector}",
        ", topology description: {topologyDescription}",
    ],
);

pub(super) static SELECTION_WAITING: Form = Form {
    severity: Severity::Informational,
    ..selection(
        "Waiting for suitable server to become available",
        &[
            "Waiting for server to become available for operation {operation}",
            " with ID {operationId}",
            ". Remaining time: {remainingTimeMS} ms",
            ". Selector: {selector}",
            ", topology description: {topologyDescription}",
        ],
    )
};

// Not specified.

/// Returns the form of the message that says how many others of a component were dropped.
pub(super) const fn lost(component: Component) -> &'static Form {
    match component {
        Component::Command => &LOST_COMMANDS,
        Component::Topology => &LOST_TOPOLOGY,
        Component::ServerSelection => &LOST_SELECTIONS,
        Component::Connection => &LOST_CONNECTIONS,
    }
}

const fn losses(component: Component) -> Form {
    let text = &["{lost} messages were lost", ", as they came faster than they could be written"];
    Form { component, severity: Severity::Warning, message: "Log messages were lost", text }
}

static LOST_COMMANDS: Form = losses(Component::Command);
static LOST_TOPOLOGY: Form = losses(Component::Topology);
static LOST_SELECTIONS: Form = losses(Component::ServerSelection);
static LOST_CONNECTIONS: Form = losses(Component::Connection);
