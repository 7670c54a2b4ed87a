//! The responder of a server's certificate: asked as drivers ask it.

use std::time::Duration;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::failure::{Failure, Stage};
use sdam_core::http::{HttpRequest, HttpResponse, ResponseReader};
use sdam_core::revocation::{MAX_RESPONSE_LEN, StatusCache as _, Subject};
use sdam_core::transport::Transport;
use sdam_core::transport::rustls::pki_types::UnixTime;
use sdam_host::Statuses;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use super::certificate::RESPONDER;
use crate::doctor::evidence::{Responder, is_conclusive};
use crate::duration::precise;
use crate::stream::connect;

/// Asks the first responder of a certificate, if drivers have to, in `left` at most; returns what it
/// is like, and what keeps drivers from using the server.
pub(super) async fn of(
    subject: Result<Option<Subject>, Failure>,
    left: Duration,
) -> (Option<Responder>, Option<Failure>) {
    match subject {
        Ok(Some(subject)) => asked(&subject, RESPONDER.min(left)).await,
        Ok(None) => (None, None),
        Err(failure) => (None, Some(failure)),
    }
}

async fn asked(subject: &Subject, limit: Duration) -> (Option<Responder>, Option<Failure>) {
    let Some(url) = subject.responders().first().cloned() else { return (None, None) };
    let request = match subject.request_to(&url) {
        Ok(request) => request,
        Err(error) => {
            let (failure, took) = (Some(error.to_string()), Duration::ZERO);
            return (Some(Responder { url, failure, is_silent: false, status: None, took }), None);
        }
    };
    let begun = Instant::now();
    let answer = timeout(limit, ask(&request)).await;
    let is_silent = answer.is_err() && is_conclusive(Stage::Connect, limit);
    let now = UnixTime::now();
    let read = match answer {
        Ok(answer) => {
            answer.and_then(|answer| subject.read(&answer, now).map_err(|error| error.to_string()))
        }
        Err(_) => Err(format!("no answer within {}", precise(limit))),
    };
    let took = begun.elapsed();
    match read {
        Ok(verdict) => {
            let status = verdict.status.clone();
            Statuses::of_process().learn(&subject.id(), verdict, now);
            let text = Some(status.to_string());
            let responder = Responder { url, failure: None, is_silent, status: text, took };
            (Some(responder), Transport::heed(status).err())
        }
        Err(failure) => {
            let failure = Some(failure);
            (Some(Responder { url, failure, is_silent, status: None, took }), None)
        }
    }
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
