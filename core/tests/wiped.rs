//! No copy of a password or a token is left in memory: this process looks for it in its own.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use sdam_core::auth::{
    CredentialCache, CredentialRequest, CredentialResponse, GssapiRequest, GssapiResponse,
    GssapiStep, GssapiToken, OidcToken,
};
use sdam_core::bson::{RawDocument, rawdoc};
use sdam_core::config::{AuthMechanism, Options, OptionsBuilder, Secret};
use sdam_core::handshake::{Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::transport::{Login, ProxyConfig, Transport, TransportConfig};
use sdam_core::wire::{Flags, write_op_msg};
use zeroize::{Zeroize as _, Zeroizing};

/// The length of this test's secrets; what the allocator writes into freed memory is shorter.
const LEN: usize = 200;

/// The part of a secret that counts as a copy, from somewhere in the middle of it.
const PART: std::ops::Range<usize> = 100..132;

/// The mask of the letters of secrets, so that this is no copy.
const MASK: u8 = 0x80;

/// Returns a new secret, so that the test has no copy either.
fn secret(masked: &[u8; LEN]) -> Secret {
    let mut text = String::with_capacity(LEN);
    text.extend(masked.iter().map(|byte| char::from(byte ^ MASK)));
    text.into()
}

/// Draws letters that are nowhere else.
fn masked(mut seed: u64) -> [u8; LEN] {
    [(); LEN].map(|()| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (b'a' + u8::try_from((seed >> 40) % 26).unwrap()) ^ MASK
    })
}

/// Counts the copies in all memory that the process can write to.
fn copies(masked: &[u8; LEN]) -> usize {
    let mut maps = String::new();
    File::open("/proc/self/maps").unwrap().read_to_string(&mut maps).unwrap();
    let mut memory = File::open("/proc/self/mem").unwrap();
    let mut buffer = Zeroizing::new(vec![0; 1 << 20]);
    let (mut count, part) = (0, &masked[PART]);
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (mut at, end) = (number(start), number(end));
        while at < end {
            let length = usize::try_from(end - at).unwrap().min(buffer.len());
            memory.seek(SeekFrom::Start(at)).unwrap();
            let Ok(length) = memory.read(&mut buffer[..length]) else { break };
            let is_copy = |window: &&[u8]| window.iter().zip(part).all(|(a, b)| *a == b ^ MASK);
            count += buffer[..length].windows(part.len()).filter(is_copy).count();
            buffer[..length].zeroize();
            at += u64::try_from(length).unwrap();
            if length < part.len() || at >= end {
                break;
            }
            // A copy may lie across the boundary.
            at -= u64::try_from(part.len() - 1).unwrap();
        }
    }
    count
}

fn options(build: impl FnOnce(OptionsBuilder) -> OptionsBuilder) -> Arc<Options> {
    Arc::new(build(Options::builder().uri("mongodb://a").unwrap()).build().unwrap())
}

fn hello() -> sdam_core::bson::RawDocumentBuf {
    rawdoc! { "isWritablePrimary": true, "helloOk": true, "maxWireVersion": 17, "ok": 1 }
}

/// Answers the client's request of this number.
fn reply(number: i32, reply: &RawDocument) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, number, Flags::NONE, reply);
    bytes
}

/// Logs in, with a buffer that is wiped when it was sent, as hosts do.
fn log_in(
    options: &Arc<Options>,
    credential_cache: CredentialCache,
    token: Option<Secret>,
) -> CredentialCache {
    let client = options.metadata().document();
    let opening = HandshakeOptions::new(client, [7; 24])
        .with_credential_cache(credential_cache)
        .with_encrypted(true);
    let mut out = Zeroizing::new(Vec::new());
    let mut handshake = Handshake::start(options, opening, &mut out).unwrap();
    drop(std::mem::take(&mut out));
    let mut progress = handshake.receive(&reply(1, &hello()), &mut out).unwrap();
    if let HandshakeProgress::Asking(_) = progress {
        let token = token.expect("there is a token");
        let answer = CredentialResponse::Oidc(OidcToken::new(token));
        progress = handshake.supply(answer, &mut out).unwrap();
    }
    assert!(matches!(progress, HandshakeProgress::Reading));
    drop(std::mem::take(&mut out));
    let done = rawdoc! { "conversationId": 1, "done": true, "payload": binary(), "ok": 1 };
    assert!(matches!(
        handshake.receive(&reply(2, &done), &mut out),
        Ok(HandshakeProgress::Done(_))
    ));
    handshake.credential_cache().clone()
}

