//! The replies of members of a replica set of 6.0.

use std::net::SocketAddr;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

/// The members' addresses; the first one is primary.
pub(crate) const MEMBERS: [&str; 3] = ["10.0.0.1:27017", "10.0.0.2:27017", "10.0.0.3:27017"];

/// Returns the reply of a member to hello.
pub(crate) fn member(address: SocketAddr) -> RawDocumentBuf {
    let me = address.to_string();
    let version = rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": 3_i64 };
    let hosts: RawArrayBuf = MEMBERS.into_iter().collect();
    rawdoc! {
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
    }
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
