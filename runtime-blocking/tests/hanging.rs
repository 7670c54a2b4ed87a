//! Hangs that hold up nothing else: dialers, names, and providers of credentials.
//!
//! One test after another in a process of its own, as threads are counted.

#![cfg(target_os = "linux")]

#[expect(dead_code, reason = "other tests need more of it")]
mod deployment;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use deployment::{Deployment, SOON, view};
use sdam_blocking::{ClientBuilder, Events, Topology};
use sdam_cluster::EmbeddedOptions;
use sdam_core::auth::CredentialRequest;
use sdam_core::bson::rawdoc;
use sdam_core::config::{AuthMechanism, Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::topology::EventKind;
use sdam_host::Answering;
use sdam_host::CredentialProvider;

/// Set for a process that is to end while a dialer hangs.
const CHILD: &str = "SDAM_TEST_ENDS_WHILE_A_DIALER_HANGS";

/// The number of a client's threads that may hang.
const MAX_THREADS: usize = 8;

#[test]
fn what_hangs_holds_up_nobody_else() {
    if std::env::var_os(CHILD).is_some() {
        return end_while_a_dialer_hangs();
    }
    a_dialer_that_hangs_holds_up_its_own_server();
    names_that_hang_are_bounded();
    a_provider_that_hangs_holds_up_no_discovery();
    a_process_ends_while_a_dialer_hangs();
}

/// A gate that blocks its callers until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<ProviderState>, Condvar)>);

#[derive(Default)]
struct ProviderState {
    is_open: bool,
    waiting: usize,
    /// The number of calls of each.
    calls: BTreeMap<String, usize>,
}

impl Gate {
    fn pass(&self, who: &str) {
        let mut state = self.0.0.lock().unwrap();
        *state.calls.entry(who.to_owned()).or_default() += 1;
        state.waiting += 1;
        self.0.1.notify_all();
        let mut state = self.0.1.wait_while(state, |state| !state.is_open).unwrap();
        state.waiting -= 1;
    }

    fn open(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }

    fn wait_until(&self, wanted: impl Fn(&ProviderState) -> bool) {
        let state = self.0.0.lock().unwrap();
        let (_state, late) =
            self.0.1.wait_timeout_while(state, SOON, |state| !wanted(state)).unwrap();
        assert!(!late.timed_out(), "it comes in time");
    }

    fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    fn calls(&self, who: &ServerAddress) -> usize {
        self.0.0.lock().unwrap().calls.get(&who.to_string()).copied().unwrap_or_default()
    }
}

fn connect(address: &ServerAddress) -> io::Result<TcpStream> {
    TcpStream::connect((address.host(), address.port().unwrap()))
}

fn helpers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap);
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "sdam-helper").count()
}

