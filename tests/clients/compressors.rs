//! The compressor that a client uses for what it sends.

use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::wire::{Flags, Frames, op_code, write_op_msg};
use sdam_tokio::Topology;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The place where OP_COMPRESSED names its compressor: after the header, an opcode and a length.
const COMPRESSOR: usize = 16 + 4 + 4;

/// The numbers of Wire Compression.
const SNAPPY: u8 = 1;
const ZLIB: u8 = 2;

/// Answers every hello with what the server has, in its order, and reports how the first message
/// after that is compressed.
async fn serve(mut stream: TcpStream, compressors: [&'static str; 2], used: UnboundedSender<u8>) {
    let (mut frames, mut buffer) = (Frames::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        frames.extend(&buffer[..count]);
        while let Ok(Some(message)) = frames.next() {
            if message.header().op_code == op_code::OP_COMPRESSED {
                let _ = used.send(message.bytes()[COMPRESSOR]);
                return;
            }
            let [first, second] = compressors;
            let hello = rawdoc! {
                "isWritablePrimary": true, "helloOk": true, "maxWireVersion": 21,
                "compression": [first, second], "ok": 1,
            };
            let mut reply = Vec::new();
            write_op_msg(&mut reply, 1, message.header().request_id, Flags::NONE, &hello);
            if stream.write_all(&reply).await.is_err() {
                return;
            }
        }
    }
}

/// Wire Compression: "clients MUST use the first compressor in the client's configured compressors
/// list that is also in the servers list".
#[tokio::test]
async fn the_order_of_the_client_counts_and_not_the_servers() {
    for (compressors, expected) in [("zlib,snappy", ZLIB), ("snappy,zlib", SNAPPY)] {
        for of_server in [["snappy", "zlib"], ["zlib", "snappy"]] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (used, mut reported) = unbounded_channel();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, of_server, used.clone()));
                }
            });
            let uri = format!("mongodb://{address}/?compressors={compressors}");
            let client = Topology::new(Options::parse(&uri).unwrap()).unwrap();
            let ping = rawdoc! { "ping": 1 };
            let refused = client.run_command("admin", &ping).await;
            assert!(refused.is_err(), "the server hangs up");
            assert_eq!(reported.recv().await, Some(expected), "{compressors}, {of_server:?}");
        }
    }
}
