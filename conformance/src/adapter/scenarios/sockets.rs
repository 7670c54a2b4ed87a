//! The options of a runtime's sockets, read back from the kernel.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sdam_core::config::{self, TcpOptions};
use socket2::Socket;

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Deployment, Fixture, GRACE, Outcome, direct, ensure};
use crate::adapter::parts::Part;
use crate::proxy::Proxy;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("sockets::peers_are_asked_for_signs_of_life", signs_of_life),
        Test::new("sockets::proxies_are_asked_for_signs_of_life", through_a_proxy)
            .with(Part::Microsocks),
        Test::new("sockets::peers_are_given_up_as_soon_as_the_options_say", given_up),
    ]
}

/// The options of a socket that leads to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Options {
    keepalive: bool,
    idle: Duration,
    interval: Duration,
    probes: u32,
    user_timeout: Option<Duration>,
    nodelay: bool,
}

/// The keepalive that drivers agree on: two minutes of silence, then nine probes in one and a half.
const EXPECTED: Options = Options {
    keepalive: true,
    idle: Duration::from_secs(120),
    interval: Duration::from_secs(10),
    probes: 9,
    user_timeout: None,
    nodelay: true,
};

/// A monitor's stream, the one that measures round trips, and that of a connection in the pool.
const STREAMS: usize = 3;

fn signs_of_life<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start(1)?;
    let server = deployment.0.addresses()[0];
    configured(fixture, &direct(server), server, TcpOptions::default(), EXPECTED)
}

fn through_a_proxy<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (deployment, proxy) = (Deployment::start(1)?, Proxy::start(None)?);
    let server = deployment.0.addresses()[0];
    let uri = format!("{}&proxyHost=127.0.0.1&proxyPort={}", direct(server), proxy.port());
    let peer = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    configured(fixture, &uri, peer, TcpOptions::default(), EXPECTED)
}

fn given_up<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start(1)?;
    let server = deployment.0.addresses()[0];
    let tcp = TcpOptions::noticing_within(Duration::from_secs(4));
    let expected = Options {
        idle: Duration::from_secs(2),
        interval: Duration::from_secs(1),
        probes: 2,
        user_timeout: Some(Duration::from_secs(4)),
        ..EXPECTED
    };
    configured(fixture, &direct(server), server, tcp, expected)
}

fn configured<A: Adapter>(
    fixture: &Fixture<A>,
    uri: &str,
    peer: SocketAddr,
    tcp: TcpOptions,
    expected: Options,
) -> Outcome {
    let uri = format!("{uri}&heartbeatFrequencyMS=500");
    let asked = config::Options::builder().uri(&uri)?.tcp(tcp).build()?;
    let (client, _events) = fixture.adapter.client(asked)?;
    fixture.ping(&client)?;
    // One that has just been connected has none of them yet.
    let end = Instant::now() + 2 * GRACE;
    loop {
        let found = sockets(peer)?.iter().map(options).collect::<io::Result<Vec<_>>>()?;
        let other = found.iter().find(|options| **options != expected);
        if found.len() >= STREAMS && other.is_none() {
            break;
        }
        let count = found.len();
        ensure!(Instant::now() < end, "of {count} sockets one has {other:?}");
        thread::sleep(Duration::from_millis(5));
    }
    // They were there all the while.
    fixture.ping(&client)?;
    fixture.block_on(client.close());
    Ok(())
}

/// Returns the sockets of this process that lead to `peer`.
fn sockets(peer: SocketAddr) -> io::Result<Vec<Socket>> {
    let myself = Pid::from_raw(i32::try_from(process::id()).map_err(io::Error::other)?);
    let myself = myself.ok_or(io::ErrorKind::NotFound)?;
    let myself = pidfd_open(myself, PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")?.map_while(Result::ok) {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let leads_to_a_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let Some(number) = number.filter(|_| leads_to_a_socket) else { continue };
        let socket = match pidfd_getfd(&myself, number, PidfdGetfdFlags::empty()) {
            Ok(socket) => Socket::from(socket),
            // It was closed meanwhile.
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        if socket.peer_addr().is_ok_and(|address| address.as_socket() == Some(peer)) {
            found.push(socket);
        }
    }
    Ok(found)
}

fn options(socket: &Socket) -> io::Result<Options> {
    Ok(Options {
        keepalive: socket.keepalive()?,
        idle: socket.tcp_keepalive_time()?,
        interval: socket.tcp_keepalive_interval()?,
        probes: socket.tcp_keepalive_retries()?,
        user_timeout: socket.tcp_user_timeout()?,
        nodelay: socket.tcp_nodelay()?,
    })
}
