//! HTTP/1.1, as far as a collector of metrics needs it: two pages (RFC 9110, RFC 9112).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use sdam_core::metrics::MEDIA_TYPE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The number of connections that are served at a time. One more takes the place of the one that
/// has been idle for the longest time, or waits if none is.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// The maximum length of the head of a request, in bytes.
pub(super) const MAX_HEAD_LEN: usize = 16 << 10;

/// The maximum number of header fields of a request.
const MAX_FIELDS: usize = 64;

/// The time that a request may take to come, and its response to go.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The time for which a connection is kept between requests: longer than most collectors pause.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(150);

/// The time for which a client is still read from when its connection ends, so that it gets to read
/// the response.
const LINGER: Duration = Duration::from_secs(1);

/// The pause after the system has refused to accept another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The page that says where the metrics are.
const INDEX: &str = "The metrics are at /metrics.\n";

/// The media type of all else than metrics.
const TEXT: &str = "text/plain; charset=utf-8";

/// A function that makes the page of metrics.
pub(super) type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves for ever; connections end when it is dropped.
pub(super) async fn serve(listener: TcpListener, page: Page) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.begin(stream, &page).await,
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// The connections that are served. One more than there may be takes the place of the one that has
/// been idle for the longest time.
#[derive(Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    served: Vec<(Presence, AbortHandle)>,
    order: Arc<Order>,
}

impl Connections {
    /// Serves another connection, as soon as there is a place.
    pub(super) async fn begin<S>(&mut self, stream: S, page: &Page)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.make_room().await;
        let presence = Presence::new(&self.order);
        let (page, of_task) = (Arc::clone(page), presence.clone());
        // Errors of a client that has gone do not matter.
        let serve = async move { drop(converse(stream, &page, &of_task).await) };
        self.served.push((presence, self.tasks.spawn(serve)));
    }

    /// Waits until there is a place.
    async fn make_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.served.retain(|(_, task)| !task.is_finished());
            if self.served.len() < MAX_CONNECTIONS {
                return;
            }
            let order = Arc::clone(&self.order);
            let places = self
                .served
                .iter()
                .filter_map(|(presence, task)| presence.place().map(|place| (place, task)));
            match places.min_by_key(|(place, _)| *place) {
                Some((_, task)) => {
                    task.abort();
                    self.tasks.join_next().await;
                }
                // Each of them ends within the limit, or becomes idle.
                None => tokio::select! {
                    _ = self.tasks.join_next() => {}
                    () = order.idle.notified() => {}
                },
            }
        }
    }
}

/// The order in which connections become idle.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: AtomicU64,
    /// Notified when one becomes idle.
    idle: Notify,
}

/// The state of a connection as others see it: whether it waits for a request, and since when.
#[derive(Clone)]
pub(super) struct Presence {
    /// The place in the order of those that are idle; 0 if it is not.
    place: Arc<AtomicU64>,
    order: Arc<Order>,
}

impl Presence {
    /// A new connection has not asked for anything yet.
    pub(super) fn new(order: &Arc<Order>) -> Self {
        let new = Self { place: Arc::default(), order: Arc::clone(order) };
        new.set_idle(true);
        new
    }

    fn place(&self) -> Option<u64> {
        Some(self.place.load(Ordering::Relaxed)).filter(|place| *place > 0)
    }

    fn set_idle(&self, is_idle: bool) {
        let next = || self.order.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.place.store(if is_idle { next() } else { 0 }, Ordering::Relaxed);
        if is_idle {
            self.order.idle.notify_one();
        }
    }
}

/// Answers one request after the other, until the client has no more or one of both ends it.
pub(super) async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    page: &Page,
    presence: &Presence,
) -> io::Result<()> {
    let mut received = Vec::new();
    // A client that connects has something to ask.
    let mut limit = LIMIT;
    loop {
        let request = receive(&mut stream, &mut received, limit, presence).await?;
        let Some(request) = request else { return Ok(()) };
        let goes_on = request.as_ref().is_ok_and(|request| request.goes_on);
        let response = respond(&request, page, Timestamp::now());
        let sent = async {
            stream.write_all(&response).await?;
            stream.flush().await
        };
        timeout(LIMIT, sent).await??;
        if !goes_on {
            break;
        }
        limit = IDLE_LIMIT;
        presence.set_idle(received.is_empty());
    }
    stream.shutdown().await?;
    let mut rest = stream.take(MAX_HEAD_LEN as u64);
    // It may go on for longer than anybody listens.
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    Ok(())
}

