//! One connection of a client: its bytes go to the member and back, at the pace of the slower side.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::failure::Failure;
use sdam_core::hello::{Relay, RelayError};
use sdam_core::transport::Transport;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest, Ready, split,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_rustls::server::TlsStream;

use crate::stream::{READ_LEN, Stream};

/// The time in which a client may take the last that its member has said.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The time that may pass without a byte once a client has said its last: it may be waiting for a
/// reply, or be gone.
const LINGER: Duration = Duration::from_secs(30);

/// A stream of a client, whose end can be seen before all that came earlier has been read.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Returns whether the client is known to send no more than has arrived.
    fn has_hung_up(&self) -> bool;
}

impl ClientStream for TcpStream {
    fn has_hung_up(&self) -> bool {
        let ready = pin!(self.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.is_ok_and(Ready::is_read_closed),
            Poll::Pending => false,
        }
    }
}

impl<S: ClientStream> ClientStream for TlsStream<S> {
    fn has_hung_up(&self) -> bool {
        self.get_ref().0.has_hung_up()
    }
}

/// The end of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client has gone.
    Client,
    /// The member has gone.
    Member,
    /// The member has gone, and has not said a byte.
    Silent,
    /// One of them has said what makes no sense.
    Nonsense(RelayError),
}

/// Bytes that are to be written.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            // What was once large is not kept.
            self.bytes.shrink_to(2 * READ_LEN);
            self.written = 0;
        }
    }
}

/// All that a client may still say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// Anything.
    Speaks,
    /// Nothing, which its member does not know yet.
    IsDone,
    /// Nothing, and its member knows.
    IsKnownToBeDone,
}

/// The state between the two sides.
struct Between<N, H> {
    relay: Option<Relay>,
    /// Finds the name of a member here.
    name: N,
    /// Called when the member has said its first byte; `None` once it has.
    heard: Option<H>,
    transport: Transport,
    client: Client,
    to_member: Outgoing,
    to_client: Outgoing,
    /// Bytes of the member that were not looked at yet; kept for their memory.
    plain: Vec<u8>,
}

impl<N: FnMut(&ServerAddress) -> Option<ServerAddress>, H: FnOnce()> Between<N, H> {
    /// Takes what the client says.
    fn request(&mut self, bytes: &[u8]) -> Result<(), RelayError> {
        if let Some(relay) = &mut self.relay {
            relay.request(bytes)?;
        }
        self.transport.send(bytes, &mut self.to_member.bytes);
        Ok(())
    }

    /// Takes what the member says, and returns whether it has more to say.
    fn reply(&mut self, sealed: &[u8]) -> Result<bool, RelayError> {
        let Self { transport, plain, to_member, .. } = self;
        let received: Result<(), Failure> = transport.receive(sealed, plain, &mut to_member.bytes);
        self.pass_on()?;
        Ok(received.is_ok())
    }

    fn pass_on(&mut self) -> Result<(), RelayError> {
        if let Some(heard) = self.heard.take_if(|_| !self.plain.is_empty()) {
            heard();
        }
        let out = &mut self.to_client.bytes;
        match &mut self.relay {
            None => out.append(&mut self.plain),
            Some(relay) => relay.reply(&self.plain, &mut self.name, out)?,
        }
        self.plain.clear();
        Ok(())
    }

    fn reads_client(&self) -> bool {
        self.client == Client::Speaks && self.to_member.is_empty()
    }

    /// Returns whether something is to be sent to the member, which includes the end.
    fn writes_member(&self) -> bool {
        self.client == Client::IsDone || !self.to_member.is_empty()
    }

    /// Takes note of what the member has heard.
    fn written_to_member(&mut self, count: usize) {
        match self.to_member.is_empty() {
            true => self.client = Client::IsKnownToBeDone,
            false => self.to_member.advance(count),
        }
    }

    /// Returns whether the connection may be one that no client waits for.
    fn may_be_left(&self) -> bool {
        self.client != Client::Speaks || !self.to_member.is_empty()
    }

    /// Says what it means that the member has gone.
    fn over(&self) -> End {
        match (self.client, &self.heard) {
            // It has ended what the client has.
            (Client::IsDone | Client::IsKnownToBeDone, _) => End::Client,
            (Client::Speaks, None) => End::Member,
            (Client::Speaks, Some(_)) => End::Silent,
        }
    }
}

