//! Servers that say anything to a client that logs in with SCRAM.

use std::sync::{Arc, LazyLock};

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::auth::{CredentialCache, MIN_ITERATIONS};
use sdam_core::config::Options;
use sdam_core::failure::Stage;
use sdam_core::handshake::{Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::wire::{Flags, Frames, write_op_msg};

/// The bytes of which the client makes its nonce, and the text that they become.
const NONCE: [u8; 24] = [7; 24];
const NONCE_TEXT: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";

/// The number of messages of a server that are looked at.
const MAX_REPLIES: usize = 5;

/// The password of the user, and another one.
const PASSWORD: &str = "pencil";
const OTHER: &str = "crayon";

/// The options for each mechanism and password.
static OPTIONS: LazyLock<[[Arc<Options>; 2]; 2]> = LazyLock::new(|| {
    ["SCRAM-SHA-1", "SCRAM-SHA-256"].map(|mechanism| {
        [PASSWORD, OTHER].map(|password| {
            let uri = format!("mongodb://user:{password}@a/?authMechanism={mechanism}");
            Arc::new(Options::parse(&uri).expect("a connection string"))
        })
    })
});

/// The first byte chooses the mechanism and whether the server takes part in what is tried with
/// hello. The others are the server's messages, one a line: `.` goes on, `!` is done, `x` refuses,
/// and anything else is of the wrong type. `{nonce}` stands for what the client has drawn.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn scram(bytes: &[u8]) {
    let Some(server) = Server::read(bytes) else { return };
    if server.converse(0) {
        // What proves to a client that knows one password proves nothing to one with another.
        assert!(!server.converse(1), "a server is believed whatever the password is");
    }
}

struct Server<'a> {
    mechanism: usize,
    speculates: bool,
    lines: Vec<(u8, &'a [u8])>,
}

impl<'a> Server<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first()?;
        let lines = rest.split(|byte| *byte == b'\n').take(MAX_REPLIES);
        let lines: Vec<_> =
            lines.filter_map(|line| line.split_first()).map(|(kind, text)| (*kind, text)).collect();
        // What the server itself says, the client may repeat.
        let known = [PASSWORD, OTHER].map(str::as_bytes);
        let knows = known.iter().any(|password| split(rest, password).count() > 1);
        let skipped = knows || lines.iter().any(|(_, text)| is_slow(text));
        let (mechanism, speculates) = (usize::from(first % 2), first / 2 % 2 == 0);
        (!skipped).then_some(Self { mechanism, speculates, lines })
    }

    /// Talks to a client with one of the passwords; returns whether it believes the server.
    fn converse(&self, password: usize) -> bool {
        let options = &OPTIONS[self.mechanism][password];
        let opening = HandshakeOptions::new(options.metadata().document(), NONCE)
            .with_credential_cache(CredentialCache::default());
        let mut sent = Vec::new();
        let mut handshake =
            Handshake::start(options, opening, &mut sent).expect("there is a password");
        let mut lines = self.lines.iter();
        let mut hello = rawdoc! { "isWritablePrimary": true, "maxWireVersion": 17 };
        if self.speculates
            && let Some((kind, text)) = lines.next()
        {
            hello.append(cstr!("speculativeAuthenticate"), reply(*kind, text));
        }
        hello.append(cstr!("ok"), 1);
        let replies = std::iter::once(hello).chain(lines.map(|(kind, text)| {
            let mut reply = reply(*kind, text);
            reply.append(cstr!("ok"), i32::from(*kind != b'x'));
            reply
        }));
        for (number, reply) in replies.enumerate() {
            let bytes = answer(&sent, &reply);
            sent.clear();
            match handshake.receive(&bytes, &mut sent) {
                Ok(HandshakeProgress::Reading) => shows_no_password(&sent),
                Ok(HandshakeProgress::Done(connection_description)) => {
                    assert!(
                        connection_description.mechanism.is_some() && number > 0,
                        "there was no proof"
                    );
                    return true;
                }
                Ok(other) => panic!("{other:?}: SCRAM asks nothing"),
                Err(error) => {
                    assert_eq!(error.stage(), Stage::Authenticate, "{error}");
                    assert!(!error.to_string().contains(PASSWORD), "{error}");
                    let after = handshake.receive(&bytes, &mut sent);
                    assert!(after.is_err(), "a handshake that has failed stays so");
                    return false;
                }
            }
        }
        false
    }
}

/// Returns whether a message asks for more iterations than a fuzzer has time for.
fn is_slow(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut counts =
        text.split(',').filter_map(|part| part.strip_prefix("i=")?.parse::<u32>().ok());
    let most = OPTIONS[0][0].max_scram_iterations();
    counts.any(|count| (MIN_ITERATIONS + 1000..=most).contains(&count))
}

fn reply(kind: u8, text: &[u8]) -> RawDocumentBuf {
    let mut payload = Vec::new();
    for (index, part) in split(text, b"{nonce}").enumerate() {
        payload.extend_from_slice(if index == 0 { b"" } else { NONCE_TEXT.as_bytes() });
        payload.extend_from_slice(part);
    }
    let binary = Binary { subtype: BinarySubtype::Generic, bytes: payload };
    match kind {
        b'.' | b'!' => {
            rawdoc! { "conversationId": 1, "done": kind == b'!', "payload": binary }
        }
        b'x' => rawdoc! { "code": 18, "errmsg": String::from_utf8_lossy(text).as_ref() },
        _ => rawdoc! { "conversationId": 1, "done": true, "payload": "text" },
    }
}

/// The parts of `text` between occurrences of `mark`.
fn split<'a>(text: &'a [u8], mark: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.windows(mark.len()).position(|window| window == mark) {
            Some(at) => {
                rest = Some(&text[at + mark.len()..]);
                Some(&text[..at])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}

/// Answers the last command that was sent, or any if there is none.
fn answer(sent: &[u8], reply: &RawDocument) -> Vec<u8> {
    let mut frames = Frames::new();
    frames.extend(sent);
    let command = frames.next().expect("the client sends messages");
    let number = command.map_or(1, |command| command.header().request_id);
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, number, Flags::NONE, reply);
    bytes
}

fn shows_no_password(sent: &[u8]) {
    let mut windows = sent.windows(PASSWORD.len());
    assert!(!windows.any(|window| window == PASSWORD.as_bytes()), "the password is shown");
}

#[cfg(test)]
mod tests {
    use super::{Server, scram};
    use crate::fuzz::seeds;

    /// Otherwise the target would prove nothing.
    #[test]
    fn a_server_that_knows_the_password_is_believed() {
        let honest = seeds::scram().into_iter().filter(|seed| seed.name.starts_with("honest"));
        let mut count = 0;
        for seed in honest {
            count += 1;
            let server = Server::read(&seed.bytes).expect("a server");
            assert!(server.converse(0) && !server.converse(1), "{}", seed.name);
            scram(&seed.bytes);
        }
        assert!(count >= 3, "{count} conversations");
    }
}