fn no_helper_is_left() {
    let end = Instant::now() + SOON;
    while helpers() > 0 {
        assert!(Instant::now() < end, "{} are left", helpers());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until so many checks of each of these servers have ended in this way.
fn checks(
    client: &Topology,
    events: &mut Events,
    of: &[ServerAddress],
    count: usize,
    has_succeeded: bool,
) {
    let mut counts = BTreeMap::<ServerAddress, usize>::new();
    let end = client.now() + SOON;
    while of.iter().any(|address| counts.get(address).is_none_or(|seen| *seen < count)) {
        let event = events.next_until(end).expect("it comes in time");
        let ended = match event.kind {
            EventKind::ServerHeartbeatSucceeded { address, .. } if has_succeeded => address,
            EventKind::ServerHeartbeatFailed { address, .. } if !has_succeeded => address,
            _ => continue,
        };
        *counts.entry(ended).or_default() += 1;
    }
}

const QUICK: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=2000";

fn a_dialer_that_hangs_holds_up_its_own_server() {
    let deployment = Deployment::start(EmbeddedOptions::sharded(2));
    let addresses: Vec<ServerAddress> =
        deployment.cluster.addresses().iter().map(|it| it.to_string().parse().unwrap()).collect();
    let [well, hanging] = addresses.try_into().unwrap();
    let gate = Gate::default();
    let (held, stuck) = (gate.clone(), hanging.clone());
    let options = format!("mongodb://{well},{hanging}/?{QUICK}");
    let (client, mut events) = Topology::builder(Options::parse(&options).unwrap())
        .dialer(move |address: ServerAddress| {
            if address == stuck {
                held.pass(&address.to_string());
            }
            connect(&address)
        })
        .build_with_events()
        .unwrap();
    gate.wait_until(|state| state.waiting == 1);
    client.with_timeout(SOON).run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
    let one = std::slice::from_ref(&well);
    checks(&client, &mut events, one, 3, true);
    checks(&client, &mut events, std::slice::from_ref(&hanging), 2, false);
    checks(&client, &mut events, one, 3, true);
    // It has been given up and asked for again, but not on another thread.
    assert_eq!((gate.calls(&hanging), helpers()), (1, 1));
    gate.open();
    view(&client, |view| {
        view.servers().iter().all(|server| server.server_type == ServerType::Mongos)
    });
    drop(client);
    no_helper_is_left();
}

fn names_that_hang_are_bounded() {
    let names: Vec<ServerAddress> =
        (0..50).map(|index| format!("host-{index}.invalid").parse().unwrap()).collect();
    let seeds: Vec<String> = names.iter().map(ToString::to_string).collect();
    let options =
        format!("mongodb://{}/?heartbeatFrequencyMS=500&connectTimeoutMS=500", seeds.join(","));
    let gate = Gate::default();
    let asked = gate.clone();
    let (client, mut events) = Topology::builder(Options::parse(&options).unwrap())
        .dialer(move |address: ServerAddress| -> io::Result<TcpStream> {
            asked.pass(&address.to_string());
            Err(io::ErrorKind::HostUnreachable.into())
        })
        .build_with_events()
        .unwrap();
    gate.wait_until(|state| state.waiting == MAX_THREADS);
    // Each was given up, and asked for again.
    checks(&client, &mut events, &names, 2, false);
    assert_eq!((gate.waiting(), helpers()), (MAX_THREADS, MAX_THREADS));
    assert!(names.iter().all(|name| gate.calls(name) <= 1), "no name hangs twice");
    assert!(client.close(SOON), "nothing waits for what hangs");
    gate.open();
    no_helper_is_left();
}

/// A provider that hangs, in a call that blocks.
struct Hanging(Gate);

impl CredentialProvider for Hanging {
    fn answer(&self, _: CredentialRequest) -> Answering {
        let gate = self.0.clone();
        Box::pin(async move {
            gate.pass("provider");
            std::future::pending().await
        })
    }
}

fn a_provider_that_hangs_holds_up_no_discovery() {
    let deployment = Deployment::start(EmbeddedOptions::sharded(2));
    let addresses: Vec<ServerAddress> =
        deployment.cluster.addresses().iter().map(|it| it.to_string().parse().unwrap()).collect();
    let [first, second] = addresses.try_into().unwrap();
    let (provider, dialer) = (Gate::default(), Gate::default());
    let (held, later) = (dialer.clone(), second.clone());
    let uri = format!("mongodb://{first},{second}/?minPoolSize=1&{QUICK}");
    let options = Options::builder().uri(&uri).unwrap();
    let options = options.auth_mechanism(AuthMechanism::Oidc).oidc_callback(true).build().unwrap();
    let builder: ClientBuilder = Topology::builder(options)
        .credential_provider(Hanging(provider.clone()))
        .dialer(move |address: ServerAddress| {
            if address == later {
                held.pass(&address.to_string());
            }
            connect(&address)
        });
    let (client, mut events) = builder.build_with_events().unwrap();
    provider.wait_until(|state| state.waiting == 1);
    dialer.open();
    checks(&client, &mut events, &[first, second], 3, true);
    assert_eq!(provider.waiting(), 1, "it still hangs");
    assert!(client.close(SOON));
    provider.open();
    no_helper_is_left();
}

fn a_process_ends_while_a_dialer_hangs() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "what_hangs_holds_up_nobody_else"])
        .env(CHILD, "1")
        .spawn()
        .unwrap();
    let end = Instant::now() + SOON;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the process does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
}

fn end_while_a_dialer_hangs() {
    let gate = Gate::default();
    let held = gate.clone();
    let client = Topology::builder(Options::parse("mongodb://host.invalid").unwrap())
        .dialer(move |address: ServerAddress| -> io::Result<TcpStream> {
            held.pass(&address.to_string());
            Err(io::ErrorKind::HostUnreachable.into())
        })
        .build()
        .unwrap();
    gate.wait_until(|state| state.waiting == 1);
    std::mem::forget(client);
}