/// Carries bytes both ways until either side ends it. With a relay, members are called what `name`
/// says in replies to hello. `heard` is called when the member says its first byte.
///
/// A client that only has no more to say still gets its replies.
pub(super) async fn carry<C: ClientStream>(
    client: C,
    member: Stream,
    relay: Option<Relay>,
    name: impl FnMut(&ServerAddress) -> Option<ServerAddress>,
    heard: impl FnOnce(),
) -> End {
    let Stream { socket, transport, early: plain, buffer: mut of_member, .. } = member;
    let (mut client_in, mut client_out) = split(client);
    let (mut member_in, mut member_out) = split(socket);
    let (to_member, to_client) = (Outgoing::default(), Outgoing::default());
    let (client, heard) = (Client::Speaks, Some(heard));
    let mut it = Between { relay, name, heard, transport, client, to_member, to_client, plain };
    if let Err(error) = it.pass_on() {
        return End::Nonsense(error);
    }
    let mut of_client = vec![0; READ_LEN];
    let mut looks = interval_at(Instant::now() + LINGER, LINGER);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_flushed, mut is_quiet) = (true, false);
    loop {
        let was_quiet = std::mem::take(&mut is_quiet);
        let outcome = tokio::select! {
            read = client_in.read(&mut of_client), if it.reads_client() => match read {
                Ok(0) => {
                    it.client = Client::IsDone;
                    Ok(())
                }
                Ok(count) => it.request(&of_client[..count]),
                Err(_) => return End::Client,
            },
            read = member_in.read(&mut of_member), if it.to_client.is_empty() => {
                let more = match read {
                    Ok(count @ 1..) => it.reply(&of_member[..count]),
                    Ok(0) | Err(_) => Ok(false),
                };
                match more {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        last_words(&mut client_out, it.to_client.rest()).await;
                        return it.over();
                    }
                    Err(error) => Err(error),
                }
            }
            written = write_or_end(&mut member_out, it.to_member.rest()), if it.writes_member() => {
                let Ok(count) = written else { return it.over() };
                it.written_to_member(count);
                Ok(())
            }
            pushed = push(&mut client_out, it.to_client.rest()),
                if !is_flushed || !it.to_client.is_empty() =>
            {
                let Ok(count) = pushed else { return End::Client };
                is_flushed = it.to_client.is_empty();
                it.to_client.advance(count);
                Ok(())
            }
            _ = looks.tick(), if it.may_be_left() => {
                let client = client_in.unsplit(client_out);
                if was_quiet && (it.client != Client::Speaks || client.has_hung_up()) {
                    return End::Client;
                }
                (client_in, client_out) = split(client);
                is_quiet = true;
                Ok(())
            }
        };
        if let Err(error) = outcome {
            // What came before it was good.
            last_words(&mut client_out, it.to_client.rest()).await;
            return End::Nonsense(error);
        }
    }
}

/// Writes some of the bytes, or the end of what the client says if there are no more.
async fn write_or_end(member: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    match bytes.is_empty() {
        true => member.shutdown().await.map(|()| 0),
        false => write(member, bytes).await,
    }
}

/// Writes some of the bytes, or has those leave that TLS may keep back if there are no more.
async fn push(client: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return client.flush().await.map(|()| 0);
    }
    write(client, bytes).await
}

