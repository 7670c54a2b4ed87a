//! A message to a server, right or wrong.

use std::time::Duration;

use sdam_core::bson::{Document, RawDocumentBuf};
use sdam_core::wire::{Flags, HEADER_LEN, write_op_msg, write_op_query};

use super::evidence::Form;

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
    pub(super) timeout: Duration,
}

impl Request {
    /// Makes an OP_MSG of a command, which waits `timeout` for its one answer.
    pub(super) const fn new(command: Document, timeout: Duration) -> Self {
        let (form, flags, sequence, answers) = (Form::Message, 0, None, 1);
        Self { command, form, flags, sequence, answers, timeout }
    }

    /// Returns the message, uncompressed.
    pub(super) fn bytes(&self, id: i32) -> Vec<u8> {
        let raw = |document: &Document| {
            RawDocumentBuf::try_from(document).expect("a document made here is one on the wire")
        };
        let mut bytes = Vec::new();
        if self.form == Form::Query {
            let mut command = self.command.clone();
            let database = command.remove("$db");
            let database = database.as_ref().and_then(|it| it.as_str()).unwrap_or("admin");
            write_op_query(&mut bytes, id, database, &raw(&command));
            return bytes;
        }
        write_op_msg(&mut bytes, id, 0, Flags::NONE, &raw(&self.command));
        let flags = HEADER_LEN..HEADER_LEN + 4;
        if let Some((name, documents)) = &self.sequence {
            let mut section = [name.as_bytes(), &[0]].concat();
            documents.iter().for_each(|it| section.extend_from_slice(raw(it).as_bytes()));
            let length = length_field(4 + section.len());
            bytes.splice(flags.end..flags.end, [1].into_iter().chain(length).chain(section));
            let length = length_field(bytes.len());
            bytes[..length.len()].copy_from_slice(&length);
        }
        bytes[flags].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }
}

fn length_field(length: usize) -> [u8; 4] {
    i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes()
}