/// Waits for the next request; `None` if the client has ended the connection, or has none within
/// `limit`. What comes after the request stays in `received`.
async fn receive<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Vec<u8>,
    limit: Duration,
    presence: &Presence,
) -> io::Result<Option<Result<Request, Status>>> {
    if received.is_empty() {
        match timeout(limit, stream.read_buf(received)).await {
            Ok(Ok(1..)) => {}
            Ok(Err(error)) => return Err(error),
            Ok(Ok(0)) | Err(_) => return Ok(None),
        }
    }
    presence.set_idle(false);
    let whole = async {
        loop {
            match Request::read(received) {
                Ok(None) if stream.read_buf(received).await? == 0 => return Ok(None),
                Ok(None) => {}
                Ok(Some((request, len))) => {
                    received.drain(..len);
                    return Ok(Some(Ok(request)));
                }
                Err(status) => return Ok(Some(Err(status))),
            }
        }
    };
    timeout(LIMIT, whole).await.unwrap_or(Ok(None))
}

/// A request, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: Method,
    /// The path, without a query.
    path: String,
    /// True if another request may follow.
    goes_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Get,
    Head,
    Other,
}

/// A status other than 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLong,
    OtherVersion,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeadTooLong => "431 Request Header Fields Too Large",
            Self::OtherVersion => "505 HTTP Version Not Supported",
        }
    }
}

impl Request {
    /// Reads the head of a request, and returns its length, too; `None` if more is to come.
    fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Status> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let len = match request.parse(bytes) {
            Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD_LEN => len,
            Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD_LEN => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Status::HeadTooLong),
            Err(httparse::Error::Version) => return Err(Status::OtherVersion),
            Err(_) => return Err(Status::BadRequest),
        };
        let values = |name: &'static str| {
            let named = move |it: &&httparse::Header<'_>| it.name.eq_ignore_ascii_case(name);
            request.headers.iter().filter(named).map(|field| field.value)
        };
        let is_new = request.version == Some(1);
        // "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request
        // message that lacks a Host header field and to any that contains more than one."
        if values("Host").count() != 1 && (is_new || values("Host").count() > 1) {
            return Err(Status::BadRequest);
        }
        let has_close = |value: &[u8]| {
            value
                .split(|byte| *byte == b',')
                .any(|it| it.trim_ascii().eq_ignore_ascii_case(b"close"))
        };
        let ends = values("Connection").any(has_close);
        // A body is not read, so that nothing can be read after it.
        let has_body = values("Content-Length").any(|length| length != b"0")
            || values("Transfer-Encoding").next().is_some();
        let method = match request.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            _ => Method::Other,
        };
        let path = path(request.path.unwrap_or_default()).to_owned();
        Ok(Some((Self { method, path, goes_on: is_new && !ends && !has_body }, len)))
    }
}

/// Returns the path of a target, which may be a whole address.
fn path(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}

/// Returns what was asked for, with its media type.
fn find(request: &Request, page: &Page) -> Result<(&'static str, String), Status> {
    let is_index = match &*request.path {
        "/metrics" => false,
        "/" => true,
        _ => return Err(Status::NotFound),
    };
    match (request.method, is_index) {
        (Method::Other, _) => Err(Status::MethodNotAllowed),
        (Method::Get | Method::Head, true) => Ok((TEXT, INDEX.to_owned())),
        (Method::Get | Method::Head, false) => Ok((MEDIA_TYPE, page())),
    }
}

/// Makes the response to a request, or to what was none.
fn respond(request: &Result<Request, Status>, page: &Page, now: Timestamp) -> Vec<u8> {
    let found = request.as_ref().map_err(|status| *status).and_then(|it| find(it, page));
    let line = found.as_ref().map_or_else(|status| status.line(), |_| "200 OK");
    let is_refused = matches!(found, Err(Status::MethodNotAllowed));
    let (media_type, body) = found.unwrap_or_else(|_| (TEXT, format!("{line}\n")));
    let mut head = format!(
        "HTTP/1.1 {line}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n",
        body.len()
    );
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&now) {
        head += &format!("Date: {date}\r\n");
    }
    if is_refused {
        head += "Allow: GET, HEAD\r\n";
    }
    if !request.as_ref().is_ok_and(|request| request.goes_on) {
        head += "Connection: close\r\n";
    }
    head += "\r\n";
    if !request.as_ref().is_ok_and(|request| request.method == Method::Head) {
        head += &body;
    }
    head.into_bytes()
}
