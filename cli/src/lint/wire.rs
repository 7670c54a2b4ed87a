//! A connection on which anything can be said, and everything that comes is kept.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::bson::{Document, RawDocumentBuf};
use sdam_core::bytes::Bytes;
use sdam_core::config::{Options, ServerAddress, TcpOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{Handshake, HandshakeOptions, Progress};
use sdam_core::transport::{Transport, TransportConfig};
use sdam_core::wire::{
    Compression, Decompressor, Frames, HEADER_LEN, MAX_NESTING, Message, RequestIds, nesting,
    op_code, write_op_query,
};
use sdam_host::system::{self, Certificates};
use sdam_host::{Connected, Connector, dial};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::evidence::{Answer, End, Exchange, Form};

/// The size of a read.
const READ_LEN: usize = 16_384;

/// The flag bits that the parser knows of; rules judge the others.
const KNOWN_FLAGS: u32 = 0x0001_0003;

/// The way to the servers of a deployment.
#[derive(Debug)]
pub(super) struct Dialer {
    connector: Connector,
    filters: TransportConfig,
    pub(super) options: Arc<Options>,
    /// The moment from which times are counted.
    began: Instant,
}

/// A stream of bytes.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection to a server.
pub(super) struct Wire {
    socket: Box<dyn Stream>,
    transport: Transport,
    /// The room of a read, apart: a future that holds it is moved more often than it is read.
    buffer: Vec<u8>,
    frames: Frames,
    ids: RequestIds,
    decompressor: Decompressor,
    /// The compressor that was agreed on, if messages are to be compressed.
    pub(super) compression: Option<Compression>,
    /// True if compressors were offered.
    pub(super) offers_compression: bool,
    /// The reason why nothing more is to be said on it: what comes now may answer another question.
    end: Option<End>,
    began: Instant,
}

/// A message to a server.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) command: Document,
    pub(super) form: Form,
    pub(super) flags: u32,
    /// The documents of a section of kind 1, which stands before the body.
    pub(super) sequence: Option<(&'static str, Vec<Document>)>,
    /// The number of answers to wait for, if each announces a further one.
    pub(super) answers: usize,
    /// The time that each answer may take.
    pub(super) patience: Duration,
}

impl Dialer {
    /// Prepares the way that the options name.
    ///
    /// # Errors
    ///
    /// Fails if certificates cannot be read, or the proxy's login cannot be sent.
    pub(super) fn new(options: Arc<Options>) -> Result<Self, Failure> {
        let configuration =
            |detail: String| Failure::new(Stage::Connect, Cause::Configuration, detail);
        let connector = Connector::new(&options).map_err(|it| configuration(it.to_string()))?;
        let mut filters = connector.filters();
        if let Some(tls) = options.tls() {
            filters = filters.with_tls(Certificates::of_files(tls.clone()).load()?);
        }
        Ok(Self { connector, filters, options, began: Instant::now() })
    }

    /// Opens a connection on which nothing was said yet.
    pub(super) async fn open(&self, address: &ServerAddress) -> Result<Wire, Failure> {
        let limit = self.options.connect_timeout().unwrap_or(super::PATIENCE);
        let deadline = Instant::now() + limit;
        timeout_at(deadline, self.open_stream(address)).await.unwrap_or_else(|_| {
            let detail = format!("not connected within {} ms", limit.as_millis());
            Err(Failure::new(Stage::Connect, Cause::Timeout, detail))
        })
    }

    async fn open_stream(&self, address: &ServerAddress) -> Result<Wire, Failure> {
        let route = self.connector.route(address, &self.filters)?;
        let target = route.dial().clone();
        let socket = connect(&target).await;
        let Connected { socket, mut transport, wire, .. } = route.opened(socket)?;
        let (mut socket, mut frames, mut out) = (socket, Frames::new(), wire);
        let mut buffer = vec![0; READ_LEN];
        loop {
            let written = socket.write_all(&std::mem::take(&mut out)).await;
            written.map_err(|error| transport.failure(&error))?;
            if transport.is_ready() {
                break;
            }
            let count = match socket.read(&mut buffer).await {
                Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            let count = count.map_err(|error| transport.failure(&error))?;
            let received = transport.receive(&buffer[..count], &mut frames, &mut out);
            if received.is_err() {
                // The alert that says why; a server that does not take it goes without.
                let _ = socket.write_all(&out).await;
            }
            received?;
        }
        Ok(Wire {
            socket,
            transport,
            buffer,
            frames,
            ids: RequestIds::default(),
            decompressor: Decompressor::new(),
            compression: None,
            offers_compression: false,
            end: None,
            began: self.began,
        })
    }

    /// Opens a connection, says hello and logs in, as the options say.
    pub(super) async fn open_logged_in(&self, address: &ServerAddress) -> Result<Wire, Failure> {
        let mut wire = self.open(address).await?;
        let limit = self.options.connect_timeout().unwrap_or(super::PATIENCE);
        let deadline = Instant::now() + limit;
        match timeout_at(deadline, wire.log_in(&self.options)).await {
            Ok(logged_in) => logged_in.map(|()| wire),
            Err(_) => {
                let detail = format!("not logged in within {} ms", limit.as_millis());
                Err(Failure::new(Stage::Authenticate, Cause::Timeout, detail))
            }
        }
    }
}

/// Opens a socket to the first address of a name that answers.
async fn connect(target: &ServerAddress) -> Result<Box<dyn Stream>, Failure> {
    let host = target.host().to_owned();
    let Some(port) = target.port() else { return connect_unix(&host).await };
    let name = host.clone();
    let looked_up = tokio::task::spawn_blocking(move || system::resolve(&name, port)).await;
    let addresses = looked_up.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let socket = dial(
        &host,
        addresses,
        |_| {},
        |address| async move {
            let socket = TcpStream::connect(address).await?;
            system::configure_tcp(&socket, TcpOptions::default());
            Ok(socket)
        },
        tokio::time::sleep,
    );
    Ok(Box::new(socket.await?))
}

#[cfg(unix)]
async fn connect_unix(path: &str) -> Result<Box<dyn Stream>, Failure> {
    match tokio::net::UnixStream::connect(path).await {
        Ok(socket) => Ok(Box::new(socket)),
        Err(error) => Err(Failure::from_io(Stage::Connect, &error)),
    }
}

#[cfg(not(unix))]
async fn connect_unix(path: &str) -> Result<Box<dyn Stream>, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, Cause::Io, detail))
}

