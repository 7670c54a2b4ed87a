//! A server that knows one user, and answers as the test says.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sdam_core::auth::{CredentialCache, CredentialRequest};
use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::{Options, OptionsBuilder};
use sdam_core::handshake::{ConnectionDescription, Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::operation::OperationError;
use sdam_core::wire::{Flags, Frames, ReplyFlags, op_code, write_op_msg, write_op_reply};
use sha1::Sha1;
use sha2::{Digest, Sha256};

pub(crate) const NONCE: [u8; 24] = [7; 24];
pub(crate) const SALT: &[u8] = b"a salt of the server";
pub(crate) const ITERATIONS: u32 = 4096;

/// The client's end.
pub(crate) struct Client {
    pub(crate) handshake: Handshake,
    /// The client's commands, and the bytes still to be read.
    pub(crate) sent: Vec<RawDocumentBuf>,
    frames: Frames,
    request: (i32, i32),
}

pub(crate) fn options(uri: &str) -> Arc<Options> {
    Arc::new(Options::parse(uri).unwrap())
}

pub(crate) fn built(build: impl FnOnce(OptionsBuilder) -> OptionsBuilder) -> Arc<Options> {
    Arc::new(build(Options::builder().uri("mongodb://a").unwrap()).build().unwrap())
}

pub(crate) fn opening(options: &Options, credential_cache: CredentialCache) -> HandshakeOptions {
    let client = options.metadata().document();
    let server = options.seeds().first().cloned();
    HandshakeOptions::new(client, NONCE).with_credential_cache(credential_cache).with_server(server)
}

impl Client {
    pub(crate) fn start(options: &Arc<Options>) -> Self {
        Self::knowing(options, CredentialCache::default())
    }

    pub(crate) fn knowing(options: &Arc<Options>, credential_cache: CredentialCache) -> Self {
        let mut out = Vec::new();
        let handshake =
            Handshake::start(options, opening(options, credential_cache), &mut out).unwrap();
        let frames = Frames::new();
        let mut client = Self { handshake, sent: Vec::new(), frames, request: (0, 0) };
        client.take(&out);
        client
    }

    /// Authenticates an established connection once more.
    pub(crate) fn again(
        options: &Arc<Options>,
        credential_cache: CredentialCache,
        connection_description: &ConnectionDescription,
    ) -> (Self, HandshakeProgress) {
        let (mut out, opening) = (Vec::new(), opening(options, credential_cache));
        let (handshake, progress) =
            Handshake::reauthenticate(options, opening, connection_description.clone(), &mut out)
                .unwrap();
        let frames = Frames::new();
        let mut client = Self { handshake, sent: Vec::new(), frames, request: (0, 0) };
        client.take(&out);
        (client, progress)
    }

    /// Reads what the client has sent.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
        while let Some(message) = self.frames.next().unwrap() {
            let number = message.header().request_id;
            assert!(number > self.request.0, "a reply says which message it answers");
            self.request = (number, message.header().op_code);
            let command = match self.request.1 {
                op_code::OP_QUERY => message.op_query().unwrap().query.to_owned(),
                _ => message.op_msg().unwrap().body.to_owned(),
            };
            self.sent.push(command);
        }
    }

    pub(crate) fn last(&self) -> &RawDocument {
        self.sent.last().unwrap()
    }

    pub(crate) const fn op_code(&self) -> i32 {
        self.request.1
    }

    /// Returns the bytes of a reply to the last command.
    pub(crate) fn reply_bytes(&self, reply: &RawDocument) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.request.1 {
            op_code::OP_QUERY => {
                write_op_reply(&mut bytes, 1, self.request.0, ReplyFlags::NONE, reply);
            }
            _ => write_op_msg(&mut bytes, 1, self.request.0, Flags::NONE, reply),
        }
        bytes
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<HandshakeProgress, OperationError> {
        let mut out = Vec::new();
        let progress = self.handshake.receive(bytes, &mut out)?;
        self.take(&out);
        Ok(progress)
    }

    pub(crate) fn reply(
        &mut self,
        reply: &RawDocument,
    ) -> Result<HandshakeProgress, OperationError> {
        self.receive(&self.reply_bytes(reply))
    }

    pub(crate) fn supply(
        &mut self,
        answer: sdam_core::auth::CredentialResponse,
    ) -> Result<HandshakeProgress, OperationError> {
        let mut out = Vec::new();
        let progress = self.handshake.supply(answer, &mut out)?;
        self.take(&out);
        Ok(progress)
    }

    /// Answers with what `server` says until the handshake is over.
    pub(crate) fn run(
        &mut self,
        server: &mut impl FnMut(&RawDocument) -> RawDocumentBuf,
    ) -> Result<Box<ConnectionDescription>, OperationError> {
        for _ in 0..10 {
            let reply = server(self.last());
            if let HandshakeProgress::Done(connection_description) = self.reply(&reply)? {
                return Ok(connection_description);
            }
        }
        panic!("the handshake has no end: {:?}", self.sent);
    }
}

pub(crate) fn done(
    progress: Result<HandshakeProgress, OperationError>,
) -> Box<ConnectionDescription> {
    match progress {
        Ok(HandshakeProgress::Done(connection_description)) => connection_description,
        other => panic!("{other:?} where the handshake is done"),
    }
}

pub(crate) fn asked(progress: Result<HandshakeProgress, OperationError>) -> CredentialRequest {
    match progress {
        Ok(HandshakeProgress::Asking(question)) => question,
        other => panic!("{other:?} where something is asked"),
    }
}

