//! The first lines of a trace: who wrote it, the options, and the seed.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FORMAT_VERSION, LineError, MAGIC, OLDEST_FORMAT_VERSION, input};
use crate::config::address_map::AddressMap;
use crate::config::{OpeningHello, Options, OptionsError, ServerApi, ServerApiVersion};

/// The inputs of a new machine, and the program that recorded it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Header {
    /// The version of sdam that wrote the trace.
    pub sdam: String,
    /// The options, as far as the machine looks at them.
    pub options: Arc<Options>,
    /// The seed of the machine.
    pub seed: u64,
    /// True if the beginning is missing, so that nothing can be replayed.
    pub is_tail: bool,
}

/// The options that no connection string can express.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Besides {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seeds: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rescan_interval: Option<Duration>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hosts_are_judged: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    single_threaded: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    eager_checks: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_api: Option<Api>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    opens_with_query: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    address_map: Vec<String>,
    /// Times that are no whole milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_frequency: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_threshold: Option<Duration>,
}

/// The Stable API, whose one version is 1.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Api {
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deprecation_errors: Option<bool>,
}

impl Header {
    /// Describes a topology that is about to be created.
    pub fn new(options: &Options, seed: u64) -> Self {
        let sdam = env!("CARGO_PKG_VERSION").to_owned();
        Self { sdam, options: Arc::new(options.traced()), seed, is_tail: false }
    }

    /// Writes the first line, and those behind it, each with its end.
    pub fn lines(&self, sealed: bool) -> (String, String) {
        let mut first = format!("{MAGIC} {FORMAT_VERSION}");
        first.push_str(if sealed { " sealed" } else { "" });
        first.push_str(if self.is_tail { " tail\n" } else { "\n" });
        let Self { sdam, options, seed, .. } = self;
        let mut rest = format!("sdam {sdam}\nmachine topology\noptions {options}\n");
        let besides = Besides::of(options);
        if besides != Besides::default() {
            let json = serde_json::to_string(&besides).expect("names and numbers are JSON");
            let _ = writeln!(rest, "besides {json}");
        }
        let _ = writeln!(rest, "seed {seed}");
        (first, rest)
    }

    /// Reads a first line: whether every other line is sealed, and whether the beginning is
    /// missing.
    pub(super) fn read_first(line: &str) -> Result<(bool, bool), LineError> {
        if line.starts_with('\u{feff}') || line.ends_with('\r') {
            return Err(LineError::Converted);
        }
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(LineError::NoTrace);
        }
        let version = words.next().and_then(|version| version.parse::<u32>().ok());
        match version.ok_or(LineError::NoTrace)? {
            OLDEST_FORMAT_VERSION..=FORMAT_VERSION => {}
            other => return Err(LineError::Version(other)),
        }
        let (mut sealed, mut is_tail) = (false, false);
        for word in words {
            match word {
                "sealed" => sealed = true,
                "tail" => is_tail = true,
                _ => return Err(LineError::NoTrace),
            }
        }
        Ok((sealed, is_tail))
    }

    /// Reads the line of options, and the one that may follow it.
    pub(super) fn read_options(uri: &str, besides: Option<&str>) -> Result<Options, LineError> {
        let besides: Besides = match besides {
            Some(json) => input::parsed("what is said besides", json)?,
            None => Besides::default(),
        };
        besides.apply(uri)
    }
}

impl Besides {
    fn of(options: &Options) -> Self {
        let is_srv = options.srv().is_some();
        let fine =
            |time: Duration| (!time.subsec_nanos().is_multiple_of(1_000_000)).then_some(time);
        Self {
            seeds: match is_srv {
                true => options.seeds().iter().map(ToString::to_string).collect(),
                false => Vec::new(),
            },
            rescan_interval: is_srv.then(|| options.rescan_interval()),
            hosts_are_judged: options.srv().is_some_and(|srv| srv.hosts_are_judged),
            single_threaded: options.is_single_threaded(),
            eager_checks: options.eager_checks(),
            server_api: options.server_api().map(|api| {
                let ServerApi { version: ServerApiVersion::V1, strict, deprecation_errors } = api;
                Api { strict, deprecation_errors }
            }),
            opens_with_query: options.opening_hello() == OpeningHello::OpQuery,
            address_map: options.address_map().rules().iter().map(ToString::to_string).collect(),
            heartbeat_frequency: fine(options.heartbeat_frequency()),
            connect_timeout: options.connect_timeout().and_then(fine),
            local_threshold: fine(options.local_threshold()),
        }
    }

    fn apply(self, uri: &str) -> Result<Options, LineError> {
        let rules: Result<Vec<_>, _> = self.address_map.iter().map(|rule| rule.parse()).collect();
        let map = rules.and_then(AddressMap::new);
        let map = map.map_err(|error| LineError::malformed("the address map", &error))?;
        let mut builder = Options::builder().uri(uri)?.address_map(map);
        builder = builder.single_threaded(self.single_threaded).eager_checks(self.eager_checks);
        if let Some(Api { strict, deprecation_errors }) = self.server_api {
            let version = ServerApiVersion::V1;
            builder = builder.server_api(ServerApi { version, strict, deprecation_errors });
        }
        if self.opens_with_query {
            builder = builder.opening_hello(OpeningHello::OpQuery);
        }
        if let Some(time) = self.heartbeat_frequency {
            builder = builder.heartbeat_frequency(time);
        }
        if let Some(time) = self.connect_timeout {
            builder = builder.connect_timeout(time);
        }
        if let Some(time) = self.local_threshold {
            builder = builder.local_threshold(time);
        }
        let options = builder.build()?;
        if options.srv().is_none() {
            return match options.seeds().is_empty() {
                true => Err(OptionsError::NoSeeds.into()),
                false => Ok(options),
            };
        }
        let seeds: Result<Vec<_>, _> = self.seeds.iter().map(|seed| seed.parse()).collect();
        let seeds = seeds.map_err(|error| LineError::malformed("a seed", &error))?;
        let mut options = options.resolved(seeds, "")?;
        if self.hosts_are_judged {
            options = options.with_judged_hosts()?;
        }
        let interval = self.rescan_interval.unwrap_or_default();
        Ok(options.with_rescan_interval(interval))
    }
}
