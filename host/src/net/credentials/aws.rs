//! Credentials of AWS from where the environment says, by exchanges of HTTP where it says so.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use sdam_core::auth::{
    Authorization, AwsCredentials, AwsEndpoints, AwsFetch, AwsSource, AwsSourceError, AwsStep,
    Container, Endpoint, HttpRequest,
};
use sdam_core::config::{Secret, ServerAddress, TcpOptions, TlsOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::time::Instant;
use sdam_core::transport::{Transport, TransportConfig};

use super::sources::read_token;
use crate::net::reactor::{Lane, Reactor};
use crate::net::socket::{Socket as _, write_all};
use crate::net::streams::{connect, load};
use crate::sync::before;
use crate::system::{Certificates, nonce};

/// The time that one exchange may take ("Drivers SHOULD enforce a 10 second read timeout").
const EXCHANGE_TIME: Duration = Duration::from_secs(10);

/// The time that connecting may take: less than connectTimeoutMS of the client by default, so that
/// the application learns who does not answer.
const CONNECT_TIME: Duration = Duration::from_secs(4);

/// The size of a read, in bytes.
const READ_LEN: usize = 4096;

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

impl Default for Services {
    fn default() -> Self {
        Self {
            endpoints: AwsEndpoints::default(),
            authorities: Certificates::of_files(TlsOptions::default()),
            exchange_time: EXCHANGE_TIME,
        }
    }
}

impl Services {
    /// Trusts the authorities in a file, and no others.
    pub(super) fn trust(&mut self, file: String) {
        let options = TlsOptions::default().with_ca_file(Some(file));
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
            let end = reactor.now() + self.exchange_time;
            let exchange = self.exchange(reactor, &mut fetch, &request, end);
            request = match before(reactor.sleep_until(end), exchange).await {
                Some(Ok(AwsStep::Found(credentials))) => return Ok(credentials),
                Some(Ok(AwsStep::Next(request))) => request,
                Some(Err(failure)) => return Err(failure),
                None => return Err(self.late()),
            };
        }
    }

    /// Sends one request, and receives its response, until `end` at most: a socket may block.
    async fn exchange<R: Reactor>(
        &self,
        reactor: &R,
        fetch: &mut AwsFetch,
        request: &HttpRequest,
        end: Instant,
    ) -> Result<AwsStep, Failure> {
        let Endpoint { host, port, tls: is_tls, .. } = &request.endpoint;
        let address = ServerAddress::Tcp { host: host.as_str().into(), port: *port };
        let (mut wire, mut config) = (Vec::new(), TransportConfig::default());
        if *is_tls {
            config = config.with_tls(load(reactor, &self.authorities).await?);
        }
        let mut transport = Transport::start(&config, &address, &address, &mut wire)?;
        let opening = connect(reactor, Lane::Credentials, &address, TcpOptions::default(), |_| {});
        let Some(socket) = before(reactor.sleep(CONNECT_TIME), opening).await else {
            return Err(late("no connection", CONNECT_TIME));
        };
        let (mut socket, end) = (socket?, Some(end));
        let (mut unsent, mut buffer) = (Some(&*request.bytes), [0; READ_LEN]);
        loop {
            if transport.is_ready()
                && let Some(bytes) = unsent.take()
            {
                transport.send(bytes, &mut wire);
            }
            let of_stream = |error: io::Error| match error.kind() {
                io::ErrorKind::TimedOut => self.late(),
                _ => Failure::from_io(Stage::Authenticate, &error),
            };
            write_all(&mut socket, &wire, end).await.map_err(of_stream)?;
            wire.clear();
            let count = match poll_fn(|cx| socket.poll_read(cx, &mut buffer, end)).await {
                Ok(0) if !is_tls => return fetch.ended().map_err(|error| refused(&error)),
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

    fn late(&self) -> Failure {
        late("no complete answer", self.exchange_time)
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
    Failure::new(Stage::Authenticate, Cause::Configuration, error.to_string())
}

fn late(what: &str, limit: Duration) -> Failure {
    Failure::new(Stage::Authenticate, Cause::Timeout, format!("{what} within {limit:?}"))
}

fn failure(cause: Cause, detail: &str) -> Failure {
    let detail = format!("no credentials of AWS: {detail}");
    Failure::new(Stage::Authenticate, cause, detail)
}
