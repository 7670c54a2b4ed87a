//! Sources of tokens and temporary credentials if the application has no provider.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
#[cfg(feature = "oidc-environments")]
use sdam_core::auth::{OidcEndpoints, OidcEnvironment};
use sdam_core::config::{AuthMechanism, Credential, Options, Secret};
use sdam_core::failure::{Cause, Failure, Stage};

use super::CredentialProvider;
#[cfg(feature = "aws")]
use super::aws;
#[cfg(feature = "oidc-environments")]
use super::environments;
use crate::error::ClientError;
use crate::net::reactor::{Lane, Reactor};
use crate::system;

/// Reads an environment variable.
type Variable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The sources of tokens and credentials that are asked if the application has no provider.
///
/// Tokens come from where the property `ENVIRONMENT` of MONGODB-OIDC says: `k8s` stands for a file,
/// and `azure` and `gcp`, with the feature `oidc-environments`, for the metadata of these clouds.
/// Credentials of AWS, with the feature `aws`, come from the environment variables, a web identity,
/// an agent of ECS or EKS, or EC2, whichever is there first. All of these services are asked
/// directly, whatever proxy leads to the servers.
#[derive(Clone)]
pub struct CredentialSources {
    variable: Variable,
    #[cfg(feature = "oidc-environments")]
    oidc_endpoints: Arc<OidcEndpoints>,
    #[cfg(feature = "aws")]
    aws: aws::Services,
}

impl Default for CredentialSources {
    fn default() -> Self {
        Self {
            variable: Arc::new(system::variable),
            #[cfg(feature = "oidc-environments")]
            oidc_endpoints: Arc::default(),
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

    /// Asks the metadata of Azure and Google Cloud for tokens at other addresses than those that
    /// the clouds have fixed.
    #[cfg(feature = "oidc-environments")]
    #[must_use]
    pub fn oidc_endpoints(mut self, endpoints: OidcEndpoints) -> Self {
        self.oidc_endpoints = Arc::new(endpoints);
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
    pub const fn aws_timeout(mut self, time: Duration) -> Self {
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
    /// Sources of this process, and that of its tokens.
    Sources(CredentialSources, Option<Environment>),
}

/// The environment that tokens of MONGODB-OIDC come from: the property ENVIRONMENT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    Kubernetes,
    Test,
    #[cfg(feature = "oidc-environments")]
    Metadata(OidcEnvironment),
}

impl Environment {
    /// Returns what the credential names, if it is one of MONGODB-OIDC.
    fn of(credential: &Credential) -> Result<Option<Self>, ClientError> {
        let property = credential.mechanism_properties.get("ENVIRONMENT").map(Secret::expose);
        Ok(match property.filter(|_| credential.mechanism == Some(AuthMechanism::Oidc)) {
            None => None,
            Some("k8s") => Some(Self::Kubernetes),
            Some("test") => Some(Self::Test),
            #[cfg(feature = "oidc-environments")]
            Some(_) => OidcEnvironment::of(credential).map(Self::Metadata),
            #[cfg(not(feature = "oidc-environments"))]
            Some(name) => return Err(ClientError::EnvironmentUnsupported(name.into())),
        })
    }
}

impl Provider {
    /// Takes the application's, if there is one; refuses what could not log in with any server.
    pub(crate) fn choose(
        options: &Options,
        given: Option<Arc<dyn CredentialProvider>>,
        sources: CredentialSources,
    ) -> Result<Self, ClientError> {
        let credential = options.credential();
        let mechanism = credential.and_then(|credential| credential.mechanism);
        if mechanism == Some(AuthMechanism::Aws) && cfg!(not(feature = "aws")) {
            return Err(ClientError::AwsUnsupported);
        }
        let environment = credential.map(Environment::of).transpose();
        match (given, environment.map(Option::flatten)) {
            (Some(_), Ok(Some(_)) | Err(_)) => Err(ClientError::ProviderAndEnvironment),
            (Some(given), Ok(None)) => Ok(Self::Application(given)),
            (None, Ok(None)) if mechanism == Some(AuthMechanism::Oidc) => {
                Err(ClientError::NoTokenProvider)
            }
            (None, environment) => Ok(Self::Sources(sources, environment?)),
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
                answer.map_err(|error| Failure::from_io(Stage::Credentials, &error))?
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
            (Self::Sources(..), CredentialRequest::Gssapi(_)) => {
                Err(failure("GSSAPI asks a provider of security contexts"))
            }
            (Self::Sources(sources, environment), CredentialRequest::Oidc(question)) => {
                let environment = environment.as_ref().ok_or(ClientError::NoTokenProvider);
                let environment = environment.map_err(|error| failure(error.to_string()))?;
                let token = sources.token(reactor, environment, question.timeout).await?;
                Ok(CredentialResponse::Oidc(token))
            }
        }
    }
}

impl CredentialSources {
    /// Returns a token of an environment; nothing is remembered, as the client does that.
    #[cfg_attr(
        not(feature = "oidc-environments"),
        expect(unused_variables, reason = "files have no time of their own")
    )]
    async fn token<R: Reactor>(
        &self,
        reactor: &R,
        environment: &Environment,
        time: Duration,
    ) -> Result<OidcToken, Failure> {
        let file = match environment {
            Environment::Kubernetes => Ok(pods_file(&*self.variable)),
            Environment::Test => test_file(&*self.variable),
            #[cfg(feature = "oidc-environments")]
            Environment::Metadata(asked) => {
                return environments::token(reactor, asked, &self.oidc_endpoints, time).await;
            }
        };
        let token = read_token(reactor, file.map_err(failure)?).await.map_err(failure)?;
        Ok(OidcToken::new(token.expose().trim_ascii()))
    }
}

fn failure(detail: impl Into<Arc<str>>) -> Failure {
    Failure::new(Stage::Credentials, Cause::Configuration, detail)
}

/// The file in which Kubernetes puts a pod's token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns the file with the token of a pod (Authentication, "Kubernetes").
fn pods_file(variable: &dyn Fn(&str) -> Option<String>) -> String {
    ["AZURE_FEDERATED_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"]
        .into_iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        .unwrap_or_else(|| SERVICE_ACCOUNT_TOKEN.into())
}

/// Returns the file with the token of tests (Authentication, "Test").
fn test_file(variable: &dyn Fn(&str) -> Option<String>) -> Result<String, &'static str> {
    let file = variable("OIDC_TOKEN_FILE").filter(|value| !value.is_empty());
    file.ok_or("ENVIRONMENT:test needs OIDC_TOKEN_FILE")
}

