//! A process that is forked off inside a runtime of one thread, which goes on there and is dropped:
//! the parent's heartbeats go on as if nothing had happened.
//!
//! Without the harness of other tests, which has threads, as has the embedded deployment: it runs
//! in a process of its own.

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod unix {
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::{self, BufRead, BufReader, Write};
    use std::pin::Pin;
    use std::process::{self, Child, Command, Stdio};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll};
    use std::thread;
    use std::time::Duration;

    use fork::{Fork, fork, waitpid};
    use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
    use sdam_core::config::{Options, ServerAddress};
    use sdam_core::topology::EventKind;
    use sdam_host::Events;
    use sdam_tokio::Topology;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::TcpStream;
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::{sleep, timeout};

    const ROLE: &str = "SDAM_TEST_ROLE";

    /// The time limit of steps that depend on the load of the machine.
    const GENEROUS: Duration = Duration::from_secs(60);

    /// Nothing is on its way between two checks, so that no news of the system's is for both.
    const QUICK: &str = "heartbeatFrequencyMS=500&serverMonitoringMode=poll";

    /// The number of times that this process has used a stream to a server.
    static USES: AtomicU32 = AtomicU32::new(0);

    /// A stream whose uses are counted.
    struct Counted(TcpStream);

    impl Counted {
        fn used(&mut self) -> Pin<&mut TcpStream> {
            USES.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.0)
        }
    }

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.used().poll_read(cx, buffer)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.used().poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.used().poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.used().poll_shutdown(cx)
        }
    }

    pub(crate) fn main() {
        if std::env::var(ROLE).is_ok() {
            return serve();
        }
        let (mut deployment, uri) = start_deployment();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        a_parent_s_tasks_rest_in_a_child_that_polls_them(&runtime, &uri);
        a_child_drops_its_parent_s_runtime(runtime, &uri);
        drop(deployment.stdin.take());
        deployment.wait().unwrap();
        println!("a process that is forked off inside a runtime: all is well");
    }

    /// Serves an embedded deployment until its parent is gone.
    fn serve() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let cluster = runtime.block_on(EmbeddedCluster::start(EmbeddedOptions::default())).unwrap();
        runtime.block_on(cluster.elected()).unwrap();
        println!("{}", cluster.uri());
        io::stdout().flush().unwrap();
        let _ = io::stdin().lines().count();
    }

    fn start_deployment() -> (Child, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, "deployment").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut uri = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut uri).unwrap();
        (child, format!("{}&{QUICK}", uri.trim()))
    }

    fn a_parent_s_tasks_rest_in_a_child_that_polls_them(runtime: &Runtime, uri: &str) {
        runtime.block_on(async {
            let client =
                Topology::builder(Options::parse(uri).unwrap()).dialer(dial).build().unwrap();
            let mut events = client.subscribe();
            checks(&mut events, 2).await;
            nothing_is_on_its_way(&mut events).await;
            let Fork::Parent(child) = fork().unwrap() else {
                give_up_in_time();
                let before = USES.load(Ordering::Relaxed);
                // Every server is due to be checked several times.
                for _ in 0..30 {
                    sleep(Duration::from_millis(100)).await;
                }
                process::exit(i32::from(USES.load(Ordering::Relaxed) != before))
            };
            assert_eq!(waitpid(child).unwrap(), 0, "the child has used its parent's streams");
            checks(&mut events, 3).await;
            client.close().await;
        });
    }

    fn a_child_drops_its_parent_s_runtime(runtime: Runtime, uri: &str) {
        let (client, mut events) = runtime.block_on(async {
            let client = Topology::new(Options::parse(uri).unwrap()).unwrap();
            let mut events = client.subscribe();
            checks(&mut events, 2).await;
            nothing_is_on_its_way(&mut events).await;
            (client, events)
        });
        let Fork::Parent(child) = fork().unwrap() else {
            give_up_in_time();
            drop(runtime);
            drop((client, events));
            process::exit(0)
        };
        assert_eq!(waitpid(child).unwrap(), 0, "the child has failed");
        runtime.block_on(async {
            checks(&mut events, 3).await;
            client.close().await;
        });
    }

    async fn dial(address: ServerAddress) -> io::Result<Counted> {
        let port = address.port().unwrap_or_default();
        TcpStream::connect((address.host(), port)).await.map(Counted)
    }

    /// Ends this process if it hangs.
    fn give_up_in_time() {
        thread::spawn(|| {
            thread::sleep(GENEROUS);
            eprintln!("error: the process that was forked off hangs");
            process::exit(2);
        });
    }

    /// Waits until no check has begun and not ended: the child would take news of its stream away.
    ///
    /// Nothing begins until this task waits for something else.
    async fn nothing_is_on_its_way(events: &mut Events) {
        let mut checked = BTreeSet::<ServerAddress>::new();
        loop {
            let event = match events.try_next() {
                Some(event) => event,
                None if checked.is_empty() => return,
                None => {
                    let event = timeout(GENEROUS, events.next()).await.expect("checks go on");
                    event.expect("the client is open")
                }
            };
            match event.kind {
                EventKind::ServerHeartbeatStarted { address, .. } => _ = checked.insert(address),
                EventKind::ServerHeartbeatSucceeded { address, .. } => _ = checked.remove(&address),
                _ => {}
            }
        }
    }

    /// Waits until each of three servers was checked so many times more, without a failure.
    async fn checks(events: &mut Events, times: u32) {
        let mut counts = BTreeMap::<ServerAddress, u32>::new();
        while counts.len() < 3 || counts.values().any(|count| *count < times) {
            let event = timeout(GENEROUS, events.next()).await.expect("checks go on");
            match event.expect("the client is open").kind {
                EventKind::ServerHeartbeatSucceeded { address, .. } => {
                    *counts.entry(address).or_default() += 1;
                }
                EventKind::ServerHeartbeatFailed { failure, .. } => {
                    panic!("a check has failed: {failure}");
                }
                _ => {}
            }
        }
    }
}
