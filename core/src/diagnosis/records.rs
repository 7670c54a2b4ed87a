//! The verdict on options and on records in DNS that cannot be used.

use super::verdict::Verdict;
use crate::config::OptionsError;
use crate::dns::srv::SrvError;

impl From<&OptionsError> for Verdict {
    fn from(error: &OptionsError) -> Self {
        Self::InvalidOptions { reason: error.to_string() }
    }
}

impl From<&SrvError> for Verdict {
    fn from(error: &SrvError) -> Self {
        match error {
            SrvError::OutsideDomain { hostname, host, domain } => Self::SrvHostOutsideDomain {
                hostname: hostname.to_string(),
                host: host.to_string(),
                domain: domain.to_string(),
            },
            SrvError::Options(error) => error.into(),
            SrvError::Dns(_)
            | SrvError::NoRecords { .. }
            | SrvError::TooManyRecords { .. }
            | SrvError::HostRefused { .. }
            | SrvError::Address { .. }
            | SrvError::SeveralTxtRecords { .. } => {
                Self::LookupFailed { reason: Some(error.to_string()) }
            }
        }
    }
}
