//! Commands from a test to a member, past the client that is tested.

use std::io;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocumentBuf};
use sdam_core::bson;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::engine::Command;
use super::options::MemberId;
use super::server::EmbeddedCluster;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How many bytes may be under way, in each direction.
const PIPE_LEN: usize = 1 << 16;

impl EmbeddedCluster {
    /// Runs a command on a connection of its own, which needs neither TLS nor a login, and returns
    /// the reply; on the database `admin` unless the command names `$db`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such member, if it does not reply within 30 s, and with what it says if
    /// it refuses the command.
    pub async fn run_command(
        &self,
        member: MemberId,
        mut command: RawDocumentBuf,
    ) -> io::Result<RawDocumentBuf> {
        if command.get_str("$db").is_err() {
            command.append(cstr!("$db"), "admin");
        }
        let mut request = Vec::new();
        write_op_msg(&mut request, 1, 0, Flags::NONE, &command);
        let exchange = async {
            let (mut stream, other_end) = duplex(PIPE_LEN);
            self.ask(|done| Command::Connect { member, stream: other_end, done }).await??;
            stream.write_all(&request).await?;
            receive(&mut stream).await
        };
        let message = timeout(LIMIT, exchange).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let reply = message.op_msg().map_err(io::Error::other)?.body.to_owned();
        match reply.get("ok").map_err(io::Error::other)? {
            Some(RawBsonRef::Double(1.0)) => Ok(reply),
            _ => Err(io::Error::other(reply.get_str("errmsg").unwrap_or("no reason").to_owned())),
        }
    }
}

async fn receive(stream: &mut DuplexStream) -> io::Result<Message> {
    let mut frames = Frames::new();
    loop {
        if let Some(message) = frames.next().map_err(io::Error::other)? {
            return Ok(message);
        }
        match stream.read(frames.spare()).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => frames.fill(count),
        }
    }
}
