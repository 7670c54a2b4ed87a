//! The credentials of the process's environment.

use crate::{Answering, CredentialProvider, credentials_from_environment};
use sdam_core::auth::Question;
use sdam_core::bson::DateTime;

/// Takes the credentials of AWS from the environment variables; has no tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentCredentials;

impl CredentialProvider for EnvironmentCredentials {
    fn answer(&self, question: Question) -> Answering {
        let variable = |name: &str| std::env::var(name).ok();
        let answer = credentials_from_environment(&question, variable, DateTime::now());
        Box::pin(std::future::ready(answer))
    }
}
