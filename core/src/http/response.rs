//! A response of HTTP/1.1: its head, and a body that ends in one of three ways.

use std::fmt;

use zeroize::Zeroizing;

/// The maximum length of the head of a response, in bytes, together with heads of the responses
/// that only announce it (RFC 9110, section 15.2).
pub const MAX_HEAD_LEN: usize = 16 * 1024;

/// The number of headers that a response may have.
const MAX_HEADERS: usize = 64;

/// A response: what it says of the request, and its body, which is wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpResponse {
    /// The status; 200 says that all is well.
    pub status: u16,
    /// The body.
    pub body: Zeroizing<Vec<u8>>,
}

/// The reason why a response is of no use. None of them shows any of it but its status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// It is not HTTP/1.1.
    #[error("the answer is not an HTTP/1.1 response: {0}")]
    Malformed(&'static str),
    /// Its head is too long.
    #[error("the head of the answer is longer than {MAX_HEAD_LEN} bytes")]
    HeadTooLong,
    /// Its body is too long.
    #[error("the answer is longer than {0} bytes, which no useful one is")]
    TooLong(usize),
    /// It ends too early.
    #[error("the answer ends before it is complete")]
    EndsEarly,
    /// It says that the request has failed.
    #[error("the answer has the HTTP status {0}, not 200")]
    Status(u16),
}

impl HttpResponse {
    /// Holds a response.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: Zeroizing::new(body.into()) }
    }
}

/// Shows none of the body.
impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A response that is being received, up to [`MAX_HEAD_LEN`] and a length that its body may have.
///
/// ```
/// use sdam_core::http::{HttpResponse, ResponseReader};
///
/// let mut reader = ResponseReader::new(1024);
/// assert_eq!(reader.receive(b"HTTP/1.1 200 OK\r\nContent-Le")?, None);
/// let response = reader.receive(b"ngth: 2\r\n\r\nok")?;
/// assert_eq!(response, Some(HttpResponse::new(200, "ok")));
/// # Ok::<(), sdam_core::http::HttpError>(())
/// ```
pub struct ResponseReader {
    max_body_len: usize,
    received: Zeroizing<Vec<u8>>,
    head: Option<Head>,
}

/// A head that has come whole.
struct Head {
    status: u16,
    length: usize,
    body: Framing,
}

/// The end of a body (RFC 9112, section 6.3).
enum Framing {
    Length(usize),
    Chunked(Chunks),
    UntilClose,
}

/// The chunks that have come whole, joined, and how many bytes that took.
struct Chunks {
    joined: Zeroizing<Vec<u8>>,
    taken: usize,
}

impl ResponseReader {
    /// Takes a body of that many bytes at most; if it comes in chunks, what divides them counts.
    pub fn new(max_body_len: usize) -> Self {
        Self { max_body_len, received: Zeroizing::default(), head: None }
    }

    /// Returns the status as soon as the head has come.
    pub fn status(&self) -> Option<u16> {
        self.head.as_ref().map(|head| head.status)
    }

    /// Takes bytes, however they are split, and returns the response once it is complete. What
    /// follows it is of no interest, as the connection is not used again.
    ///
    /// # Errors
    ///
    /// It is no response, or is too long.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<HttpResponse>, HttpError> {
        let longest = self.max_body_len;
        // At once, so that growing leaves no copy behind.
        let room = MAX_HEAD_LEN.saturating_add(longest).saturating_sub(self.received.len());
        self.received.reserve(room);
        let fits = bytes.len().min(room);
        self.received.extend_from_slice(&bytes[..fits]);
        let head = match &mut self.head {
            Some(head) => head,
            head @ None => match Head::read(&self.received, longest)? {
                Some(read) if read.length <= MAX_HEAD_LEN => head.insert(read),
                None if self.received.len() <= MAX_HEAD_LEN => return Ok(None),
                _ => return Err(HttpError::HeadTooLong),
            },
        };
        let sent = &self.received[head.length..];
        let body = match &mut head.body {
            Framing::Length(length) if *length > longest => {
                return Err(HttpError::TooLong(longest));
            }
            Framing::Length(length) => sent.get(..*length).map(|body| body.to_vec().into()),
            Framing::Chunked(chunks) => match chunks.take(sent, longest)? {
                true => Some(std::mem::take(&mut chunks.joined)),
                false => None,
            },
            Framing::UntilClose => None,
        };
        match body {
            Some(body) => Ok(Some(HttpResponse { status: head.status, body })),
            None if sent.len() > longest || fits < bytes.len() => Err(HttpError::TooLong(longest)),
            None => Ok(None),
        }
    }

    /// Takes note that the peer has closed the stream, and returns the response if that is its end.
    ///
    /// # Errors
    ///
    /// It has not come to its end.
    pub fn end(&self) -> Result<HttpResponse, HttpError> {
        match &self.head {
            Some(Head { status, length, body: Framing::UntilClose }) => {
                Ok(HttpResponse::new(*status, &self.received[*length..]))
            }
            _ => Err(HttpError::EndsEarly),
        }
    }
}

