//! Writes a command as an OP_MSG: the application's document, and what the driver adds to it.

use bson::RawDocument;

use super::op_msg::{Flags, append_sequence};
use super::{begin, finish, op_code};

/// Writes a command as an OP_MSG: the application's document is copied once, and what the driver
/// adds goes behind its last field.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::wire::{CommandWriter, Flags, Frames};
///
/// let mut out = Vec::new();
/// let mut writer = CommandWriter::begin(&mut out, 7, Flags::NONE, &rawdoc! { "ping": 1 });
/// writer.string("$db", "admin");
/// writer.finish(&[]);
///
/// let mut frames = Frames::new();
/// frames.extend(&out);
/// let message = frames.next()?.unwrap();
/// assert_eq!(message.op_msg()?.body, &*rawdoc! { "ping": 1, "$db": "admin" });
/// # Ok::<(), sdam_core::wire::WireError>(())
/// ```
#[derive(Debug)]
pub struct CommandWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    body: usize,
}

impl<'a> CommandWriter<'a> {
    /// Begins a message behind what is in `out`.
    pub fn begin(
        out: &'a mut Vec<u8>,
        request_id: i32,
        flags: Flags,
        command: &RawDocument,
    ) -> Self {
        let start = begin(out, request_id, 0, op_code::OP_MSG);
        out.extend_from_slice(&flags.bits().to_le_bytes());
        out.push(0);
        let body = out.len();
        let bytes = command.as_bytes();
        // Without the NUL at its end, which comes when everything was added.
        out.extend_from_slice(&bytes[..bytes.len() - 1]);
        Self { out, start, body }
    }

    /// Adds a text.
    ///
    /// # Panics
    ///
    /// Panics, as all others do, if `name` contains NUL.
    pub fn string(&mut self, name: &str, value: &str) {
        self.element(0x02, name);
        self.length(value.len() + 1);
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
    }

    /// Adds a document.
    pub fn document(&mut self, name: &str, value: &RawDocument) {
        self.element(0x03, name);
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Adds a truth value.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.element(0x08, name);
        self.out.push(value.into());
    }

    /// Adds an integer of 64 bits.
    pub fn long(&mut self, name: &str, value: i64) {
        self.element(0x12, name);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Ends the command, adds document sequences, each a name and its documents, and returns the
    /// length of the message.
    ///
    /// # Panics
    ///
    /// Panics if the message is longer than [`MAX_MESSAGE_LEN`](super::MAX_MESSAGE_LEN), or if the
    /// name of a sequence contains NUL.
    pub fn finish(self, sequences: &[(&str, &[&RawDocument])]) -> usize {
        let Self { out, start, body } = self;
        out.push(0);
        let length = i32::try_from(out.len() - body).unwrap_or(i32::MAX);
        out[body..body + 4].copy_from_slice(&length.to_le_bytes());
        for (identifier, documents) in sequences {
            append_sequence(out, identifier, documents);
        }
        finish(out, start);
        out.len() - start
    }

    fn element(&mut self, kind: u8, name: &str) {
        assert!(!name.contains('\0'), "the name of a field contains NUL");
        self.out.push(kind);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
    }

    fn length(&mut self, length: usize) {
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        self.out.extend_from_slice(&length.to_le_bytes());
    }
}
