//! Sources of tokens and temporary credentials if the application has no provider.

use std::fmt;
use std::sync::Arc;

use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::config::{AuthMechanism, Options, Secret};
use sdam_core::failure::{Cause, Failure, Stage};

use super::CredentialProvider;
#[cfg(feature = "aws")]
use super::aws;
use crate::error::ClientError;
use crate::net::reactor::{Lane, Reactor};
use crate::system;

/// Reads an environment variable.
type Variable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The sources of tokens and credentials that are asked if the application has no provider.
///
/// Tokens come from the file that `ENVIRONMENT:k8s` stands for; credentials of AWS, with the
/// feature `aws`, from the environment variables, a web identity, an agent of ECS or EKS, or EC2,
/// whichever is there first. The services of AWS are asked directly, whatever proxy leads to the
/// servers.
#[derive(Clone)]
pub struct CredentialSources {
    variable: Variable,
    #[cfg(feature = "aws")]
    aws: aws::Services,
}

impl Default for CredentialSources {
    fn default() -> Self {
        Self {
            variable: Arc::new(system::variable),
            #[cfg(feature = "aws")]
            aws: aws::Services::default(),
        }
    }
}

impl CredentialSources {
    /// Asks `variable` in place of the process for the values of environment variables, each time
    /// that one is needed.
    #[must_use]
    pub fn variables(
        mut self,
        variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.variable = Arc::new(variable);
        self
    }

    /// Asks the services of AWS at other addresses than those that AWS has fixed.
    #[cfg(feature = "aws")]
    #[must_use]
    pub fn aws_endpoints(mut self, endpoints: sdam_core::auth::AwsEndpoints) -> Self {
        self.aws.endpoints = endpoints;
        self
    }

    /// Trusts the authorities in a file of PEM for the services of AWS, in place of those in the
    /// system's store.
    #[cfg(feature = "aws")]
    #[must_use]
    pub fn aws_authorities(mut self, file: impl Into<String>) -> Self {
        self.aws.trust(file.into());
        self
    }

    /// Limits how long one exchange with a service of AWS may take; 10 s if nothing is said.
    #[cfg(feature = "aws")]
    #[must_use]
    pub const fn aws_timeout(mut self, time: std::time::Duration) -> Self {
        self.aws.exchange_time = time;
        self
    }
}

impl fmt::Debug for CredentialSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSources").finish_non_exhaustive()
    }
}

/// The source of answers to the questions of authentication.
#[derive(Debug)]
pub(crate) enum Provider {
    Application(Arc<dyn CredentialProvider>),
    /// Sources of this process, and the property ENVIRONMENT of MONGODB-OIDC.
    Sources(CredentialSources, Option<String>),
}

impl Provider {
    /// Takes the application's, if there is one.
    pub(crate) fn choose(
        options: &Options,
        given: Option<Arc<dyn CredentialProvider>>,
        sources: CredentialSources,
    ) -> Result<Self, ClientError> {
        match (given, oidc_environment(options)) {
            (Some(_), Some(_)) => Err(ClientError::ProviderAndEnvironment),
            (Some(given), None) => Ok(Self::Application(given)),
            (None, environment) => Ok(Self::Sources(sources, environment.map(str::to_owned))),
        }
    }

    /// Returns the same for a process that was forked off, which shares no locks with this one.
    pub(crate) fn for_fork(&self) -> Self {
        match self {
            Self::Application(provider) => Self::Application(Arc::clone(provider)),
            Self::Sources(sources, environment) => {
                #[cfg_attr(not(feature = "aws"), expect(unused_mut, reason = "AWS has locks"))]
                let mut sources = sources.clone();
                #[cfg(feature = "aws")]
                sources.aws.renew();
                Self::Sources(sources, environment.clone())
            }
        }
    }

