//! A server's part of SCRAM-SHA-256 (RFC 7677), which begins with hello.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawbson, rawdoc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

pub(crate) const USER: &str = "user";
pub(crate) const PASSWORD: &str = "pencil";

const SALT: &[u8] = b"a salt of the server";
/// The iteration count that servers ask for by default.
const ITERATIONS: u32 = 15_000;

/// The keys of the user, which a server keeps.
pub(crate) struct Keys {
    client: [u8; 32],
    server: [u8; 32],
}

/// One login.
#[derive(Default)]
pub(super) struct Login {
    /// The first messages of both.
    first: String,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(PASSWORD.as_bytes(), SALT, ITERATIONS, &mut salted);
        Self { client: hmac(&salted, b"Client Key"), server: hmac(&salted, b"Server Key") }
    }
}

impl Login {
    /// Adds to the reply to hello what the login begins with.
    pub(super) fn hello(&mut self, hello: &RawDocument, reply: &mut RawDocumentBuf) {
        let Ok(command) = hello.get_document("speculativeAuthenticate") else { return };
        let first = payload(command);
        let bare = first.strip_prefix("n,,").expect("no channel binding");
        let nonce = bare.strip_prefix("n=user,r=").expect("that user");
        let salt = BASE64_STANDARD.encode(SALT);
        let answer = format!("r={nonce}0123456789abcdef,s={salt},i={ITERATIONS}");
        self.first = format!("{bare},{answer}");
        let payload = binary(&answer);
        let answer = rawdoc! { "conversationId": 1, "done": false, "payload": payload };
        reply.append(cstr!("saslSupportedMechs"), rawbson!(["SCRAM-SHA-256"]));
        reply.append(cstr!("speculativeAuthenticate"), answer);
    }

    /// Answers the proof.
    pub(super) fn last(&self, keys: &Keys, command: &RawDocument) -> RawDocumentBuf {
        let last = payload(command);
        let (without_proof, proof) = last.rsplit_once(",p=").expect("a proof");
        let message = format!("{},{without_proof}", self.first);
        let mut expected = hmac(&Sha256::digest(keys.client), message.as_bytes());
        expected.iter_mut().zip(&keys.client).for_each(|(byte, key)| *byte ^= key);
        assert_eq!(BASE64_STANDARD.encode(expected), proof, "the password is right");
        let signature = hmac(&keys.server, message.as_bytes());
        let payload = binary(&format!("v={}", BASE64_STANDARD.encode(signature)));
        rawdoc! { "conversationId": 1, "done": true, "payload": payload, "ok": 1.0 }
    }
}

fn payload(command: &RawDocument) -> String {
    let payload = command.get_binary("payload").expect("a payload");
    String::from_utf8(payload.bytes.to_vec()).expect("text")
}

fn binary(text: &str) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
}

fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}
