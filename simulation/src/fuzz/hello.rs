//! Replies to hello, as monitors read them, and as connections do.

use std::sync::{Arc, LazyLock};

use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf};
use sdam_core::auth::CredentialCache;
use sdam_core::config::{MAX_HOST_LEN, MonitoringMode, OpeningHello, Options, ServerAddress};
use sdam_core::description::{ServerDescription, ServerType};
use sdam_core::failure::{Cause, MAX_DETAIL_LEN};
use sdam_core::handshake::{ConnectionDescription, Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::hello::{MAX_MEMBERS, REPLY_FIELDS};
use sdam_core::operation::OperationError;
use sdam_core::wire::{Flags, MAX_MESSAGE_LEN, write_op_msg};

use sdam_core::harness::{CheckOutcome, Harness};

/// The maximum length of a text of a description, in bytes.
const MOST_TEXT: usize = 1024;

static MONITORED: LazyLock<Options> = LazyLock::new(|| {
    let options = Options::builder().uri("mongodb://a/?directConnection=true");
    let options = options.expect("a connection string");
    let options = options.monitoring_mode(MonitoringMode::Poll).opening_hello(OpeningHello::OpMsg);
    options.build().expect("options that are allowed")
});

static CONNECTED: LazyLock<Arc<Options>> = LazyLock::new(|| {
    let options = Options::parse("mongodb://a/?compressors=snappy,zlib");
    Arc::new(options.expect("a connection string"))
});

/// The input is a reply, or two, one behind the other. Their lengths, and their last bytes, are put
/// right: what a wrong length leads to is the target `frames`' business.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn hello(bytes: &[u8]) {
    let (first, second) = cut(bytes);
    let Some(reply) = document(first) else { return };
    let mut monitor = Monitor::new();
    let server = monitor.check(&reply);
    let again = monitor.check(&reply);
    assert!(again.same_as(&server), "the same reply, the same server: {server:?}, then {again:?}");
    assert_eq!(again.last_write_date, server.last_write_date);
    judge(&reply, &server);
    let scribbled = scribbled(&reply);
    let other = Monitor::new().check(&scribbled);
    let is_same = without_texts(&other).same_as(&without_texts(&server));
    assert!(is_same, "texts decide nothing: {server:?}, but {other:?}");
    judge(&scribbled, &other);
    let Some(second) = document(second) else { return };
    let (later, alone) = (monitor.check(&second), Monitor::new().check(&second));
    let versions = alone.topology_version.zip(server.topology_version);
    if !versions.is_some_and(|(later, known)| later.is_older_than(&known)) {
        assert!(later.same_as(&alone), "what is known changes nothing: {alone:?}, but {later:?}");
        assert_eq!(later.last_write_date, alone.last_write_date);
    }
    judge(&second, &alone);
}

/// Leaves out of a description what people read of an error.
fn without_texts(server: &ServerDescription) -> ServerDescription {
    let mut server = server.clone();
    if let Some(error) = &mut server.error {
        error.detail = Arc::from("");
        if let Cause::Command { name, .. } = &mut error.cause {
            *name = Arc::from("");
        }
    }
    server
}

/// Cuts an input where its first document says that it ends, if there is more.
fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    bytes.split_at_checked(length).filter(|_| length > 4).unwrap_or((bytes, &[]))
}

/// Makes a document of bytes, with the right length and the right end.
pub(super) fn document(bytes: &[u8]) -> Option<RawDocumentBuf> {
    let (mut bytes, length) = (bytes.to_vec(), i32::try_from(bytes.len()).ok()?);
    bytes.get_mut(..4)?.copy_from_slice(&length.to_le_bytes());
    *bytes.last_mut()? = 0;
    RawDocumentBuf::from_bytes(bytes).ok()
}

/// Returns a reply whose texts are no UTF-8, but for those that say what the server is: a server
/// that cuts a message within a character is what it was.
fn scribbled(reply: &RawDocument) -> RawDocumentBuf {
    let (mut bytes, mut end) = (reply.as_bytes().to_vec(), 4);
    for element in reply.iter_elements().map_while(Result::ok) {
        let name = element.key().as_str();
        let start = end + 1 + name.len() + 1;
        end = start + element.size();
        let is_told = name == "errmsg" || !REPLY_FIELDS.contains(&name);
        if is_told && element.element_type() == ElementType::String {
            // Between the length and the end.
            bytes[start + 4..end - 1].fill(0xff);
        }
    }
    RawDocumentBuf::from_bytes(bytes).expect("only texts have changed")
}

