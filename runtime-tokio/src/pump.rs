//! Moves bytes between one socket and one link until either ends.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sdam_core::address::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::host::Link;
use sdam_core::transport::Transport;

use crate::connector::{Connection, Connector};
use crate::runtime::Tokio;
use crate::socket::Socket;

/// How much is read at once; a reply to hello is less than 2 kB.
const READ_LEN: usize = 4096;

/// Makes a connection for a link and moves bytes until the host lets go of the link or it fails.
pub(crate) async fn pump(link: Link<Tokio>, connector: Arc<Connector>, address: ServerAddress) {
    match run(&link, &connector, &address).await {
        Ok(()) => link.closed(Failure::from_io(Stage::Hello, &io::ErrorKind::UnexpectedEof.into())),
        Err(failure) => link.closed(failure),
    }
}

/// Returns when the host has let go of the link; what it is told then does not matter any more.
async fn run(
    link: &Link<Tokio>,
    connector: &Connector,
    address: &ServerAddress,
) -> Result<(), Failure> {
    let mut outgoing = Vec::new();
    let connected = unless_let_go(link, &mut outgoing, connector.connect(address, &|_| {})).await;
    let Some(connected) = connected else { return Ok(()) };
    let Connection { socket, mut transport, mut wire } = connected?;
    let mut opened = false;
    loop {
        // Taken, so that an idle link holds no memory for what it has sent.
        let plain = std::mem::take(&mut outgoing);
        if !plain.is_empty() {
            transport.send(&plain, &mut wire);
        }
        let bytes = std::mem::take(&mut wire);
        if !bytes.is_empty() {
            match unless_let_go(link, &mut outgoing, write_all(&socket, &bytes)).await {
                Some(written) => written.map_err(|error| transport.failure(&error))?,
                None => return Ok(()),
            }
            continue;
        }
        if !opened && transport.is_ready() {
            link.opened();
            opened = true;
        }
        let work = std::future::poll_fn(|cx| poll_work(link, &socket, cx)).await;
        match work.map_err(|error| transport.failure(&error))? {
            Work::LetGo => return Ok(()),
            Work::Read => read(link, &socket, &mut transport, &mut wire)?,
            Work::Write(bytes) => outgoing = bytes,
        }
    }
}

/// What there is to do.
enum Work {
    Read,
    Write(Vec<u8>),
    LetGo,
}

fn poll_work(link: &Link<Tokio>, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<Work>> {
    match link.poll_outgoing(cx) {
        Poll::Ready(Some(bytes)) => Poll::Ready(Ok(Work::Write(bytes))),
        Poll::Ready(None) => Poll::Ready(Ok(Work::LetGo)),
        Poll::Pending => socket.poll_read_ready(cx).map_ok(|()| Work::Read),
    }
}

/// Reads what is there; the buffer is on the stack, so that an idle link holds no memory for it.
fn read(
    link: &Link<Tokio>,
    socket: &Socket,
    transport: &mut Transport,
    wire: &mut Vec<u8>,
) -> Result<(), Failure> {
    let mut buffer = [0; READ_LEN];
    let count = match socket.try_read(&mut buffer) {
        Ok(0) => return Err(transport.failure(&io::ErrorKind::UnexpectedEof.into())),
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(transport.failure(&error)),
    };
    let mut plain = Vec::new();
    let outcome = transport.receive(&buffer[..count], &mut plain, wire);
    if !plain.is_empty() {
        link.received(&plain);
    }
    if outcome.is_err() {
        // The alert that says why; a server that does not take it at once goes without.
        let _ = socket.try_write(wire);
    }
    outcome
}

pub(crate) async fn write_all(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        std::future::poll_fn(|cx| socket.poll_write_ready(cx)).await?;
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for `work`, or gives it up with `None` when the host lets go of the link; what is to be
/// sent meanwhile is appended to `outgoing`.
async fn unless_let_go<T>(
    link: &Link<Tokio>,
    outgoing: &mut Vec<u8>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| {
        loop {
            match link.poll_outgoing(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(bytes)) => outgoing.extend(bytes),
                Poll::Pending => return work.as_mut().poll(cx).map(Some),
            }
        }
    })
    .await
}
