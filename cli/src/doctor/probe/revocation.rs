//! The responder of a server's certificate: asked as drivers ask it.

use std::time::Duration;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::failure::{Failure, Stage};
use sdam_core::http::{HttpRequest, HttpResponse, ResponseReader};
use sdam_core::revocation::{MAX_RESPONSE_LEN, Status, StatusCache as _, Subject};
use sdam_core::transport::Transport;
use sdam_core::transport::rustls::pki_types::UnixTime;
use sdam_host::Statuses;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::doctor::evidence::{Responder, is_conclusive};
use crate::duration::precise;
use crate::stream::connect;

/// The time that drivers wait for an answer (OCSP Support, "a default timeout of five seconds").
const LIMIT: Duration = Duration::from_secs(5);

/// Asks the responders of a certificate, if drivers have to, all at once as they do, in `left` at
/// most; returns what the one is like that matters, and what keeps drivers from using the server.
pub(super) async fn of(
    subject: Result<Option<Subject>, Failure>,
    left: Duration,
) -> (Option<Responder>, Option<Failure>) {
    let subject = match subject {
        Ok(Some(subject)) => subject,
        Ok(None) => return (None, None),
        Err(failure) => return (None, Some(failure)),
    };
    let limit = LIMIT.min(left);
    let mut asking = JoinSet::new();
    for url in subject.responders() {
        let (subject, url) = (subject.clone(), url.clone());
        asking.spawn(async move { asked(&subject, &url, limit).await });
    }
    let mut found: Option<Responder> = None;
    while let Some(answer) = asking.join_next().await {
        let Ok((responder, status)) = answer else { continue };
        if let Some(status) = status.filter(Status::is_conclusive) {
            return (Some(responder), Transport::heed(status).err());
        }
        // One that is silent holds drivers up.
        if found.as_ref().is_none_or(|found| !found.is_silent) {
            found = Some(responder);
        }
    }
    (found, None)
}

/// Asks one responder; returns what it is like, and the status that it gives.
async fn asked(subject: &Subject, url: &str, limit: Duration) -> (Responder, Option<Status>) {
    let (begun, now) = (Instant::now(), UnixTime::now());
    let answer = match subject.request_to(url) {
        Ok(request) => timeout(limit, ask(&request)).await,
        Err(error) => Ok(Err(error.to_string())),
    };
    let is_silent = answer.is_err() && is_conclusive(Stage::Connect, limit);
    let is_asked = answer.is_ok() || is_silent;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {}", precise(limit))));
    let verdict =
        answer.and_then(|answer| subject.read(&answer, now).map_err(|error| error.to_string()));
    let (status, failure) = match verdict {
        Ok(verdict) => {
            let status = verdict.status.clone();
            Statuses::of_process().learn(&subject.id(), verdict, now);
            (Some(status), None)
        }
        Err(failure) => (None, Some(failure)),
    };
    let text = status.as_ref().map(Status::to_string);
    let (url, took) = (url.to_owned(), begun.elapsed());
    (Responder { url, failure, is_silent, is_asked, status: text, took }, status)
}

async fn ask(request: &HttpRequest) -> Result<HttpResponse, String> {
    let endpoint = &request.endpoint;
    let address = ServerAddress::Tcp { host: endpoint.host.as_str().into(), port: endpoint.port };
    let socket = connect(&address, TcpOptions::default(), |_| {}).await;
    let mut socket = socket.map_err(|failure| failure.detail.to_string())?;
    socket.write_all(&request.bytes).await.map_err(|error| error.to_string())?;
    let (mut reader, mut buffer) = (ResponseReader::new(MAX_RESPONSE_LEN), vec![0; 4096]);
    loop {
        let count = socket.read(&mut buffer).await.map_err(|error| error.to_string())?;
        let answer = match count {
            0 => reader.end().map(Some),
            _ => reader.receive(&buffer[..count]),
        };
        if let Some(answer) = answer.map_err(|error| error.to_string())? {
            return Ok(answer);
        }
    }
}
