//! The task of one connection: it reads and writes until either side ends it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::model::ConnectionId;

/// The number of bytes that are read at once.
const READ_LEN: usize = 4096;

/// The number of replies that are written at once.
const REPLIES_AT_ONCE: usize = 64;

/// The time that one write may take before the client is given up, which also bounds how long a
/// closed connection lingers.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that the opening of TLS may take.
const TLS_TIMEOUT: Duration = Duration::from_secs(120);

/// A report of a connection's task.
#[derive(Debug)]
pub(crate) enum Report {
    /// By which name the client knows the member.
    ServerName(String),
    /// Bytes that were read.
    Read(Vec<u8>),
    /// The connection has ended.
    Ended,
}

/// The task's end of a connection.
pub(crate) struct Conversation {
    pub(crate) connection: ConnectionId,
    pub(crate) reports: mpsc::Sender<(ConnectionId, Report)>,
    /// The bytes to be written; the engine closes the connection by closing this.
    pub(crate) output: mpsc::UnboundedReceiver<Vec<u8>>,
    /// The number of bytes that are handed over but not written.
    pub(crate) pending: Arc<AtomicUsize>,
}

impl Conversation {
    /// Converses with a client, through TLS if the members speak it; its opening stands still
    /// while the member is frozen.
    pub(super) async fn with_client(
        mut self,
        stream: TcpStream,
        tls: Option<(TlsAcceptor, watch::Receiver<bool>)>,
    ) {
        // Without it small replies may be late, but they come.
        let _ = stream.set_nodelay(true);
        let Some((tls, frozen)) = tls else {
            return self.run(stream).await;
        };
        let opened = tokio::select! {
            opened = while_awake(frozen, tls.accept(stream)) => opened,
            // Nothing is written yet, so it can only have been closed.
            _ = self.output.recv() => return,
        };
        let Some(Ok(stream)) = opened else {
            return self.report_end().await;
        };
        if let Some(name) = stream.get_ref().1.server_name() {
            let name = Report::ServerName(name.to_owned());
            if self.reports.send((self.connection, name)).await.is_err() {
                return;
            }
        }
        self.run(stream).await;
    }

    /// Converses until either side ends it.
    pub(crate) async fn run(mut self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let (mut buffer, mut replies) = (vec![0; READ_LEN], Vec::new());
        let mut reads = true;
        loop {
            tokio::select! {
                // Replies first: a client that does not read them is not read either.
                biased;
                count = self.output.recv_many(&mut replies, REPLIES_AT_ONCE) => {
                    if count == 0 {
                        // A client with TLS may want to know that nothing was cut off.
                        let _ = timeout(WRITE_TIMEOUT, stream.shutdown()).await;
                        return;
                    }
                    let bytes = replies.concat();
                    replies.clear();
                    let write = async {
                        stream.write_all(&bytes).await?;
                        // TLS may keep some of it back until then.
                        stream.flush().await
                    };
                    match timeout(WRITE_TIMEOUT, write).await {
                        Ok(Ok(())) => self.pending.fetch_sub(bytes.len(), Ordering::Relaxed),
                        Ok(Err(_)) | Err(_) => break,
                    };
                }
                read = stream.read(&mut buffer), if reads => {
                    let Ok(count @ 1..) = read else {
                        // A peer that has shut down its sending side still receives the answers
                        // that are due; then the engine ends this.
                        reads = false;
                        self.report_end().await;
                        continue;
                    };
                    let bytes = Report::Read(buffer[..count].to_vec());
                    if self.reports.send((self.connection, bytes)).await.is_err() {
                        return;
                    }
                }
            }
        }
        self.report_end().await;
    }

    async fn report_end(&self) {
        // If the engine is gone, there is nothing to report.
        let _ = self.reports.send((self.connection, Report::Ended)).await;
    }
}

/// Opens TLS, but takes no step while the member is frozen; its time-out starts again when it goes
/// on.
pub(crate) async fn while_awake<T>(
    mut frozen: watch::Receiver<bool>,
    opening: impl Future<Output = T>,
) -> Option<T> {
    let mut opening = pin!(opening);
    loop {
        // Without an engine the result is not needed either.
        frozen.wait_for(|frozen| !*frozen).await.ok()?;
        tokio::select! {
            biased;
            _ = frozen.wait_for(|frozen| *frozen) => {}
            opened = timeout(TLS_TIMEOUT, &mut opening) => return opened.ok(),
        }
    }
}
