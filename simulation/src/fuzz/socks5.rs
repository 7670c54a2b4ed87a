//! The answers of a proxy: the stream opens exactly where RFC 1928 says.

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::transport::{Login, ProxyConfig, Transport, TransportConfig};

/// The longest that the client may say: the methods, the user and the password, and the request.
const MOST_SAID: usize = 4 + 3 + 4 + 6 + 7 + 10;

/// The first byte says whether there is a password, and how the bytes are torn; the others come
/// from the proxy, and behind its last answer from the server.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn socks5(bytes: &[u8]) {
    let Some((&first, stream)) = bytes.split_first() else { return };
    let (has_login, part) = (first & 1 == 1, usize::from(first / 2) + 1);
    let whole = converse(has_login, stream, stream.len().max(1));
    assert_eq!(converse(has_login, stream, part), whole, "law 6: in parts of {part}");
    let Conversation { sent, plain, is_ready, failure } = whole;
    assert!(sent.len() <= MOST_SAID, "it says nothing more than it should: {sent:?}");
    match opening(stream, has_login) {
        Opening::At(end) => {
            assert!(is_ready && failure.is_none(), "the stream is open");
            assert_eq!(plain, stream[end..], "what follows is the server's");
        }
        Opening::NotYet => assert!(!is_ready && failure.is_none(), "{failure:?}"),
        Opening::Never => {
            let failure = failure.expect("the proxy refuses, or is none");
            assert_eq!(failure.stage, Stage::Proxy);
            assert!(!failure.detail.is_empty() && !is_ready);
        }
    }
}

#[derive(Debug, PartialEq)]
struct Conversation {
    sent: Vec<u8>,
    plain: Vec<u8>,
    is_ready: bool,
    failure: Option<Failure>,
}

fn converse(has_login: bool, stream: &[u8], part: usize) -> Conversation {
    let login = has_login.then(|| Login::new("user", "secret").expect("it is short enough"));
    let config = TransportConfig::default().with_proxy(ProxyConfig::new(login));
    let server: ServerAddress = "db.example".parse().expect("an address");
    let (mut sent, mut plain) = (Vec::new(), Vec::new());
    let mut transport =
        Transport::start(&config, &server, &server, &mut sent).expect("a name that is short");
    for part in stream.chunks(part) {
        if let Err(failure) = transport.receive(part, &mut plain, &mut sent) {
            return Conversation { sent, plain, is_ready: false, failure: Some(failure) };
        }
    }
    Conversation { sent, plain, is_ready: transport.is_ready(), failure: None }
}

/// The end of the proxy's last answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Opening {
    At(usize),
    NotYet,
    Never,
}

/// The two RFCs, written naively.
fn opening(stream: &[u8], has_login: bool) -> Opening {
    let methods: &[&[u8]] = match has_login {
        true => &[&[5, 0], &[5, 2, 1, 0]],
        false => &[&[5, 0]],
    };
    if let Some(method) = methods.iter().find(|method| stream.starts_with(method)) {
        return reply(&stream[method.len()..]).plus(method.len());
    }
    match methods.iter().any(|method| method.starts_with(stream)) {
        true => Opening::NotYet,
        false => Opening::Never,
    }
}

/// RFC 1928, section 6: version, reply, reserved, type of address, address, port.
fn reply(stream: &[u8]) -> Opening {
    let right = stream.iter().zip([5, 0]).all(|(byte, expected)| *byte == expected);
    let length = match (stream.get(3), stream.get(4)) {
        _ if !right => return Opening::Never,
        (None, _) | (Some(3), None) => return Opening::NotYet,
        (Some(1), _) => 4 + 4 + 2,
        (Some(3), Some(length)) => 4 + 1 + usize::from(*length) + 2,
        (Some(4), _) => 4 + 16 + 2,
        (Some(_), _) => return Opening::Never,
    };
    if length <= stream.len() { Opening::At(length) } else { Opening::NotYet }
}

impl Opening {
    const fn plus(self, start: usize) -> Self {
        match self {
            Self::At(end) => Self::At(start + end),
            other => other,
        }
    }
}
