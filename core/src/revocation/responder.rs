//! Inquiries: what is asked of the responders of a certificate, and what their answers say.

use super::InvalidResponse;
use crate::http::Endpoint;

/// The maximum length of a response of OCSP, in bytes: certificates of delegates are in it.
pub const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// The maximum length of the address of a responder, in bytes.
const MAX_ADDRESS_LEN: usize = 500;

/// The reason why a responder cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of the responder is not http://HOST[:PORT][/PATH]")]
pub struct InvalidAddress;

/// The reason why the answer of a responder is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UselessAnswer {
    /// Its status is not 200.
    #[error("it has the HTTP status {0}, not 200")]
    Status(u16),
    /// It holds no valid response.
    #[error(transparent)]
    Invalid(#[from] InvalidResponse),
}

/// Returns whether a responder can be asked at this address.
pub(super) fn is_address(address: &str) -> bool {
    address.len() <= MAX_ADDRESS_LEN && parse(address).is_some()
}

/// Takes an address apart, which anybody who issues certificates may have written.
pub(super) fn parse(address: &str) -> Option<(Endpoint, &str)> {
    let scheme = address.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"))?;
    let rest = &address[scheme.len()..];
    if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let rest = rest.split('#').next()?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("80"))?)
        }
        None => authority.split_once(':').unwrap_or((authority, "80")),
    };
    let is_host = !host.is_empty() && !host.contains(['@', '[', ']', ',']);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let path = match path {
        "" => "/",
        path if path.starts_with('/') => path,
        _ => return None,
    };
    is_host.then(|| (Endpoint::new(host, port, false), path))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_address_of_a_responder_is_taken_apart() {
        for (address, endpoint, path) in [
            ("http://ocsp.example", "http://ocsp.example", "/"),
            ("HTTP://ocsp.example:8080/a?b#c", "http://ocsp.example:8080", "/a?b"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1", "/"),
            ("http://[::1]:81/x", "http://[::1]:81", "/x"),
            ("http://[::1]", "http://[::1]", "/"),
        ] {
            let found = parse(address).map(|(endpoint, path)| (endpoint.to_string(), path));
            assert_eq!(found, Some((endpoint.to_owned(), path)));
        }
    }

    #[test]
    fn an_address_that_is_none_of_http_is_refused() {
        for address in [
            "",
            "http",
            "http://",
            "https://ocsp.example",
            "ldap://a",
            "http:///a",
            "http://:80/",
            "http://user@host/",
            "http://host:0/",
            "http://host:65536",
            "http://host:a/",
            "http://[::1",
            "http://[::1]80",
            "http://[host]/",
            "http://a b/",
            "http://a/\r\nX: y",
            "http://h\u{f6}st/",
            "http://host?query",
            "http://a,b/",
        ] {
            assert_eq!(parse(address), None, "{address}");
        }
    }
}