/// A monitor of one server, which answers when it is asked to.
struct Monitor {
    stage: Harness,
    server: ServerAddress,
}

impl Monitor {
    fn new() -> Self {
        let server = "a".parse().expect("an address");
        Self { stage: Harness::with(MONITORED.clone()), server }
    }

    fn check(&mut self, reply: &RawDocument) -> Arc<ServerDescription> {
        let answered = self.stage.answer(&self.server, CheckOutcome::Reply(reply));
        answered.expect("it is checked again and again");
        let servers = self.stage.view().servers().iter();
        Arc::clone(servers.last().expect("nothing removes the server of a direct connection"))
    }
}

/// Holds what a monitor makes of a reply against what there may be, and against what a connection
/// makes of it.
fn judge(reply: &RawDocument, server: &ServerDescription) {
    is_bounded(server);
    if let Some(failure) = &server.error {
        assert_eq!(server.server_type, ServerType::Unknown);
        assert!((1..=MAX_DETAIL_LEN).contains(&failure.detail.len()), "{failure:?}");
        assert!(failure.cause != Cause::Malformed || names_a_field(&failure.detail), "{failure:?}");
    }
    if let Ok(connection_description) = connect(reply) {
        assert_eq!(server.error, None, "what a connection accepts, a monitor does");
        assert_eq!(connection_description.server_type, server.server_type);
        assert_eq!(connection_description.max_wire_version, server.max_wire_version);
        assert!((1..=MAX_MESSAGE_LEN).contains(&connection_description.max_message_size_bytes));
        assert!(
            connection_description.max_bson_object_size > 0
                && connection_description.max_write_batch_size > 0
        );
    }
}

fn is_bounded(server: &ServerDescription) {
    for members in [&server.hosts, &server.passives, &server.arbiters] {
        assert!(members.len() <= MAX_MEMBERS && members.is_sorted());
    }
    let addresses = server.members().chain(&server.me).chain(&server.primary);
    for address in addresses {
        assert!((1..=MAX_HOST_LEN).contains(&address.host().len()), "{address}");
    }
    for (key, value) in server.tags.iter() {
        assert!(key.len() <= MOST_TEXT && value.len() <= MOST_TEXT);
    }
    assert!(server.set_name.as_ref().is_none_or(|name| name.len() <= MOST_TEXT));
    assert!(server.min_wire_version >= 0 && server.max_wire_version >= 0);
    let numbers = [server.set_version, server.logical_session_timeout_minutes];
    assert!(numbers.into_iter().flatten().all(|number| number >= 0), "{server:?}");
}

/// Returns whether the detail of a failure says which part of the reply is malformed.
fn names_a_field(detail: &str) -> bool {
    let what = detail.strip_prefix("malformed reply: a reply to hello in which ");
    let what = what.or_else(|| detail.strip_prefix("malformed reply: "));
    what.is_some_and(|what| {
        let first = what.split([' ', '.']).next().unwrap_or_default();
        REPLY_FIELDS.contains(&first)
            || first == "lastWrite"
            || what.starts_with("malformed BSON: ")
    })
}

/// Opens a connection to a server that replies so.
fn connect(reply: &RawDocument) -> Result<Box<ConnectionDescription>, OperationError> {
    let opening = HandshakeOptions::new(CONNECTED.metadata().document(), [7; 24])
        .with_credential_cache(CredentialCache::default());
    let (mut handshake, mut bytes) =
        (Handshake::start(&CONNECTED, opening, &mut Vec::new())?, Vec::new());
    write_op_msg(&mut bytes, 1, 1, Flags::NONE, reply);
    match handshake.receive(&bytes, &mut Vec::new())? {
        HandshakeProgress::Done(connection_description) => Ok(connection_description),
        other => panic!("{other:?} where there is nothing else to say"),
    }
}
