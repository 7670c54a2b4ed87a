//! The families of metrics that there are: their names, their units and what they say.
//!
//! Names, units and labels under `db.client` are those of OpenTelemetry's semantic conventions for
//! database clients.

/// A family of metrics: what all of its samples have in common.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct Definition {
    /// The name, as OpenTelemetry writes names: parts with dots between them.
    pub name: &'static str,
    /// The name, as Prometheus writes names: with the unit at the end, and `_total` after that of a
    /// counter.
    pub prometheus_name: &'static str,
    /// The unit, as OpenTelemetry writes units: `s`, or in braces what is counted.
    pub unit: &'static str,
    /// The kind of its values.
    pub kind: MetricKind,
    /// One sentence for people.
    pub help: &'static str,
}

/// The kind of a family's values.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that is what it is now.
    Gauge,
    /// A distribution, in buckets that end at these bounds.
    #[non_exhaustive]
    Histogram {
        /// The greatest value of each bucket but the last, which has none; ascending.
        bounds: &'static [f64],
    },
}

/// The label for the name of the system, which is `mongodb`.
pub(super) const SYSTEM: &str = "db.system.name";
/// The label for the host name of a server, or the path of its socket.
pub(super) const ADDRESS: &str = "server.address";
/// The label for the port of a server.
pub(super) const PORT: &str = "server.port";
/// The label for the name of a command, or of the operation that sends it.
pub(super) const OPERATION: &str = "db.operation.name";
/// The label for the cause of a failure.
pub(super) const ERROR: &str = "error.type";
/// The label for the address of the server that a pool leads to.
pub(super) const POOL: &str = "db.client.connection.pool.name";
/// The label for the state of connections: `pending`, `idle` or `used`.
pub(super) const STATE: &str = "db.client.connection.state";
/// The label for the reason why connections were closed.
pub(super) const REASON: &str = "sdam.reason";
/// The label for the type of a server, or of the topology.
pub(super) const TYPE: &str = "sdam.type";

const COUNTER: MetricKind = MetricKind::Counter;
const GAUGE: MetricKind = MetricKind::Gauge;

/// Buckets for what takes milliseconds, as the conventions have them for operations.
const MILLISECONDS: MetricKind =
    MetricKind::Histogram { bounds: &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0] };

/// Buckets for what takes seconds, as an election does.
const SECONDS: MetricKind = MetricKind::Histogram {
    bounds: &[0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0],
};

macro_rules! definitions {
    ($($constant:ident = $kind:ident
        $name:literal $prometheus:literal $unit:literal $help:literal;)*) => {
        $(pub(super) static $constant: Definition = Definition {
            name: $name,
            prometheus_name: $prometheus,
            unit: $unit,
            kind: $kind,
            help: $help,
        };)*

        /// All families that there are, in the order of snapshots.
        pub static DEFINITIONS: &[&Definition] = &[$(&$constant),*];
    };
}

