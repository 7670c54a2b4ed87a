//! Read preferences as the suites write them.

use std::time::Duration;

use sdam_core::config::{ReadMode, ReadPreference, ReadPreferenceError, TagSet};
use serde::Deserialize;

use super::super::format::CaseError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadPreferenceDocument {
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    tag_sets: Vec<TagSet>,
    #[serde(rename = "maxStalenessSeconds")]
    max_staleness_seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum Mode {
    #[default]
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

impl ReadPreferenceDocument {
    /// Builds the read preference, or returns why the client refuses it.
    pub(super) fn build(&self) -> Result<Result<ReadPreference, ReadPreferenceError>, CaseError> {
        let preference = ReadPreference::new(match self.mode {
            Mode::Primary => ReadMode::Primary,
            Mode::PrimaryPreferred => ReadMode::PrimaryPreferred,
            Mode::Secondary => ReadMode::Secondary,
            Mode::SecondaryPreferred => ReadMode::SecondaryPreferred,
            Mode::Nearest => ReadMode::Nearest,
        });
        let max_staleness = self.max_staleness()?;
        let preference = preference.with_tag_sets(self.tag_sets.clone());
        Ok(match max_staleness {
            None => preference,
            Some(most) => preference.and_then(|preference| preference.with_max_staleness(most)),
        })
    }

    fn max_staleness(&self) -> Result<Option<Duration>, CaseError> {
        match self.max_staleness_seconds {
            // "-1 means no maximum"
            None | Some(-1) => Ok(None),
            Some(seconds) => match u64::try_from(seconds) {
                Ok(seconds) => Ok(Some(Duration::from_secs(seconds))),
                Err(_) => Err(CaseError::Value {
                    field: "maxStalenessSeconds",
                    found: seconds.to_string(),
                    allowed: "-1 and whole numbers from 0 are allowed",
                }),
            },
        }
    }
}
