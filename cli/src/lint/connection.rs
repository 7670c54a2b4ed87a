//! A connection on which anything can be said, and everything that comes is kept.
//!
//! Not one of the library's pools, as lint judges what the library hides, the header of each reply,
//! and sends what it would not: messages before hello, flags that do not exist, a length that no
//! message may have. The stream, the login and the form of messages are the library's.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::bson::Document;
use sdam_core::bytes::Bytes;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::operation::OperationError;
use sdam_core::transport::TransportConfig;
use sdam_core::wire::{
    Compression, Decompressor, Frames, HEADER_LEN, MAX_NESTING, Message, RequestIds, nesting,
    op_code,
};
use sdam_host::Connector;
use sdam_host::system::{self, Certificates};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use super::evidence::{Answer, End, Exchange, Form};
use super::request::Request;
use crate::stream::{Stream, StreamError, connect};

/// The time that a reply may take if connectTimeoutMS is 0, which would be for ever.
const TIMEOUT: Duration = Duration::from_secs(10);

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

/// A connection to a server.
pub(super) struct Connection {
    stream: Stream,
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

    /// Returns the time that a reply may take which has nothing to wait for.
    pub(super) fn timeout(&self) -> Duration {
        self.options.connect_timeout().unwrap_or(TIMEOUT)
    }

    /// Opens a connection on which nothing was said yet.
    pub(super) async fn open(&self, address: &ServerAddress) -> Result<Connection, Failure> {
        let stream = async {
            let route = self.connector.route(address, &self.filters)?;
            let socket = connect(route.dial(), route.tcp(), |_| {}).await;
            Stream::open(route, socket, |_| {}).await
        };
        Ok(Connection {
            stream: self.in_time(Stage::Connect, "not connected", stream).await?,
            frames: Frames::new(),
            ids: RequestIds::default(),
            decompressor: Decompressor::new(),
            compression: None,
            offers_compression: false,
            end: None,
            began: self.began,
        })
    }

    /// Opens a connection, says hello and logs in, as the options say.
    pub(super) async fn open_logged_in(
        &self,
        address: &ServerAddress,
    ) -> Result<Connection, Failure> {
        let mut connection = self.open(address).await?;
        let login = connection.log_in(&self.options);
        self.in_time(Stage::Authenticate, "not logged in", login).await?;
        Ok(connection)
    }

    async fn in_time<T>(
        &self,
        stage: Stage,
        what: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.timeout();
        timeout(limit, work).await.unwrap_or_else(|_| {
            let detail = format!("{what} within {} ms", limit.as_millis());
            Err(Failure::new(stage, Cause::Timeout, detail))
        })
    }
}

impl Connection {
    /// Says hello and logs in.
    async fn log_in(&mut self, options: &Arc<Options>) -> Result<(), Failure> {
        let failed = |error: OperationError| match error {
            OperationError::Stream(failure) => failure,
            other => Failure::new(Stage::Authenticate, Cause::Refused, other.to_string()),
        };
        let opening = HandshakeOptions::new(options.metadata().document(), system::nonce()?)
            .with_encrypted(self.stream.transport.is_encrypted());
        let mut out = Zeroizing::new(Vec::new());
        let mut handshake = Handshake::start(options, opening, &mut out).map_err(failed)?;
        loop {
            let stage = handshake.stage();
            let ended = |end: End| Failure::new(stage, Cause::Closed, end.words());
            self.send(&out).await.map_err(ended)?;
            out.clear();
            let mut bytes = Vec::new();
            self.stream.receive(&mut bytes).await.map_err(end).map_err(ended)?;
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
                HandshakeProgress::Reading => {}
                HandshakeProgress::Done(_) => return Ok(()),
                HandshakeProgress::Asking(_) => {
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
            if is_last || !self.listen(&mut exchange, request.timeout).await {
                break;
            }
        }
        exchange
    }

    /// Sends a request.
    pub(super) async fn begin(&mut self, request: &Request) -> Exchange {
        let request_id = self.ids.next_id();
        let mut bytes = request.bytes(request_id);
        if let (Form::Compressed, Some(compression)) = (request.form, &mut self.compression) {
            compression.compress(&mut bytes, 0);
        }
        self.say(request, request_id, &bytes).await
    }

    /// Sends bytes that are no whole message, and keeps how that ends.
    pub(super) async fn offend(&mut self, bytes: &[u8], timeout: Duration) -> Exchange {
        let request = Request::new(Document::new(), timeout);
        let mut exchange = self.say(&request, 0, bytes).await;
        if exchange.end.is_none() {
            self.listen(&mut exchange, timeout).await;
        }
        exchange
    }

    async fn say(&mut self, request: &Request, request_id: i32, bytes: &[u8]) -> Exchange {
        let sent = self.began.elapsed();
        let end = self.send(bytes).await.err();
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
    pub(super) async fn listen(&mut self, exchange: &mut Exchange, timeout: Duration) -> bool {
        let received = tokio::time::timeout(timeout, self.receive()).await;
        match received.unwrap_or(Err(End::Silent(timeout))) {
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

    async fn send(&mut self, plain: &[u8]) -> Result<(), End> {
        let sent = self.stream.send(plain).await;
        sent.map_err(|error| self.end.insert(End::Closed(error.to_string())).clone())
    }

    async fn receive(&mut self) -> Result<Message, End> {
        loop {
            match self.frames.next() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => self.stream.receive(&mut self.frames).await.map_err(end)?,
                Err(error) => return Err(End::Malformed(error.to_string())),
            }
        }
    }

    /// Reads a message, and keeps what is wrong with it.
    fn read(&mut self, message: Message) -> Answer {
        let header = message.header();
        let (op_code, flags, document) = match self.decompressor.decompress(message) {
            Ok(message) => contents(message),
            Err(error) => (header.op_code, 0, Err(error.to_string())),
        };
        Answer {
            came: self.began.elapsed(),
            request_id: header.request_id,
            response_to: header.response_to,
            op_code,
            is_compressed: header.op_code == op_code::OP_COMPRESSED,
            flags,
            document,
        }
    }
}

/// Returns the opcode, the flags and the document of a message, or what is wrong with that.
fn contents(message: Message) -> (i32, u32, Result<Document, String>) {
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
    (op_code, flags, document)
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

/// Returns what has happened to a stream.
fn end(error: StreamError) -> End {
    End::Closed(match error {
        StreamError::Socket(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server has closed it".to_owned()
        }
        StreamError::Socket(error) => error.to_string(),
        StreamError::Filter(failure) => failure.detail.to_string(),
    })
}
