//! Keeps what a client sends.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use sdam_core::bson::Document;
use sdam_core::config::ServerAddress;
use sdam_core::wire::{Frames, Message};
use sdam_tokio::{Dialer, Dialing};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Outcome;

/// Dials sockets, and keeps the messages that are sent through them, by connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Vec<Message>>>>);

impl Recorder {
    /// Returns the messages of each connection, in order.
    pub(crate) fn connections(&self) -> Vec<Vec<Message>> {
        self.0.lock().expect("nothing panics under it").clone()
    }

    /// Returns all messages.
    pub(crate) fn messages(&self) -> Vec<Message> {
        self.connections().concat()
    }

    /// Counts the commands of this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.messages().iter().filter(|message| is(message, name)).count()
    }

    /// Returns the first command of each connection that has carried a command of this name.
    pub(crate) fn handshakes(&self, name: &str) -> Outcome<Vec<Document>> {
        let connections = self.connections();
        let used = connections.iter().filter(|sent| sent.iter().any(|message| is(message, name)));
        used.map(|sent| Ok(Document::try_from(sent[0].op_msg()?.body)?)).collect()
    }
}

fn is(message: &Message, name: &str) -> bool {
    let body = message.op_msg().map(|op_msg| op_msg.body);
    body.is_ok_and(|body| {
        body.iter().next().is_some_and(|first| first.is_ok_and(|(key, _)| key.as_str() == name))
    })
}

impl Dialer for Recorder {
    fn dial<'a>(&'a self, address: &'a ServerAddress) -> Dialing<'a> {
        let connections = Arc::clone(&self.0);
        let stream = TcpStream::connect(address.to_string());
        Box::pin(async move { Ok(Box::new(recorded(stream, connections).await?) as _) })
    }
}

async fn recorded(
    stream: impl Future<Output = io::Result<TcpStream>>,
    connections: Arc<Mutex<Vec<Vec<Message>>>>,
) -> io::Result<Recorded> {
    let stream = stream.await?;
    stream.set_nodelay(true)?;
    Ok(Recorded { stream, frames: Frames::new(), number: None, connections })
}

/// A stream whose outgoing messages are kept.
struct Recorded {
    stream: TcpStream,
    frames: Frames,
    /// Its place among the connections, once it has sent a message.
    number: Option<usize>,
    connections: Arc<Mutex<Vec<Vec<Message>>>>,
}

impl Recorded {
    fn keep(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
        while let Ok(Some(message)) = self.frames.next() {
            let mut connections = self.connections.lock().expect("nothing panics under it");
            let number = *self.number.get_or_insert_with(|| {
                connections.push(Vec::new());
                connections.len() - 1
            });
            connections[number].push(message);
        }
    }
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = poll {
            self.keep(&bytes[..count]);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
