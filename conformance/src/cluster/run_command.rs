//! Commands from a test to a member, past the client that is tested.

use std::io;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocumentBuf};
use sdam_core::bson;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::options::MemberId;
use super::server::EmbeddedCluster;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(30);

impl EmbeddedCluster {
    /// Runs a command on a connection of its own, on the database `admin` unless it names `$db`,
    /// and returns the reply.
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
        let address = match self.addresses().get(member.0) {
            Some(address) => *address,
            None => self.address_of(member).await?,
        };
        if command.get_str("$db").is_err() {
            command.append(cstr!("$db"), "admin");
        }
        let mut request = Vec::new();
        write_op_msg(&mut request, 1, 0, Flags::NONE, &command);
        let exchange = async {
            let mut stream = TcpStream::connect(address).await?;
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

async fn receive(stream: &mut TcpStream) -> io::Result<Message> {
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
