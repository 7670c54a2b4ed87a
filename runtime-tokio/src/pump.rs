//! Moves bytes between one socket and one link until either ends.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sdam_core::address::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::host::Link;

use crate::dialer::Route;
use crate::runtime::Tokio;
use crate::socket::Socket;

/// How much is read at once; a reply to hello is less than 2 kB.
const READ_LEN: usize = 4096;

/// Opens a socket for a link and moves bytes until the host lets go of the link or it fails.
pub(crate) async fn pump(link: Link<Tokio>, address: ServerAddress, route: Arc<Route>) {
    match run(&link, &address, &route).await {
        Ok(()) => link.closed(Failure::from_io(Stage::Hello, &io::ErrorKind::UnexpectedEof.into())),
        Err(failure) => link.closed(failure),
    }
}

/// Returns when the host has let go of the link; what it is told then does not matter any more.
async fn run(link: &Link<Tokio>, address: &ServerAddress, route: &Route) -> Result<(), Failure> {
    let Some(socket) = unless_let_go(link, route.open(address)).await else {
        return Ok(());
    };
    let socket = socket?;
    link.opened();
    let failed = |error: io::Error| Failure::from_io(Stage::Hello, &error);
    loop {
        match std::future::poll_fn(|cx| poll_work(link, &socket, cx)).await.map_err(failed)? {
            Work::LetGo => return Ok(()),
            Work::Read => read(link, &socket).map_err(failed)?,
            Work::Write(bytes) => match unless_let_go(link, write_all(&socket, &bytes)).await {
                Some(written) => written.map_err(failed)?,
                None => return Ok(()),
            },
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
fn read(link: &Link<Tokio>, socket: &Socket) -> io::Result<()> {
    let mut buffer = [0; READ_LEN];
    match socket.try_read(&mut buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            link.received(&buffer[..count]);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

async fn write_all(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
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

/// Waits for `work`, or gives it up with `None` when the host lets go of the link.
///
/// Nothing can be sent meanwhile: the machine sends when the link is up and the last reply is in.
async fn unless_let_go<T>(link: &Link<Tokio>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match link.poll_outgoing(cx) {
        Poll::Ready(None) => Poll::Ready(None),
        Poll::Ready(Some(_)) | Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}
