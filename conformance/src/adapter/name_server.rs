//! A name server of one deployment, which can fall silent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// The deployment that is looked up, and the host and port that it is said to have.
pub(super) const DEPLOYMENT: &str = "cluster.example.com";
pub(super) const HOST: &str = "db.example.com:27017";

/// Answers every question for SRV records with [`HOST`], and others with that there is nothing.
pub(super) struct NameServer {
    address: SocketAddr,
    state: Arc<NameServerState>,
}

#[derive(Default)]
struct NameServerState {
    is_silent: AtomicBool,
    ignored: AtomicUsize,
}

impl NameServer {
    pub(super) fn start() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let state = Arc::<NameServerState>::default();
        let known = Arc::clone(&state);
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                if known.is_silent.load(Ordering::Relaxed) {
                    known.ignored.fetch_add(1, Ordering::Relaxed);
                } else if length >= HEADER_LEN {
                    // The client may be gone.
                    let _ = socket.send_to(&answer(&query[..length]), client);
                }
            }
        });
        Ok(Self { address, state })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn fall_silent(&self) {
        self.state.is_silent.store(true, Ordering::Relaxed);
    }

    /// Returns how many questions it has left unanswered.
    pub(super) fn ignored(&self) -> usize {
        self.state.ignored.load(Ordering::Relaxed)
    }
}

const HEADER_LEN: usize = 12;

/// Turns a question into its answer (RFC 1035, RFC 2782).
fn answer(query: &[u8]) -> Vec<u8> {
    let mut message = query.to_vec();
    // A response; what follows the question is not repeated.
    message[2] |= 0x80;
    message.truncate(question_end(query));
    message[6..HEADER_LEN].fill(0);
    match query.windows(8).any(|part| part == b"_mongodb") {
        // There is no such name.
        false => message[3] |= 3,
        true => {
            message[7] = 1;
            // SRV of the name asked for, for a second, with priority and weight 0.
            message.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1, 0, 22, 0, 0, 0, 0]);
            message.extend(27017_u16.to_be_bytes());
            message.extend(b"\x02db\x07example\x03com\0");
        }
    }
    message
}

/// Returns where the first question ends: after its name, its type and its class.
fn question_end(query: &[u8]) -> usize {
    let mut at = HEADER_LEN;
    while let Some(length @ 1..) = query.get(at).copied() {
        at += 1 + usize::from(length);
    }
    (at + 5).min(query.len())
}
