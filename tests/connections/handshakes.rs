//! Every way to open a connection, against real servers of every version there is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use libtest_mimic::Trial;
use sdam_conformance::mongod::{Binary, Config, Server, Version};
use sdam_core::bson::rawdoc;
use sdam_core::config::{OpeningHello, Options, OptionsBuilder, ServerApiVersion};
use sdam_core::description::ServerType;
use sdam_core::topology::EventKind;
use sdam_core::wire::{Flags, Frames, write_op_msg};
use sdam_tokio::Topology;

use crate::{Outcome, V4_2, V5_0, trial};

/// A way to open a connection, and the first version that understands it.
type Scenario = (&'static str, Version, fn(&Server) -> Outcome);

const GENEROUS: Duration = Duration::from_secs(60);

const SCENARIOS: [Scenario; 4] = [
    ("legacy_hello_by_op_msg", V4_2, legacy_hello_by_op_msg),
    ("legacy_hello_by_op_query", V4_2, legacy_hello_by_op_query),
    ("hello_with_a_server_api_version", V5_0, hello_with_a_server_api_version),
    ("checksums_are_returned_and_right", V4_2, checksums_are_returned_and_right),
];

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for binary in binaries {
        for (name, since, scenario) in SCENARIOS {
            if binary.version() < since {
                continue;
            }
            let (binary, name) =
                (binary.clone(), format!("handshakes::{}::{name}", binary.version()));
            trials.push(trial(name, move || start(&binary).and_then(|server| scenario(&server))));
        }
    }
    trials
}

fn start(binary: &Binary) -> Outcome<Server> {
    Ok(Server::start(binary, Config::default())?)
}

/// Connects with these options, and waits for two checks: the handshake, and the next hello, which
/// goes by OP_MSG whatever the handshake went by.
fn two_checks(server: &Server, adjust: impl FnOnce(OptionsBuilder) -> OptionsBuilder) -> Outcome {
    let uri = format!("mongodb://{}/?directConnection=true", server.address());
    let poll = "serverMonitoringMode=poll&heartbeatFrequencyMS=500";
    let options = adjust(Options::builder().uri(&format!("{uri}&{poll}"))?).build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, mut events) = Topology::with_events(options)?;
        let mut checks = 0;
        tokio::time::timeout(GENEROUS, async {
            while checks < 2 {
                match events.next().await.ok_or("the client was closed")?.kind {
                    EventKind::ServerHeartbeatSucceeded { .. } => checks += 1,
                    EventKind::ServerHeartbeatFailed { failure, .. } => return Err(failure.into()),
                    _ => {}
                }
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        })
        .await??;
        match client.view().servers()[0].server_type {
            ServerType::Standalone => Ok(()),
            other => Err(format!("the server is {other}").into()),
        }
    })
}

fn legacy_hello_by_op_msg(server: &Server) -> Outcome {
    two_checks(server, |builder| builder)
}

fn legacy_hello_by_op_query(server: &Server) -> Outcome {
    two_checks(server, |builder| builder.opening_hello(OpeningHello::OpQuery))
}

fn hello_with_a_server_api_version(server: &Server) -> Outcome {
    two_checks(server, |builder| builder.server_api(ServerApiVersion::V1.into()))
}

/// A server that is sent a checksum takes it, and sends one back, which the reader verifies.
fn checksums_are_returned_and_right(server: &Server) -> Outcome {
    let address = server.address().to_string();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(GENEROUS))?;
    let mut bytes = Vec::new();
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    write_op_msg(&mut bytes, 1, 0, Flags::CHECKSUM_PRESENT, &ping);
    socket.write_all(&bytes)?;
    let mut frames = Frames::new();
    let message = loop {
        if let Some(message) = frames.next()? {
            break message;
        }
        let count = socket.read(frames.spare())?;
        frames.fill(count);
        if count == 0 {
            return Err("the server closed the connection".into());
        }
    };
    let reply = message.op_msg()?;
    match (reply.flags.contains(Flags::CHECKSUM_PRESENT), reply.body.get_f64("ok")) {
        (true, Ok(1.0)) => Ok(()),
        other => Err(format!("not what was expected: {other:?}").into()),
    }
}
