//! Credentials of AWS from where the environment says, by exchanges of HTTP where it says so.

use std::time::Duration;

use sdam_core::auth::{
    Authorization, AwsCredentials, AwsEndpoints, AwsFetch, AwsSource, AwsSourceError, AwsStep,
    Container,
};
use sdam_core::config::{Secret, TlsOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::http::HttpRequest;
use sdam_core::transport::TransportConfig;

use super::CONNECT_TIME;
use super::sources::read_token;
use crate::net::http::{Exchange, Responder};
use crate::net::reactor::{Lane, Reactor};
use crate::net::streams::load;
use crate::system::{Certificates, nonce};

/// The time that one exchange may take ("Drivers SHOULD enforce a 10 second read timeout").
const EXCHANGE_TIME: Duration = Duration::from_secs(10);

/// The services that hand credentials of AWS out, and how they are asked.
///
/// They are asked directly, whatever proxy leads to the servers; the Security Token Service over
/// TLS, with the authorities of the system's store.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) endpoints: AwsEndpoints,
    authorities: Certificates,
    pub(super) exchange_time: Duration,
}

/// Returns options of TLS by which nothing is asked about revocation: services of AWS are asked
/// seldom, and the options of the client do not reach them.
fn tls() -> TlsOptions {
    TlsOptions::default().with_disable_certificate_revocation_check(true)
}

impl Default for Services {
    fn default() -> Self {
        Self {
            endpoints: AwsEndpoints::default(),
            authorities: Certificates::of_files(tls()),
            exchange_time: EXCHANGE_TIME,
        }
    }
}

impl Services {
    /// Trusts the authorities in a file, and no others.
    pub(super) fn trust(&mut self, file: String) {
        let options = tls().with_ca_file(Some(file));
        self.authorities = Certificates::of_files(options);
    }

    /// Lets go of what another process may have locked.
    pub(super) fn renew(&mut self) {
        self.authorities = self.authorities.for_fork();
    }

    /// Returns credentials of the source that comes first; the variables are read each time, as
    /// they may be changed.
    pub(super) async fn credentials<R: Reactor>(
        &self,
        reactor: &R,
        variable: &(dyn Fn(&str) -> Option<String> + Send + Sync),
    ) -> Result<AwsCredentials, Failure> {
        let source = AwsSource::find(variable).map_err(|error| refused(&error))?;
        let (name, (fetch, request)) = match source {
            AwsSource::Environment(credentials) => return Ok(credentials),
            AwsSource::WebIdentity(identity) => {
                let file = &identity.token_file;
                let token = token_of(reactor, "AWS_WEB_IDENTITY_TOKEN_FILE", file).await?;
                let random = nonce()?;
                let random = u64::from_le_bytes(random[..8].try_into().unwrap_or_default());
                let begun = AwsFetch::web_identity(&self.endpoints, &identity, &token, random);
                ("the Security Token Service", begun.map_err(|error| refused(&error))?)
            }
            AwsSource::Container(container) => {
                let name = match container.endpoint {
                    None => "the Elastic Container Service",
                    Some(_) => "the service that AWS_CONTAINER_CREDENTIALS_FULL_URI names",
                };
                let token = shown(reactor, &container).await?;
                let begun = AwsFetch::container(&self.endpoints, &container, token.as_ref());
                (name, begun.map_err(|error| refused(&error))?)
            }
            AwsSource::Ec2 => (
                "the metadata of EC2 (no environment variable names another source)",
                AwsFetch::ec2(&self.endpoints),
            ),
        };
        self.fetch(reactor, fetch, request)
            .await
            .map_err(|error| failure(error.cause, &format!("{name}: {}", error.detail)))
    }

    async fn fetch<R: Reactor>(
        &self,
        reactor: &R,
        mut fetch: AwsFetch,
        mut request: HttpRequest,
    ) -> Result<AwsCredentials, Failure> {
        loop {
            let mut filters = TransportConfig::default();
            if request.endpoint.tls {
                filters = filters.with_tls(load(reactor, &self.authorities).await?);
            }
            let exchange = Exchange {
                by_dialer: false,
                stage: Stage::Credentials,
                refusal: Cause::Configuration,
                lane: &Lane::Credentials,
                filters: &filters,
                connect_time: CONNECT_TIME,
                time: self.exchange_time,
            };
            request = match exchange.run(reactor, &request, &mut fetch).await? {
                AwsStep::Found(credentials) => return Ok(credentials),
                AwsStep::Next(request) => request,
            };
        }
    }
}

impl Responder for AwsFetch {
    type Answer = AwsStep;
    type Error = AwsSourceError;

    fn receive(&mut self, bytes: &[u8]) -> Result<Option<AwsStep>, AwsSourceError> {
        self.receive(bytes)
    }

    fn ended(&mut self) -> Result<AwsStep, AwsSourceError> {
        self.ended()
    }
}

/// Returns what a container shows; a file is read each time, as it is replaced.
async fn shown<R: Reactor>(reactor: &R, container: &Container) -> Result<Option<Secret>, Failure> {
    match &container.authorization {
        None => Ok(None),
        Some(Authorization::Token(token)) => Ok(Some(token.clone())),
        Some(Authorization::File(file)) => {
            token_of(reactor, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file).await.map(Some)
        }
    }
}

/// Reads the file that a variable names.
async fn token_of<R: Reactor>(reactor: &R, variable: &str, file: &str) -> Result<Secret, Failure> {
    let token = read_token(reactor, file.to_owned()).await;
    token.map_err(|error| failure(Cause::Configuration, &format!("{variable}: {error}")))
}

fn refused(error: &AwsSourceError) -> Failure {
    Failure::new(Stage::Credentials, Cause::Configuration, error.to_string())
}

fn failure(cause: Cause, detail: &str) -> Failure {
    let detail = format!("no credentials of AWS: {detail}");
    Failure::new(Stage::Credentials, cause, detail)
}
