//! Peers that no real server is: one that answers in HTTP, one that ends TLS with an alert, one
//! that wants MONGODB-AWS, and a way that cuts idle connections.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::wire::{Flags, Frames, write_op_msg};

/// Serves every connection to a port of its own, until the process ends.
fn serve(
    work: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let work = work.clone();
            // How it ends is for the client to see.
            thread::spawn(move || drop(work(stream)));
        }
    });
    Ok(address)
}

/// Answers whatever comes as a web server does.
pub(crate) fn http() -> io::Result<SocketAddr> {
    serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024])?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    })
}

/// Refuses TLS with the alert `internal_error`, as gateways with a list of allowed addresses do.
pub(crate) fn alert() -> io::Result<SocketAddr> {
    serve(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        stream.write_all(&[0x15, 3, 3, 0, 2, 2, 80])?;
        stream.shutdown(Shutdown::Write)?;
        stream.read(&mut [0; 16]).map(drop)
    })
}

/// Leads to `target`, and closes connections that are without a byte for `limit`, but not before
/// they have been answered once: that a client has not come so far says nothing of its checks.
/// Sends a message for each connection that it takes.
pub(crate) fn cutting(
    target: SocketAddr,
    limit: Duration,
    taken: mpsc::Sender<()>,
) -> io::Result<SocketAddr> {
    serve(move |near| {
        // No receiver is left when a test is over.
        let _ = taken.send(());
        let far = TcpStream::connect(target)?;
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
        }
        let (mut from_far, mut to_near) = (far.try_clone()?, near.try_clone()?);
        thread::spawn(move || {
            // The other direction sees the end.
            let _ = pass_back(&mut from_far, &mut to_near, limit);
            let _ = to_near.shutdown(Shutdown::Both);
        });
        let (mut from_near, mut to_far) = (near.try_clone()?, far.try_clone()?);
        // It reads nothing for that long: the client has not asked again.
        let _ = io::copy(&mut from_near, &mut to_far);
        near.shutdown(Shutdown::Both)?;
        far.shutdown(Shutdown::Both)
    })
}

/// Passes what the server sends; from its first answer on, the client may be silent for `limit`.
fn pass_back(far: &mut TcpStream, near: &mut TcpStream, limit: Duration) -> io::Result<()> {
    let mut first = [0; 16_384];
    let count = far.read(&mut first)?;
    // Before the client can ask again: the next read is the first that ends by this.
    near.set_read_timeout(Some(limit))?;
    near.write_all(&first[..count])?;
    io::copy(far, near).map(drop)
}

/// Leads to `target`, and does something before the first delete gets there.
pub(crate) fn before_a_delete(
    target: SocketAddr,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<SocketAddr> {
    let work = Arc::new(Mutex::new(Some(work)));
    looking(target, move |bytes| {
        if has(bytes, b"delete\0")
            && let Some(work) = work.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            work();
        }
        true
    })
}

/// Leads to `target`, and closes each connection over which this is sent.
pub(crate) fn closing_at(target: SocketAddr, unwanted: &'static [u8]) -> io::Result<SocketAddr> {
    looking(target, move |bytes| !has(bytes, unwanted))
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|it| it == wanted)
}

/// Leads to `target`, and goes silent on each connection over which this is sent.
pub(crate) fn hanging_at(target: SocketAddr, unwanted: &'static [u8]) -> io::Result<SocketAddr> {
    looking(target, move |bytes| {
        while has(bytes, unwanted) {
            thread::park();
        }
        true
    })
}

/// Leads to `target` what passes, message by message, and closes the connection of what does not.
fn looking(
    target: SocketAddr,
    passes: impl Fn(&[u8]) -> bool + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    serve(move |mut near| {
        let mut far = TcpStream::connect(target)?;
        let (mut from_far, mut to_near) = (far.try_clone()?, near.try_clone()?);
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
        }
        thread::spawn(move || {
            // The other direction sees the end.
            let _ = io::copy(&mut from_far, &mut to_near);
            let _ = to_near.shutdown(Shutdown::Both);
        });
        let mut buffer = vec![0; 64 << 10];
        loop {
            match near.read(&mut buffer)? {
                0 => break,
                count if passes(&buffer[..count]) => far.write_all(&buffer[..count])?,
                _ => break,
            }
        }
        near.shutdown(Shutdown::Both)?;
        far.shutdown(Shutdown::Both)
    })
}

