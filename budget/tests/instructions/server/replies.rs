//! The replies of members of a replica set of 6.0.

use std::net::SocketAddr;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

/// The members' addresses; the first one is primary.
pub(crate) const MEMBERS: [&str; 3] = ["10.0.0.1:27017", "10.0.0.2:27017", "10.0.0.3:27017"];

/// Returns the reply of a member to hello.
pub(crate) fn member(address: SocketAddr) -> RawDocumentBuf {
    member_of(address, 0)
}

/// Returns the reply of a member of a set that has so many members more, which the primary names.
pub(super) fn member_of(address: SocketAddr, more: usize) -> RawDocumentBuf {
    let me = address.to_string();
    let version = rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": 3_i64 };
    let more = if me == MEMBERS[0] { more } else { 0 };
    let more = (0..more).map(|index| format!("10.1.{}.{}:27017", index / 250, index % 250 + 1));
    let more: Vec<String> = more.collect();
    // A list has a thousand at most.
    let share = ((more.len() + MEMBERS.len()) / 3).min(more.len());
    let (passives, more) = more.split_at(share);
    let (arbiters, more) = more.split_at(share);
    let [passives, arbiters] = [passives, arbiters].map(|it| RawArrayBuf::from_iter(it.to_vec()));
    let hosts = MEMBERS.into_iter().map(str::to_owned).chain(more.to_vec());
    let hosts: RawArrayBuf = hosts.collect();
    let mut reply = rawdoc! {
        "topologyVersion": version, "hosts": hosts, "setName": "rs0", "setVersion": 5,
        "isWritablePrimary": me == MEMBERS[0], "secondary": me != MEMBERS[0],
        "primary": MEMBERS[0], "tags": { "dc": "east", "rack": "1" }, "me": me,
        "electionId": ObjectId::from_bytes([1; 12]),
        "lastWrite": {
            "opTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 },
            "lastWriteDate": bson::DateTime::from_millis(1),
        },
        "helloOk": true, "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "localTime": bson::DateTime::from_millis(1),
        "logicalSessionTimeoutMinutes": 30, "connectionId": 7, "minWireVersion": 0,
        "maxWireVersion": 17, "readOnly": false, "ok": 1.0,
    };
    if !passives.is_empty() {
        reply.append(bson::cstr!("passives"), passives);
        reply.append(bson::cstr!("arbiters"), arbiters);
    }
    reply
}

pub(super) fn ok() -> RawDocumentBuf {
    rawdoc! { "ok": 1.0 }
}

/// Returns the reply to an insert.
pub(super) fn inserted(count: usize) -> RawDocumentBuf {
    rawdoc! { "n": i32::try_from(count).expect("a batch"), "ok": 1.0 }
}

/// Returns a batch of a cursor's: `first` or `next`, with documents of these numbers.
pub(crate) fn things(batch: &str, id: i64, numbers: std::ops::Range<i32>) -> RawDocumentBuf {
    let documents: RawArrayBuf = numbers
        .map(|number| rawdoc! { "_id": number, "kind": "even", "n": i64::from(number) * 10 })
        .collect();
    let mut cursor = RawDocumentBuf::new();
    cursor.append(bson::raw::CString::try_from(batch).expect("a name"), documents);
    cursor.append(bson::cstr!("id"), id);
    cursor.append(bson::cstr!("ns"), "test.things");
    rawdoc! { "cursor": cursor, "ok": 1.0 }
}