/// Reads a file with a token, each time, as it is replaced before the token expires.
pub(super) async fn read_token<R: Reactor>(reactor: &R, path: String) -> Result<Secret, String> {
    let read = reactor.block(Lane::Credentials, move || system::read_token(&path)).await;
    read.flatten().map_err(|error| format!("cannot read the token: {error}"))
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use sdam_core::auth::{CredentialRequest, CredentialResponse};
    use sdam_core::config::{AuthMechanism, Options};

    use super::{CredentialSources, Provider, SERVICE_ACCOUNT_TOKEN, pods_file, test_file};
    use crate::error::ClientError;
    use crate::net::credentials::CredentialProvider;

    #[test]
    fn each_environment_has_its_file_or_says_what_is_missing() {
        const BOTH: &[(&str, &str)] =
            &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/aws"), ("AZURE_FEDERATED_TOKEN_FILE", "/azure")];
        let set = |variables: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        assert_eq!(pods_file(&set(BOTH)), "/azure");
        assert_eq!(pods_file(&set(&BOTH[..1])), "/aws");
        assert_eq!(pods_file(&set(&[])), SERVICE_ACCOUNT_TOKEN);
        assert_eq!(test_file(&set(&[("OIDC_TOKEN_FILE", "/t")])).as_deref(), Ok("/t"));
        assert!(test_file(&set(&[])).unwrap_err().contains("OIDC_TOKEN_FILE"));
    }

    fn choose(options: &Options, has_provider: bool) -> Result<Provider, ClientError> {
        let provider = |_: CredentialRequest| ready(Err::<CredentialResponse, _>("unused"));
        let given = has_provider.then(|| Arc::new(provider) as Arc<dyn CredentialProvider>);
        Provider::choose(options, given, CredentialSources::default())
    }

    fn environment(properties: &str) -> Options {
        let uri = "mongodb://h/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT";
        Options::parse(&format!("{uri}:{properties}")).unwrap()
    }

    /// "Test", "Azure", "GCP", "Kubernetes"; what this build cannot do is known before a login.
    #[test]
    fn an_environment_that_is_not_built_in_is_refused_before_anything_is_connected_to() {
        for (name, resource, is_built_in) in [
            ("k8s", "", true),
            ("test", "", true),
            ("azure", ",TOKEN_RESOURCE:api", cfg!(feature = "oidc-environments")),
            ("gcp", ",TOKEN_RESOURCE:api", cfg!(feature = "oidc-environments")),
        ] {
            let options = environment(&format!("{name}{resource}"));
            let chosen = choose(&options, false);
            match is_built_in {
                true => assert!(matches!(chosen, Ok(Provider::Sources(_, Some(_)))), "{name}"),
                false => {
                    let error = chosen.unwrap_err().to_string();
                    let wanted = format!("ENVIRONMENT:{name} of MONGODB-OIDC needs the feature");
                    assert!(error.starts_with(&wanted), "{error}");
                    assert!(error.contains("ClientBuilder::credential_provider"), "{error}");
                }
            }
            // "If both ENVIRONMENT and an OIDC Callback .. are provided .., the driver MUST raise
            // an error."
            let both = choose(&options, true);
            assert!(matches!(both, Err(ClientError::ProviderAndEnvironment)), "{name}: {both:?}");
        }
    }

    #[test]
    fn a_mechanism_that_could_never_log_in_is_refused_before_anything_is_connected_to() {
        let builder = || Options::builder().uri("mongodb://h").unwrap();
        let callback = builder().auth_mechanism(AuthMechanism::Oidc).oidc_callback(true);
        let callback = callback.build().unwrap();
        assert!(matches!(choose(&callback, true), Ok(Provider::Application(_))));
        let error = choose(&callback, false).unwrap_err().to_string();
        assert!(error.contains("ClientBuilder::credential_provider"), "{error}");
        let aws = builder().auth_mechanism(AuthMechanism::Aws).build().unwrap();
        for has_provider in [false, true] {
            let error = choose(&aws, has_provider).err().map(|error| error.to_string());
            let wanted = "the options ask for MONGODB-AWS, which needs the feature aws";
            assert_eq!(error.as_deref(), (!cfg!(feature = "aws")).then_some(wanted));
        }
        assert!(matches!(
            choose(&builder().build().unwrap(), false),
            Ok(Provider::Sources(_, None))
        ));
    }
}
