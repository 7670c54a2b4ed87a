//! Sealed bytes are read into one buffer, and copied once.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::fixture::Task;
use crate::net::socket::Socket;
use crate::net::stream::Connected;
use crate::net::stream::Stream;
use sdam_core::failure::Cause;
use sdam_core::time::Instant;
use sdam_core::transport::{TlsConfig, TlsMaterial, Transport, TransportConfig, TrustAnchors};
use sdam_core::wire::Frames;

/// An authority, and a server with a certificate of it.
struct Servers {
    pem: String,
    server: Arc<ServerConfig>,
}

impl Servers {
    /// The server's name is `name`, and its certificate expires when `change` says.
    fn named(name: &str, change: fn(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap().pem();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let server = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self { pem: authority.pem(), server: Arc::new(server) }
    }

    /// Connects a client that trusts the authority to a new server.
    fn connect(&self, allow_invalid_hostnames: bool) -> Stream<Echo> {
        let anchors = TrustAnchors::Pem(self.pem.as_bytes());
        let material = TlsMaterial::default()
            .with_anchors(anchors)
            .with_allow_invalid_hostnames(allow_invalid_hostnames);
        let tls = TlsConfig::from_pem(&material).unwrap();
        let config = TransportConfig::default().with_tls(tls);
        let (address, mut wire) = ("db.example".parse().unwrap(), Vec::new());
        let transport = Transport::start(&config, &address, &address, &mut wire).unwrap();
        let server = ServerConnection::new(Arc::clone(&self.server)).unwrap();
        let socket = Echo { server, answers: Vec::new() };
        Stream::new(Connected { socket, transport, wire })
    }
}

/// A server that echoes.
struct Echo {
    server: ServerConnection,
    answers: Vec<u8>,
}

impl Socket for Echo {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        buffer: &mut [u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        if self.answers.is_empty() {
            return Poll::Pending;
        }
        let count = buffer.len().min(self.answers.len());
        self.answers.drain(..count).zip(buffer).for_each(|(byte, place)| *place = byte);
        if self.answers.is_empty() {
            // Nothing of it counts as the client's.
            self.answers = Vec::new();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        mut bytes: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let (length, mut plain) = (bytes.len(), Vec::new());
        while !bytes.is_empty() {
            self.server.read_tls(&mut bytes).unwrap();
            if self.server.process_new_packets().is_err() {
                // The client refuses, and has said so.
                break;
            }
            // An error says that nothing more is there.
            let _ = self.server.reader().read_to_end(&mut plain);
        }
        self.server.set_buffer_limit(None);
        self.server.writer().write_all(&plain).unwrap();
        while self.server.wants_write() {
            self.server.write_tls(&mut self.answers).unwrap();
        }
        Poll::Ready(Ok(length))
    }

    fn is_quiet(&mut self) -> bool {
        self.answers.is_empty()
    }
}

/// A message of so many bytes.
fn message(length: i32) -> Vec<u8> {
    let mut message = length.to_le_bytes().to_vec();
    message.resize(usize::try_from(length).unwrap(), 7);
    message
}

#[test]
fn reading_what_is_sealed_allocates_no_buffer_each_time() {
    let mut stream = Servers::named("db.example", |_| {}).connect(false);
    let Poll::Ready(Ok(())) = Task::new(stream.open(|_| {})).poll() else { panic!("not open") };
    let mut frames = Frames::new();
    for round in 0..10 {
        let sent = message(200);
        assert!(matches!(Task::new(stream.send(&sent, None)).poll(), Poll::Ready(Ok(()))));
        let mut received = None;
        let allocated = allocation_counter::measure(|| {
            while received.is_none() {
                let mut receiving = Task::new(stream.receive(&mut frames, None));
                assert!(matches!(receiving.poll(), Poll::Ready(Ok(()))));
                drop(receiving);
                received = frames.next().unwrap();
            }
        });
        assert_eq!(received.unwrap().bytes()[..], sent);
        assert!(round == 0 || allocated.bytes_total < 4096, "{} bytes", allocated.bytes_total);
    }
    // However long it is, and however it is split into records and reads.
    let sent = message(100_000);
    assert!(matches!(Task::new(stream.send(&sent, None)).poll(), Poll::Ready(Ok(()))));
    let received = loop {
        if let Some(received) = frames.next().unwrap() {
            break received;
        }
        let mut receiving = Task::new(stream.receive(&mut frames, None));
        while receiving.poll().is_pending() {
            assert!(receiving.was_woken(), "others only have their turn");
        }
    };
    assert!(received.bytes()[..] == sent);
}

/// URI Options: `tlsAllowInvalidHostnames` is about names only.
#[test]
fn a_stream_to_a_server_whose_certificate_has_expired_is_not_opened_though_any_name_will_do() {
    for has_expired in [false, true] {
        let servers = Servers::named(
            "other",
            match has_expired {
                false => |_| {},
                true => |params| params.not_after = date_time_ymd(2024, 2, 29),
            },
        );
        let mut stream = servers.connect(true);
        let Poll::Ready(opened) = Task::new(stream.open(|_| {})).poll() else { panic!("it waits") };
        let cause = opened.err().map(|failure| failure.cause);
        assert_eq!(cause, has_expired.then_some(Cause::CertificateExpired));
    }
}

#[test]
fn a_long_message_leaves_no_long_buffer_behind() {
    const LENGTH: i32 = 4 << 20;
    let mut stream = Servers::named("db.example", |_| {}).connect(false);
    let Poll::Ready(Ok(())) = Task::new(stream.open(|_| {})).poll() else { panic!("not open") };
    let mut frames = Frames::new();
    let mut exchange = |length| {
        let sent = message(length);
        assert!(matches!(Task::new(stream.send(&sent, None)).poll(), Poll::Ready(Ok(()))));
        while frames.next().unwrap().is_none() {
            let mut receiving = Task::new(stream.receive(&mut frames, None));
            while receiving.poll().is_pending() {
                assert!(receiving.was_woken(), "others only have their turn");
            }
        }
    };
    exchange(200);
    let kept = allocation_counter::measure(|| exchange(LENGTH)).bytes_current;
    assert!(kept < i64::from(LENGTH / 4), "{kept} bytes");
}
