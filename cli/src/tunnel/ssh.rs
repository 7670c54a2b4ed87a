//! The system's ssh, which opens the streams to members at its other end: as a SOCKS5 proxy on a
//! port of the loopback interface, started again whenever it ends, at another port each time.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sdam_core::config::{ProxyOptions, TcpOptions};
use sdam_host::system::configure_tcp;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::news::{News, NewsSender};
use super::owner;
use crate::duration::rounded;
use crate::shutdown::Companion;

/// The pause between two looks at whether it listens.
const LOOK: Duration = Duration::from_millis(50);

/// The pause before it is started again, which doubles until it stays.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before it is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The time after which it is taken to stay.
const STAYED: Duration = Duration::from_secs(60);

/// The time that its last words may take to come when it has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The maximum length of a line of its, in bytes.
const MAX_LINE_LEN: u64 = 1024;

/// The options that hold whatever its configuration says: it fails rather than not listen, it
/// notices that the way is dead, and it is the process that has the connection.
const OPTIONS: [&str; 7] = [
    "ExitOnForwardFailure=yes",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ConnectTimeout=30",
    "ControlMaster=no",
    "ControlPath=none",
    "ForkAfterAuthentication=no",
];

/// The reason why there is no way through ssh.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SshError {
    /// The name is none, or would be taken for an option.
    #[error("--ssh {0:?}: write HOST or USER@HOST, where HOST may also be an alias of its own")]
    Host(String),
    /// There is no port for it.
    #[error("there is no free port for ssh: {0}")]
    Port(io::Error),
    /// It cannot be started.
    #[error("cannot run ssh: {0}")]
    Run(io::Error),
    /// It has ended before it listened.
    #[error("ssh to {host} {ended}")]
    Ended {
        /// The host.
        host: String,
        /// The manner of its end.
        ended: String,
    },
}

impl SshError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Host(_) => 2,
            Self::Port(_) | Self::Run(_) | Self::Ended { .. } => 1,
        }
    }
}

/// A way through an SSH server.
#[derive(Clone, Debug)]
pub(super) struct Ssh {
    host: String,
    config: Option<PathBuf>,
    place: Place,
    companion: Companion,
}

/// The port of an ssh, which listens there as long as it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Place(Arc<Mutex<Option<u16>>>);

impl Place {
    /// Connects to the proxy that ssh is.
    ///
    /// # Errors
    ///
    /// It does not run, or takes no connection.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let gone = || io::Error::other("ssh is not there for now");
        let port = self.get().ok_or_else(gone)?;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        // If it has ended meanwhile, this may be somebody else.
        if self.get() != Some(port) {
            return Err(gone());
        }
        configure_tcp(&stream, TcpOptions::default());
        Ok(stream)
    }

    fn get(&self) -> Option<u16> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, port: Option<u16>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = port;
    }
}

/// An ssh that is started again whenever it ends.
#[derive(Debug)]
pub(super) struct Kept {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// An ssh that listens.
#[derive(Debug)]
pub(super) struct Running {
    process: Child,
    said: Said,
    /// Since when it has listened.
    since: Instant,
    place: Place,
    id: Option<u32>,
    companion: Companion,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its process is killed as it is dropped.
        self.companion.leave(self.id);
    }
}

/// The lines that it prints, and the last of them.
#[derive(Debug)]
struct Said {
    last: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

impl Ssh {
    /// Knows where it is going to lead; nothing runs yet.
    ///
    /// # Errors
    ///
    /// `host` is none.
    pub(super) fn new(host: String, config: Option<PathBuf>) -> Result<Self, SshError> {
        let is_none = host.is_empty() || host.starts_with('-');
        if is_none || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(SshError::Host(host));
        }
        Ok(Self { host, config, place: Place::default(), companion: Companion::default() })
    }

    /// Is killed with this process if that ends at once.
    pub(super) fn with(self, companion: Companion) -> Self {
        Self { companion, ..self }
    }

    /// Returns what stands for the proxy that it is: only [`Place`] knows its port.
    pub(super) fn proxy() -> ProxyOptions {
        ProxyOptions::new("ssh")
    }

