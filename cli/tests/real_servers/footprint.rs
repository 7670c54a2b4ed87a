//! The costs of clients at a real server, as it counts them itself, beside what `sdam footprint`
//! says.

use std::process::Command;
use std::time::{Duration, Instant};

use sdam_conformance::mongod::{Binary, Connection, Options, ReplicaSet};
use sdam_core::bson::{Bson, Document, doc};
use sdam_core::config;
use sdam_core::topology::EventKind;
use sdam_host::Events;
use sdam_tokio::Topology;
use serde_json::Value;

use crate::Outcome;
use crate::watch::GENEROUS;

/// The number of clients, and of heartbeats of each that are counted.
const CLIENTS: u32 = 5;
const HEARTBEATS: u32 = 20;

/// The share by which the model may be wrong: it says less of itself in a reply than a server.
const TOLERANCE: f64 = 0.15;

/// The length of the request that a stream begins with. A server counts it as read again for each
/// reply of the stream, though it has come once.
const AWAITABLE_HELLO_LEN: f64 = 148.0;

/// The counts of a server.
#[derive(Clone, Copy, Debug)]
struct Counts {
    connections: f64,
    hellos: f64,
    bytes_in: f64,
    bytes_out: f64,
}

/// A real server counts connections, hellos and bytes as the model does.
pub(crate) fn what_clients_cost(binary: &Binary) -> Outcome {
    let set = ReplicaSet::start(binary, 1, &Options::default())?;
    set.wait_until_settled(GENEROUS)?;
    // One connection asks each time: those of before are counted until the server has closed them.
    let mut server = Connection::open(&set.members()[0].address(), GENEROUS)?;
    for mode in ["stream", "poll"] {
        let model = model(mode)?;
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(compare(&set, &mut server, mode, &model))?;
    }
    Ok(())
}

/// Returns what the tool says of such clients, for one of them.
fn model(mode: &str) -> Outcome<Value> {
    let arguments = ["footprint", "--members", "1", "--heartbeat", "500ms", "--json", "--mode"];
    let output = Command::new(env!("CARGO_BIN_EXE_sdam")).args(arguments).arg(mode).output()?;
    let object: Value = serde_json::from_slice(&output.stdout)?;
    Ok(object["modes"][0]["eachMember"].clone())
}

async fn compare(set: &ReplicaSet, server: &mut Connection, mode: &str, model: &Value) -> Outcome {
    until(server, "only the one that asks", |open| open <= 1.0).await?;
    let uri = format!(
        "mongodb://{}/?replicaSet={}&heartbeatFrequencyMS=500&serverMonitoringMode={mode}",
        set.members()[0].advertised(),
        set.set_name(),
    );
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Topology::with_events(config::Options::parse(&uri)?)?);
    }
    heartbeats(&mut clients, 3).await?;
    let model = |field: &str| model[field].as_f64().ok_or("a field is missing");
    let sockets = model("sockets")? * f64::from(CLIENTS);
    until(server, &format!("{sockets} of {mode}"), |open| open - 1.0 >= sockets).await?;
    // What asking costs is in both differences, and cancels out.
    let (first, second) = (counts(server)?, counts(server)?);
    let opened = second.connections - 1.0;
    assert!((opened - sockets).abs() < 0.5, "{mode}: {opened} connections, not {sockets}");
    heartbeats(&mut clients, HEARTBEATS).await?;
    let third = counts(server)?;
    let difference = |of: fn(Counts) -> f64| (of(third) - of(second)) - (of(second) - of(first));
    let hellos = difference(|it| it.hellos);
    let beats = f64::from(CLIENTS * HEARTBEATS);
    let hellos_per_beat = model("hellosPerSecond")? / 2.0;
    let per_hello = |field: &str| Ok::<_, &str>(model(field)? / model("hellosPerSecond")?);
    let (bytes_in, bytes_out) =
        (difference(|it| it.bytes_in) / hellos, difference(|it| it.bytes_out) / hellos);
    let not_read = (1.0 - per_hello("requestsPerSecond")?) * AWAITABLE_HELLO_LEN;
    let expected_in = per_hello("bytesInPerSecond")? + not_read;
    let expected_out = per_hello("bytesOutPerSecond")?;
    println!(
        "{mode}: {:.2} hellos a heartbeat ({hellos_per_beat:.2}), {bytes_in:.0} bytes in a hello \
         ({expected_in:.0}), {bytes_out:.0} out ({expected_out:.0})",
        hellos / beats,
    );
    is_near("hellos", hellos / beats, hellos_per_beat);
    is_near("bytes in", bytes_in, expected_in);
    is_near("bytes out", bytes_out, expected_out);
    for (client, _) in &clients {
        client.close().await;
    }
    Ok(())
}

/// Waits until the server has so many connections.
async fn until(server: &mut Connection, what: &str, is_so: impl Fn(f64) -> bool) -> Outcome {
    let end = Instant::now() + GENEROUS;
    loop {
        let open = counts(server)?.connections;
        if is_so(open) {
            return Ok(());
        }
        assert!(Instant::now() < end, "there are {open} connections and not {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_near(what: &str, found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < TOLERANCE, "{what}: {found} in place of {expected}");
}

/// Waits until each client has had so many more heartbeats.
async fn heartbeats(clients: &mut [(Topology, Events)], count: u32) -> Outcome {
    for (_, events) in clients.iter_mut() {
        // Those of the time that others were waited for.
        while events.try_next().is_some() {}
    }
    for (_, events) in clients.iter_mut() {
        let mut seen = 0;
        while seen < count {
            let event = events.next().await.ok_or("a client was closed")?;
            seen += u32::from(matches!(event.kind, EventKind::ServerHeartbeatSucceeded { .. }));
        }
    }
    Ok(())
}

fn counts(server: &mut Connection) -> Outcome<Counts> {
    let status = server.command("admin", &doc! { "serverStatus": 1 }, GENEROUS)?;
    let of = |path: &[&str]| number(&status, path);
    let commands = ["hello", "isMaster"].map(|name| of(&["metrics", "commands", name, "total"]));
    Ok(Counts {
        connections: of(&["connections", "current"]).ok_or("no connections")?,
        hellos: commands.into_iter().flatten().sum(),
        bytes_in: of(&["network", "bytesIn"]).ok_or("no bytes")?,
        bytes_out: of(&["network", "bytesOut"]).ok_or("no bytes")?,
    })
}

fn number(document: &Document, path: &[&str]) -> Option<f64> {
    let (first, rest) = path.split_first()?;
    match (document.get(first)?, rest) {
        (Bson::Document(inner), _) => number(inner, rest),
        (Bson::Int32(number), []) => Some(f64::from(*number)),
        (Bson::Int64(number), []) => Some(number.to_string().parse().ok()?),
        (Bson::Double(number), []) => Some(*number),
        _ => None,
    }
}
