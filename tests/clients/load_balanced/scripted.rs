//! A mongos that answers what a test wants it to, and keeps what it received.

use std::net::SocketAddr;

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::wire::{Flags, Frames, write_op_msg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A scripted mongos's reaction to the second command on a connection and those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Succeed,
    Close,
    KeepSilent,
}

/// A mongos whose connections lead to this service.
pub(crate) const SERVICE: ObjectId = ObjectId::from_bytes([7; 12]);

/// Starts it; commands come out of the channel in the order in which it received them.
pub(crate) async fn start(then: Then) -> (SocketAddr, UnboundedReceiver<RawDocumentBuf>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (commands, received) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, then, commands.clone()));
        }
    });
    (address, received)
}

async fn serve(mut stream: TcpStream, then: Then, commands: UnboundedSender<RawDocumentBuf>) {
    let (mut frames, mut greeted) = (Frames::new(), false);
    loop {
        while let Some(message) = frames.next().unwrap() {
            let request = message.op_msg().unwrap();
            let _ = commands.send(request.body.to_owned());
            let reply = match (greeted, then) {
                (false, _) => hello(request.body),
                (true, Then::Succeed) => rawdoc! { "ok": 1 },
                (true, Then::Close) => return,
                (true, Then::KeepSilent) => continue,
            };
            greeted = true;
            let mut bytes = Vec::new();
            write_op_msg(&mut bytes, 1, message.header().request_id, Flags::NONE, &reply);
            stream.write_all(&bytes).await.unwrap();
        }
        match stream.read(frames.spare()).await {
            Ok(0) | Err(_) => return,
            Ok(count) => frames.fill(count),
        }
    }
}

fn hello(request: &RawDocument) -> RawDocumentBuf {
    assert!(request.get_bool("loadBalanced").unwrap(), "{request:?}");
    rawdoc! {
        "ok": 1, "isWritablePrimary": true, "msg": "isdbgrid", "serviceId": SERVICE,
        "minWireVersion": 0, "maxWireVersion": 17,
    }
}
