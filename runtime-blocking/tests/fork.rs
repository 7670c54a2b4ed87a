//! A process that is forked off: it starts again, and leaves its parent's connections alone. And
//! one that is stopped for a while.
//!
//! Without the harness of other tests, which has threads, as has the embedded deployment: it runs
//! in a process of its own.

#[cfg(unix)]
#[expect(dead_code, reason = "other tests need more of it")]
mod deployment;

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod unix {
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{self, Child, Command, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use fork::{Fork, fork, waitpid};
    use sdam_blocking::{CheckedOut, Events, SelectedServer, Topology};
    use sdam_cluster::EmbeddedOptions;
    use sdam_core::bson::rawdoc;
    use sdam_core::config::{Options, ServerAddress};
    use sdam_core::description::TopologyType;
    use sdam_core::failure::Failure;
    use sdam_core::operation::{InvalidCommand, OperationError};
    use sdam_core::selection::Criteria;
    use sdam_core::topology::EventKind;
    use sdam_host::ErrorKind;

    use crate::deployment::{Deployment, SOON, is_whole, view};

    const ROLE: &str = "SDAM_TEST_ROLE";

    /// The number of children that are forked off while other threads are busy.
    const CHILDREN: u32 = 20;

    pub(crate) fn main() {
        if std::env::var(ROLE).is_ok() {
            return serve();
        }
        let (deployment, seed) = start_deployment();
        a_child_begins_anew_with_what_its_parent_knew(&seed);
        a_child_can_be_forked_while_other_threads_are_busy(&seed);
        a_client_that_was_closed_is_closed_in_its_children(&seed);
        in_a_child(|| replies_that_came_while_the_process_was_stopped_are_no_time_outs(&seed));
        drop(deployment);
        println!("a process that is forked off: all is well");
    }

    /// Serves an embedded deployment until its parent is gone.
    fn serve() {
        let deployment = Deployment::start(EmbeddedOptions::default());
        println!("{}", deployment.cluster.addresses()[1]);
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    /// Starts a deployment in another process, which ends when this is dropped.
    fn start_deployment() -> (Running, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, "deployment")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seed = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut seed).unwrap();
        (Running(child), seed.trim().to_owned())
    }

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Runs `work` in a process that is forked off, and returns when it has ended well.
    fn in_a_child(work: impl FnOnce()) {
        match fork().unwrap() {
            Fork::Parent(child) => {
                assert_eq!(waitpid(child).unwrap(), 0, "the child has failed, see above");
            }
            Fork::Child => {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                let _ = std::io::stderr().flush();
                process::exit(i32::from(done.is_err()));
            }
        }
    }

    fn client(seed: &str) -> Topology {
        Topology::new(Options::parse(&format!("mongodb://{seed}")).unwrap()).unwrap()
    }

    fn ping(client: &Topology) {
        let reply = client.with_timeout(SOON).run_command("admin", &rawdoc! { "ping": 1 });
        reply.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The share of a process in its parent's client.
    struct Inherited {
        client: Topology,
        server: SelectedServer,
        checked_out: CheckedOut,
        events: Events,
    }

    fn a_child_begins_anew_with_what_its_parent_knew(seed: &str) {
        let client = client(seed);
        view(&client, is_whole);
        let events = client.subscribe();
        let server = client.select(Criteria::write()).unwrap();
        let mut checked_out = server.check_out().unwrap();
        let pinged = |checked_out: &mut CheckedOut| {
            checked_out.command("admin", &rawdoc! { "ping": 1 }).is_ok()
        };
        assert!(pinged(&mut checked_out));
        let id = checked_out.connection_id();
        let mut inherited = Some(Inherited { client, server, checked_out, events });
        in_a_child(|| {
            let Inherited { client, server, checked_out, events } = inherited.as_mut().unwrap();
            assert!(events.next().is_none(), "its parent's events are none of its own");
            let error = checked_out.command("admin", &rawdoc! { "ping": 1 }).unwrap_err();
            let broken = OperationError::Invalid(InvalidCommand::Broken);
            assert_eq!(error.as_operation(), Some(&broken));
            let error = server.check_out().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CheckOut, "{error}");
            // All members are known at once; how far the checks have come is not.
            assert_eq!(client.view().servers().len(), 3);
            ping(client);
            view(client, is_whole);
            // A grandchild, too.
            in_a_child(|| ping(client));
            ping(client);
            drop(inherited.take());
        });
        // The parent's connections are as they were.
        let Inherited { client, server, mut checked_out, mut events } = inherited.unwrap();
        assert!(pinged(&mut checked_out));
        drop(checked_out);
        let mut checked_out = server.check_out().unwrap();
        assert_eq!(checked_out.connection_id(), id, "the same connection");
        assert!(pinged(&mut checked_out));
        assert!(events.try_next().is_some());
        ping(&client);
        assert_eq!(client.view().topology_type, TopologyType::ReplicaSetWithPrimary);
        drop(checked_out);
        assert!(client.close(SOON));
    }

    fn a_child_can_be_forked_while_other_threads_are_busy(seed: &str) {
        let client = client(seed);
        view(&client, is_whole);
        let rounds = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            // Dropped at the end, also if that is a panic.
            let goes_on = Arc::new(());
            for _ in 0..4 {
                let (client, rounds, goes_on) = (&client, &rounds, Arc::downgrade(&goes_on));
                scope.spawn(move || {
                    while goes_on.strong_count() > 0 {
                        ping(client);
                        client.request_check();
                        drop(client.watch_topology());
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..CHILDREN {
                let before = rounds.load(Ordering::Relaxed);
                in_a_child(|| ping(&client));
                // The others are in the middle of something else each time.
                let end = client.now() + SOON;
                while rounds.load(Ordering::Relaxed) == before {
                    assert!(client.now() < end, "the other threads do nothing");
                    std::thread::yield_now();
                }
            }
        });
    }

    fn a_client_that_was_closed_is_closed_in_its_children(seed: &str) {
        let client = client(seed);
        assert!(client.close(SOON));
        in_a_child(|| {
            let refused = client.select(Criteria::write()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
            assert!(client.close(SOON));
        });
    }

    fn replies_that_came_while_the_process_was_stopped_are_no_time_outs(seed: &str) {
        // An awaited reply comes every 500 ms, and may take so long on a busy machine.
        let uri = format!("mongodb://{seed}/?connectTimeoutMS=4000&heartbeatFrequencyMS=500");
        let client = Topology::new(Options::parse(&uri).unwrap()).unwrap();
        let mut events = client.subscribe();
        // Until every monitor is waiting for a stream of replies.
        streamed(&client, &mut events, 1);
        ping(&client);
        // Twelve replies of each server come meanwhile.
        let stop = "kill -STOP $PPID; sleep 6; kill -CONT $PPID";
        assert!(Command::new("sh").args(["-c", stop]).status().unwrap().success());
        ping(&client);
        let failures = streamed(&client, &mut events, 16);
        assert!(failures.is_empty(), "{failures:?}");
    }

    /// Waits until each of the three servers has answered so many awaited checks, and returns the
    /// failures of checks meanwhile.
    fn streamed(client: &Topology, events: &mut Events, replies: u32) -> Vec<Failure> {
        let (mut counts, mut failures) = (BTreeMap::<ServerAddress, u32>::new(), Vec::new());
        while counts.len() < 3 || counts.values().any(|count| *count < replies) {
            let event = events.next_until(client.now() + SOON);
            match event.expect("it comes in time").kind {
                EventKind::ServerHeartbeatSucceeded { address, awaited: true, .. } => {
                    *counts.entry(address).or_default() += 1;
                }
                EventKind::ServerHeartbeatFailed { failure, .. } => failures.push(failure),
                _ => {}
            }
        }
        failures
    }
}
