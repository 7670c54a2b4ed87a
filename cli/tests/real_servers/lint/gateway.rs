//! A gateway in front of a real server that does one thing wrong.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, RawDocumentBuf};
use sdam_core::bytes::Bytes;
use sdam_core::wire::{
    Compression, Compressor, Decompressor, Flags, Frames, HEADER_LEN, Message, ReplyFlags, op_code,
    write_op_msg, write_op_reply,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The flag bits that the parser knows of.
const KNOWN_FLAGS: u32 = 0x0001_0003;

/// The largest document, by the gateway's words: less than the server takes, and sooner sent.
pub(crate) const DOCUMENT_SIZE: i32 = 1 << 20;

/// The flags of a streaming hello, of replies that others follow, and of those with a checksum.
pub(crate) const EXHAUST: u32 = 1 << 16;
pub(crate) const MORE: u32 = 2;

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) command: Document,
    pub(crate) flags: u32,
    pub(crate) by_query: bool,
    pub(crate) is_compressed: bool,
    /// True if documents came as a section of their own.
    pub(crate) has_sequence: bool,
    pub(crate) length: usize,
    /// The time since the last message on the connection.
    pub(crate) rest: Duration,
    /// The topologyVersion that was sent last on the connection.
    pub(crate) known: Option<Document>,
    /// True of the first hello by OP_MSG after one by OP_QUERY.
    pub(crate) is_first_by_message: bool,
    /// True if the primary was asked to step down.
    pub(crate) has_stepped_down: bool,
    request_id: i32,
}

impl Asked {
    /// Returns whether this is the command.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.command.keys().next().is_some_and(|first| first == name)
    }

    /// Returns whether this is hello, in any form.
    pub(crate) fn is_hello(&self) -> bool {
        ["hello", "isMaster", "ismaster"].iter().any(|name| self.is(name))
    }

    /// Returns whether this is a hello that waits for a change, once or for one after another.
    fn awaits(&self) -> bool {
        self.is_hello()
            && self.command.contains_key("maxAwaitTimeMS")
            && self.command.contains_key("topologyVersion")
    }

    /// Returns whether this is a hello that waits for a change, once.
    pub(crate) fn waits(&self) -> bool {
        self.awaits() && self.flags & EXHAUST == 0
    }

    /// Returns whether this is a hello whose replies stream.
    pub(crate) fn streams(&self) -> bool {
        self.is_hello() && self.flags & EXHAUST != 0
    }

    /// Returns whether it knows the topologyVersion that was sent last.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.command.get_document("topologyVersion").ok() == self.known.as_ref()
    }
}

/// The first reaction to a request.
pub(crate) enum Reaction {
    /// The server gets it as it is.
    Forward,
    /// The server gets the command and the flags as they are now.
    ForwardChanged,
    Answer(Document),
    Swallow,
    Close,
}

/// A reply of the server, as the client will see it.
pub(crate) struct Said {
    pub(crate) document: Document,
    pub(crate) flags: u32,
    pub(crate) request_id: i32,
    pub(crate) response_to: i32,
    /// The number of replies to the request before this one.
    pub(crate) number: usize,
    pub(crate) delay: Duration,
    pub(crate) by_query: bool,
    pub(crate) compresses: bool,
    pub(crate) has_checksum: bool,
    pub(crate) is_corrupt: bool,
    pub(crate) is_dropped: bool,
    pub(crate) closes: bool,
    /// True if the primary was asked to step down.
    pub(crate) has_stepped_down: bool,
}

impl Said {
    /// Makes a reply with nothing wrong.
    const fn new(document: Document, (request_id, response_to): (i32, i32)) -> Self {
        Self {
            document,
            flags: 0,
            request_id,
            response_to,
            number: 0,
            delay: Duration::ZERO,
            by_query: false,
            compresses: false,
            has_checksum: false,
            is_corrupt: false,
            is_dropped: false,
            closes: false,
            has_stepped_down: false,
        }
    }
}

