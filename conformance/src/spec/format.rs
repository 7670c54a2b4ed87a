//! The common parts of all suites' formats: Extended JSON, read strictly, and a few names.

use std::fmt;

use bson::Bson;
use sdam_core::config::{OptionsError, ServerAddress};
use sdam_core::description::{ServerType, TopologyType};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::pooling::PlayError;
use crate::name_server::NameServerError;
use sdam_core::harness::HarnessError;

/// The reason why a case cannot be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    /// The file is no JSON.
    #[error("the file is not JSON: {0}")]
    Json(serde_json::Error),
    /// The JSON is no Extended JSON.
    #[error("the file is not Extended JSON: {0}")]
    ExtendedJson(bson::error::Error),
    /// The file has another form than the format of its suite, or keys that are not part of it.
    #[error("the file does not follow the format of its suite: {0}")]
    Format(bson::error::Error),
    /// A value is not one that the format allows.
    #[error("{field} is {found}; {allowed}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// The folder of the zones is not set.
    #[error("{0} does not name the folder of the DNS zones to serve")]
    NoZones(&'static str),
    /// The zones cannot be served.
    #[error(transparent)]
    NameServer(#[from] NameServerError),
    /// The options of the client are refused.
    #[error("the client cannot be built: {0}")]
    Options(OptionsError),
    /// The client does not do what the case needs it to do first.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// The threads of the case cannot do what they are to do.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// The client does not come to see the deployment that the case describes.
    #[error("the client sees {seen}, and the case describes {expected}")]
    Deployment {
        /// The case's description.
        expected: String,
        /// The client's view.
        seen: String,
    },
}

impl From<OptionsError> for CaseError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

impl From<serde_json::Error> for CaseError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

/// Reads a case, in which a key that the format does not have is an error.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, CaseError> {
    let json: serde_json::Value = serde_json::from_str(text)?;
    let bson = Bson::try_from(json).map_err(CaseError::ExtendedJson)?;
    bson::deserialize_from_bson(bson).map_err(CaseError::Format)
}

/// An address, with the default port and in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Address(pub(super) ServerAddress);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| format!("{text:?} is no address: {error}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of a server, where PossiblePrimary reads as Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ServerKind(pub(super) ServerType);

impl TryFrom<String> for ServerKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        const ALL: [ServerType; 9] = [
            ServerType::Unknown,
            ServerType::Standalone,
            ServerType::Mongos,
            ServerType::RsPrimary,
            ServerType::RsSecondary,
            ServerType::RsArbiter,
            ServerType::RsOther,
            ServerType::RsGhost,
            ServerType::LoadBalancer,
        ];
        // The specifications' word for a server that only single-threaded clients distinguish.
        let wanted = if name == "PossiblePrimary" { "Unknown" } else { &name };
        let found = ALL.into_iter().find(|known| known.name() == wanted);
        found.map(Self).ok_or_else(|| format!("{name:?} is no type of server"))
    }
}

/// The type of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct TopologyKind(pub(super) TopologyType);

impl TryFrom<String> for TopologyKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        const ALL: [TopologyType; 6] = [
            TopologyType::Unknown,
            TopologyType::Single,
            TopologyType::Sharded,
            TopologyType::ReplicaSetNoPrimary,
            TopologyType::ReplicaSetWithPrimary,
            TopologyType::LoadBalanced,
        ];
        let found = ALL.into_iter().find(|known| known.name() == name);
        found.map(Self).ok_or_else(|| format!("{name:?} is no type of topology"))
    }
}

/// Reads bytes from hexadecimal digits.
pub(super) fn bytes(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2));
    let digits = digits.ok_or_else(|| format!("{hex:?} is no bytes in hexadecimal digits"))?;
    let byte = |pair: &[u32]| pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    digits.chunks(2).map(|pair| u8::try_from(byte(pair)).map_err(|it| it.to_string())).collect()
}

/// Writes bytes as hexadecimal digits.
pub(super) fn upper_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Writes addresses in order, or `none`.
pub(super) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.sort_unstable();
    match items.is_empty() {
        true => "none".to_owned(),
        false => items.join(" "),
    }
}