/// Shows none of the body.
impl fmt::Debug for ResponseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseReader").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Head {
    /// Returns `None` if it is not complete; passes over responses that only announce it.
    fn read(bytes: &[u8], longest: usize) -> Result<Option<Self>, HttpError> {
        let mut length = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut headers);
            length += match response.parse(&bytes[length..]) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) => return Ok(None),
                Err(_) => return Err(HttpError::Malformed("its head cannot be read")),
            };
            let status = response.code.unwrap_or_default();
            if !(100..200).contains(&status) {
                let body = Framing::of(status, response.headers, longest)?;
                return Ok(Some(Self { status, length, body }));
            }
        }
    }
}

impl Framing {
    fn of(
        status: u16,
        headers: &[httparse::Header<'_>],
        longest: usize,
    ) -> Result<Self, HttpError> {
        let (mut length, mut is_chunked) = (None, false);
        for header in headers {
            let value = header.value.trim_ascii();
            if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HttpError::Malformed("its transfer encoding is not chunked"));
                }
                is_chunked = true;
            } else if header.name.eq_ignore_ascii_case("content-length") && !is_chunked {
                let digits = std::str::from_utf8(value)
                    .ok()
                    .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let found = digits.and_then(|digits| digits.parse::<usize>().ok());
                let found = found.ok_or(HttpError::Malformed("its length is no number"))?;
                if length.is_some_and(|length| length != found) {
                    return Err(HttpError::Malformed("it has two lengths"));
                }
                length = Some(found);
            }
        }
        Ok(match length {
            // "terminated by the first empty line after the header fields"
            _ if matches!(status, 204 | 304) => Self::Length(0),
            _ if is_chunked => {
                let joined = Zeroizing::new(Vec::with_capacity(longest));
                Self::Chunked(Chunks { joined, taken: 0 })
            }
            Some(length) => Self::Length(length),
            None => Self::UntilClose,
        })
    }
}

impl Chunks {
    /// Joins the chunks that have come since the last time; true if the last one is among them
    /// (RFC 9112, section 7.1).
    fn take(&mut self, sent: &[u8], longest: usize) -> Result<bool, HttpError> {
        const MALFORMED: HttpError = HttpError::Malformed("a chunk of it cannot be read");
        loop {
            let rest = &sent[self.taken..];
            let (start, size) = match httparse::parse_chunk_size(rest) {
                Ok(httparse::Status::Complete(found)) => found,
                Ok(httparse::Status::Partial) => return Ok(false),
                Err(_) => return Err(MALFORMED),
            };
            if size == 0 {
                return Ok(true);
            }
            let size = usize::try_from(size).ok().filter(|size| *size <= longest);
            let end = start + size.ok_or(HttpError::TooLong(longest))?;
            match rest.get(end..end + 2) {
                None => return Ok(false),
                Some(b"\r\n") => self.joined.extend_from_slice(&rest[start..end]),
                Some(_) => return Err(MALFORMED),
            }
            self.taken += end + 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HttpError, HttpResponse, MAX_HEAD_LEN, ResponseReader};

    const LIMIT: usize = 100;

    /// Reads a response, first whole and then in small parts, which has to come to the same.
    fn read(bytes: &[u8], ends: bool) -> Result<Option<HttpResponse>, HttpError> {
        let whole = read_by(bytes.len().max(1), bytes, ends);
        assert_eq!(read_by(1 + bytes.len() / 500, bytes, ends), whole);
        whole
    }

    fn read_by(size: usize, bytes: &[u8], ends: bool) -> Result<Option<HttpResponse>, HttpError> {
        let mut reader = ResponseReader::new(LIMIT);
        for part in bytes.chunks(size) {
            if let Some(response) = reader.receive(part)? {
                return Ok(Some(response));
            }
        }
        if ends { reader.end().map(Some) } else { Ok(None) }
    }

    fn answered(status: u16, body: &str) -> Result<Option<HttpResponse>, HttpError> {
        Ok(Some(HttpResponse::new(status, body)))
    }

    /// RFC 9112, section 6.3: "the length of a message body is determined by one of the following"
    #[test]
    fn a_body_ends_where_the_head_says() {
        let length = b"HTTP/1.1 400 No\r\ncontent-length: 3\r\n\r\nnot this";
        assert_eq!(read(length, false), answered(400, "not"));
        let chunked = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
            2;x=y\r\nab\r\nA\r\n0123456789\r\n0\r\n";
        assert_eq!(read(chunked, false), answered(200, "ab0123456789"));
        assert_eq!(read(b"HTTP/1.0 503 No\r\n\r\nuntil", false), Ok(None));
        assert_eq!(read(b"HTTP/1.0 503 No\r\n\r\nuntil", true), answered(503, "until"));
        for status in [204, 304] {
            let empty = format!("HTTP/1.1 {status} No\r\nContent-Length: 7\r\n\r\n");
            assert_eq!(read(empty.as_bytes(), false), answered(status, ""));
        }
        for early in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1"] {
            assert_eq!(read(early.as_bytes(), true), Err(HttpError::EndsEarly), "{early}");
        }
    }

