//! The errors of operations: writes that are refused, arguments, documents, and what they have in
//! common with all others.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::time::Duration;

use sdam_core::bson::{self, Bson, doc, rawdoc};
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::metrics::{ErrorType, OTHER};
use sdam_core::selection::Criteria;
use sdam_core::session::{ClusterTimeError, SessionError};

use super::puppet::Puppet;
use crate::documents::{DeserializeError, read_as};
use crate::error::{
    ArgumentError, BulkWriteError, ClientBulkWriteError, DriverError as _, Error, ErrorKind,
    ReplyError, TimingError, WriteConcernError, WriteError,
};
use crate::machines::Host;
use crate::operations::session::SessionAccessError;
use crate::results::{InsertOneResult, WriteResult};

fn refused(index: usize) -> (usize, WriteError) {
    let refused = rawdoc! { "code": 11000, "errmsg": "duplicate" };
    (index, WriteError::of(index, &refused))
}

fn late(label: &str) -> WriteConcernError {
    let late = rawdoc! { "code": 64, "errmsg": "late" };
    let reply = rawdoc! { "writeConcernError": late, "errorLabels": ["Both", label] };
    WriteConcernError::in_reply(&reply).unwrap()
}

/// The error of writes to a collection.
fn bulk(
    write_errors: impl IntoIterator<Item = (usize, WriteError)>,
    write_concern_error: Option<WriteConcernError>,
    cause: Option<Error>,
) -> Error {
    let write_errors = write_errors.into_iter().collect();
    BulkWriteError { write_errors, write_concern_error, cause, ..Default::default() }.into()
}

/// The error of writes to several collections.
fn bulk_of_client(cause: Option<Error>) -> Error {
    ClientBulkWriteError { cause, ..Default::default() }.into()
}

fn in_use() -> Error {
    ArgumentError::SessionInUse.into()
}

fn waited() -> Error {
    SessionAccessError::TimedOut { waited: Duration::from_secs(1) }.into()
}

/// The error of a selection by these criteria, of a set of which nothing is known.
fn selection(criteria: &Criteria) -> Error {
    let options = Options::parse("mongodb://a,b/?replicaSet=rs").unwrap();
    let host = Host::new(options.into(), 1, Puppet::default());
    host.diagnose(criteria).unwrap().into()
}

/// CRUD, "Error Handling": "Structure isn't important as long as the information is available."
#[test]
fn the_error_of_a_bulk_tells_of_all_that_went_wrong_the_first_first() {
    let judged = |error: Error| (error.to_string(), error.code());
    let first = "the write at index 1 was refused: duplicate (code 11000)";
    let second = "the write was done, but its write concern was not met: late (code 64)";
    let third = "the session is in use by another operation";
    let two = [refused(1), refused(4)];
    let all = format!("{first}, and 1 more; {second}; {third}");
    assert_eq!(judged(bulk(two, Some(late("")), Some(in_use()))), (all, Some(11000)));
    let some = format!("{second}; {third}");
    assert_eq!(judged(bulk([], Some(late("")), Some(in_use()))), (some, Some(64)));
    assert_eq!(judged(bulk([refused(1)], None, None)), (first.into(), Some(11000)));
    assert_eq!(judged(bulk([], None, Some(in_use()))), (third.into(), None));
    assert_eq!(judged(bulk([], None, None)), ("the bulk write failed".into(), None));
}

/// CSOT, "Error Transformations": the error of a write or of a write concern may be one, too.
#[test]
fn time_that_was_over_at_the_server_is_a_timeout_wherever_the_reply_tells_of_it() {
    let expired = rawdoc! { "code": 50, "errmsg": "over" };
    let reply = rawdoc! { "writeConcernError": expired.clone() };
    let concern = WriteConcernError::in_reply(&reply).unwrap();
    let write = WriteError::of(0, &expired);
    let of_write = Error::from(write.clone());
    assert_eq!(of_write.kind(), ErrorKind::Write);
    assert!(of_write.is_timeout() && Error::from(concern.clone()).is_timeout());
    assert!(bulk([(0, write)], None, None).is_timeout());
    assert!(bulk([], Some(concern), None).is_timeout());
    assert!(bulk([], None, Some(of_write)).is_timeout());
    assert!(!Error::from(refused(1).1).is_timeout());
    assert!(!bulk([refused(1)], Some(late("")), None).is_timeout());
    // A caller may know that its own time was over while it waited for something else.
    assert!(bulk([refused(1)], Some(late("")), None).out_of_time().is_timeout());
    assert!(Error::from(refused(1).1).out_of_time().is_timeout());
    assert!(Error::custom("late").out_of_time().is_timeout());
}

#[test]
fn the_labels_of_a_bulk_are_those_of_all_its_errors_once_each() {
    let inner = Error::from(late("A"));
    assert_eq!(inner.labels(), ["Both", "A"]);
    let error = Error::from(ClientBulkWriteError {
        cause: Some(inner),
        write_concern_errors: vec![late("B"), late("C")],
        labels: ["Both", "B", "C"].map(ToOwned::to_owned).to_vec(),
        ..Default::default()
    });
    assert_eq!(error.labels(), ["Both", "A", "B", "C"]);
    assert!(error.has_label("C") && !error.has_label("D"));
}

