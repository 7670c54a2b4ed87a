//! Operations of tests on the embedded deployment: changes of its configuration, commands past the
//! client that is tested, failovers, and how it really is.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocumentBuf};
use sdam_core::bson;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};

use super::engine::Command;
use super::listening::{ANY_PORT, BACKLOG, bind, server_address};
use super::{EmbeddedCluster, adjusted};
use crate::model::{Change, ClusterEvent, ClusterState, Input};
use crate::options::{MemberId, MemberOptions, User};

/// The time that the deployment rests between two events of
/// [`EmbeddedCluster::fail_over_for_ever`].
pub const PAUSE: Duration = Duration::from_secs(5);

/// The time that a reply to [`EmbeddedCluster::run_command`] may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The maximum number of bytes of one that are under way, in each direction.
const PIPE_LEN: usize = 1 << 16;

impl EmbeddedCluster {
    /// Starts another server on a free loopback port and adds it to the replica set, as `adjust`
    /// describes it; what that does to the address is undone.
    ///
    /// It begins with an initial sync, which takes an election timeout, and then follows.
    ///
    /// # Errors
    ///
    /// As [`reconfig`](Self::reconfig).
    pub async fn add_member(
        &self,
        adjust: impl FnOnce(&mut MemberOptions),
    ) -> io::Result<MemberId> {
        let listener = bind(ANY_PORT)?.listen(BACKLOG)?;
        let mut options = MemberOptions::new(server_address(listener.local_addr()?));
        adjusted(&mut options, adjust);
        let (address, changes) = (options.address.clone(), vec![Change::Add(options)]);
        let listener = Some(listener);
        self.ask(|done| Command::Reconfig { changes, listener, done }).await??;
        let members = self.state().await?.members.into_iter();
        let added = members.rev().find(|(_, it)| it.address == address);
        added.map(|(member, _)| member).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Has the primary change the configuration, all in one version; the other members hear of it
    /// within a twentieth of the election timeout.
    ///
    /// A new member listens at the address that it is added with, of which the host must be an IPv4
    /// address of this machine; [`add_member`](Self::add_member) finds one.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`] and a [`ReconfigError`](crate::ReconfigError) if
    /// the changes are refused, if the address of a new member cannot be bound, or if the
    /// deployment has ended; then nothing has changed.
    pub async fn reconfig(&self, changes: Vec<Change>) -> io::Result<()> {
        self.ask(|done| Command::Reconfig { changes, listener: None, done }).await?
    }

    /// Cuts a member off from the others, though its clients reach it as before.
    ///
    /// The others miss it after an election timeout; a primary takes itself for one for half as
    /// long again. Mongos, and members without others, cannot be cut off.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn cut(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Cut { member }).await
    }

    /// Connects a member with the others again.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn heal(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Heal { member }).await
    }

    /// Has a member take so much longer for each hello, as if it were far away.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn delay_hello(&self, member: MemberId, latency: Duration) -> io::Result<()> {
        self.command(Input::HelloLatency { member, latency }).await
    }

    /// Returns what happens from now on; of what is not read yet, the last
    /// [`MAX_UNREAD_EVENTS`](crate::MAX_UNREAD_EVENTS) are kept.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn subscribe(&self) -> io::Result<broadcast::Receiver<ClusterEvent>> {
        self.ask(|answer| Command::Subscribe { answer }).await
    }

    /// Returns how things are at this moment.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn state(&self) -> io::Result<ClusterState> {
        self.ask(|answer| Command::State { answer }).await
    }

    /// Replaces the users: these may log in from now on, and no others. A connection that is logged
    /// in stays so unless its user is gone.
    ///
    /// A user with another password has changed it. Hashing a password stops the whole deployment
    /// for some milliseconds.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`] and a [`UserError`](crate::UserError) if these
    /// cannot be the users, who then are what they were; or if the deployment has ended.
    pub async fn change_users(&self, users: Vec<User>) -> io::Result<()> {
        self.ask(|done| Command::Users { users, done }).await?
    }

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

    /// Kills the primary, lets the others elect a new one, starts the killed member again, and
    /// repeats, with a [`PAUSE`] before each kill and each start.
    ///
    /// With three members and an election timeout of 2 s, the first election after the initial one
    /// comes within 8 s, and then there is one about every 12 s.
    ///
    /// # Errors
    ///
    /// Ends only if a killed member cannot listen at its address again, and says why.
    pub async fn fail_over_for_ever(&self) -> io::Result<Infallible> {
        loop {
            let primary = self.elected().await?;
            sleep(PAUSE).await;
            self.kill(primary).await?;
            // One member or two have no majority without the killed one, and elect no primary.
            if let Ok(elected) = timeout(PAUSE, self.elected()).await {
                elected?;
            }
            sleep(PAUSE).await;
            self.restart(primary).await?;
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
