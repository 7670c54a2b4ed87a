//! HTTP/1.1 over slices: a request is written, and a response read, which may take its time.

use zeroize::Zeroizing;

/// The maximum length of a response, in bytes.
const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// The number of headers that a response may have.
const MAX_HEADERS: usize = 64;

/// One exchange of HTTP/1.1: where to connect to, and what to send there.
///
/// Its bytes may contain secrets, and are wiped from memory when dropped.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The endpoint to connect to.
    pub endpoint: Endpoint,
    /// The bytes to send.
    pub bytes: Zeroizing<Vec<u8>>,
}

/// An endpoint to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The name or the address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// True if TLS is spoken there.
    pub tls: bool,
}

/// The reason why a response is of no use. None of them shows any of it but its status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// It is not HTTP/1.1.
    #[error("the answer is not an HTTP/1.1 response: {0}")]
    Malformed(&'static str),
    /// It is too long.
    #[error("the answer is longer than {MAX_RESPONSE_LEN} bytes, which no credentials are")]
    TooLong,
    /// It ends too early.
    #[error("the answer ends before it is complete")]
    EndsEarly,
    /// It says that the request has failed.
    #[error("the answer has the HTTP status {0}, not 200")]
    Status(u16),
}

impl Endpoint {
    /// Writes a request; `headers` are lines that end with CRLF.
    pub(super) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> HttpRequest {
        let first = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.authority());
        let last = format!(
            "Accept: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        // Put together at once, so that no copy of a secret is left behind.
        let bytes = [&first, headers, &last, body].concat().into_bytes();
        HttpRequest { endpoint: self.clone(), bytes: Zeroizing::new(bytes) }
    }

    /// Returns what stands for it in the header Host: without the port that the scheme implies.
    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Names a host, a port of it, and whether TLS is spoken there.
    pub fn new(host: impl Into<String>, port: u16, tls: bool) -> Self {
        Self { host: host.into(), port, tls }
    }
}

impl std::fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A response that is being received.
#[derive(Default)]
pub(super) struct Response {
    received: Zeroizing<Vec<u8>>,
    head: Option<Head>,
}

#[derive(Clone, Copy)]
struct Head {
    length: usize,
    body: Framing,
}

/// The end of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Response {
    /// Takes bytes, and returns the body once it is complete.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, HttpError> {
        if self.received.len() + bytes.len() > MAX_RESPONSE_LEN {
            return Err(HttpError::TooLong);
        }
        // At once, so that growing leaves no copy behind.
        let room = MAX_RESPONSE_LEN - self.received.len();
        self.received.reserve(room);
        self.received.extend_from_slice(bytes);
        let head = match self.head {
            Some(head) => head,
            None => match Head::read(&self.received)? {
                Some(head) => *self.head.insert(head),
                None => return Ok(None),
            },
        };
        let body = &self.received[head.length..];
        match head.body {
            Framing::Length(length) if head.length.saturating_add(length) > MAX_RESPONSE_LEN => {
                Err(HttpError::TooLong)
            }
            Framing::Length(length) => Ok(body.get(..length).map(|body| body.to_vec().into())),
            Framing::Chunked => dechunk(body),
            Framing::UntilClose => Ok(None),
        }
    }

    /// Takes note that the peer has closed the stream, and returns the body if that is its end.
    pub(super) fn end(&self) -> Result<Zeroizing<Vec<u8>>, HttpError> {
        match self.head {
            Some(Head { length, body: Framing::UntilClose }) => {
                Ok(self.received[length..].to_vec().into())
            }
            _ => Err(HttpError::EndsEarly),
        }
    }
}

impl Head {
    /// Returns `None` if it is not complete.
    fn read(bytes: &[u8]) -> Result<Option<Self>, HttpError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(HttpError::Malformed("its head cannot be read")),
        };
        match response.code {
            Some(200) => {}
            code => return Err(HttpError::Status(code.unwrap_or_default())),
        }
        let mut body = Framing::UntilClose;
        for header in response.headers.iter() {
            let value = header.value.trim_ascii();
            if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HttpError::Malformed("its transfer encoding is not chunked"));
                }
                body = Framing::Chunked;
            } else if header.name.eq_ignore_ascii_case("content-length") && body != Framing::Chunked
            {
                let digits = std::str::from_utf8(value)
                    .ok()
                    .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let found = digits.and_then(|digits| digits.parse().ok()).map(Framing::Length);
                let found = found.ok_or(HttpError::Malformed("its length is no number"))?;
                if body != Framing::UntilClose && body != found {
                    return Err(HttpError::Malformed("it has two lengths"));
                }
                body = found;
            }
        }
        Ok(Some(Self { length, body }))
    }
}

/// Joins chunks; `None` if the last has not come (RFC 9112, section 7.1).
fn dechunk(mut rest: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, HttpError> {
    const MALFORMED: HttpError = HttpError::Malformed("a chunk of it cannot be read");
    let mut body = Zeroizing::new(Vec::with_capacity(rest.len()));
    loop {
        let (start, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(MALFORMED),
        };
        // What follows the last is of no interest, as the connection is not used again.
        if size == 0 {
            return Ok(Some(body));
        }
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_RESPONSE_LEN);
        let end = start + size.ok_or(HttpError::TooLong)?;
        match rest.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => body.extend_from_slice(&rest[start..end]),
            Some(_) => return Err(MALFORMED),
        }
        rest = &rest[end + 2..];
    }
}