    pub(crate) async fn answer<R: Reactor>(
        &self,
        reactor: &R,
        question: CredentialRequest,
    ) -> Result<CredentialResponse, Failure> {
        match (self, question) {
            (Self::Application(provider), question) => {
                let provider = Arc::clone(provider);
                let answering = async move { provider.answer(question).await };
                let answer = reactor.drive(Lane::Credentials, answering).await;
                answer.map_err(|error| Failure::from_io(Stage::Authenticate, &error))?
            }
            #[cfg(feature = "aws")]
            (Self::Sources(sources, _), CredentialRequest::Aws) => {
                let credentials = sources.aws.credentials(reactor, &*sources.variable).await?;
                Ok(CredentialResponse::Aws { credentials, now: system::wall_clock() })
            }
            #[cfg(not(feature = "aws"))]
            (Self::Sources(..), CredentialRequest::Aws) => {
                Err(failure("MONGODB-AWS needs the feature aws"))
            }
            (Self::Sources(sources, environment), CredentialRequest::Oidc(_)) => {
                let file = token_file(environment.as_deref(), &*sources.variable);
                let token = read_token(reactor, file.map_err(failure)?).await.map_err(failure)?;
                Ok(CredentialResponse::Oidc(OidcToken::new(token.expose().trim_ascii())))
            }
        }
    }
}

/// Returns which environment the options take the tokens of MONGODB-OIDC from.
fn oidc_environment(options: &Options) -> Option<&str> {
    let credential = options.credential()?;
    let property = credential.mechanism_properties.get("ENVIRONMENT");
    property.filter(|_| credential.mechanism == Some(AuthMechanism::Oidc)).map(Secret::expose)
}

fn failure(detail: impl Into<Arc<str>>) -> Failure {
    Failure::new(Stage::Authenticate, Cause::Configuration, detail)
}

/// The file in which Kubernetes puts a pod's token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns the file that holds the token of an environment (Authentication, "Built-in OIDC
/// Environment Integrations").
fn token_file(
    environment: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    const PROVIDER: &str =
        "OptionsBuilder::oidc_callback(true) and ClientBuilder::credential_provider";
    match environment {
        Some("k8s") => Ok(set("AZURE_FEDERATED_TOKEN_FILE")
            .or_else(|| set("AWS_WEB_IDENTITY_TOKEN_FILE"))
            .unwrap_or_else(|| SERVICE_ACCOUNT_TOKEN.into())),
        Some("test") => {
            set("OIDC_TOKEN_FILE").ok_or_else(|| "ENVIRONMENT:test needs OIDC_TOKEN_FILE".into())
        }
        Some(other) => Err(format!(
            "ENVIRONMENT:{other} of MONGODB-OIDC is not built in; leave it out, and give a \
             provider of tokens: {PROVIDER}"
        )),
        None => Err(format!("MONGODB-OIDC needs a provider of tokens: {PROVIDER}")),
    }
}

/// Reads a file with a token, each time, as it is replaced before the token expires.
pub(super) async fn read_token<R: Reactor>(reactor: &R, path: String) -> Result<Secret, String> {
    let read = reactor.block(Lane::Credentials, move || system::read_token(&path)).await;
    read.flatten().map_err(|error| format!("cannot read the token: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{SERVICE_ACCOUNT_TOKEN, token_file};

    fn file_of(environment: Option<&str>, variables: &[(&str, &str)]) -> Result<String, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        token_file(environment, &|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_environment_has_its_file_or_says_what_is_missing() {
        let azure = ("AZURE_FEDERATED_TOKEN_FILE", "/azure");
        let aws = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/aws");
        assert_eq!(file_of(Some("k8s"), &[aws, azure]).as_deref(), Ok("/azure"));
        assert_eq!(file_of(Some("k8s"), &[aws]).as_deref(), Ok("/aws"));
        assert_eq!(file_of(Some("k8s"), &[]).as_deref(), Ok(SERVICE_ACCOUNT_TOKEN));
        assert_eq!(file_of(Some("test"), &[("OIDC_TOKEN_FILE", "/t")]).as_deref(), Ok("/t"));
        assert!(file_of(Some("test"), &[]).unwrap_err().contains("OIDC_TOKEN_FILE"));
        for environment in [Some("azure"), Some("gcp"), None] {
            let error = file_of(environment, &[]).unwrap_err();
            assert!(error.contains("ClientBuilder::credential_provider"), "{error}");
            assert!(error.contains(environment.unwrap_or("MONGODB-OIDC")), "{error}");
        }
    }
}
