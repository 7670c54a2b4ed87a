//! Credentials of AWS from where the environment says, by exchanges of HTTP where it says so.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use sdam_core::auth::{
    Authorization, AwsCredentials, AwsEndpoints, AwsFetch, AwsSource, AwsSourceError, AwsStep,
    Container, Endpoint, HttpRequest,
};
use sdam_core::config::{Secret, ServerAddress, TlsOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::transport::{Transport, TransportConfig};
use sdam_host::Socket as _;
use sdam_host::system::{Certificates, nonce};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::connect::connect;
use crate::provider::{Variable, read_token};
use crate::runtime::read;
use crate::socket::Socket;

/// How long one exchange may take ("Drivers SHOULD enforce a 10 second read timeout").
const EXCHANGE_TIME: Duration = Duration::from_secs(10);

/// How long connecting may take: less than connectTimeoutMS of the client by default, so that the
/// application learns who does not answer.
const CONNECT_TIME: Duration = Duration::from_secs(4);

/// How much is read at once, in bytes.
const READ_LEN: usize = 4096;

/// Where credentials of AWS come from if the application provides none.
///
/// The services of AWS are asked directly, whatever proxy leads to the servers; the Security Token
/// Service over TLS, with the authorities of the system's store.
pub(crate) struct AwsSources {
    variable: Variable,
    endpoints: AwsEndpoints,
    authorities: Certificates,
    connect_time: Duration,
    exchange_time: Duration,
}

impl AwsSources {
    pub(crate) fn new(variable: Variable) -> Self {
        Self {
            variable,
            endpoints: AwsEndpoints::default(),
            authorities: Certificates::of_files(TlsOptions::default()),
            connect_time: CONNECT_TIME,
            exchange_time: EXCHANGE_TIME,
        }
    }

    /// Returns credentials of the source that comes first; the variables are read each time, as
    /// they may be changed.
    pub(crate) async fn credentials(&self) -> Result<AwsCredentials, Failure> {
        let source = AwsSource::find(|name| (self.variable)(name)).map_err(|e| refused(&e))?;
        let (name, (fetch, request)) = match source {
            AwsSource::Environment(credentials) => return Ok(credentials),
            AwsSource::WebIdentity(identity) => {
                let file = &identity.token_file;
                let token = token_of("AWS_WEB_IDENTITY_TOKEN_FILE", file).await?;
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
                let token = shown(&container).await?;
                let begun = AwsFetch::container(&self.endpoints, &container, token.as_ref());
                (name, begun.map_err(|error| refused(&error))?)
            }
            AwsSource::Ec2 => (
                "the metadata of EC2 (no environment variable names another source)",
                AwsFetch::ec2(&self.endpoints),
            ),
        };
        self.fetch(fetch, request)
            .await
            .map_err(|error| failure(error.cause, &format!("{name}: {}", error.detail)))
    }

    async fn fetch(
        &self,
        mut fetch: AwsFetch,
        mut request: HttpRequest,
    ) -> Result<AwsCredentials, Failure> {
        loop {
            let exchange = timeout(self.exchange_time, self.exchange(&mut fetch, &request)).await;
            request = match exchange {
                Ok(Ok(AwsStep::Found(credentials))) => return Ok(credentials),
                Ok(Ok(AwsStep::Next(request))) => request,
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(late("no complete answer", self.exchange_time)),
            };
        }
    }

    /// Sends one request, and receives its response.
    async fn exchange(
        &self,
        fetch: &mut AwsFetch,
        request: &HttpRequest,
    ) -> Result<AwsStep, Failure> {
        let Endpoint { host, port, tls } = &request.endpoint;
        let address = ServerAddress::Tcp { host: host.as_str().into(), port: *port };
        let config = TransportConfig {
            proxy: None,
            tls: if *tls { Some(read(self.authorities.clone()).await?) } else { None },
        };
        let mut wire = Vec::new();
        let mut transport = Transport::start(&config, &address, &address, &mut wire)?;
        let socket = timeout(self.connect_time, connect(&address, &|_| {})).await;
        let stream = socket.map_err(|_| late("no connection", self.connect_time))??;
        let mut socket = Socket::new(stream, Handle::current(), Instant::now());
        let (mut unsent, mut buffer) = (Some(&*request.bytes), [0; READ_LEN]);
        loop {
            if transport.is_ready()
                && let Some(bytes) = unsent.take()
            {
                transport.send(bytes, &mut wire);
            }
            let of_stream = |error| Failure::from_io(Stage::Authenticate, &error);
            while !wire.is_empty() {
                let written = poll_fn(|cx| socket.poll_write(cx, &wire, None)).await;
                wire.drain(..written.map_err(of_stream)?);
            }
            let count = match poll_fn(|cx| socket.poll_read(cx, &mut buffer, None)).await {
                Ok(0) if !tls => return fetch.ended().map_err(|error| refused(&error)),
                Ok(0) => return Err(transport.failure(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) => return Err(of_stream(error)),
            };
            let mut plain = Vec::new();
            let received = transport.receive(&buffer[..count], &mut plain, &mut wire);
            if !plain.is_empty() {
                let step = fetch.receive(&plain).map_err(|error| refused(&error))?;
                if let Some(step) = step {
                    return Ok(step);
                }
            }
            received?;
        }
    }
}

/// Returns what a container shows; a file is read each time, as it is replaced.
async fn shown(container: &Container) -> Result<Option<Secret>, Failure> {
    match &container.authorization {
        None => Ok(None),
        Some(Authorization::Token(token)) => Ok(Some(token.clone())),
        Some(Authorization::File(file)) => {
            token_of("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file).await.map(Some)
        }
    }
}

/// Reads the file that a variable names.
async fn token_of(variable: &str, file: &str) -> Result<Secret, Failure> {
    let token = read_token(file.to_owned()).await;
    token.map_err(|error| failure(Cause::Configuration, &format!("{variable}: {error}")))
}

fn refused(error: &AwsSourceError) -> Failure {
    Failure::new(Stage::Authenticate, Cause::Configuration, error.to_string())
}

fn late(what: &str, limit: Duration) -> Failure {
    Failure::new(Stage::Authenticate, Cause::Timeout, format!("{what} within {limit:?}"))
}

fn failure(cause: Cause, detail: &str) -> Failure {
    let detail = format!("no credentials of AWS: {detail}");
    Failure::new(Stage::Authenticate, cause, detail)
}

#[cfg(test)]
mod tests;
