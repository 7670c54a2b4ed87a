//! One exchange of HTTP: connects, sends a request, and reads until there is an answer.

use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::http::{Endpoint, HttpError, HttpRequest, HttpResponse, ResponseReader};
use sdam_core::time::Instant;
use sdam_core::transport::{Transport, TransportConfig};

use crate::net::reactor::{Lane, Reactor};
use crate::net::socket::{Socket as _, write_all};
use crate::net::streams::connect;
use crate::sync::before;

/// The size of a read, in bytes.
const READ_LEN: usize = 4096;

/// The machine that reads a response.
pub(crate) trait Responder {
    /// The meaning of the response.
    type Answer;
    /// The reason why it has none.
    type Error: Display;

    /// Takes bytes of the response, however they are split; `None` if it goes on.
    fn receive(&mut self, bytes: &[u8]) -> Result<Option<Self::Answer>, Self::Error>;

    /// Takes note that the peer has closed the stream while its response was awaited.
    fn ended(&mut self) -> Result<Self::Answer, Self::Error>;
}

/// Reads a response as it is.
impl Responder for ResponseReader {
    type Answer = HttpResponse;
    type Error = HttpError;

    fn receive(&mut self, bytes: &[u8]) -> Result<Option<HttpResponse>, HttpError> {
        self.receive(bytes)
    }

    fn ended(&mut self) -> Result<HttpResponse, HttpError> {
        self.end()
    }
}

/// The rules by which an exchange takes place.
#[derive(Clone)]
pub(crate) struct Exchange<'a> {
    /// The part of the client's work that it is.
    pub(crate) stage: Stage,
    /// The cause of a failure that lies in the response.
    pub(crate) refusal: Cause,
    /// The turn that looking the endpoint's name up takes.
    pub(crate) lane: &'a Lane,
    /// True if the application's dialer opens the stream, if there is one.
    pub(crate) by_dialer: bool,
    /// The configuration of TLS, if the endpoint speaks it.
    pub(crate) filters: &'a TransportConfig,
    /// The time that connecting may take.
    pub(crate) connect_time: Duration,
    /// The time that all of it may take, connecting included.
    pub(crate) time: Duration,
}

impl Exchange<'_> {
    /// Sends one request over a connection of its own, and receives its response.
    ///
    /// # Errors
    ///
    /// Fails as the responder does, and if the endpoint cannot be reached or does not answer in
    /// time. What fails is not named; that is for the caller.
    pub(crate) async fn run<R: Reactor, A: Responder>(
        &self,
        reactor: &R,
        request: &HttpRequest,
        responder: &mut A,
    ) -> Result<A::Answer, Failure> {
        // A socket may block, so that it has to know the end, too.
        let end = reactor.now() + self.time;
        let talking = self.talk(reactor, request, responder, end);
        let answer = before(reactor.sleep_until(end), talking).await;
        answer.unwrap_or_else(|| Err(self.late("complete answer", self.time)))
    }

    async fn talk<R: Reactor, A: Responder>(
        &self,
        reactor: &R,
        request: &HttpRequest,
        responder: &mut A,
        end: Instant,
    ) -> Result<A::Answer, Failure> {
        let Endpoint { host, port, tls: is_tls, .. } = &request.endpoint;
        let address = ServerAddress::Tcp { host: host.as_str().into(), port: *port };
        let mut wire = Vec::new();
        let mut transport = Transport::start(self.filters, &address, &address, &mut wire)?;
        let dialed = if self.by_dialer { reactor.dial(self.lane, &address) } else { None };
        let opening = async {
            match dialed {
                Some(stream) => stream.await.map_err(|error| Failure::from_io(self.stage, &error)),
                None => {
                    let (lane, tcp) = (self.lane.clone(), TcpOptions::default());
                    connect(reactor, lane, &address, tcp, |_| {}).await
                }
            }
        };
        let Some(socket) = before(reactor.sleep(self.connect_time), opening).await else {
            return Err(self.late("connection", self.connect_time));
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
                io::ErrorKind::TimedOut => self.late("complete answer", self.time),
                _ => Failure::from_io(self.stage, &error),
            };
            write_all(&mut socket, &wire, end).await.map_err(of_stream)?;
            wire.clear();
            let count = match poll_fn(|cx| socket.poll_read(cx, &mut buffer, end)).await {
                Ok(0) if !is_tls => return responder.ended().map_err(|error| self.refused(&error)),
                Ok(0) => return Err(transport.failure(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) => return Err(of_stream(error)),
            };
            let mut plain = Vec::new();
            let received = transport.receive(&buffer[..count], &mut plain, &mut wire);
            if !plain.is_empty() {
                let answer = responder.receive(&plain).map_err(|error| self.refused(&error))?;
                if let Some(answer) = answer {
                    return Ok(answer);
                }
            }
            received?;
        }
    }

    fn refused(&self, error: &dyn Display) -> Failure {
        Failure::new(self.stage, self.refusal.clone(), error.to_string())
    }

    fn late(&self, what: &str, limit: Duration) -> Failure {
        Failure::new(self.stage, Cause::Timeout, format!("no {what} within {limit:?}"))
    }
}
