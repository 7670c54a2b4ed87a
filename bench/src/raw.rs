//! Messages over raw sockets, as programs exchange them that have no client.

use std::io::{Read, Write};
use std::net::TcpStream;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::wire::{Flags, HEADER_LEN, write_op_msg};

use crate::Failure;

/// The bytes between the header of a reply and its document: the flags, and the section's kind.
const BEFORE_DOCUMENT: usize = 5;

/// Returns the first command on every connection.
pub fn hello() -> RawDocumentBuf {
    rawdoc! { "isMaster": 1, "helloOk": true, "$db": "admin" }
}

/// Returns a message with this command.
pub fn message(flags: Flags, command: &RawDocument) -> Vec<u8> {
    let mut message = Vec::new();
    write_op_msg(&mut message, 1, 0, flags, command);
    message
}

/// Returns whether a whole reply has been received, one that has room in so many bytes.
///
/// # Errors
///
/// Fails if it has not, or is no reply at all.
pub fn is_whole(received: &[u8], room: usize) -> Result<bool, Failure> {
    let Some(length) = received.first_chunk() else { return Ok(false) };
    match usize::try_from(i32::from_le_bytes(*length)) {
        Ok(length) if (HEADER_LEN + BEFORE_DOCUMENT..=room).contains(&length) => {
            Ok(received.len() >= length)
        }
        _ => Err(format!("a reply that is none, or does not fit into {room} bytes").into()),
    }
}

/// Reads a whole reply, and returns its document.
///
/// # Errors
///
/// Fails if the server hangs up, and if the buffer is too small.
pub fn read<'a>(stream: &mut TcpStream, buffer: &'a mut [u8]) -> Result<&'a [u8], Failure> {
    let mut filled = 0;
    while !is_whole(&buffer[..filled], buffer.len())? {
        match stream.read(&mut buffer[filled..])? {
            0 => return Err("the server hung up".into()),
            count => filled += count,
        }
    }
    Ok(&buffer[HEADER_LEN + BEFORE_DOCUMENT..filled])
}

/// Sends a message, and reads the reply as [`read`] does.
///
/// # Errors
///
/// Fails if the server hangs up, and if the buffer is too small.
pub fn exchange<'a>(
    stream: &mut TcpStream,
    message: &[u8],
    buffer: &'a mut [u8],
) -> Result<&'a [u8], Failure> {
    stream.write_all(message)?;
    read(stream, buffer)
}

#[cfg(test)]
mod tests {
    use super::{hello, is_whole, message};
    use sdam_core::wire::Flags;

    #[test]
    fn a_message_is_whole_with_its_last_byte_and_has_to_fit() {
        let message = message(Flags::NONE, &hello());
        let length = message.len();
        assert!(is_whole(&message, length).unwrap());
        assert!(!is_whole(&message[..length - 1], length).unwrap());
        assert!(!is_whole(&message[..3], length).unwrap());
        assert!(is_whole(&message, length - 1).is_err());
        assert!(is_whole(&[0; 16], 1024).is_err());
    }
}