fn binary() -> sdam_core::bson::Binary {
    let subtype = sdam_core::bson::spec::BinarySubtype::Generic;
    sdam_core::bson::Binary { subtype, bytes: Vec::new() }
}

fn go_through_a_proxy(password: &Secret) {
    let login = Login::new("user", password.expose()).unwrap();
    let config = TransportConfig::default().with_proxy(ProxyConfig::new(Some(login)));
    let (server, mut plain) = ("db.example:1".parse().unwrap(), Vec::new());
    let mut wire = Zeroizing::new(Vec::new());
    let mut transport = Transport::start(&config, &server, &server, &mut wire).unwrap();
    drop(std::mem::take(&mut wire));
    transport.receive(&[5, 2], &mut plain, &mut wire).unwrap();
    assert!(wire.len() > LEN, "the password is in there");
    drop(std::mem::take(&mut wire));
    transport.receive(&[1, 0], &mut plain, &mut wire).unwrap();
    transport.receive(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0], &mut plain, &mut wire).unwrap();
    assert!(transport.is_ready());
}

/// Begins a login by GSSAPI: the question has the password, and the answer is a token.
fn go_by_kerberos(options: &Arc<Options>, token: GssapiToken) {
    let opening = HandshakeOptions::new(options.metadata().document(), [7; 24])
        .with_server(Some("a:1".parse().unwrap()));
    let mut out = Zeroizing::new(Vec::new());
    let mut handshake = Handshake::start(options, opening, &mut out).unwrap();
    drop(std::mem::take(&mut out));
    let progress = handshake.receive(&reply(1, &hello()), &mut out).unwrap();
    let HandshakeProgress::Asking(CredentialRequest::Gssapi(GssapiRequest::Begin(login))) =
        progress
    else {
        panic!("it asks for a context")
    };
    assert!(login.password.is_some());
    drop(login);
    let answer = GssapiResponse::Step(GssapiStep::Continue(token));
    let progress = handshake.supply(CredentialResponse::Gssapi(answer), &mut out).unwrap();
    assert!(matches!(progress, HandshakeProgress::Reading));
    assert!(out.len() > LEN, "the token is in there");
}

/// One test, as another one would have copies at the same time.
#[test]
fn no_copy_of_a_secret_is_left_in_memory() {
    let plain = masked(1);
    let with_password = options(|builder| {
        let builder = builder.username("user").auth_mechanism(AuthMechanism::Plain);
        builder.password(secret(&plain)).database("$external")
    });
    assert_ne!(copies(&plain), 0, "it would be found");
    log_in(&with_password, CredentialCache::default(), None);
    drop(with_password);
    assert_eq!(copies(&plain), 0, "PLAIN");

    let token = masked(2);
    let with_token =
        options(|builder| builder.auth_mechanism(AuthMechanism::Oidc).oidc_callback(true));
    let credential_cache = log_in(&with_token, CredentialCache::default(), Some(secret(&token)));
    assert_ne!(copies(&token), 0, "it is remembered");
    drop(credential_cache);
    drop(with_token);
    assert_eq!(copies(&token), 0, "MONGODB-OIDC");

    let (password, token) = (masked(4), masked(5));
    let with_kerberos = options(|builder| {
        let builder = builder.username("ann@HERE").auth_mechanism(AuthMechanism::Gssapi);
        builder.password(secret(&password))
    });
    let shown = secret(&token);
    go_by_kerberos(&with_kerberos, GssapiToken::new(shown.expose()));
    drop((with_kerberos, shown));
    assert_eq!((copies(&password), copies(&token)), (0, 0), "GSSAPI");

    let proxy = masked(3);
    go_through_a_proxy(&secret(&proxy));
    assert_eq!(copies(&proxy), 0, "SOCKS5");
}
