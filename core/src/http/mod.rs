//! HTTP/1.1 over slices (RFC 9112): a request is written, and a response read, which may take its
//! time.
//!
//! One request goes over one connection. Where to connect to, and when to give up, is for the
//! caller to decide; a [`ResponseReader`] has limits for what the peer sends.

mod response;

use std::fmt;

use zeroize::Zeroizing;

pub use response::{HttpError, HttpResponse, MAX_HEAD_LEN, ResponseReader};

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

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// Reads what is there.
    Get,
    /// Hands a body over.
    Post,
    /// Puts something there.
    Put,
}

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

impl Method {
    /// Returns the name in a request.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

impl Endpoint {
    /// Names a host, a port of it, and whether TLS is spoken there.
    pub fn new(host: impl Into<String>, port: u16, tls: bool) -> Self {
        Self { host: host.into(), port, tls }
    }

    /// Writes a request for `target`, a path with its query if there is one. `Host`,
    /// `Content-Length` if there is a body, and `Connection: close` are added to the headers.
    ///
    /// ```
    /// use sdam_core::http::{Endpoint, Method};
    ///
    /// let endpoint = Endpoint::new("ocsp.example", 80, false);
    /// let headers = [("Content-Type", "application/ocsp-request")];
    /// let request = endpoint.request(Method::Post, "/", &headers, Some(b"0"));
    /// let head = b"POST / HTTP/1.1\r\nHost: ocsp.example\r\nContent-Type: ";
    /// assert!(request.bytes.starts_with(head));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the target or a header contains a line break or another control character, with
    /// which one request would become two.
    pub fn request(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> HttpRequest {
        let lines = headers.iter().flat_map(|(name, value)| [*name, *value]);
        assert!(
            lines.chain([target, &self.host]).all(|text| !text.contains(char::is_control)),
            "a request has control characters in nothing but its body"
        );
        let first =
            format!("{} {target} HTTP/1.1\r\nHost: {}\r\n", method.name(), self.authority());
        let length = body.map(|body| format!("Content-Length: {}\r\n", body.len()));
        let mut parts = vec![first.as_str()];
        for (name, value) in headers {
            parts.extend([*name, ": ", *value, "\r\n"]);
        }
        parts.extend([length.as_deref().unwrap_or_default(), "Connection: close\r\n\r\n"]);
        let mut bytes: Vec<&[u8]> = parts.into_iter().map(str::as_bytes).collect();
        bytes.extend(body);
        // Put together at once, so that no copy of a secret is left behind.
        HttpRequest { endpoint: self.clone(), bytes: Zeroizing::new(bytes.concat()) }
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
}

/// Shows it as the beginning of a URI.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// Shows where it goes, and none of what it says.
impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Method};

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    /// RFC 9112, section 3.2: "A client MUST send a Host header field".
    #[test]
    fn a_request_says_its_host_and_the_length_of_its_body_if_it_has_one() {
        let endpoint = Endpoint::new("ocsp.example", 8080, false);
        let headers = [("A", "b"), ("C", "planted")];
        let request = endpoint.request(Method::Post, "/x?y", &headers, Some(b"\0\xff"));
        let wanted = b"POST /x?y HTTP/1.1\r\nHost: ocsp.example:8080\r\nA: b\r\nC: planted\r\n\
            Content-Length: 2\r\nConnection: close\r\n\r\n\0\xff";
        assert_eq!(*request.bytes, wanted);
        assert!(!format!("{request:?}").contains("planted"));
        let request = endpoint.request(Method::Get, "/", &[], None);
        let wanted = "GET / HTTP/1.1\r\nHost: ocsp.example:8080\r\nConnection: close\r\n\r\n";
        assert_eq!(text(&request.bytes), wanted);
        let request = endpoint.request(Method::Put, "/", &[], Some(b""));
        assert!(text(&request.bytes).contains("\r\nContent-Length: 0\r\n"));
    }

    #[test]
    fn the_port_that_the_scheme_implies_is_left_out() {
        let shown = |host: &str, port, tls| Endpoint::new(host, port, tls).to_string();
        assert_eq!(shown("a.example", 80, false), "http://a.example");
        assert_eq!(shown("a.example", 443, true), "https://a.example");
        assert_eq!(shown("a.example", 443, false), "http://a.example:443");
        assert_eq!(shown("::1", 80, true), "https://[::1]:80");
    }

    #[test]
    fn no_header_and_no_target_makes_two_requests_of_one() {
        let endpoint = Endpoint::new("h", 80, false);
        for (target, value) in [("/\r\nX: y", "v"), ("/", "v\r\nX: y"), ("/", "v\n"), ("/\0", "v")]
        {
            let headers = [("X", value)];
            let writing = || endpoint.request(Method::Get, target, &headers, None);
            assert!(std::panic::catch_unwind(writing).is_err(), "{target:?} {value:?}");
        }
    }
}