async fn write(side: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    match side.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// Lets the client have what there is, and the end of it.
async fn last_words(client: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let said = async {
        client.write_all(bytes).await?;
        client.shutdown().await
    };
    // A client that does not listen misses nothing else.
    let _: Result<io::Result<()>, _> = timeout(LAST_WORDS, said).await;
}

/// Waits for a future, but no longer than for the end of what a client says.
///
/// A client may be gone before its member was reached; it says nothing in between that matters,
/// as the first byte it sends is left where it is.
pub(super) async fn unless_gone<T>(
    client: &TcpStream,
    opening: impl Future<Output = T>,
) -> Option<T> {
    let gone = async {
        let mut first = [0];
        if let Ok(1..) = client.peek(&mut first).await {
            std::future::pending::<()>().await;
        }
    };
    let mut opening = pin!(opening);
    tokio::select! {
        opened = &mut opening => Some(opened),
        () = gone => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use sdam_core::bson::rawdoc;
    use sdam_core::config::ServerAddress;
    use sdam_core::hello::{Relay, RelayError};
    use sdam_core::transport::{Transport, TransportConfig};
    use sdam_core::wire::{Flags, write_op_msg};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::{ClientStream, End, LINGER, carry};
    use crate::stream::{READ_LEN, Stream};

    /// The number of bytes that the system keeps of each direction.
    const PIPE: usize = 1024;

    impl ClientStream for DuplexStream {
        fn has_hung_up(&self) -> bool {
            false
        }
    }

    fn member() -> (Stream, DuplexStream) {
        let (near, far) = duplex(PIPE);
        let address: ServerAddress = "db1:27017".parse().unwrap();
        let config = TransportConfig::default();
        let mut wire = Vec::new();
        let transport = Transport::start(&config, &address, &address, &mut wire).unwrap();
        assert!(wire.is_empty(), "no filter has anything to send");
        (Stream::of(Box::new(near), transport), far)
    }

    fn message(request: i32, response_to: i32, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let body = rawdoc! { "a": "x".repeat(length) };
        write_op_msg(&mut bytes, request, response_to, Flags::NONE, &body);
        bytes
    }

    /// Writes until nothing more is taken, and then lets the other side read all of it.
    ///
    /// The clock is paused: it goes on only when everybody waits.
    async fn flood(writer: &mut DuplexStream, reader: &mut DuplexStream) {
        let (bytes, mut written) = (message(1, 0, 3_000_000), 0);
        let write = async {
            while written < bytes.len() {
                written += writer.write(&bytes[written..]).await.unwrap();
            }
        };
        timeout(Duration::from_secs(3600), write).await.unwrap_err();
        assert!(written <= 2 * PIPE + 2 * READ_LEN, "{written}");
        let mut read = vec![0; bytes.len()];
        let rest = writer.write_all(&bytes[written..]);
        let (rest, all) = tokio::join!(rest, reader.read_exact(&mut read));
        rest.unwrap();
        all.unwrap();
        assert_eq!(read, bytes);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_read_is_not_read_ahead_for() {
        let ((client, mut near), (opened, mut far)) = (duplex(PIPE), member());
        let carried = carry(client, opened, Some(Relay::new()), |_| None, || {});
        let floods = async {
            flood(&mut near, &mut far).await;
            flood(&mut far, &mut near).await;
        };
        tokio::select! {
            end = carried => panic!("{end:?}"),
            () = floods => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_that_a_member_says_arrives_before_the_end() {
        let ((client, mut near), (opened, mut far)) = (duplex(PIPE), member());
        let heard = Cell::new(0);
        let carried = carry(client, opened, Some(Relay::new()), |_| None, || heard.set(1));
        let bytes = message(1, 7, 5 * READ_LEN);
        let said = async {
            far.write_all(&bytes).await.unwrap();
            drop(far);
        };
        let mut read = Vec::new();
        let (end, (), all) = tokio::join!(carried, said, near.read_to_end(&mut read));
        all.unwrap();
        assert_eq!((end, heard.get()), (End::Member, 1));
        assert_eq!(read, bytes);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_no_more_to_say_gets_its_reply() {
        let ((client, mut near), (opened, mut far)) = (duplex(PIPE), member());
        let carried = carry(client, opened, Some(Relay::new()), |_| None, || {});
        let (request, reply) = (message(1, 0, 3 * PIPE), message(2, 1, 5 * READ_LEN));
        let asked = async {
            near.write_all(&request).await.unwrap();
            near.shutdown().await.unwrap();
            let mut read = Vec::new();
            near.read_to_end(&mut read).await.unwrap();
            read
        };
        let answered = async {
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            far.write_all(&reply).await.unwrap();
            drop(far);
            read
        };
        let (end, got, read) = tokio::join!(carried, asked, answered);
        assert_eq!((end, got, read), (End::Client, reply, request));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_said_its_last_is_not_waited_for_for_ever() {
        let ((client, mut near), (opened, _far)) = (duplex(PIPE), member());
        near.shutdown().await.unwrap();
        let begun = Instant::now();
        assert_eq!(carry(client, opened, None, |_| None, || {}).await, End::Client);
        let waited = begun.elapsed();
        assert!((LINGER..=2 * LINGER + LINGER / 2).contains(&waited), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_is_noticed_while_the_member_takes_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, _) = listener.accept().await.unwrap();
        let (opened, _far) = member();
        let mut carried = tokio::spawn(carry(client, opened, None, |_| None, || {}));
        near.write_all(&[0; 4 * READ_LEN]).await.unwrap();
        // As long as it is there, it is waited for.
        timeout(10 * LINGER, &mut carried).await.unwrap_err();
        drop(near);
        let end = timeout(10 * LINGER, carried).await.unwrap();
        assert_eq!(end.unwrap(), End::Client);
    }

    #[tokio::test(start_paused = true)]
    async fn each_end_differs_from_the_others() {
        let ((client, near), (opened, far)) = (duplex(PIPE), member());
        drop(far);
        assert_eq!(carry(client, opened, None, |_| None, || {}).await, End::Silent);
        drop(near);
        let ((client, near), (opened, _far)) = (duplex(PIPE), member());
        drop(near);
        assert_eq!(carry(client, opened, None, |_| None, || {}).await, End::Client);
        let ((client, mut near), (opened, _far)) = (duplex(PIPE), member());
        near.write_all(&[0; 16]).await.unwrap();
        let end = carry(client, opened, Some(Relay::new()), |_| None, || {}).await;
        assert!(matches!(end, End::Nonsense(RelayError::Request(_))), "{end:?}");
    }
}
