//! A tiny blocking client: one connection, one command at a time, over OP_MSG or OP_QUERY.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bson::{Document, RawDocument, RawDocumentBuf};
use sdam_core::config::ServerAddress;
use sdam_core::wire::{
    Flags, Frames, Message, ReplyFlags, WireError, write_op_msg, write_op_query,
};

/// The reason why a command has no good reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The connection could not be opened, broke, or was silent for too long.
    #[error("{address}: {source}")]
    Io {
        /// The server.
        address: ServerAddress,
        /// The error of the connection.
        source: io::Error,
    },
    /// The reply is not what the wire protocol allows.
    #[error("the reply is malformed: {0}")]
    Wire(WireError),
    /// The command or the reply is not BSON.
    #[error("a document is malformed: {0}")]
    Bson(bson::error::Error),
    /// The server refused the command.
    #[error("{command} was refused: {message} ({code_name}, {code})")]
    Refused {
        /// The name of the command.
        command: String,
        /// The number of the error.
        code: i32,
        /// The name of the error, empty where the server gives none.
        code_name: String,
        /// The message of the server.
        message: String,
    },
}

impl From<bson::error::Error> for CommandError {
    fn from(error: bson::error::Error) -> Self {
        Self::Bson(error)
    }
}

impl From<WireError> for CommandError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// Opens a connection, runs one command and returns the reply, all of it within `timeout`.
///
/// # Errors
///
/// Says what went wrong; a reply without `ok: 1` is [`CommandError::Refused`].
pub fn command(
    address: &ServerAddress,
    database: &str,
    command: &Document,
    timeout: Duration,
) -> Result<Document, CommandError> {
    let deadline = Instant::now() + timeout;
    let mut connection = Connection::open(address, timeout)?;
    connection.command(database, command, deadline.saturating_duration_since(Instant::now()))
}

/// A connection to one server.
#[derive(Debug)]
pub struct Connection {
    address: ServerAddress,
    stream: Stream,
    frames: Frames,
    last_request_id: i32,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// [`CommandError::Io`] if the connection is not accepted within `timeout`.
    pub fn open(address: &ServerAddress, timeout: Duration) -> Result<Self, CommandError> {
        let stream = Stream::open(address, timeout)
            .map_err(|source| CommandError::Io { address: address.clone(), source })?;
        Ok(Self { address: address.clone(), stream, frames: Frames::new(), last_request_id: 0 })
    }

    /// Runs one command and returns the reply.
    ///
    /// # Errors
    ///
    /// Says what went wrong; a reply without `ok: 1` is [`CommandError::Refused`]. After any other
    /// error the connection is of no more use.
    pub fn command(
        &mut self,
        database: &str,
        command: &Document,
        timeout: Duration,
    ) -> Result<Document, CommandError> {
        let reply = self.reply(database, command, timeout)?;
        match is_ok(&reply) {
            true => Ok(reply),
            false => Err(refused(command, &reply)),
        }
    }

    /// Runs one command and returns the reply, which may be an error.
    ///
    /// # Errors
    ///
    /// Says what went wrong; the connection is of no more use then.
    pub fn reply(
        &mut self,
        database: &str,
        command: &Document,
        timeout: Duration,
    ) -> Result<Document, CommandError> {
        let mut command = command.clone();
        command.insert("$db", database);
        self.reply_to(&RawDocumentBuf::try_from(&command)?, timeout)
    }

    /// As [`reply`](Self::reply), to a command whose bytes are sent as they are, `$db` included.
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn reply_to(
        &mut self,
        body: &RawDocument,
        timeout: Duration,
    ) -> Result<Document, CommandError> {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        let mut request = Vec::new();
        write_op_msg(&mut request, self.last_request_id, 0, Flags::NONE, body);

        let deadline = Instant::now() + timeout;
        let message = self.exchange(&request, deadline)?;
        let found = message.header().response_to;
        if found != self.last_request_id {
            return Err(CommandError::Wire(WireError::ResponseTo {
                expected: self.last_request_id,
                found,
            }));
        }
        Ok(Document::try_from(message.op_msg()?.body)?)
    }

    /// Sends one command as OP_QUERY, which any member may answer, and returns the flags of the
    /// reply and the document, which may be an error.
    ///
    /// # Errors
    ///
    /// Says what went wrong; the connection is of no more use then.
    ///
    /// # Panics
    ///
    /// Panics if the name of the database contains NUL.
    pub fn query(
        &mut self,
        database: &str,
        command: &Document,
        timeout: Duration,
    ) -> Result<(ReplyFlags, Document), CommandError> {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        let mut request = Vec::new();
        let body = RawDocumentBuf::try_from(command)?;
        write_op_query(&mut request, self.last_request_id, database, &body);
        let message = self.exchange(&request, Instant::now() + timeout)?;
        let reply = message.op_reply()?;
        Ok((reply.flags, Document::try_from(reply.document)?))
    }

    fn exchange(&mut self, request: &[u8], deadline: Instant) -> Result<Message, CommandError> {
        self.send(request, deadline).map_err(|e| self.io(e))?;
        loop {
            if let Some(message) = self.frames.next()? {
                return Ok(message);
            }
            let count = self.receive(deadline).map_err(|e| self.io(e))?;
            self.frames.fill(count);
        }
    }

    fn send(&mut self, request: &[u8], deadline: Instant) -> io::Result<()> {
        self.stream.set_timeout(remaining(deadline)?)?;
        self.stream.writer().write_all(request)
    }

    fn receive(&mut self, deadline: Instant) -> io::Result<usize> {
        self.stream.set_timeout(remaining(deadline)?)?;
        match self.stream.reader().read(self.frames.spare())? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }

    fn io(&self, source: io::Error) -> CommandError {
        CommandError::Io { address: self.address.clone(), source }
    }
}

impl Stream {
    fn open(address: &ServerAddress, timeout: Duration) -> io::Result<Self> {
        let Some(port) = address.port() else {
            return UnixStream::connect(address.host()).map(Self::Unix);
        };
        let resolved = (address.host(), port).to_socket_addrs()?.next();
        let resolved = resolved.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&resolved, timeout)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout);
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
        }
    }

    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}

/// The time until the deadline; an error once it has passed, as a timeout of zero means none.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Servers write `ok` as a double, and some replies as an integer.
fn is_ok(reply: &Document) -> bool {
    match reply.get("ok") {
        Some(bson::Bson::Double(ok)) => *ok == 1.0,
        Some(bson::Bson::Int32(ok)) => *ok == 1,
        _ => false,
    }
}

fn refused(command: &Document, reply: &Document) -> CommandError {
    CommandError::Refused {
        command: command.keys().next().cloned().unwrap_or_default(),
        code: reply.get_i32("code").unwrap_or_default(),
        code_name: reply.get_str("codeName").unwrap_or_default().to_owned(),
        message: reply.get_str("errmsg").unwrap_or_default().to_owned(),
    }
}