    /// RFC 9110, section 15.2: "A client MUST be able to parse one or more 1xx responses received
    /// prior to a final response".
    #[test]
    fn responses_that_announce_another_are_passed_over() {
        let announced = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(read(announced, false), answered(200, "ok"));
        let endless = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
        assert_eq!(read(&endless, false), Err(HttpError::HeadTooLong));
    }

    #[test]
    fn the_status_is_known_as_soon_as_the_head_is() {
        let mut reader = ResponseReader::new(LIMIT);
        assert_eq!(reader.receive(b"HTTP/1.1 404 planted\r\n"), Ok(None));
        assert_eq!(reader.status(), None);
        assert_eq!(reader.receive(b"\r\nplanted"), Ok(None));
        assert_eq!(reader.status(), Some(404));
        let shown = format!("{reader:?} {:?}", reader.end());
        assert!(shown.contains("404") && !shown.contains("planted"), "{shown}");
    }

    #[test]
    fn a_head_and_a_body_may_be_as_long_as_their_limits_and_no_longer() {
        let head = |length: usize| {
            let rest = "HTTP/1.1 204 No\r\nX: \r\n\r\n".len();
            format!("HTTP/1.1 204 No\r\nX: {}\r\n\r\n", "x".repeat(length - rest)).into_bytes()
        };
        assert_eq!(read(&head(MAX_HEAD_LEN), false), answered(204, ""));
        assert_eq!(read(&head(MAX_HEAD_LEN + 1), false), Err(HttpError::HeadTooLong));
        let too_long = Err(HttpError::TooLong(LIMIT));
        let until_close = |length: usize| format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(length));
        assert_eq!(read(until_close(LIMIT).as_bytes(), true), answered(200, &"x".repeat(LIMIT)));
        assert_eq!(read(until_close(LIMIT + 1).as_bytes(), true), too_long);
        assert_eq!(read(until_close(LIMIT + 2 * MAX_HEAD_LEN).as_bytes(), true), too_long);
        let sized = |length: usize| {
            let body = "x".repeat(length);
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
        };
        assert_eq!(read(&sized(LIMIT), false), answered(200, &"x".repeat(LIMIT)));
        assert_eq!(read(&sized(LIMIT + 1), false), too_long);
        // What divides the chunks counts: "5e" and its line break, and that behind its end.
        let chunk = |length: usize| {
            let body = "x".repeat(length);
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            format!("{head}{length:x}\r\n{body}\r\n").into_bytes()
        };
        assert_eq!(read(&chunk(LIMIT - 6), false), Ok(None));
        assert_eq!(read(&chunk(LIMIT - 5), false), too_long);
        assert_eq!(read(&chunk(LIMIT + 1), false), too_long);
    }

    #[test]
    fn no_bytes_of_a_peer_make_a_reader_panic() {
        use proptest::prelude::{Strategy as _, any, proptest};

        let tokens = proptest::sample::select(vec![
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "Content-Length: 3\r\n",
            "Transfer-Encoding: chunked\r\n",
            "\r\n",
            "3\r\nabc\r\n",
            "0\r\n",
            "ffffffffffffffff\r\n",
        ]);
        let texts = proptest::collection::vec(tokens, 0..8).prop_map(|parts| parts.concat());
        proptest!(|(text in texts, noise in proptest::collection::vec(any::<u8>(), 0..8))| {
            for bytes in [[text.as_bytes(), &noise].concat(), [&noise, text.as_bytes()].concat()] {
                let _ = read(&bytes, true);
            }
        });
    }
}