/// The one thing that a gateway does wrong.
#[derive(Clone, Copy)]
pub(crate) struct Wrong {
    pub(crate) before: fn(&mut Asked) -> Reaction,
    pub(crate) after: fn(&Asked, &mut Said),
    /// True if what is no message is passed over.
    pub(crate) bears_nonsense: bool,
    /// True if no hello is answered while another waits.
    pub(crate) is_serial: bool,
}

impl Wrong {
    /// Does nothing wrong.
    pub(crate) const NONE: Self = Self {
        before: |_| Reaction::Forward,
        after: |_, _| {},
        bears_nonsense: false,
        is_serial: false,
    };
}

/// The state that the connections of a gateway share.
#[derive(Default)]
struct Shared {
    queries: AtomicUsize,
    has_said_hello: AtomicBool,
    has_stepped_down: AtomicBool,
    waiting: Arc<Mutex<()>>,
}

/// Starts a gateway in front of `target`, and returns where it listens; it lives as long as the
/// runtime.
pub(crate) async fn start(target: SocketAddr, wrong: Wrong) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let shared = Arc::<Shared>::default();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                // However it ends, the client sees that it has.
                let _ = converse(client, target, wrong, &shared).await;
            });
        }
    });
    Ok(address)
}

/// A connection through the gateway.
struct Connection<'a> {
    client: TcpStream,
    server: TcpStream,
    wrong: Wrong,
    shared: &'a Shared,
    decompressor: Decompressor,
    asked: Option<Asked>,
    /// The number of replies to it.
    replies: usize,
    known: Option<Document>,
    last: Instant,
    guard: Option<OwnedMutexGuard<()>>,
}

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn converse(client: TcpStream, target: SocketAddr, wrong: Wrong, shared: &Shared) -> Outcome {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (decompressor, last) = (Decompressor::new(), Instant::now());
    let (asked, replies, known, guard) = (None, 0, None, None);
    let mut connection = Connection {
        client,
        server,
        wrong,
        shared,
        decompressor,
        asked,
        replies,
        known,
        last,
        guard,
    };
    let (mut requests, mut replies) = (Frames::new(), Frames::new());
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            count = connection.client.read(&mut from_client) => match count? {
                0 => return Ok(()),
                count => requests.extend(&from_client[..count]),
            },
            count = connection.server.read(&mut from_server) => match count? {
                0 => return Ok(()),
                count => replies.extend(&from_server[..count]),
            },
        }
        loop {
            match requests.next() {
                Ok(Some(message)) => connection.request(message).await?,
                Ok(None) => break,
                Err(_) if wrong.bears_nonsense => {
                    std::future::pending::<()>().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        while let Some(message) = replies.next()? {
            connection.reply(message).await?;
        }
    }
}

impl Connection<'_> {
    async fn request(&mut self, message: Message) -> Outcome {
        let mut asked = self.read(message.clone())?;
        if self.wrong.is_serial && asked.is_hello() && !asked.awaits() {
            drop(self.shared.waiting.lock().await);
        }
        if self.wrong.is_serial && asked.waits() && asked.is_up_to_date() {
            self.guard = Some(Arc::clone(&self.shared.waiting).lock_owned().await);
        }
        match (self.wrong.before)(&mut asked) {
            Reaction::Forward => self.server.write_all(message.bytes()).await?,
            Reaction::ForwardChanged => {
                let body = RawDocumentBuf::try_from(&asked.command)?;
                let flags = match asked.flags & EXHAUST {
                    0 => Flags::NONE,
                    _ => Flags::EXHAUST_ALLOWED,
                };
                let mut out = Vec::new();
                write_op_msg(&mut out, asked.request_id, 0, flags, &body);
                self.server.write_all(&out).await?;
            }
            Reaction::Answer(document) => {
                let mut said = Said::new(document, (77, asked.request_id));
                said.by_query = asked.by_query;
                self.say(&said).await?;
            }
            Reaction::Swallow => {}
            Reaction::Close => return Err("closed, as is wrong".into()),
        }
        self.asked = Some(asked);
        self.replies = 0;
        Ok(())
    }

    /// Reads a request, even one with unknown flags.
    fn read(&mut self, message: Message) -> Outcome<Asked> {
        let header = message.header();
        let is_compressed = header.op_code == op_code::OP_COMPRESSED;
        let message = self.decompressor.decompress(message)?;
        let by_query = message.header().op_code == op_code::OP_QUERY;
        let (command, flags, has_sequence) = match by_query {
            true => (Document::try_from(message.op_query()?.query)?, 0, false),
            false => {
                let flags = message.body().first_chunk().ok_or("no flags")?;
                let flags = u32::from_le_bytes(*flags);
                let mut bytes = message.bytes().to_vec();
                let known = (flags & KNOWN_FLAGS).to_le_bytes();
                bytes[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&known);
                let message = Message::try_from(Bytes::from(bytes))?;
                let message = message.op_msg()?;
                let has_sequence = message.sequences().next().is_some();
                (Document::try_from(message.body)?, flags, has_sequence)
            }
        };
        if command.contains_key("replSetStepDown") {
            self.shared.has_stepped_down.store(true, Ordering::SeqCst);
        }
        let rest = std::mem::replace(&mut self.last, Instant::now()).elapsed();
        let is_hello = command.contains_key("client");
        if is_hello && by_query {
            self.shared.queries.fetch_add(1, Ordering::SeqCst);
        }
        let is_first_by_message = is_hello
            && !by_query
            && self.shared.queries.load(Ordering::SeqCst) > 0
            && !self.shared.has_said_hello.swap(true, Ordering::SeqCst);
        Ok(Asked {
            command,
            flags,
            by_query,
            is_compressed,
            has_sequence,
            length: usize::try_from(header.length)?,
            rest,
            known: self.known.clone(),
            is_first_by_message,
            has_stepped_down: self.shared.has_stepped_down.load(Ordering::SeqCst),
            request_id: header.request_id,
        })
    }

    async fn reply(&mut self, message: Message) -> Outcome {
        let header = message.header();
        let message = self.decompressor.decompress(message)?;
        let by_query = message.header().op_code == op_code::OP_REPLY;
        let (mut document, flags) = match by_query {
            true => (Document::try_from(message.op_reply()?.document)?, 0),
            false => {
                let reply = message.op_msg()?;
                let more = if reply.flags.contains(Flags::MORE_TO_COME) { MORE } else { 0 };
                (Document::try_from(reply.body)?, more)
            }
        };
        if document.contains_key("maxBsonObjectSize") {
            document.insert("maxBsonObjectSize", DOCUMENT_SIZE);
        }
        if let Ok(version) = document.get_document("topologyVersion") {
            self.known = Some(version.clone());
        }
        let Some(asked) = &self.asked else { return Err("a reply to nothing".into()) };
        let mut said = Said::new(document, (header.request_id, header.response_to));
        (said.flags, said.by_query, said.number) = (flags, by_query, self.replies);
        said.has_stepped_down = self.shared.has_stepped_down.load(Ordering::SeqCst);
        (self.wrong.after)(asked, &mut said);
        self.replies += 1;
        if said.closes {
            return Err("closed, as is wrong".into());
        }
        tokio::time::sleep(said.delay).await;
        if !said.is_dropped {
            self.say(&said).await?;
        }
        self.guard = None;
        Ok(())
    }

    async fn say(&mut self, said: &Said) -> Outcome {
        let mut body = RawDocumentBuf::try_from(&said.document)?.into_bytes();
        if said.is_corrupt {
            // The type of the first field: there is none of that number.
            body[4] = 0x63;
        }
        let mut out = Vec::new();
        let (id, to) = (said.request_id, said.response_to);
        match said.by_query {
            true => {
                let body = RawDocumentBuf::from_bytes(body)?;
                write_op_reply(&mut out, id, to, ReplyFlags::AWAIT_CAPABLE, &body);
            }
            false => {
                let flags = match said.has_checksum {
                    true => Flags::CHECKSUM_PRESENT,
                    false => Flags::NONE,
                };
                let body = RawDocumentBuf::from_bytes(body)?;
                write_op_msg(&mut out, id, to, flags, &body);
                if !said.has_checksum {
                    out[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&said.flags.to_le_bytes());
                }
            }
        }
        if said.compresses {
            Compression::new(Compressor::Zlib, -1)?.compress(&mut out, 0);
        }
        Ok(self.client.write_all(&out).await?)
    }
}
