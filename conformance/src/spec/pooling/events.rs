//! Events in the words of the format, and how they are compared.

use bson::{Bson, Document, doc};
use sdam_core::config::{PoolOptions, ServerAddress};
use sdam_core::pool::{CloseReason, PoolEvent};

/// An event of a pool, in the words of the format.
#[derive(Clone, Debug)]
pub(super) struct PoolObservation {
    pub(super) name: &'static str,
    fields: Document,
}

impl PoolObservation {
    /// Puts an event of the pool of that server into words; `None` if the format has none for it.
    pub(super) fn new(address: &ServerAddress, event: &PoolEvent) -> Option<Self> {
        let (name, mut fields) = match event {
            PoolEvent::PoolCreated { options, .. } => {
                ("ConnectionPoolCreated", doc! { "options": self::options(options) })
            }
            PoolEvent::PoolReady => ("ConnectionPoolReady", doc! {}),
            PoolEvent::PoolCleared { interrupt_in_use_connections, .. } => {
                let fields = doc! { "interruptInUseConnections": *interrupt_in_use_connections };
                ("ConnectionPoolCleared", fields)
            }
            PoolEvent::PoolClosed => ("ConnectionPoolClosed", doc! {}),
            PoolEvent::ConnectionCreated { connection, .. } => {
                ("ConnectionCreated", id(connection.number()))
            }
            PoolEvent::ConnectionReady { connection, duration, .. } => {
                let mut fields = id(connection.number());
                fields.insert("duration", duration.as_secs_f64());
                ("ConnectionReady", fields)
            }
            PoolEvent::ConnectionClosed { connection, reason, .. } => {
                let mut fields = id(connection.number());
                fields.insert("reason", close_reason(*reason));
                ("ConnectionClosed", fields)
            }
            PoolEvent::ConnectionCheckOutStarted => ("ConnectionCheckOutStarted", doc! {}),
            PoolEvent::ConnectionCheckOutFailed { error, duration, .. } => {
                let fields = doc! { "reason": error.reason(), "duration": duration.as_secs_f64() };
                ("ConnectionCheckOutFailed", fields)
            }
            PoolEvent::ConnectionCheckedOut { connection, duration, .. } => {
                let mut fields = id(connection.number());
                fields.insert("duration", duration.as_secs_f64());
                ("ConnectionCheckedOut", fields)
            }
            PoolEvent::ConnectionCheckedIn { connection, .. } => {
                ("ConnectionCheckedIn", id(connection.number()))
            }
            _ => return None,
        };
        fields.insert("address", address.to_string());
        Some(Self { name, fields })
    }

    /// Returns the event as cases have it.
    pub(super) fn to_document(&self) -> Document {
        let mut document = doc! { "type": self.name };
        document.extend(self.fields.clone());
        document
    }
}

fn id(number: u64) -> Document {
    doc! { "connectionId": i64::try_from(number).unwrap_or(i64::MAX) }
}

const fn close_reason(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Stale => "stale",
        CloseReason::Idle => "idle",
        CloseReason::Error => "error",
        CloseReason::PoolClosed => "poolClosed",
        _ => "a reason that the specification has no word for",
    }
}

/// The options of a pool as URI options.
fn options(options: &PoolOptions) -> Document {
    let mut document = doc! {
        "maxPoolSize": i64::from(options.max_pool_size),
        "minPoolSize": i64::from(options.min_pool_size),
        "maxConnecting": i64::from(options.max_connecting),
        "maxIdleTimeMS": options.max_idle_time.as_secs_f64() * 1000.0,
    };
    if let Some(limit) = options.wait_queue_timeout {
        document.insert("waitQueueTimeoutMS", limit.as_secs_f64() * 1000.0);
    }
    document
}

/// Says whether a value is what a case expects ("Spec Test Match Function"): of documents and
/// arrays, all that is expected must be there; 42 stands for any value.
pub(super) fn matches(expected: &Bson, found: Option<&Bson>) -> bool {
    let Some(found) = found else { return false };
    match (expected, found) {
        (Bson::Document(expected), Bson::Document(found)) => {
            expected.iter().all(|(key, value)| matches(value, found.get(key)))
        }
        (Bson::Array(expected), Bson::Array(found)) => {
            expected.iter().enumerate().all(|(index, value)| matches(value, found.get(index)))
        }
        (Bson::String(any), _) if any == "42" => true,
        (expected, found) => match (number(expected), number(found)) {
            (Some(42.0), _) => true,
            (Some(expected), Some(found)) => expected == found,
            _ => expected == found,
        },
    }
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(int) => Some((*int).into()),
        #[expect(clippy::cast_precision_loss, reason = "connections are not numbered that high")]
        Bson::Int64(int) => Some(*int as f64),
        Bson::Double(double) => Some(*double),
        _ => None,
    }
}