    /// Returns where it listens.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// Starts it at a free port, and waits until it listens there.
    ///
    /// It may ask for a password on the terminal, so that this takes as long as the user does.
    ///
    /// # Errors
    ///
    /// There is no free port, it cannot be started, or it has ended.
    pub(super) async fn start(&self, sender: &NewsSender) -> Result<Running, SshError> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
        let port = free.map_err(SshError::Port)?.port();
        let mut process = self.command(port).spawn().map_err(SshError::Run)?;
        let said = Said::listen(process.stderr.take(), sender.clone());
        let (id, companion) = (process.id(), self.companion.clone());
        companion.join(id);
        let (since, place) = (Instant::now(), self.place());
        let mut running = Running { process, said, since, place, id, companion };
        let id = id.unwrap_or_default();
        let listens = async {
            // Somebody else may have taken the port meanwhile.
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err()
                || !owner::listens(id, port)
            {
                sleep(LOOK).await;
            }
        };
        let ended = tokio::select! {
            ended = running.ended() => Some(ended),
            () = listens => None,
        };
        let ended = match (ended, running.process.try_wait()) {
            (None, Ok(None)) => {
                running.since = Instant::now();
                self.place.set(Some(port));
                return Ok(running);
            }
            (Some(ended), _) => ended,
            (None, _) => running.ended().await,
        };
        Err(SshError::Ended { host: self.host.clone(), ended })
    }

    fn command(&self, port: u16) -> Command {
        let mut command = Command::new("ssh");
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        OPTIONS.iter().for_each(|option| _ = command.args(["-o", option]));
        command.args(["-N", "-T", "-D", &format!("127.0.0.1:{port}"), "--", &self.host]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Keeps it running until it is ended.
    pub(super) fn keep(self, mut running: Running, sender: NewsSender) -> Kept {
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = self.keep_running(&mut running, &sender) => {}
                // The handle that would end it is gone, or ends it.
                _ = ended => {}
            }
            self.place.set(None);
            // It may have ended by itself.
            let _ = running.process.kill().await;
        });
        Kept { end, task }
    }

    async fn keep_running(&self, running: &mut Running, sender: &NewsSender) {
        let mut last = None;
        loop {
            let mut reason = running.ended().await;
            let mut stayed = running.since.elapsed();
            *running = loop {
                let pause = pause(last, stayed);
                sender.send(News::SshEnded { reason, again: rounded(pause) });
                sleep(pause).await;
                (last, stayed) = (Some(pause), Duration::ZERO);
                match self.start(sender).await {
                    Ok(running) => break running,
                    Err(SshError::Ended { ended, .. }) => reason = ended,
                    Err(error) => reason = error.to_string(),
                }
            };
            sender.send(News::SshBack);
        }
    }
}

/// Returns the pause before it is started again, after it has stayed for some time since the last
/// pause.
fn pause(last: Option<Duration>, stayed: Duration) -> Duration {
    match last {
        Some(last) if stayed < STAYED => (2 * last).min(LONGEST_PAUSE),
        _ => FIRST_PAUSE,
    }
}

impl Kept {
    /// Ends it, and waits until it has ended.
    pub(super) async fn end(self) {
        // Both fail only if it has ended already.
        let _ = self.end.send(());
        let _ = self.task.await;
    }
}

impl Running {
    /// Waits until it has ended, and says how.
    async fn ended(&mut self) -> String {
        let status = self.process.wait().await;
        self.companion.leave(self.id);
        self.place.set(None);
        // Something that it has started may have its standard error still.
        let _ = timeout(LAST_WORDS, &mut self.said.reading).await;
        let how = match status {
            Ok(status) => how(status),
            Err(error) => format!("has ended: {error}"),
        };
        let last = self.said.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_str() {
            "" => how,
            last => format!("{how}: {last}"),
        }
    }
}

fn how(status: ExitStatus) -> String {
    match status.code() {
        // Of its own, as opposed to that of a command.
        Some(255) => "has failed".to_owned(),
        _ => format!("has ended with {status}"),
    }
}

impl Said {
    /// Reads its lines, and reports each that is not the same as the one before.
    fn listen(errors: Option<ChildStderr>, sender: NewsSender) -> Self {
        let last = Arc::<Mutex<String>>::default();
        let shared = Arc::clone(&last);
        let reading = tokio::spawn(async move {
            let Some(errors) = errors else { return };
            let mut lines = BufReader::new(errors);
            loop {
                let mut line = Vec::new();
                let read = (&mut lines).take(MAX_LINE_LEN).read_until(b'\n', &mut line).await;
                if !matches!(read, Ok(1..)) {
                    return;
                }
                let line = String::from_utf8_lossy(&line);
                let line = without_number(line.trim());
                let mut last = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if !line.is_empty() && *last != line {
                    line.clone_into(&mut last);
                    sender.send(News::Ssh { said: line.to_owned() });
                }
            }
        });
        Self { last, reading }
    }
}

/// Leaves out which of its channels a line is about, as each connection is another one.
fn without_number(line: &str) -> &str {
    let rest = line.strip_prefix("channel ").and_then(|rest| rest.split_once(": "));
    match rest {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ssh, SshError, pause, without_number};

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_host() {
        for host in ["", "-oProxyCommand=true", "a b", "a\nb"] {
            let error = Ssh::new(host.to_owned(), None).unwrap_err();
            assert!(matches!(&error, SshError::Host(it) if it == host), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert!(Ssh::new("me@bastion.example".to_owned(), None).is_ok());
    }

    #[test]
    fn pauses_become_longer_until_ssh_stays() {
        let seconds = Duration::from_secs;
        let mut last = None;
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            last = Some(pause(last, seconds(59)));
            assert_eq!(last, Some(seconds(expected)));
        }
        assert_eq!(pause(last, seconds(60)), seconds(1));
    }

    #[test]
    fn lines_about_different_channels_are_the_same() {
        let line = "channel 12: open failed: connect failed: Connection refused";
        assert_eq!(without_number(line), "open failed: connect failed: Connection refused");
        assert_eq!(without_number("channel of mine: closed"), "channel of mine: closed");
        assert_eq!(without_number("Permission denied."), "Permission denied.");
    }
}
