//! What is sealed is read into one buffer, and copied once.

use std::io::{self, Read, Write};
use std::task::{Context, Poll};

use rcgen::date_time_ymd;
use rustls::{ServerConnection, version};

use super::super::connection::Stream;
use super::super::{Connected, Socket};
use super::stage::Task;
use crate::failure::Cause;
use crate::time::Instant;
use crate::transport::tests::tls::stage::{Authority, server, with_tls};
use crate::transport::{TlsMaterial, Transport};
use crate::wire::Frames;

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
    let authority = Authority::new();
    let (address, mut wire) = ("db.example".parse().unwrap(), Vec::new());
    let config = with_tls(&authority.client());
    let transport = Transport::start(&config, &address, &address, &mut wire).unwrap();
    let server = server(&authority.issue(&["db.example"]), None, &version::TLS13);
    let socket = Echo { server, answers: Vec::new() };
    let mut stream = Stream::new(Connected { socket, transport, wire });
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
    let authority = Authority::new();
    let config = with_tls(&TlsMaterial { allow_invalid_hostnames: true, ..authority.client() });
    for has_expired in [false, true] {
        let identity = match has_expired {
            false => authority.issue(&["other"]),
            true => authority.issue_with(&["other"], |params| {
                params.not_after = date_time_ymd(2024, 2, 29);
            }),
        };
        let (address, mut wire) = ("db.example".parse().unwrap(), Vec::new());
        let transport = Transport::start(&config, &address, &address, &mut wire).unwrap();
        let server = server(&identity, None, &version::TLS13);
        let socket = Echo { server, answers: Vec::new() };
        let mut stream = Stream::new(Connected { socket, transport, wire });
        let Poll::Ready(opened) = Task::new(stream.open(|_| {})).poll() else { panic!("it waits") };
        let cause = opened.err().map(|failure| failure.cause);
        assert_eq!(cause, has_expired.then_some(Cause::CertificateExpired));
    }
}
