//! A case, as its file has it.

use std::time::Duration;

use bson::{Bson, Document};
use sdam_core::config::PoolOptions;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Case {
    #[serde(rename = "version")]
    _version: Version,
    style: Style,
    pub(super) description: String,
    #[serde(default)]
    pub(super) pool_options: Options,
    pub(super) operations: Vec<Step>,
    pub(super) error: Option<ExpectedError>,
    pub(super) events: Vec<Document>,
    #[serde(default)]
    pub(super) ignore: Vec<String>,
    #[serde(rename = "runOn")]
    _run_on: Option<Vec<Versions>>,
    fail_point: Option<FailPoint>,
}

/// The version of the format.
#[derive(Debug, Deserialize)]
#[serde(try_from = "i64")]
struct Version;

impl TryFrom<i64> for Version {
    type Error = String;

    fn try_from(version: i64) -> Result<Self, String> {
        match version {
            1 => Ok(Self),
            other => Err(format!("version {other} of the format is not known; 1 is")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Style {
    Unit,
    Integration,
}

/// The versions of servers that have the fail point.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versions {
    #[serde(rename = "minServerVersion")]
    _min: Option<String>,
    #[serde(rename = "maxServerVersion")]
    _max: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    #[serde(rename = "maxPoolSize")]
    max_pool_size: Option<u32>,
    #[serde(rename = "minPoolSize")]
    min_pool_size: Option<u32>,
    #[serde(rename = "maxConnecting")]
    max_connecting: Option<u32>,
    #[serde(rename = "maxIdleTimeMS")]
    max_idle_time: Option<u32>,
    #[serde(rename = "waitQueueTimeoutMS")]
    wait_queue_timeout: Option<u32>,
    #[serde(rename = "appName")]
    app_name: Option<String>,
    #[serde(rename = "backgroundThreadIntervalMS")]
    background_interval: Option<i64>,
}

impl Options {
    pub(super) fn of_pool(&self) -> PoolOptions {
        let millis = |number: u32| Duration::from_millis(number.into());
        let default = PoolOptions::default();
        let patience = self.wait_queue_timeout.filter(|limit| *limit > 0);
        PoolOptions::default()
            .with_max_pool_size(self.max_pool_size.unwrap_or(default.max_pool_size))
            .with_min_pool_size(self.min_pool_size.unwrap_or(default.min_pool_size))
            .with_max_connecting(self.max_connecting.unwrap_or(default.max_connecting))
            .with_max_idle_time(self.max_idle_time.map_or(default.max_idle_time, millis))
            .with_wait_queue_timeout(patience.map(millis))
    }

    /// Returns whether the pool does nothing of its own accord.
    pub(super) fn is_without_background(&self) -> bool {
        self.background_interval.is_some_and(|interval| interval < 0)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedError {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) message: String,
    #[serde(rename = "address")]
    _address: Option<Bson>,
}

/// An operation, and the thread that does it if it is not the main one.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Document")]
pub(super) struct Step {
    pub(super) thread: Option<String>,
    pub(super) operation: Operation,
}

impl TryFrom<Document> for Step {
    type Error = String;

    fn try_from(mut document: Document) -> Result<Self, String> {
        let thread = match document.remove("thread") {
            None => None,
            Some(Bson::String(name)) => Some(name),
            Some(other) => return Err(format!("thread is {other}; it must be a name")),
        };
        let operation = bson::deserialize_from_document(document);
        let operation = operation.map_err(|error| error.to_string())?;
        Ok(Self { thread, operation })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "name", rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Operation {
    Start {
        target: String,
    },
    Wait {
        ms: u32,
    },
    WaitForThread {
        target: String,
    },
    WaitForEvent {
        event: String,
        count: usize,
        timeout: Option<u32>,
    },
    CheckOut {
        label: Option<String>,
    },
    CheckIn {
        connection: String,
    },
    Clear {
        #[serde(default, rename = "interruptInUseConnections")]
        interrupt: bool,
    },
    Close {},
    Ready {},
}

/// The server's treatment of hello.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FailPoint {
    #[serde(rename = "configureFailPoint")]
    _kind: FailCommand,
    mode: Mode,
    data: Failing,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum FailCommand {
    #[serde(rename = "failCommand")]
    FailCommand,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Mode {
    AlwaysOn,
    Times(u32),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Failing {
    fail_commands: Vec<String>,
    close_connection: bool,
    block_connection: bool,
    #[serde(rename = "blockTimeMS")]
    block_time: u32,
    error_code: Option<i32>,
    app_name: Option<String>,
}

/// The fate of a connection that is being established.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) after: Duration,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Established,
    Closed,
    Refused { code: i32 },
}

impl Case {
    /// Returns what becomes of the connection whose hello is the `number`th, from 1.
    pub(super) fn fate(&self, number: u64) -> Fate {
        let usual = Fate { after: Duration::from_millis(1), end: End::Established };
        let Some(FailPoint { mode, data, .. }) = &self.fail_point else { return usual };
        let in_time = match mode {
            Mode::AlwaysOn => true,
            Mode::Times(times) => number <= u64::from(*times),
        };
        let strikes = self.style == Style::Integration
            && in_time
            && data.fail_commands.iter().any(|command| command == "hello")
            && (data.app_name.is_none() || data.app_name == self.pool_options.app_name);
        if !strikes {
            return usual;
        }
        let after = match data.block_connection {
            true => Duration::from_millis(data.block_time.into()),
            false => usual.after,
        };
        let end = match data.error_code {
            _ if data.close_connection => End::Closed,
            Some(code) => End::Refused { code },
            None => End::Established,
        };
        Fate { after, end }
    }
}
