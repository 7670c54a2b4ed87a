//! A gateway to a server, behind which that seems to have no sessions: its hellos do not say when
//! sessions time out ("Testing against servers that do not support sessions").

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The field that says that a server has sessions, and one as long that says nothing.
const FIELD: &[u8] = b"logicalSessionTimeoutMinutes\0";
const OTHER: &[u8] = b"logicalSessionTimeoutNothing\0";

/// Starts a gateway to a server on this machine, which ends with the process; returns its address.
pub(super) fn start(target: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(target) else { continue };
            let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            thread::spawn(move || carry(from_client, to_server, |_| {}));
            thread::spawn(move || carry(server, client, hide_sessions));
        }
    });
    Ok(address)
}

fn hide_sessions(message: &mut [u8]) {
    let field = message.windows(FIELD.len()).position(|bytes| bytes == FIELD);
    if let Some(at) = field {
        message[at..at + FIELD.len()].copy_from_slice(OTHER);
    }
}

/// Forwards messages until one side hangs up, then closes the connection to the other.
fn carry(mut from: TcpStream, mut to: TcpStream, change: fn(&mut [u8])) {
    while let Ok(mut message) = receive(&mut from) {
        change(&mut message);
        if to.write_all(&message).is_err() {
            break;
        }
    }
    // It may have hung up, too.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Reads a message, which says first how long it is.
fn receive(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let rest = u32::from_le_bytes(length).saturating_sub(4);
    let mut message = length.to_vec();
    from.take(rest.into()).read_to_end(&mut message)?;
    match message.len() - 4 == rest as usize {
        true => Ok(message),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
