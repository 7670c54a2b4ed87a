//! Revocation of servers' certificates: what no staple says is asked of the responders, once for
//! all connections of the process.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::http::{HttpRequest, HttpResponse, ResponseReader};
use sdam_core::revocation::{
    CertificateId, MAX_RESPONSE_LEN, Outcome, StatusCache as _, Subject, Turn, Verdict,
};
use sdam_core::rustls::pki_types::UnixTime;
use sdam_core::time::Instant;
use sdam_core::transport::{Transport, TransportConfig};

use crate::net::http::Exchange;
use crate::net::reactor::{Lane, Reactor};
use crate::process::{Own, Process};
use crate::sync::before;
use crate::system::Statuses;

/// The time that responders have ("a default timeout of five seconds").
const MAX_TIME: Duration = Duration::from_secs(5);

/// Returns the time that responders have to answer for a connection that has been opened since
/// `begun`: five seconds, or half of what is left of connectTimeoutMS, so that there is time for
/// the rest if they do not.
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
/// process knows or asks is not asked again. If nothing is known, `start` begins a task that
/// outlives the connection, as others may wait for it.
///
/// # Errors
///
/// Fails if it was revoked. If no responder says anything, the connection goes on ("soft fail").
pub async fn vouch<S: Future<Output = ()>>(
    statuses: &Arc<Statuses>,
    (server, subject): (&ServerAddress, &Subject),
    time: Duration,
    clock: impl Fn() -> UnixTime,
    start: impl Fn(Inquiry),
    sleep: impl Fn(Duration) -> S,
) -> Result<(), Failure> {
    let (id, mut waited) = (subject.id(), None);
    let register = statuses.of(&id);
    let waiting = async {
        // Once more if that inquiry is given up; a runtime that drops its tasks would not end it.
        for _ in 0..2 {
            let turn = register.wait(|register| match register.turn(&id, clock(), waited) {
                Turn::Wait(inquiry) => {
                    waited = Some(inquiry);
                    None
                }
                turn => Some(turn),
            });
            let Turn::Ask(inquiry) = turn.await else { return };
            waited = Some(inquiry);
            start(Inquiry::new(statuses, (server, subject), inquiry));
        }
        register.wait(|register| (!register.is_asking(&id)).then_some(())).await;
    };
    before(sleep(time), waiting).await;
    statuses.status(&id, clock()).map_or(Ok(()), Transport::heed)
}

/// An inquiry about a certificate that is to be made; dropped before its end, it is given up.
#[derive(Debug)]
pub struct Inquiry {
    statuses: Arc<Statuses>,
    /// The first server that has shown the certificate.
    server: ServerAddress,
    subject: Subject,
    id: CertificateId,
    number: u64,
    is_over: bool,
}

impl Inquiry {
    fn new(
        statuses: &Arc<Statuses>,
        (server, subject): (&ServerAddress, &Subject),
        number: u64,
    ) -> Self {
        let (id, is_over) = (subject.id(), false);
        let (statuses, server) = (Arc::clone(statuses), server.clone());
        Self { statuses, server, subject: subject.clone(), id, number, is_over }
    }

    /// Returns its number.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Asks the responders, for five seconds at most.
    pub async fn run<A, S>(
        mut self,
        clock: impl Fn() -> UnixTime,
        ask: impl Fn(HttpRequest) -> A,
        sleep: impl Fn(Duration) -> S,
    ) where
        A: Future<Output = Result<HttpResponse, Failure>>,
        S: Future<Output = ()>,
    {
        let asked = before(sleep(MAX_TIME), inquire(&self.subject, &clock, &ask)).await;
        let (outcome, errors) = asked.unwrap_or_else(|| {
            let responders = self.subject.responders().join(", ");
            let error = format!("{responders}: no answer within {MAX_TIME:?}");
            (Outcome::Unanswered, vec![error])
        });
        if !errors.is_empty() {
            warn(&self.server, &errors);
        }
        self.is_over = true;
        let now = clock();
        self.statuses.of(&self.id).change(|register| {
            register.end(&self.id, self.number, outcome, now);
            true
        });
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        if !self.is_over {
            self.statuses.of(&self.id).change(|register| register.give_up(&self.id, self.number));
        }
    }
}

