//! The number of threads that clients have, and that they end wherever a client is dropped.
//!
//! One test after another in a process of its own, as threads are counted.

#![cfg(target_os = "linux")]

mod deployment;

use std::fs;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use deployment::{Deployment, SOON, is_whole, view};
use sdam_blocking::driver::DriverTopology;
use sdam_blocking::{Topology, block_on};
use sdam_cluster::EmbeddedOptions;
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::selection::Criteria;

/// Returns the names of the threads of clients.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap);
    // A thread that has just ended has no name any more.
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("sdam-")).collect()
}

fn no_thread_is_left() {
    let end = Instant::now() + SOON;
    while !threads().is_empty() {
        assert!(Instant::now() < end, "left: {:?}", threads());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn threads_are_few_and_end() {
    their_number_does_not_grow_with_that_of_servers();
    nor_with_that_of_clients();
    one_client_that_panics_or_hangs_is_no_other_clients_business();
    closing_ends_them_while_the_client_is_still_there();
    dropping_ends_them_while_a_loan_is_still_there();
    dropping_waits_for_nothing();
    it_may_be_dropped_on_a_thread_that_panics();
    it_may_be_dropped_by_one_of_its_own_threads();
    it_may_be_dropped_by_whoever_is_woken_on_its_thread();
    it_may_be_dropped_when_a_thread_ends();
}

fn their_number_does_not_grow_with_that_of_servers() {
    for count in [3, 50] {
        let deployment = Deployment::start(EmbeddedOptions::sharded(count));
        let client = deployment.client("?minPoolSize=2");
        let mut most = 0;
        let mut views = client.watch_topology();
        while views
            .next_until(client.now() + SOON)
            .expect("it comes in time")
            .servers()
            .iter()
            .any(|server| server.server_type != ServerType::Mongos)
        {
            most = most.max(threads().len());
        }
        client.run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
        most = most.max(threads().len());
        assert!((1..=2).contains(&most), "{most} threads for {count} servers");
        drop((views, client));
        no_thread_is_left();
    }
}

fn nor_with_that_of_clients() {
    let deployment = Deployment::start(EmbeddedOptions::default());
    let clients: Vec<Topology> = (0..50).map(|_| deployment.client("")).collect();
    for client in &clients {
        client.with_timeout(SOON).run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
    }
    assert_eq!(threads(), ["sdam-poller"]);
    // Those that are left go on when others end, and so does one that comes later.
    let mut clients = clients.into_iter();
    let last = clients.next_back().unwrap();
    assert!(clients.all(|client| client.close(SOON)));
    let later = deployment.client("");
    for client in [&last, &later] {
        client.with_timeout(SOON).run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
    }
    assert_eq!(threads(), ["sdam-poller"]);
    drop((last, later));
    no_thread_is_left();
}

fn one_client_that_panics_or_hangs_is_no_other_clients_business() {
    struct Panics;

    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("as it should, in this test");
        }
    }

    let deployment = Deployment::start(EmbeddedOptions::default());
    let (end, ended) = mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    let hangs = Topology::builder(Options::parse("mongodb://nowhere.invalid").unwrap())
        .dialer(move |_| -> std::io::Result<TcpStream> {
            ended.lock().unwrap().recv().unwrap_err();
            Err(std::io::ErrorKind::NotConnected.into())
        })
        .build()
        .unwrap();
    let panics = deployment.client("");
    let mut views = panics.host_topology().watch_topology();
    let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
    let mut cx = std::task::Context::from_waker(&waker);
    while std::pin::pin!(views.next()).poll(&mut cx).is_ready() {}
    let other = deployment.client("");
    view(&other, is_whole);
    other.with_timeout(SOON).run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
    // On the thread of the clients, too, one client can wait for another.
    let (sender, receiver) = mpsc::channel();
    let (asked, asker) = (other.host_topology(), other.clone());
    let woken = Waits { asked, asker, sender };
    let waiting = deployment.client("");
    let mut views = waiting.host_topology().watch_topology();
    let waker = std::task::Waker::from(std::sync::Arc::new(woken));
    let mut cx = std::task::Context::from_waker(&waker);
    while std::pin::pin!(views.next()).poll(&mut cx).is_ready() {}
    assert!(receiver.recv_timeout(SOON).unwrap(), "both have their answers");
    drop((end, hangs, panics, other, waiting, waker));
    no_thread_is_left();
}

/// Waits for a client when it is woken.
struct Waits {
    asked: sdam_host::Topology<sdam_blocking::Blocking>,
    asker: Topology,
    sender: mpsc::Sender<bool>,
}

impl std::task::Wake for Waits {
    fn wake(self: std::sync::Arc<Self>) {
        assert_eq!(thread::current().name(), Some("sdam-poller"));
        let (ping, asker) = (rawdoc! { "ping": 1 }, self.asker.with_timeout(SOON));
        let answered = block_on(self.asked.with_timeout(SOON).run_command("admin", &ping)).is_ok();
        let _ = self.sender.send(answered && asker.run_command("admin", &ping).is_ok());
    }
}

