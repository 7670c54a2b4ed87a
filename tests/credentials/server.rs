//! A server that asks for a signed request to AWS, and checks the signature as AWS would.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use sdam::bson::spec::BinarySubtype;
use sdam::bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use sha2::{Digest as _, Sha256};

use crate::fake_server::{FakeServer, error, first_key, payload, sasl};
use crate::http::is_whole;

pub(crate) const ACCESS_KEY: &str = "AKIDEXAMPLE";
pub(crate) const SECRET_KEY: &str = "planted-key";
pub(crate) const TOKEN: &str = "planted-token";

const HOST: &str = "sts.us-west-2.amazonaws.com";
const REGION: &str = "us-west-2";

pub(crate) struct AwsServer {
    pub(crate) fake: FakeServer,
    state: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    refuses: AtomicBool,
    closes_login: AtomicBool,
    closes_ping: AtomicBool,
    /// True if credentials are permanent: there is no session token then.
    is_permanent: bool,
    /// The nonce that each connection was sent to sign.
    nonces: Mutex<HashMap<u32, Vec<u8>>>,
}

impl AwsServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(ServerState::default()).await
    }

    /// Starts a server whose users have no session token.
    pub(crate) async fn of_permanent_credentials() -> Self {
        Self::start_with(ServerState { is_permanent: true, ..ServerState::default() }).await
    }

    async fn start_with(state: ServerState) -> Self {
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        let fake =
            FakeServer::start(Arc::new(move |number, command| shared.answer(number, command)));
        Self { fake: fake.await, state }
    }

    pub(crate) fn refuse_next(&self) {
        self.state.refuses.store(true, Ordering::Relaxed);
    }

    pub(crate) fn close_next_login(&self) {
        self.state.closes_login.store(true, Ordering::Relaxed);
    }

    pub(crate) fn close_next_ping(&self) {
        self.state.closes_ping.store(true, Ordering::Relaxed);
    }
}

impl ServerState {
    fn answer(&self, number: u32, command: &RawDocument) -> Option<RawDocumentBuf> {
        match &*first_key(command) {
            "saslStart" => {
                assert_eq!(command.get_str("mechanism").ok(), Some("MONGODB-AWS"));
                let first = RawDocument::from_bytes(payload(command)).unwrap();
                let nonce = [first.get_binary("r").unwrap().bytes, &[7; 32]].concat();
                let binary = Binary { subtype: BinarySubtype::Generic, bytes: nonce.clone() };
                self.nonces.lock().unwrap().insert(number, nonce);
                let challenge = rawdoc! { "s": binary, "h": HOST };
                Some(sasl(false, challenge.as_bytes()))
            }
            "saslContinue" if self.closes_login.swap(false, Ordering::Relaxed) => None,
            "saslContinue" if self.refuses.swap(false, Ordering::Relaxed) => Some(error(18)),
            "saslContinue" => {
                let nonce = self.nonces.lock().unwrap().remove(&number).unwrap();
                match is_signed(payload(command), &nonce, self.is_permanent) {
                    true => Some(sasl(true, b"")),
                    false => Some(error(18)),
                }
            }
            _ if self.closes_ping.swap(false, Ordering::Relaxed) => None,
            _ => Some(rawdoc! { "ok": 1 }),
        }
    }
}

/// Returns whether the second message is signed with the key (AWS Signature Version 4).
fn is_signed(second: &[u8], nonce: &[u8], is_permanent: bool) -> bool {
    let second = RawDocument::from_bytes(second).unwrap();
    let (date, token) = (second.get_str("d").unwrap(), second.get_str("t").ok());
    let (name, value) = match is_permanent {
        true => ("", String::new()),
        false => ("x-amz-security-token;", format!("x-amz-security-token:{TOKEN}\n")),
    };
    let signed = format!(
        "content-length;content-type;host;x-amz-date;{name}\
         x-mongodb-gs2-cb-flag;x-mongodb-server-nonce"
    );
    let body = "Action=GetCallerIdentity&Version=2011-06-15";
    let canonical = format!(
        "POST\n/\n\ncontent-length:43\ncontent-type:application/x-www-form-urlencoded\n\
         host:{HOST}\nx-amz-date:{date}\n{value}\
         x-mongodb-gs2-cb-flag:n\nx-mongodb-server-nonce:{}\n\n{signed}\n{}",
        BASE64_STANDARD.encode(nonce),
        hex(&Sha256::digest(body)),
    );
    let day = &date[..8];
    let scope = format!("{day}/{REGION}/sts/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for part in [day, REGION, "sts", "aws4_request", &to_sign] {
        key = hmac(&key, part.as_bytes());
    }
    let expected = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={signed}, Signature={}",
        hex(&key)
    );
    token == (!is_permanent).then_some(TOKEN) && second.get_str("a").ok() == Some(&expected)
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a server with the certificate and key in a file, which answers one request over TLS and
/// returns it; an empty one if the client does not go on.
pub(crate) fn tls(file: &str, response: &[u8]) -> (u16, JoinHandle<String>) {
    let certificate = CertificateDer::from_pem_file(file).unwrap();
    let key = PrivateKeyDer::from_pem_file(file).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let response = response.to_vec();
    let service = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            if is_whole(&text) {
                // The client may have gone when it has what it wants.
                drop(stream.write_all(&response));
                break;
            }
        }
        text
    });
    (port, service)
}