/// Replaces each question mark by a byte that is no UTF-8.
pub(crate) fn broken(reply: RawDocumentBuf) -> RawDocumentBuf {
    let mut bytes = reply.into_bytes();
    bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xc3);
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

pub(crate) fn hello() -> RawDocumentBuf {
    rawdoc! { "isWritablePrimary": true, "helloOk": true, "maxWireVersion": 17, "ok": 1 }
}

pub(crate) fn names(document: &RawDocument) -> Vec<&str> {
    document.iter().map(|element| element.unwrap().0.as_str()).collect()
}

pub(crate) fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

pub(crate) fn payload(command: &RawDocument) -> Vec<u8> {
    command.get_binary("payload").unwrap().bytes.to_vec()
}

/// Makes another signature of the right one.
pub(crate) type Forge = fn(&[u8]) -> Vec<u8>;

/// A server that knows "user" with the password "pencil" by SCRAM.
#[derive(Default)]
pub(crate) struct Scram {
    /// True if it takes the first step with hello.
    pub(crate) speculates: bool,
    /// True if it wants one more exchange in the end.
    pub(crate) long: bool,
    /// The change that it makes to its signature.
    pub(crate) forge: Option<Forge>,
    /// The first messages of both.
    pub(crate) first: String,
    pub(crate) hash: Hash,
}

/// The hash that the client has chosen.
#[derive(Clone, Copy, Default)]
pub(crate) enum Hash {
    Sha1,
    #[default]
    Sha256,
}

impl Hash {
    fn salted(self) -> Vec<u8> {
        match self {
            Self::Sha1 => {
                let password: String =
                    Md5::digest("user:mongo:pencil").iter().map(|b| format!("{b:02x}")).collect();
                let mut salted = vec![0; 20];
                pbkdf2::pbkdf2_hmac::<Sha1>(password.as_bytes(), SALT, ITERATIONS, &mut salted);
                salted
            }
            Self::Sha256 => {
                let mut salted = vec![0; 32];
                pbkdf2::pbkdf2_hmac::<Sha256>(b"pencil", SALT, ITERATIONS, &mut salted);
                salted
            }
        }
    }

    fn digest(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(data).to_vec(),
            Self::Sha256 => Sha256::digest(data).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => hmac::<Hmac<Sha1>>(key, data),
            Self::Sha256 => hmac::<Hmac<Sha256>>(key, data),
        }
    }
}

impl Scram {
    pub(crate) fn answer(&mut self, command: &RawDocument) -> RawDocumentBuf {
        match names(command)[0] {
            "saslStart" => self.first(command, true),
            "saslContinue" if payload(command).is_empty() => {
                rawdoc! { "conversationId": 1, "done": true, "payload": binary(b""), "ok": 1 }
            }
            "saslContinue" => self.last(command),
            _ => {
                let mut reply = hello();
                reply.append(
                    cstr!("saslSupportedMechs"),
                    sdam_core::bson::rawbson!(["SCRAM-SHA-1", "SCRAM-SHA-256"]),
                );
                if self.speculates {
                    let command = command.get_document("speculativeAuthenticate").unwrap();
                    reply.append(cstr!("speculativeAuthenticate"), self.first(command, false));
                }
                reply
            }
        }
    }

    fn first(&mut self, command: &RawDocument, ok: bool) -> RawDocumentBuf {
        self.hash = match command.get_str("mechanism").unwrap() {
            "SCRAM-SHA-1" => Hash::Sha1,
            mechanism => {
                assert_eq!(mechanism, "SCRAM-SHA-256");
                Hash::Sha256
            }
        };
        assert_eq!(
            command.get_document("options").unwrap().get_bool("skipEmptyExchange").ok(),
            Some(true)
        );
        let first = String::from_utf8(payload(command)).unwrap();
        let bare = first.strip_prefix("n,,").expect("no channel binding");
        let nonce = bare.strip_prefix("n=user,r=").unwrap();
        let salt = BASE64_STANDARD.encode(SALT);
        let reply = format!("r={nonce}server,s={salt},i={ITERATIONS}");
        self.first = format!("{bare},{reply}");
        let mut document =
            rawdoc! { "conversationId": 1, "done": false, "payload": binary(reply.as_bytes()) };
        if ok {
            document.append(cstr!("ok"), 1);
        }
        document
    }

    fn last(&self, command: &RawDocument) -> RawDocumentBuf {
        let last = String::from_utf8(payload(command)).unwrap();
        let (without_proof, proof) = last.rsplit_once(",p=").unwrap();
        let message = format!("{},{without_proof}", self.first);
        let salted = self.hash.salted();
        let client_key = self.hash.hmac(&salted, b"Client Key");
        let stored_key = self.hash.digest(&client_key);
        let mut expected = self.hash.hmac(&stored_key, message.as_bytes());
        expected.iter_mut().zip(&client_key).for_each(|(byte, key)| *byte ^= key);
        if BASE64_STANDARD.encode(expected) != proof {
            return rawdoc! {
                "ok": 0, "code": 18, "codeName": "AuthenticationFailed",
                "errmsg": "Authentication failed.",
            };
        }
        let server_key = self.hash.hmac(&salted, b"Server Key");
        let mut signature = self.hash.hmac(&server_key, message.as_bytes());
        if let Some(forge) = self.forge {
            signature = forge(&signature);
        }
        let payload = format!("v={}", BASE64_STANDARD.encode(signature));
        let payload = binary(payload.as_bytes());
        rawdoc! { "conversationId": 1, "done": !self.long, "payload": payload, "ok": 1 }
    }
}

fn hmac<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = M::new_from_slice(key).unwrap();
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}