/// Says what it is to every client, as servers of SSH do.
pub(crate) fn ssh() -> io::Result<SocketAddr> {
    serve(|mut stream| {
        stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n")?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    })
}

/// Waits for the end of a line, and then answers that; it finds none behind a NUL. That is what
/// Redis does.
pub(crate) fn redis() -> io::Result<SocketAddr> {
    serve(|mut stream| {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte)? == 1 {
            line.push(byte[0]);
            if byte == *b"\n" && !line.contains(&0) {
                stream.write_all(b"-NOAUTH Authentication required.\r\n")?;
                line.clear();
            }
        }
        Ok(())
    })
}

/// Leads questions to a name server, and loses each of the first two about services and about text.
pub(crate) fn losing(address: SocketAddr, target: SocketAddr) -> io::Result<()> {
    let near = UdpSocket::bind(address)?;
    thread::spawn(move || -> io::Result<()> {
        let (mut buffer, mut lost) = ([0; 4096], BTreeMap::<[u8; 2], u32>::new());
        loop {
            let (count, from) = near.recv_from(&mut buffer)?;
            // The question has its type after the NUL at the end of its name.
            let name = buffer[12..count].iter().position(|byte| *byte == 0).unwrap_or_default();
            let kind = [buffer[13 + name], buffer[14 + name]];
            if [[0, 16], [0, 33]].contains(&kind) {
                let lost = lost.entry(kind).or_default();
                *lost += 1;
                if *lost <= 2 {
                    continue;
                }
            }
            let far = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            far.send_to(&buffer[..count], target)?;
            let count = far.recv(&mut buffer)?;
            near.send_to(&buffer[..count], from)?;
        }
    });
    Ok(())
}

/// A standalone that wants a login by MONGODB-AWS, up to where the client must sign.
pub(crate) fn aws() -> io::Result<SocketAddr> {
    answering(answer)
}

/// A standalone on a shared tier of Atlas, whose proxy says in its own way what a user may not do.
pub(crate) fn shared_tier() -> io::Result<SocketAddr> {
    answering(|command| match command.get_str("delete") {
        Ok(collection) => rawdoc! {
            "ok": 0, "code": 8000, "codeName": "AtlasError",
            "errmsg": format!("user is not allowed to do action [remove] on [sdam.{collection}]"),
        },
        Err(_) => answer(command),
    })
}

/// Takes connections and closes them, as a forwarder does behind which nothing listens.
pub(crate) fn forwarder_to_nothing() -> io::Result<SocketAddr> {
    serve(|stream| stream.shutdown(Shutdown::Both))
}

/// Answers each command with what is made of it.
fn answering(
    answer: impl Fn(&RawDocument) -> RawDocumentBuf + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    serve(move |mut stream| {
        let (mut frames, mut buffer) = (Frames::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            frames.extend(&buffer[..count]);
            while let Ok(Some(message)) = frames.next() {
                let request = message.op_msg().map_err(io::Error::other)?;
                let (mut out, reply) = (Vec::new(), answer(request.body));
                write_op_msg(&mut out, 1, message.header().request_id, Flags::NONE, &reply);
                stream.write_all(&out)?;
            }
        }
    })
}

fn answer(command: &RawDocument) -> RawDocumentBuf {
    if let Ok(payload) = command.get_binary("payload") {
        let first = RawDocument::from_bytes(payload.bytes).ok();
        let nonce = first.and_then(|first| first.get_binary("r").ok().map(|it| it.bytes.to_vec()));
        let mut nonce = nonce.unwrap_or_default();
        nonce.resize(64, b'x');
        let binary = |bytes| Binary { subtype: BinarySubtype::Generic, bytes };
        let payload = rawdoc! { "s": binary(nonce), "h": "sts.amazonaws.com" };
        let payload = binary(payload.as_bytes().to_vec());
        return rawdoc! { "conversationId": 1, "done": false, "payload": payload, "ok": 1 };
    }
    let mut hello = rawdoc! {
        "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 17,
    };
    hello.append(cstr!("ok"), 1);
    hello
}