definitions! {
    OPERATION_DURATION = MILLISECONDS
        "db.client.operation.duration" "db_client_operation_duration_seconds" "s"
        "Time from the beginning of an operation to its outcome, with all of its attempts.";
    COMMAND_DURATION = MILLISECONDS
        "sdam.command.duration" "sdam_command_duration_seconds" "s"
        "Time from sending a command to its reply or its failure.";
    // Prometheus keeps the ending `_count` to histograms.
    CONNECTION_COUNT = GAUGE
        "db.client.connection.count" "db_client_connections" "{connection}"
        "Connections by state: pending ones are being established.";
    CONNECTION_IDLE_MAX = GAUGE
        "db.client.connection.idle.max" "db_client_connection_idle_max" "{connection}"
        "Most idle connections allowed; no sample if there is no limit.";
    CONNECTION_IDLE_MIN = GAUGE
        "db.client.connection.idle.min" "db_client_connection_idle_min" "{connection}"
        "Fewest connections that the pool keeps, minPoolSize.";
    CONNECTION_MAX = GAUGE
        "db.client.connection.max" "db_client_connection_max" "{connection}"
        "Most connections allowed, maxPoolSize; no sample if there is no limit.";
    PENDING_REQUESTS = GAUGE
        "db.client.connection.pending_requests" "db_client_connection_pending_requests" "{request}"
        "Operations that wait for a connection; no sample where the pool is not asked.";
    TIMEOUTS = COUNTER
        "db.client.connection.timeouts" "db_client_connection_timeouts_total" "{timeout}"
        "Operations that got no connection in time.";
    CREATE_TIME = MILLISECONDS
        "db.client.connection.create_time" "db_client_connection_create_time_seconds" "s"
        "Time that it took to establish a connection.";
    WAIT_TIME = MILLISECONDS
        "db.client.connection.wait_time" "db_client_connection_wait_time_seconds" "s"
        "Time that operations waited for the connection that they got.";
    USE_TIME = MILLISECONDS
        "db.client.connection.use_time" "db_client_connection_use_time_seconds" "s"
        "Time between the check-out of a connection and its check-in.";
    CONNECTIONS_CLOSED = COUNTER
        "sdam.connections.closed" "sdam_connections_closed_total" "{connection}"
        "Connections closed, by reason.";
    CHECK_OUTS_FAILED = COUNTER
        "sdam.check_outs.failed" "sdam_check_outs_failed_total" "{request}"
        "Operations that got no connection, by cause.";
    POOL_CLEARS = COUNTER
        "sdam.pool.clears" "sdam_pool_clears_total" "{clear}"
        "Clears of a pool, by cause.";
    TOPOLOGY_TYPE = GAUGE
        "sdam.topology.type" "sdam_topology_type" "1"
        "Type of the topology, as a label of the only sample, which is 1.";
    TOPOLOGY_READABLE = GAUGE
        "sdam.topology.readable" "sdam_topology_readable" "1"
        "1 if a server is known that takes reads, else 0.";
    TOPOLOGY_WRITABLE = GAUGE
        "sdam.topology.writable" "sdam_topology_writable" "1"
        "1 if a server is known that takes writes, else 0.";
    TOPOLOGY_CHANGES = COUNTER
        "sdam.topology.changes" "sdam_topology_changes_total" "{change}"
        "Changes of the description of the topology.";
    ELECTIONS = COUNTER
        "sdam.elections" "sdam_elections_total" "{election}"
        "Elections seen: primaries that have followed another, or been elected again.";
    PRIMARY_ABSENCE = COUNTER
        "sdam.primary.absence" "sdam_primary_absence_seconds_total" "s"
        "Time in which no primary of the replica set was known.";
    FAILOVER_DURATION = SECONDS
        "sdam.failover.duration" "sdam_failover_duration_seconds" "s"
        "Time from the loss of a primary until one was known again.";
    SERVER_TYPE = GAUGE
        "sdam.server.type" "sdam_server_type" "1"
        "Type of the server, as a label of its only sample, which is 1.";
    SERVER_UP = GAUGE
        "sdam.server.up" "sdam_server_up" "1"
        "1 if the last check of the server was answered, else 0.";
    ROUND_TRIP_TIME = GAUGE
        "sdam.server.round_trip_time" "sdam_server_round_trip_time_seconds" "s"
        "Moving average of the time that the server took to answer hello.";
    CERTIFICATE_EXPIRY = GAUGE
        "sdam.server.certificate.expiry" "sdam_server_certificate_expiry_seconds" "s"
        "Time when the certificate that the server has shown last expires, since 1970.";
    HEARTBEATS_SUCCEEDED = COUNTER
        "sdam.heartbeats.succeeded" "sdam_heartbeats_succeeded_total" "{heartbeat}"
        "Checks that the server has answered.";
    HEARTBEATS_FAILED = COUNTER
        "sdam.heartbeats.failed" "sdam_heartbeats_failed_total" "{heartbeat}"
        "Checks that have failed, by cause.";
    CHANGE_STREAM_LAG = GAUGE
        "sdam.change_stream.lag" "sdam_change_stream_lag_seconds" "s"
        "Time that the open change stream which is furthest behind has still to read.";
    EVENTS_DROPPED = COUNTER
        "sdam.events.dropped" "sdam_events_dropped_total" "{event}"
        "Events that were not counted, as they were not read fast enough.";
}