fn closing_ends_them_while_the_client_is_still_there() {
    let deployment = Deployment::start(EmbeddedOptions::default());
    let client = deployment.client("");
    view(&client, is_whole);
    assert!(client.close(SOON));
    no_thread_is_left();
    drop(client);
}

fn dropping_ends_them_while_a_loan_is_still_there() {
    let deployment = Deployment::start(EmbeddedOptions::default());
    let client = deployment.client("");
    let primary = client.select(Criteria::write()).unwrap();
    let mut checked_out = primary.check_out().unwrap();
    drop(client);
    no_thread_is_left();
    checked_out.command("admin", &rawdoc! { "ping": 1 }).unwrap();
    drop(checked_out);
    primary.check_out().unwrap_err();
}

/// Not for a server that is silent, nor for a helper that is busy.
fn dropping_waits_for_nothing() {
    // Neither the server nor the dialer is given up while this test takes.
    const PATIENT: &str = "connectTimeoutMS=600000";
    let deployment = Deployment::start(EmbeddedOptions::default());
    let client = deployment.client(&format!("&{PATIENT}"));
    view(&client, is_whole);
    deployment.freeze_primary();
    let (end, ended) = mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    let uri = format!("mongodb://nowhere.invalid/?{PATIENT}");
    let stuck = Topology::builder(Options::parse(&uri).unwrap())
        .dialer(move |_| -> std::io::Result<TcpStream> {
            ended.lock().unwrap().recv().unwrap_err();
            Err(std::io::ErrorKind::NotConnected.into())
        })
        .build()
        .unwrap();
    let until = Instant::now() + SOON;
    while !threads().iter().any(|name| name == "sdam-helper") {
        assert!(Instant::now() < until, "the dialer is asked");
    }
    let begun = Instant::now();
    assert!(stuck.close(SOON), "nothing waits for the dialer");
    drop((client, stuck));
    assert!(begun.elapsed() < 2 * SOON, "{:?}", begun.elapsed());
    drop(end);
    no_thread_is_left();
}

fn it_may_be_dropped_on_a_thread_that_panics() {
    /// Drops a client, and has it used before, while the thread panics.
    struct Last(Topology);

    impl Drop for Last {
        fn drop(&mut self) {
            assert!(thread::panicking());
            self.0.run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
        }
    }

    let deployment = Deployment::start(EmbeddedOptions::default());
    let client = deployment.client("");
    let panicked = thread::spawn(move || {
        let checked_out = client.select(Criteria::write()).unwrap().check_out().unwrap();
        let _last = (Last(client), checked_out);
        panic!("as it should, in this test");
    });
    panicked.join().unwrap_err();
    no_thread_is_left();
}

fn it_may_be_dropped_by_one_of_its_own_threads() {
    let pending = std::sync::Arc::new(std::sync::Mutex::new(None::<Topology>));
    let last = std::sync::Arc::clone(&pending);
    let (dropped, told) = mpsc::channel();
    let client = Topology::builder(Options::parse("mongodb://nowhere.invalid").unwrap())
        .dialer(move |_: ServerAddress| -> std::io::Result<TcpStream> {
            let client = loop {
                if let Some(client) = last.lock().unwrap().take() {
                    break client;
                }
                thread::yield_now();
            };
            drop(client);
            dropped.send(()).unwrap();
            Err(std::io::ErrorKind::NotConnected.into())
        })
        .build()
        .unwrap();
    *pending.lock().unwrap() = Some(client);
    told.recv_timeout(SOON).expect("it is dropped");
    no_thread_is_left();
}

fn it_may_be_dropped_by_whoever_is_woken_on_its_thread() {
    struct Dropper(std::sync::Mutex<Option<Topology>>, mpsc::Sender<String>);

    impl std::task::Wake for Dropper {
        fn wake(self: std::sync::Arc<Self>) {
            if let Some(client) = self.0.lock().unwrap().take() {
                drop(client);
                let name = thread::current().name().unwrap_or_default().to_owned();
                self.1.send(name).unwrap();
            }
        }
    }

    let deployment = Deployment::start(EmbeddedOptions::default());
    let client = deployment.client("");
    let mut views = client.host_topology().watch_topology();
    block_on(views.next()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let client = std::sync::Mutex::new(Some(client));
    let waker = std::task::Waker::from(std::sync::Arc::new(Dropper(client, sender)));
    let mut cx = std::task::Context::from_waker(&waker);
    // Views follow as the members answer.
    while std::pin::pin!(views.next()).poll(&mut cx).is_ready() {}
    assert_eq!(receiver.recv_timeout(SOON).unwrap(), "sdam-poller");
    no_thread_is_left();
}

fn it_may_be_dropped_when_a_thread_ends() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Topology>> = const { std::cell::RefCell::new(None) };
    }
    let deployment = Deployment::start(EmbeddedOptions::default());
    let client = deployment.client("");
    let ends = thread::spawn(move || {
        client.run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
        KEPT.set(Some(client));
    });
    ends.join().unwrap();
    no_thread_is_left();
}
