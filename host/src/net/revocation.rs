//! Revocation of servers' certificates: what no staple says is asked of the responders, once for
//! all connections of the process.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::http::{HttpError, HttpRequest, HttpResponse, ResponseReader};
use sdam_core::revocation::{
    CertificateId, MAX_RESPONSE_LEN, Outcome, StatusCache as _, Subject, Turn, Verdict,
};
use sdam_core::rustls::pki_types::UnixTime;
use sdam_core::time::Instant;
use sdam_core::transport::{Transport, TransportConfig};

use crate::net::http::{Exchange, Responder};
use crate::net::reactor::{Lane, Reactor};
use crate::sync::before;
use crate::system::Statuses;

/// The time that responders have ("a default timeout of five seconds").
const MAX_TIME: Duration = Duration::from_secs(5);

/// The time after which responders that have not answered count as silent. A connection with less
/// time than that leaves it to others to ask.
const ENOUGH: Duration = Duration::from_secs(1);

/// Returns the time that responders have to answer for a connection that has been opened since
/// `begun`: five seconds, or half of what is left of connectTimeoutMS, so that there is time for the
/// rest if they do not.
pub(crate) fn time_for(
    connect_timeout: Option<Duration>,
    begun: Instant,
    now: Instant,
) -> Duration {
    let spent = now - begun;
    let left = connect_timeout.map(|limit| limit.saturating_sub(spent) / 2);
    left.map_or(MAX_TIME, |left| left.min(MAX_TIME))
}

/// Finds out whether a certificate was revoked, in `time` at most: what another connection of the
/// process knows or asks is not asked again.
///
/// # Errors
///
/// Fails if it was revoked. If no responder says anything, the connection goes on ("soft fail").
pub async fn vouch<A, S>(
    statuses: &Statuses,
    subject: &Subject,
    time: Duration,
    clock: impl Fn() -> UnixTime,
    ask: impl Fn(HttpRequest) -> A,
    sleep: impl Fn(Duration) -> S,
) -> Result<(), Failure>
where
    A: Future<Output = Result<HttpResponse, Failure>>,
    S: Future<Output = ()>,
{
    let (id, mut waited) = (subject.id(), None);
    let turn = statuses.register.wait(|register| match register.turn(&id, clock(), waited) {
        Turn::Wait(inquiry) => {
            waited = Some(inquiry);
            None
        }
        turn => Some(turn),
    });
    let mut asking = None;
    let inquiry = async {
        if turn.await == Turn::Ask {
            let begun = asking.insert(Asking { statuses, id: &id, clock: &clock, over: false });
            begun.end(inquire(subject, &clock, &ask).await);
        }
    };
    if before(sleep(time), inquiry).await.is_none()
        && time >= ENOUGH
        && let Some(asking) = &mut asking
    {
        warn(subject, &[format!("none answers within {time:?}")]);
        asking.end(Outcome::Unanswered);
    }
    // Whoever has found it out: a staple may have said it meanwhile.
    statuses.status(&id, clock()).map_or(Ok(()), Transport::heed)
}

/// An inquiry that is under way: dropped before its end, it is given up.
struct Asking<'a, C: Fn() -> UnixTime> {
    statuses: &'a Statuses,
    id: &'a CertificateId,
    clock: &'a C,
    over: bool,
}

impl<C: Fn() -> UnixTime> Asking<'_, C> {
    fn end(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.over, true) {
            let now = (self.clock)();
            self.statuses.register.change(|register| {
                register.end(self.id, outcome, now);
                true
            });
        }
    }
}

impl<C: Fn() -> UnixTime> Drop for Asking<'_, C> {
    fn drop(&mut self) {
        self.end(Outcome::GivenUp);
    }
}

/// Asks all responders at once: "The first valid response that concretely marks the certificate
/// status as good or revoked should be used."
async fn inquire<A>(
    subject: &Subject,
    clock: &impl Fn() -> UnixTime,
    ask: &impl Fn(HttpRequest) -> A,
) -> Outcome
where
    A: Future<Output = Result<HttpResponse, Failure>>,
{
    let answer = |responder: &String| {
        let request = subject.request_to(responder);
        let asked = request.map(ask).map_err(|error| error.to_string());
        let responder = responder.clone();
        async move {
            let read = async {
                let answer = asked?.await.map_err(|failure| failure.detail.to_string())?;
                subject.read(&answer, clock()).map_err(|error| error.to_string())
            };
            read.await.map_err(|error| format!("{responder}: {error}"))
        }
    };
    let mut asked: Vec<Pin<Box<_>>> =
        subject.responders().iter().map(|it| Box::pin(answer(it))).collect();
    let (mut unknown, mut errors) = (None, Vec::new());
    let outcome = poll_fn(|cx| {
        let mut found: Option<Verdict> = None;
        asked.retain_mut(|asked| match asked.as_mut().poll(cx) {
            _ if found.is_some() => true,
            Poll::Pending => true,
            Poll::Ready(Err(error)) => {
                errors.push(error);
                false
            }
            Poll::Ready(Ok(verdict)) => {
                let place = if verdict.status.is_conclusive() { &mut found } else { &mut unknown };
                *place = Some(verdict);
                false
            }
        });
        match (found, asked.is_empty()) {
            (Some(verdict), _) => Poll::Ready(Outcome::Answered(verdict)),
            (None, true) => Poll::Ready(Outcome::Unanswered),
            (None, false) => Poll::Pending,
        }
    });
    match (outcome.await, unknown) {
        (Outcome::Unanswered, Some(unknown)) => Outcome::Answered(unknown),
        (outcome, _) => {
            if outcome == Outcome::Unanswered {
                warn(subject, &errors);
            }
            outcome
        }
    }
}

/// Says that a connection goes on without: once a minute at most, as none asks again before that.
fn warn(subject: &Subject, errors: &[String]) {
    tracing::warn!(
        target: "sdam",
        "no responder of OCSP ({}) says whether the certificate of a server was revoked, so that \
         its connections go on without; let this machine reach one of them, have the servers \
         staple, or set tlsDisableOCSPEndpointCheck=true: {}",
        subject.responders().join(", "),
        errors.join("; "),
    );
}

/// Asks a responder, directly, whatever proxy leads to the servers.
pub(crate) async fn ask<R: Reactor>(
    reactor: R,
    request: HttpRequest,
    time: Duration,
) -> Result<HttpResponse, Failure> {
    let endpoint = &request.endpoint;
    let address = ServerAddress::Tcp { host: endpoint.host.as_str().into(), port: endpoint.port };
    let exchange = Exchange {
        stage: Stage::Tls,
        refusal: Cause::Malformed,
        lane: &Lane::Server(address),
        filters: &TransportConfig::default(),
        connect_time: time,
        time,
    };
    exchange.run(&reactor, &request, &mut Answer(ResponseReader::new(MAX_RESPONSE_LEN))).await
}

/// The answer of a responder, while it is received.
struct Answer(ResponseReader);

impl Responder for Answer {
    type Answer = HttpResponse;
    type Error = HttpError;

    fn receive(&mut self, bytes: &[u8]) -> Result<Option<HttpResponse>, HttpError> {
        self.0.receive(bytes)
    }

    fn ended(&mut self) -> Result<HttpResponse, HttpError> {
        self.0.end()
    }
}