/// The end of a bulk may be the error of a server, and is asked like one that stands by itself.
#[test]
fn the_error_that_ended_a_bulk_is_found_within() {
    let client = || Error::from(Options::parse("nonsense").unwrap_err());
    let nested = || bulk_of_client(Some(bulk([], None, Some(client()))));
    for error in [client(), bulk([], None, Some(client())), nested()] {
        assert_eq!(error.root_cause().kind(), ErrorKind::Configuration);
        assert_eq!(error.error_type(), ErrorType::Named("configuration"));
        assert_eq!(error.verdict(), client().verdict());
        // No server has answered.
        assert!(!error.is_of_a_server_at_hand() && !error.is_of_a_closed_cursor());
        assert!(!error.is_timeout() && !error.is_early_timeout());
    }
    assert_eq!(nested().kind(), ErrorKind::BulkWrite);
    for error in [in_use(), bulk([], None, Some(in_use())), bulk_of_client(None)] {
        assert!(error.is_of_a_server_at_hand() && error.verdict().is_none());
        assert_eq!(error.error_type(), ErrorType::Named(OTHER));
    }
    let refused = bulk_of_client(Some(refused(0).1.into()));
    assert_eq!((refused.error_type(), refused.code()), (ErrorType::Code(11000), Some(11000)));
    assert!(bulk_of_client(Some(waited())).is_timeout());
    assert!(!bulk_of_client(Some(in_use())).is_timeout());
}

/// Retryable Writes, "RetryableWriteError Labels": each kind of error takes the labels that the
/// client adds, each once, and so does the error of a write concern in it.
#[test]
fn labels_that_the_client_adds_are_those_of_the_error() {
    let added = ["Both".to_owned(), "New".to_owned()];
    let of_client = ClientBulkWriteError {
        write_concern_errors: vec![late("A")],
        labels: vec!["Both".to_owned()],
        ..Default::default()
    };
    for (error, expected) in [
        (Error::from(refused(0).1), vec!["Both", "New"]),
        (late("A").into(), vec!["Both", "A", "New"]),
        (bulk([], Some(late("A")), None), vec!["Both", "New"]),
        (of_client.into(), vec!["Both", "New"]),
        (in_use(), vec![]),
    ] {
        let error = error.with_labels(&added);
        assert_eq!(error.labels(), expected);
        if let Some(error) = error.as_client_bulk_write() {
            assert_eq!(error.write_concern_errors[0].labels, ["Both", "A", "New"]);
        }
        if let Some(concern) = error.as_bulk_write().and_then(|it| it.write_concern_error.as_ref())
        {
            assert_eq!(concern.labels, ["Both", "A", "New"]);
        }
    }
}

/// CSOT, "Errors": the end of `timeoutMS` is a time-out, whatever was waited for.
#[test]
fn a_session_in_use_is_one_error_with_a_limit_of_time_and_another_without() {
    let error = waited();
    let text = "the operation has waited 1000 ms for its session, which another operation uses, \
                and its timeoutMS is over; nothing was sent";
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Timeout, text));
    assert!(error.is_session_in_use() && error.is_timeout() && error.is_early_timeout());
    assert_eq!(error.error_type(), ErrorType::Named("timeout"));
    let error = Error::from(SessionAccessError::InUse);
    assert_eq!(
        (error.kind(), error.as_argument()),
        (ErrorKind::Invalid, Some(&ArgumentError::SessionInUse))
    );
    assert!(error.is_session_in_use() && !error.is_timeout() && !error.is_early_timeout());
    let time = Error::from(SessionAccessError::ClusterTime(ClusterTimeError::TooLong(9000)));
    assert!(matches!(time.as_argument(), Some(ArgumentError::ClusterTime(_))));
    assert!(!time.is_session_in_use());
}

/// The server has several numbers for it, and commands that are no writes have them, too.
#[test]
fn a_duplicate_key_is_found_wherever_it_is() {
    let of = |code: i32| WriteError::of(0, &rawdoc! { "code": code });
    for code in [11000, 11001, 12582] {
        assert!(Error::from(of(code)).is_duplicate_key(), "{code}");
    }
    let command = || {
        let reply = rawdoc! { "ok": 0, "code": 11000, "errmsg": "duplicate" };
        let error = sdam_core::operation::CommandError::in_reply(&reply).unwrap();
        let stage = sdam_core::failure::Stage::Operate;
        Error::from(sdam_core::operation::OperationError::Reply { stage, error })
    };
    assert!(command().is_duplicate_key() && bulk_of_client(Some(command())).is_duplicate_key());
    let second = ClientBulkWriteError {
        write_errors: BTreeMap::from([(0, of(121)), refused(1)]),
        ..Default::default()
    };
    assert!(Error::from(second).is_duplicate_key(), "whichever write");
    assert!(bulk([(0, of(121)), refused(3)], None, None).is_duplicate_key());
    for other in [of(121).into(), late("").into(), in_use(), waited(), bulk([], None, None)] {
        let other: Error = other;
        assert!(!other.is_duplicate_key(), "{other}");
    }
}