impl Request {
    /// Makes an OP_MSG of a command, which waits `patience` for its one answer.
    pub(super) const fn new(command: Document, patience: Duration) -> Self {
        let (form, flags, sequence, answers) = (Form::Message, 0, None, 1);
        Self { command, form, flags, sequence, answers, patience }
    }

    /// Makes it an OP_QUERY.
    pub(super) const fn by_query(mut self) -> Self {
        self.form = Form::Query;
        self
    }

    /// Compresses it.
    pub(super) const fn compressed(mut self) -> Self {
        self.form = Form::Compressed;
        self
    }

    /// Sets flags.
    pub(super) const fn with_flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// Adds a section of kind 1.
    pub(super) fn with_sequence(mut self, name: &'static str, documents: Vec<Document>) -> Self {
        self.sequence = Some((name, documents));
        self
    }

    /// Waits for as many answers.
    pub(super) const fn with_answers(mut self, answers: usize) -> Self {
        self.answers = answers;
        self
    }

    /// Writes the message, uncompressed.
    fn write(&self, id: i32, out: &mut Vec<u8>) {
        let raw = |document: &Document| {
            RawDocumentBuf::try_from(document).expect("a document made here is one on the wire")
        };
        if self.form == Form::Query {
            let mut command = self.command.clone();
            let database = command.remove("$db");
            let database = database.as_ref().and_then(|it| it.as_str()).unwrap_or("admin");
            return write_op_query(out, id, database, &raw(&command));
        }
        let start = out.len();
        for field in [0, id, 0, op_code::OP_MSG] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.flags.to_le_bytes());
        if let Some((name, documents)) = &self.sequence {
            out.push(1);
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            documents.iter().for_each(|it| out.extend_from_slice(raw(it).as_bytes()));
            let length = i32::try_from(out.len() - at).unwrap_or(i32::MAX);
            out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        out.push(0);
        out.extend_from_slice(raw(&self.command).as_bytes());
        let length = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl Wire {
    /// Says hello and logs in.
    async fn log_in(&mut self, options: &Arc<Options>) -> Result<(), Failure> {
        let failed = |error: sdam_core::operation::OperationError| match error {
            sdam_core::operation::OperationError::Stream(failure) => failure,
            other => Failure::new(Stage::Authenticate, Cause::Refused, other.to_string()),
        };
        let opening = HandshakeOptions::new(options.metadata().document(), system::nonce()?)
            .with_encrypted(self.transport.is_encrypted());
        let mut out = zeroize::Zeroizing::new(Vec::new());
        let mut handshake = Handshake::start(options, opening, &mut out).map_err(failed)?;
        loop {
            self.send(&out).await.map_err(|end| ended(handshake.stage(), &end))?;
            out.clear();
            let bytes = self.receive_some().await;
            let bytes = bytes.map_err(|end| ended(handshake.stage(), &end))?;
            let mut progress = handshake.receive_until_keys(&bytes, &mut out).map_err(failed)?;
            if let Some(derivation) = handshake.take_derivation() {
                // It would hold up the other conversations, whose times are measured.
                let keys = tokio::task::spawn_blocking(move || derivation.run()).await;
                let keys = keys.map_err(|error| {
                    Failure::new(Stage::Authenticate, Cause::Canceled, error.to_string())
                })?;
                progress = handshake.derived(keys, &mut out).map_err(failed)?;
            }
            match progress {
                Progress::Reading => {}
                Progress::Done(_) => return Ok(()),
                Progress::Asking(_) => {
                    let detail = "the login needs a provider of tokens or of credentials, which \
                                  this command does not have";
                    return Err(Failure::new(Stage::Authenticate, Cause::Configuration, detail));
                }
            }
        }
    }

    /// Returns the reason why nothing more is to be said on it, if there is one.
    pub(super) const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Asks, and keeps what comes.
    pub(super) async fn ask(&mut self, request: Request) -> Exchange {
        let mut exchange = self.begin(&request).await;
        while exchange.end.is_none() && exchange.answers.len() < request.answers {
            let is_last = exchange.answers.last().is_some_and(|answer| answer.flags & 2 == 0);
            if is_last || !self.listen(&mut exchange, request.patience).await {
                break;
            }
        }
        exchange
    }

    /// Sends a request.
    pub(super) async fn begin(&mut self, request: &Request) -> Exchange {
        let request_id = self.ids.next_id();
        let mut out = Vec::new();
        request.write(request_id, &mut out);
        if let (Form::Compressed, Some(compression)) = (request.form, &mut self.compression) {
            compression.compress(&mut out, 0);
        }
        let sent = self.began.elapsed();
        let end = self.send(&out).await.err();
        Exchange {
            request: request.command.clone(),
            request_id,
            form: request.form,
            exhaust_allowed: request.flags & (1 << 16) != 0,
            offers_compression: self.offers_compression,
            sent,
            answers: Vec::new(),
            end,
        }
    }

    /// Waits for one more answer; returns whether it came.
    pub(super) async fn listen(&mut self, exchange: &mut Exchange, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let received = match timeout_at(deadline, self.receive()).await {
            Ok(received) => received,
            Err(_) => Err(End::Silent(patience)),
        };
        match received {
            Ok(message) => {
                let answer = self.read(message);
                exchange.answers.push(answer);
                true
            }
            Err(end) => {
                self.end = Some(end.clone());
                exchange.end = Some(end);
                false
            }
        }
    }

    /// Sends bytes that are no whole message, and keeps how that ends.
    pub(super) async fn offend(&mut self, bytes: &[u8], patience: Duration) -> Exchange {
        let end = self.send(bytes).await.err();
        let mut exchange = Exchange {
            request: Document::new(),
            request_id: 0,
            form: Form::Message,
            exhaust_allowed: false,
            offers_compression: self.offers_compression,
            sent: self.began.elapsed(),
            answers: Vec::new(),
            end,
        };
        if exchange.end.is_none() {
            self.listen(&mut exchange, patience).await;
        }
        exchange
    }

    async fn send(&mut self, plain: &[u8]) -> Result<(), End> {
        let mut sealed = Vec::new();
        self.transport.send(plain, &mut sealed);
        let sent = self.socket.write_all(&sealed).await;
        sent.map_err(|error| {
            let end = End::Closed(error.to_string());
            self.end = Some(end.clone());
            end
        })
    }

    async fn receive(&mut self) -> Result<Message, End> {
        loop {
            match self.frames.next() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(End::Malformed(error.to_string())),
            }
            let bytes = self.receive_some().await?;
            self.frames.extend(&bytes);
        }
    }

    /// Receives some bytes of plaintext.
    async fn receive_some(&mut self) -> Result<Vec<u8>, End> {
        let mut plain = Vec::new();
        while plain.is_empty() {
            let count = match self.socket.read(&mut self.buffer).await {
                Ok(0) => return Err(End::Closed("the server has closed it".to_owned())),
                Ok(count) => count,
                Err(error) => return Err(End::Closed(error.to_string())),
            };
            let mut reply = Vec::new();
            let received = self.transport.receive(&self.buffer[..count], &mut plain, &mut reply);
            received.map_err(|failure| End::Closed(failure.detail.to_string()))?;
            let written = self.socket.write_all(&reply).await;
            written.map_err(|error| End::Closed(error.to_string()))?;
        }
        Ok(plain)
    }

    /// Reads a message, and keeps what is wrong with it.
    fn read(&mut self, message: Message) -> Answer {
        let header = message.header();
        let is_compressed = header.op_code == op_code::OP_COMPRESSED;
        let message = match self.decompressor.decompress(message) {
            Ok(message) => message,
            Err(error) => {
                return Answer {
                    came: self.began.elapsed(),
                    request_id: header.request_id,
                    response_to: header.response_to,
                    op_code: header.op_code,
                    is_compressed,
                    flags: 0,
                    document: Err(error.to_string()),
                };
            }
        };
        let op_code = message.header().op_code;
        let (flags, document) = match op_code {
            op_code::OP_REPLY => (0, message.op_reply().map(|it| it.document.to_owned())),
            _ => {
                let (flags, known) = with_known_flags(&message);
                let message = known.unwrap_or(message);
                (flags, message.op_msg().map(|it| it.body.to_owned()))
            }
        };
        let document = document.map_err(|error| error.to_string()).and_then(|raw| {
            if nesting(&raw, MAX_NESTING).is_none() {
                return Err(format!("a document of more than {MAX_NESTING} levels"));
            }
            Document::try_from(raw).map_err(|error| format!("malformed BSON: {error}"))
        });
        let (request_id, response_to) = (header.request_id, header.response_to);
        let came = self.began.elapsed();
        Answer { came, request_id, response_to, op_code, is_compressed, flags, document }
    }
}

/// Returns the flags of an OP_MSG, and the message without those that are not known.
fn with_known_flags(message: &Message) -> (u32, Option<Message>) {
    let Some(flags) = message.body().first_chunk() else { return (0, None) };
    let flags = u32::from_le_bytes(*flags);
    if flags & !KNOWN_FLAGS == 0 {
        return (flags, None);
    }
    let mut bytes = message.bytes().to_vec();
    let known = (flags & KNOWN_FLAGS).to_le_bytes();
    bytes[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&known);
    (flags, Message::try_from(Bytes::from(bytes)).ok())
}

fn ended(stage: Stage, end: &End) -> Failure {
    Failure::new(stage, Cause::Closed, end.words())
}
