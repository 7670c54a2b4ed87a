//! A replica set whose members advertise names that mean nothing here, followed through tunnels.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use sdam_conformance::mongod::{Binary, Options, ReplicaSet, Server};
use serde_json::Value;

use crate::Outcome;
use crate::watch::{GENEROUS, Watch};

const WHOLE: &[&str] = &["RSPrimary", "RSSecondary", "RSSecondary"];

/// Carries the bytes of every connection to a port of its own on to a server.
struct Tunnel {
    from: SocketAddr,
    carried: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

impl Tunnel {
    fn to(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let tunnel =
            Self { from: listener.local_addr()?, carried: Arc::default(), closed: Arc::default() };
        let (carried, closed) = (Arc::clone(&tunnel.carried), Arc::clone(&tunnel.closed));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                // As with ssh, a server that is not there shows as a connection that is closed.
                if let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                    && carry(&near, &far).is_ok()
                    && carry(&far, &near).is_ok()
                {
                    carried.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(tunnel)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // Wakes the thread up; a closed listener is as good.
        let _ = TcpStream::connect(self.from);
    }
}

/// Carries bytes one way until there are no more, and then ends both connections.
fn carry(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    thread::spawn(move || {
        // How it ends, and whether one end is closed already, makes no difference.
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
    Ok(())
}

fn text(server: &Server) -> String {
    server.advertised().to_string()
}

fn addresses(view: &Value) -> Vec<&str> {
    let servers = view["newDescription"]["servers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut found: Vec<&str> = servers.iter().filter_map(|s| s["address"].as_str()).collect();
    found.sort_unstable();
    found
}

/// SDAM, "Topology type ReplicaSetWithPrimary": the members are those that the primary lists, by
/// the names it lists, whatever the bytes have to go through.
pub(crate) fn a_set_behind_tunnels(binary: &Binary) -> Outcome {
    let private_names = (1..=3).map(|n| format!("db{n}.sdam.invalid")).collect();
    let options = Options { private_names, ..Options::default() };
    let mut set = ReplicaSet::start(binary, 3, &options)?;
    let seed = text(&set.members()[0]);
    let uri = format!(
        "mongodb://{seed}/?replicaSet={}&heartbeatFrequencyMS=1000&connectTimeoutMS=20000",
        set.set_name()
    );

    // Without a map there is no way.
    let mut lost = Watch::start(&uri)?;
    lost.expect(format!("no address for {seed}"), |event| {
        event["event"] == "serverHeartbeatFailed" && event["failure"]["cause"] == "notResolved"
    })?;
    lost.end()?;

    let port = |server: &Server| server.address().port().ok_or("a socket has no port");
    let (mut tunnels, mut arguments) = (Vec::new(), Vec::new());
    for server in set.members() {
        let tunnel = Tunnel::to(port(server)?)?;
        arguments.push("--map".to_owned());
        arguments.push(format!("{}={}", text(server), tunnel.from));
        tunnels.push(tunnel);
    }
    let mut watch = Watch::start_with(&arguments, &uri)?;
    let view = watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    let mut advertised: Vec<String> = set.members().iter().map(text).collect();
    advertised.sort_unstable();
    assert_eq!(addresses(&view), advertised, "known by what they advertise");

    let old = text(&set.members()[set.wait_for_primary(GENEROUS)?]);
    set.step_down()?;
    watch.expect_change(&old, "RSSecondary")?;
    watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;

    let primary = set.wait_for_primary(GENEROUS)?;
    let old = text(&set.members()[primary]);
    set.kill(primary)?;
    let unknown = watch.expect_loss(&old)?;
    let detail = unknown["newDescription"]["error"]["detail"].as_str().unwrap_or_default();
    let both = format!("dialled as {}: ", tunnels[primary].from);
    assert!(detail.starts_with(&both), "{detail}");
    watch.expect_types("ReplicaSetWithPrimary", &["RSPrimary", "RSSecondary", "Unknown"])?;
    set.restart(primary)?;
    watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    watch.end()?;

    let carried = |tunnel: &Tunnel| tunnel.carried.load(Ordering::Relaxed);
    assert!(tunnels.iter().all(|tunnel| carried(tunnel) > 0), "every member has its tunnel");
    Ok(())
}