#[test]
fn no_primary_is_found_where_a_primary_was_needed() {
    let read = |mode| Criteria::read(ReadPreference::new(mode));
    for criteria in [Criteria::write(), read(ReadMode::Primary)] {
        let error = selection(&criteria);
        assert_eq!(error.kind(), ErrorKind::Selection);
        assert!(error.is_no_primary() && bulk([], None, Some(error)).is_no_primary());
    }
    assert!(!selection(&read(ReadMode::Nearest)).is_no_primary());
    assert!(!in_use().is_no_primary());
    let options = Options::parse("mongodb://a").unwrap();
    let host = Host::new(options.into(), 1, Puppet::default());
    host.close();
    let closed = Error::from(host.diagnose(&Criteria::write()).unwrap());
    assert_eq!((closed.kind(), closed.is_no_primary()), (ErrorKind::Closed, false));
}

fn unreadable() -> Box<DeserializeError> {
    read_as::<BTreeMap<String, i32>>(&rawdoc! { "a": "b" }).unwrap_err()
}

/// Each value that an error may have within has its kind, its accessor, and its own text.
#[test]
fn each_kind_of_an_operation_has_its_value() {
    let serialization = || bson::serialize_to_document(&1).unwrap_err();
    let table: [(Error, ErrorKind); 13] = [
        (refused(0).1.into(), ErrorKind::Write),
        (late("").into(), ErrorKind::WriteConcern),
        (bulk([], None, None), ErrorKind::BulkWrite),
        (bulk_of_client(None), ErrorKind::BulkWrite),
        (in_use(), ErrorKind::Invalid),
        (ArgumentError::from(SessionError::CausalAndSnapshot).into(), ErrorKind::Invalid),
        (ArgumentError::from(TimingError::AwaitTooLong).into(), ErrorKind::Invalid),
        (ReplyError::new("find", "cursor").into(), ErrorKind::Protocol),
        (unreadable().into(), ErrorKind::Deserialize),
        (Error::serialize(serialization()), ErrorKind::Serialize),
        (serialization().into(), ErrorKind::Serialize),
        (doc! {}.get_str("a").unwrap_err().into(), ErrorKind::Deserialize),
        (Error::custom("planted"), ErrorKind::Application),
    ];
    for (error, kind) in &table {
        assert_eq!(error.kind(), *kind, "{error:?}");
        let values = [
            error.as_write().is_some(),
            error.as_write_concern().is_some(),
            error.as_bulk_write().is_some(),
            error.as_client_bulk_write().is_some(),
            error.as_argument().is_some(),
            error.as_reply().is_some(),
            error.as_bson().is_some(),
            error.as_custom().is_some(),
        ];
        assert_eq!(values.into_iter().filter(|is_some| *is_some).count(), 1, "{error:?}");
        assert!(error.as_client().is_none() && error.as_operation().is_none());
        assert!(error.source().is_none(), "its text is whole: {error}");
    }
    assert!(table[8].0.as_deserialize().is_some_and(|error| error.path == "a"));
    assert!(table[9].0.to_string().starts_with("the value cannot be written as BSON: "));
}

/// Errors that an application returns from its own functions, too, so that `?` does for both.
#[test]
fn errors_of_applications_are_theirs() {
    let error = Error::from(io::Error::from(io::ErrorKind::NotFound));
    assert_eq!(error.kind(), ErrorKind::Application);
    let own = error.as_custom().and_then(|own| own.downcast_ref::<io::Error>());
    assert_eq!(own.map(io::Error::kind), Some(io::ErrorKind::NotFound));
    assert_eq!(Error::custom(String::from("no stock")).to_string(), "no stock");
}

/// Errors are shown to other programs, as results are.
#[test]
fn errors_of_writes_are_serialised_with_what_was_done() {
    let result = InsertOneResult { acknowledged: true, inserted_id: Bson::Int32(7) };
    let late = late("A").with(WriteResult::InsertOne(result));
    let written = bson::serialize_to_document(&late).unwrap();
    let expected = doc! {
        "code": 64, "codeName": "", "message": "late", "details": null, "labels": ["Both", "A"],
        "result": { "acknowledged": true, "insertedId": 7 },
    };
    assert_eq!(written, expected);
    let bulk = bulk([refused(3)], None, Some(in_use()));
    let written = bson::serialize_to_document(bulk.as_bulk_write().unwrap()).unwrap();
    let refused = written.get_document("writeErrors").unwrap().get_document("3").unwrap();
    assert_eq!(refused.get_i32("code").ok(), Some(11000));
    assert_eq!(written.get_str("cause").ok(), Some("the session is in use by another operation"));
}
