//! Measures further connections of a client under TLS: those that resume the session of an earlier
//! one, and those that do not, turn by turn, to a real server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bson::rawdoc;
use clap::Parser;
use sdam_bench::load::cpu_time;
use sdam_bench::{Failure, newest};
use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Config, Server, Tls};
use sdam_core::config::ServerAddress;
use sdam_core::transport::{TlsConfig, TlsMaterial, Transport, TransportConfig, TrustAnchors};
use sdam_core::wire::{Flags, write_op_msg};

/// Measures further connections under TLS.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The number of connections of each kind.
    #[arg(long, default_value_t = 300)]
    connections: usize,
}

/// The cost of connections of a kind, in the order in which they were opened.
#[derive(Default)]
struct Cost {
    cpu: Vec<Duration>,
    time: Vec<Duration>,
    /// The number of times that the client has waited for the server before it could speak.
    waits: usize,
    received: usize,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let authority = Authority::new("the authority")?;
    let identity = authority.issue("server", &["127.0.0.1"])?;
    let pem = std::fs::read(authority.file())?;
    println!("| TLS | session | CPU, us | time, us | waits | bytes received |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for (version, disabled) in [("1.3", "TLS1_0,TLS1_1"), ("1.2", "TLS1_0,TLS1_1,TLS1_3")] {
        let arguments_of_server = ["--tlsDisabledProtocols", disabled].map(str::to_owned);
        let server = Server::start(
            &newest()?,
            Config {
                tls: Some(Tls::new(identity.clone(), authority.file())),
                arguments: arguments_of_server.into(),
                ..Config::default()
            },
        )?;
        let address: SocketAddr = server.address().to_string().parse()?;
        let make =
            || TlsConfig::from_pem(&TlsMaterial::default().with_anchors(TrustAnchors::Pem(&pem)));
        let shared = make()?;
        // The first one has nothing to resume.
        connect(address, &shared, &mut Cost::default())?;
        let (mut resumed, mut whole) = (Cost::default(), Cost::default());
        for _ in 0..arguments.connections {
            let own = make()?;
            connect(address, &own, &mut whole)?;
            connect(address, &shared, &mut resumed)?;
        }
        for (session, cost) in [("a new one", whole), ("resumed", resumed)] {
            let of_each = |total: usize| total as f64 / arguments.connections as f64;
            println!(
                "| {version} | {session} | {:.0} | {:.0} | {:.1} | {:.0} |",
                median(cost.cpu),
                median(cost.time),
                of_each(cost.waits),
                of_each(cost.received),
            );
        }
    }
    Ok(())
}

/// Opens a connection and sends hello, whose reply comes behind what resumes the session later.
fn connect(address: SocketAddr, tls: &TlsConfig, cost: &mut Cost) -> Result<(), Failure> {
    let name: ServerAddress = address.to_string().parse()?;
    let config = TransportConfig::default().with_tls(tls.clone());
    let (cpu, begun) = (cpu_time(), Instant::now());
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let (mut wire, mut plain, mut buffer) = (Vec::new(), Vec::new(), [0; 16 * 1024]);
    let mut transport = Transport::start(&config, &name, &name, &mut wire)?;
    while !transport.is_ready() {
        socket.write_all(&std::mem::take(&mut wire))?;
        let count = socket.read(&mut buffer)?;
        cost.received += count;
        cost.waits += 1;
        transport.receive(&buffer[..count], &mut plain, &mut wire)?;
    }
    let mut hello = Vec::new();
    let body = rawdoc! { "hello": 1, "$db": "admin" };
    write_op_msg(&mut hello, 1, 0, Flags::NONE, &body);
    transport.send(&hello, &mut wire);
    socket.write_all(&wire)?;
    while plain.is_empty() {
        let count = socket.read(&mut buffer)?;
        transport.receive(&buffer[..count], &mut plain, &mut Vec::new())?;
    }
    cost.cpu.push(cpu_time() - cpu);
    cost.time.push(begun.elapsed());
    Ok(())
}

/// Returns the median in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
