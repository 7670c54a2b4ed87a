//! One forwarded connection: two directions, and the end of both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Shared, Traffic, Wires};

/// The number of bytes that are read at once.
const READ_LEN: usize = 16 * 1024;

/// A way that bytes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Traffic {
    /// Returns whether bytes and the end of the stream are lost on their way.
    fn swallows(self, direction: Direction) -> bool {
        match self {
            Self::Blackhole => true,
            Self::DropToServer => direction == Direction::ToServer,
            Self::DropToClient => direction == Direction::ToClient,
            Self::Pass | Self::Refuse | Self::Slow { .. } => false,
        }
    }
}

/// An open connection in the counters; its client closes it, or its task ends.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Passes bytes on between a client and a server until both have closed or one is gone.
pub(super) async fn forward(mut client: TcpStream, target: SocketAddr, mut wires: Wires) {
    let open = Open(Arc::clone(&wires.counters));
    let mut resets = wires.resets.clone();
    let mut server = tokio::select! {
        connected = connect(target, &mut wires.traffic) => match connected {
            Some(server) => server,
            None => return,
        },
        _ = resets.changed() => return reset(&client),
    };
    let counters = Arc::clone(&wires.counters);
    let is_reset = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let up = Way { direction: Direction::ToServer, traffic: wires.traffic.clone() };
        let down = Way { direction: Direction::ToClient, traffic: wires.traffic };
        let both = async {
            tokio::try_join!(
                up.carry(from_client, to_server, &counters.to_server, Some(open)),
                down.carry(from_server, to_client, &counters.to_client, None),
            )
        };
        tokio::select! {
            _ = both => false,
            changed = resets.changed() => changed.is_ok(),
        }
    };
    if is_reset {
        reset(&client);
        reset(&server);
    }
}

/// Connects to the server; does not return that there is none while nothing reaches the client.
async fn connect(target: SocketAddr, traffic: &mut watch::Receiver<Traffic>) -> Option<TcpStream> {
    match TcpStream::connect(target).await {
        Ok(server) => {
            // Without it small messages may be late, but they come.
            let _ = server.set_nodelay(true);
            Some(server)
        }
        Err(_) => {
            let told = traffic.wait_for(|it| !it.swallows(Direction::ToClient));
            let _ = told.await;
            None
        }
    }
}

/// Has the system send RST when the connection is dropped, which happens next.
fn reset(stream: &TcpStream) {
    // A connection that is gone already needs none.
    let _ = stream.set_zero_linger();
}

/// One direction of a connection.
struct Way {
    direction: Direction,
    traffic: watch::Receiver<Traffic>,
}

impl Way {
    /// Carries bytes until the sender closes, and then closes the receiver's side.
    ///
    /// # Errors
    ///
    /// Ends with what broke either side.
    async fn carry(
        mut self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        delivered: &AtomicU64,
        open: Option<Open>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; READ_LEN];
        let end = loop {
            match from.read(&mut buffer).await {
                Ok(0) => break Ok(()),
                Ok(count) => self.deliver(&buffer[..count], &mut to, delivered).await?,
                Err(error) => break Err(error),
            }
        };
        drop(open);
        let direction = self.direction;
        // The forwarder is gone when this fails, and so is everything else in a moment.
        let _ = self.traffic.wait_for(|it| !it.swallows(direction)).await;
        end?;
        to.shutdown().await
    }

    /// Writes bytes as the traffic of the moment wants it, or swallows them.
    async fn deliver(
        &mut self,
        mut bytes: &[u8],
        to: &mut WriteHalf<'_>,
        delivered: &AtomicU64,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let traffic = *self.traffic.borrow_and_update();
            if traffic.swallows(self.direction) {
                return Ok(());
            }
            let mut count = bytes.len();
            if let Traffic::Slow { bytes: at_once, pause } = traffic {
                if let Ok(Ok(())) = timeout(pause, self.traffic.changed()).await {
                    continue;
                }
                count = count.min(at_once.max(1));
            }
            let (now, later) = bytes.split_at(count);
            to.write_all(now).await?;
            delivered.fetch_add(now.len() as u64, Ordering::Relaxed);
            bytes = later;
        }
        Ok(())
    }
}
