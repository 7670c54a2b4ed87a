//! A proxy's side of SOCKS5, and one that says anything.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::{Cause, Failure, Login, Stage, Transport, address, eof, through_proxy};
use crate::failure::ProxyRefusal;
use crate::transport::socks5::Socks5;

const OPENED: [u8; 10] = [5, 0, 0, 1, 10, 0, 0, 1, 0x69, 0x89];

fn login() -> Login {
    Login::new("user", "secret").unwrap()
}

/// The client's bytes, and the fate of the stream.
type Conversation = (Vec<u8>, Result<(bool, Vec<u8>), Failure>);

/// Feeds the proxy's bytes in parts of this length.
fn converse(host: &str, login: Option<Login>, bytes: &[u8], part: usize) -> Conversation {
    let mut sent = Vec::new();
    let mut transport =
        Transport::start(&through_proxy(login), &address(host), &address(host), &mut sent).unwrap();
    let mut plain = Vec::new();
    for part in bytes.chunks(part) {
        if let Err(failure) = transport.receive(part, &mut plain, &mut sent) {
            return (sent, Err(failure));
        }
    }
    (sent, Ok((transport.is_ready(), plain)))
}

#[test]
fn the_name_is_resolved_by_the_proxy() {
    let bytes = [&[5, 0][..], &OPENED, b"hello"].concat();
    let (sent, outcome) = converse("Db.Example:27018", None, &bytes, bytes.len());
    assert_eq!(sent, b"\x05\x01\x00\x05\x01\x00\x03\x0adb.example\x69\x8a");
    assert_eq!(outcome, Ok((true, b"hello".to_vec())), "what follows is the server's");
}