/// Asks all responders at once: "The first valid response that concretely marks the certificate
/// status as good or revoked should be used." If there is none, returns what is wrong with each.
async fn inquire<A>(
    subject: &Subject,
    clock: &impl Fn() -> UnixTime,
    ask: &impl Fn(HttpRequest) -> A,
) -> (Outcome, Vec<String>)
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
        asked.retain_mut(|asked| {
            if found.is_some() {
                return true;
            }
            match asked.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Err(error)) => {
                    errors.push(error);
                    false
                }
                Poll::Ready(Ok(verdict)) => {
                    let is_conclusive = verdict.status.is_conclusive();
                    let place = if is_conclusive { &mut found } else { &mut unknown };
                    *place = Some(verdict);
                    false
                }
            }
        });
        match (found, asked.is_empty()) {
            (Some(verdict), _) => Poll::Ready(Outcome::Answered(verdict)),
            (None, true) => Poll::Ready(Outcome::Unanswered),
            (None, false) => Poll::Pending,
        }
    });
    match (outcome.await, unknown) {
        (Outcome::Unanswered, unknown) => {
            errors.extend(unknown.as_ref().map(|_| "one does not know it".to_owned()));
            (unknown.map_or(Outcome::Unanswered, Outcome::Answered), errors)
        }
        (outcome, _) => (outcome, Vec::new()),
    }
}

/// Says that connections go on without: once for each inquiry, after which there is a pause.
fn warn(server: &ServerAddress, errors: &[String]) {
    tracing::warn!(
        target: "sdam",
        "no responder of OCSP says whether the certificate of {server} was revoked ({}), so that \
         connections go on without; let this machine reach a responder that answers, have the \
         servers staple, or set tlsDisableOCSPEndpointCheck=true",
        errors.join("; "),
    );
}

/// Begins an inquiry on a reactor, in a task that goes on in this process alone.
pub(crate) fn start<R: Reactor>(reactor: &R, inquiry: Inquiry) {
    let own = reactor.clone();
    let running = async move {
        let asking = own.clone();
        let ask = |request| ask(asking.clone(), request);
        inquiry.run(UnixTime::now, ask, |time| own.sleep(time)).await;
    };
    reactor.spawn(Own::new(Box::pin(running), Process::current()));
}

/// Asks a responder: by the application's dialer if there is one, or else directly, whatever proxy
/// leads to the servers.
async fn ask<R: Reactor>(reactor: R, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let endpoint = &request.endpoint;
    let address = ServerAddress::Tcp { host: endpoint.host.as_str().into(), port: endpoint.port };
    let exchange = Exchange {
        stage: Stage::Revocation,
        refusal: Cause::Malformed,
        lane: &Lane::Server(address),
        filters: &TransportConfig::default(),
        by_dialer: true,
        connect_time: MAX_TIME,
        time: MAX_TIME,
    };
    exchange.run(&reactor, &request, &mut ResponseReader::new(MAX_RESPONSE_LEN)).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::time::Instant;

    use super::time_for;

    #[test]
    fn a_connection_waits_for_half_of_what_is_left_and_five_seconds_at_most() {
        let (begun, now) = (Instant::from_millis(1_000), Instant::from_millis(3_000));
        let time = |limit: Option<u64>| time_for(limit.map(Duration::from_millis), begun, now);
        assert_eq!(time(None), Duration::from_secs(5));
        assert_eq!(time(Some(60_000)), Duration::from_secs(5));
        assert_eq!(time(Some(10_000)), Duration::from_secs(4));
        assert_eq!(time(Some(2_000)), Duration::ZERO);
        assert_eq!(time(Some(1_000)), Duration::ZERO);
    }
}
