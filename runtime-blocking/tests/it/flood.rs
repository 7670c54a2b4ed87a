//! A server that streams its state without pause holds up no check of another one, although one
//! thread reads from both.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::deployment::{Deployment, SOON};
use sdam_blocking::Topology;
use sdam_cluster::EmbeddedOptions;
use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::topology::EventKind;
use sdam_core::wire::{Flags, Frames, Message, ReplyFlags, write_op_msg, write_op_reply};

/// The number of checks that there are to be of the server that behaves, once the other one
/// streams.
const CHECKS: u32 = 5;

/// The number of replies that are sent at a time.
const BATCH: i32 = 500;

/// Returns the state of a mongos, which has changed so many times.
fn hello(changes: i32) -> RawDocumentBuf {
    let process = ObjectId::from_bytes([1; 12]);
    rawdoc! {
        "isWritablePrimary": true, "helloOk": true, "msg": "isdbgrid",
        "minWireVersion": 0, "maxWireVersion": 21,
        "topologyVersion": { "processId": process, "counter": i64::from(changes) }, "ok": 1,
    }
}

/// Answers a hello; one that allows it is answered for ever, as if the state changed all the time.
fn answer(message: &Message, stream: &mut impl Write) -> io::Result<()> {
    let (mut id, mut out) = (message.header().request_id, Vec::new());
    let Ok(request) = message.op_msg() else {
        write_op_reply(&mut out, 1, id, ReplyFlags::NONE, &hello(0));
        return stream.write_all(&out);
    };
    if !request.flags.contains(Flags::EXHAUST_ALLOWED) {
        write_op_msg(&mut out, 1, id, Flags::NONE, &hello(0));
        return stream.write_all(&out);
    }
    for batch in 0.. {
        out.clear();
        for number in 1..=BATCH {
            let changes = batch * BATCH + number;
            write_op_msg(&mut out, changes, id, Flags::MORE_TO_COME, &hello(changes));
            id = changes;
        }
        stream.write_all(&out)?;
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let (mut frames, mut buffer) = (Frames::new(), [0; 4096]);
    while let count @ 1.. = stream.read(&mut buffer)? {
        frames.extend(&buffer[..count]);
        while let Some(message) = frames.next().map_err(io::Error::other)? {
            answer(&message, &mut stream)?;
        }
    }
    Ok(())
}

/// Starts a server that streams without pause; its threads end with their connections.
fn start_flood() -> ServerAddress {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // It fails when the client is gone.
            thread::spawn(|| serve(stream));
        }
    });
    address.to_string().parse().unwrap()
}

/// Server Monitoring, "Streaming protocol": a reply may be followed by others without a request,
/// and each server is checked whatever the others do.
#[test]
fn a_server_that_streams_without_pause_holds_up_no_check_of_another_one() {
    let deployment = Deployment::start(EmbeddedOptions::sharded(1));
    let well: ServerAddress = deployment.cluster.addresses()[0].to_string().parse().unwrap();
    let flood = start_flood();
    let uri =
        format!("mongodb://{well},{flood}/?heartbeatFrequencyMS=500&serverMonitoringMode=stream");
    let client = Topology::builder(Options::parse(&uri).unwrap());
    let (client, mut events) = client.build_with_events().unwrap();
    let end = client.now() + SOON;
    let (mut streamed, mut checks) = (0, 0);
    while checks < CHECKS {
        let event = events.next_until(end);
        let Some(event) = event else { panic!("{checks} checks beside {streamed} replies") };
        match event.kind {
            EventKind::ServerHeartbeatSucceeded { address, awaited: true, .. }
                if address == flood =>
            {
                streamed += 1;
            }
            // Only what comes while the other one streams counts.
            EventKind::ServerHeartbeatSucceeded { address, .. }
                if address == well && streamed > BATCH =>
            {
                checks += 1;
            }
            EventKind::ServerHeartbeatFailed { address, failure, .. } => {
                panic!("the check of {address} has failed: {failure:?}");
            }
            _ => {}
        }
    }
    assert!(client.close(SOON), "it ends while the server streams");
}