#[test]
fn literals_go_as_addresses() {
    let bytes = [&[5, 0][..], &OPENED].concat();
    let (sent, _) = converse("10.1.2.3:1", None, &bytes, 1);
    assert_eq!(sent[3..], [5, 1, 0, 1, 10, 1, 2, 3, 0, 1]);
    let (sent, _) = converse("[::1]:1", None, &bytes, 1);
    assert_eq!(sent[3..7], [5, 1, 0, 4]);
    assert_eq!(sent[7..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
}

/// SOCKS5 Support, "Connection Establishment": both methods are offered if there is a password, and
/// only "no authentication" otherwise.
#[test]
fn a_password_is_sent_only_when_the_proxy_asks_for_it() {
    let bytes = [&[5, 2, 1, 0][..], &OPENED].concat();
    let (sent, outcome) = converse("10.1.2.3", Some(login()), &bytes, 3);
    assert!(sent.starts_with(b"\x05\x02\x00\x02\x01\x04user\x06secret\x05\x01"), "{sent:?}");
    assert_eq!(outcome, Ok((true, Vec::new())));

    let bytes = [&[5, 0][..], &OPENED].concat();
    let (sent, outcome) = converse("10.1.2.3", Some(login()), &bytes, 3);
    assert!(sent.starts_with(b"\x05\x02\x00\x02\x05\x01"), "{sent:?}");
    assert_eq!(outcome, Ok((true, Vec::new())));

    let failure = converse("a", None, &[5, 2], 1).1.unwrap_err();
    assert_eq!((failure.stage, failure.cause), (Stage::Proxy, Cause::Malformed));
}

#[test]
fn every_kind_of_address_may_end_the_reply() {
    let mut name = vec![5, 0, 5, 0, 0, 3, 255];
    name.extend([b'x'; 255]);
    name.extend([0, 1, b'!']);
    assert_eq!(converse("a", None, &name, 7).1, Ok((true, b"!".to_vec())));
    let mut v6 = vec![5, 0, 5, 0, 0, 4];
    v6.extend([0; 18]);
    assert_eq!(converse("a", None, &v6, 7).1, Ok((true, Vec::new())));
    v6.pop();
    assert_eq!(converse("a", None, &v6, 7).1, Ok((false, Vec::new())));
    let unknown = converse("a", None, &[5, 0, 5, 0, 0, 2], 7).1.unwrap_err();
    assert_eq!(unknown.cause, Cause::Malformed);
}

#[test]
fn every_refusal_is_told_apart() {
    use ProxyRefusal::*;
    let of = |bytes: &[u8]| converse("a", Some(login()), bytes, 1).1.unwrap_err();
    let codes = [
        (1, GeneralFailure),
        (2, NotAllowed),
        (3, NetworkUnreachable),
        (4, HostUnreachable),
        (5, ConnectionRefused),
        (6, TtlExpired),
        (7, CommandNotSupported),
        (8, AddressTypeNotSupported),
        (9, Unassigned(9)),
        (255, Unassigned(255)),
    ];
    let replies = codes.map(|(code, refusal)| (vec![5, 0, 5, code], refusal));
    let others = [(vec![5, 0xff], NoAcceptableMethod), (vec![5, 2, 1, 1], Credentials)];
    for (bytes, refusal) in replies.into_iter().chain(others) {
        let failure = of(&bytes);
        assert_eq!(failure.stage, Stage::Proxy);
        assert_eq!(failure.cause, Cause::ProxyRefused { refusal });
        // "Drivers MUST treat [...] the same as a network error"
        assert!(failure.is_network_error() && !failure.may_be_overload());
        assert!(failure.detail.contains(&refusal.to_string()), "{failure}");
    }
}

#[test]
fn who_is_no_proxy_is_found_out_at_the_first_byte() {
    let failure = converse("a", None, b"H", 1).1.unwrap_err();
    assert_eq!((failure.stage, &failure.cause), (Stage::Proxy, &Cause::Malformed));
    assert!(failure.is_network_error(), "so a handshake failure is treated");
    assert!(failure.detail.contains("does not speak SOCKS5"), "{failure}");
}

#[test]
fn a_proxy_that_hangs_up_is_named() {
    let config = through_proxy(None);
    let transport =
        Transport::start(&config, &address("a"), &address("a"), &mut Vec::new()).unwrap();
    let failure = transport.failure(&eof());
    assert_eq!((failure.stage, &failure.cause), (Stage::Proxy, &Cause::Closed));
    assert_eq!(&*failure.detail, "the proxy closed the connection");
}

#[test]
fn a_unix_domain_socket_needs_no_proxy() {
    let (mut wire, config) = (Vec::new(), through_proxy(None));
    let transport =
        Transport::start(&config, &address("/tmp/m.sock"), &address("/tmp/m.sock"), &mut wire)
            .unwrap();
    assert!(transport.is_ready() && wire.is_empty());
}

/// RFC 1928 and RFC 1929 count in one byte.
#[test]
fn names_and_passwords_have_255_bytes_at_most() {
    let (longest, longer) = ("x".repeat(255), "x".repeat(256));
    assert!(Login::new(&longest, &longest).is_ok());
    assert!(Login::new(&longer, "x").is_err() && Login::new("x", &longer).is_err());
    assert!(Login::new("", "x").is_err() && Login::new("x", "").is_err());
    assert_eq!(format!("{:?}", login()), "Login(***)");

    assert!(Socks5::start(None, &longest, 1, &mut Vec::new()).is_ok());
    let failure = Socks5::start(None, &longer, 1, &mut Vec::new()).unwrap_err();
    assert_eq!((failure.stage, failure.cause), (Stage::Proxy, Cause::NotResolved));
}

proptest! {
    #[test]
    fn any_bytes_are_a_stream_or_a_failure_however_they_are_torn(
        prefix in prop::sample::select(vec![
            vec![], vec![5, 0], vec![5, 2], vec![5, 2, 1, 0], vec![5, 0, 5, 0, 0],
            vec![5, 0, 5, 0, 0, 1], vec![5, 0, 5, 0, 0, 3, 2], vec![5, 2, 1, 0, 5, 0, 0, 4],
        ]),
        noise in prop::collection::vec(any::<u8>(), 0..600),
        part in 1_usize..8,
    ) {
        let bytes = [prefix, noise].concat();
        let whole = converse("a", Some(login()), &bytes, bytes.len().max(1));
        prop_assert_eq!(&converse("a", Some(login()), &bytes, part), &whole);
        prop_assert!(whole.0.len() <= 4 + 13 + 8, "it says nothing more than it should");
    }
}

#[test]
fn the_password_is_never_printed() {
    let login = Login::new("somebody", "planted-secret").unwrap();
    let config = through_proxy(Some(login));
    let mut transport =
        Transport::start(&config, &address("a"), &address("a"), &mut Vec::new()).unwrap();
    let printed = format!("{transport:?}");
    let bytes = format!("{:?}", b"planted-secret").trim_matches(['[', ']']).to_owned();
    assert!(!printed.contains("planted-secret") && !printed.contains(&bytes), "{printed}");
    let mut reply = Vec::new();
    transport.receive(&[5, 2], &mut Vec::new(), &mut reply).unwrap();
    assert!(reply.ends_with(b"planted-secret"), "the proxy gets the name");
}
