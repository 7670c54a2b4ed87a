//! The error that applications match on: its size, its kinds, and what becomes one.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::dns::srv::SrvError;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::Generation;
use sdam_core::operation::{CommandError, InvalidCommand, OperationError, OperationFailure};
use sdam_core::pool::CheckOutError;
use sdam_core::process::Forked;
use sdam_core::selection::Criteria;
use sdam_core::session::{ClusterTimeError, SessionError};

use super::puppet::Puppet;
use crate::error::ClientError;
use crate::error::{DriverError as _, Error, ErrorKind, Spent};
use crate::machines::Host;

fn address() -> ServerAddress {
    "a:1".parse().unwrap()
}

fn stream(stage: Stage, cause: Cause) -> OperationError {
    OperationError::Stream(Failure::new(stage, cause, "planted"))
}

fn replied(stage: Stage) -> OperationError {
    let reply = rawdoc! { "ok": 0, "code": 7, "errmsg": "planted", "errorLabels": ["a", "b"] };
    OperationError::Reply { stage, error: CommandError::in_reply(&reply).unwrap() }
}

#[test]
fn an_error_is_a_pointer_in_size() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
}

#[test]
fn an_error_can_be_sent_shared_and_cloned() {
    fn is_as_it_should_be<E: std::error::Error + Clone + Send + Sync + 'static>() {}
    is_as_it_should_be::<Error>();
}

#[test]
fn each_kind_is_that_of_what_has_failed() {
    let forked = Forked::new(1, 2);
    let options = Options::parse("mongodb://a:0").unwrap_err();
    let table: [(Error, ErrorKind); 27] = [
        (options.clone().into(), ErrorKind::Configuration),
        (ClientError::TlsNotAskedFor.into(), ErrorKind::Configuration),
        (ClientError::Unresolved("a".into()).into(), ErrorKind::Configuration),
        (ClientError::Srv(SrvError::from(options)).into(), ErrorKind::Dns),
        (ClientError::NoRuntime("planted".into()).into(), ErrorKind::Runtime),
        (ClientError::NoThread("planted".into()).into(), ErrorKind::Runtime),
        (CheckOutError::PoolClosed { address: address() }.into(), ErrorKind::CheckOut),
        (CheckOutError::NotReady { address: address() }.into(), ErrorKind::CheckOut),
        (CheckOutError::Forked { address: address(), forked }.into(), ErrorKind::Forked),
        (stream(Stage::Connect, Cause::Refused).into(), ErrorKind::Network),
        (stream(Stage::Resolve, Cause::NotResolved).into(), ErrorKind::Network),
        (stream(Stage::Operate, Cause::Interrupted).into(), ErrorKind::Network),
        (stream(Stage::Hello, Cause::Timeout).into(), ErrorKind::Timeout),
        (stream(Stage::Tls, Cause::UnknownIssuer).into(), ErrorKind::Tls),
        (stream(Stage::Tls, Cause::Configuration).into(), ErrorKind::Configuration),
        (stream(Stage::Operate, Cause::Malformed).into(), ErrorKind::Protocol),
        (stream(Stage::Authenticate, Cause::Authentication).into(), ErrorKind::Authentication),
        (replied(Stage::Authenticate).into(), ErrorKind::Authentication),
        (stream(Stage::Credentials, Cause::Refused).into(), ErrorKind::Authentication),
        (stream(Stage::Credentials, Cause::Timeout).into(), ErrorKind::Timeout),
        (replied(Stage::Operate).into(), ErrorKind::Command),
        (InvalidCommand::Empty.into(), ErrorKind::Invalid),
        (InvalidCommand::NotAMember(address()).into(), ErrorKind::CheckOut),
        (InvalidCommand::UnknownServer(address()).into(), ErrorKind::CheckOut),
        (InvalidCommand::Forked(forked).into(), ErrorKind::Forked),
        (ClusterTimeError::TooLong(9000).into(), ErrorKind::Invalid),
        (SessionError::CausalAndSnapshot.into(), ErrorKind::Invalid),
    ];
    for (error, kind) in table {
        assert_eq!(error.kind(), kind, "{error:?}");
    }
}

#[test]
fn what_went_wrong_over_a_connection_is_told_of_one_that_was_being_established_too() {
    let error = Error::from(CheckOutError::IdleConnection {
        address: address(),
        error: replied(Stage::Operate),
    });
    assert_eq!((error.kind(), error.code()), (ErrorKind::Command, Some(7)));
    assert_eq!((error.labels(), error.server()), (vec!["a", "b"], Some(&address())));
    assert!(error.as_check_out().is_some() && error.as_operation().is_none());
    assert!(error.as_selection().is_none() && error.as_client().is_none());
    assert!(error.verdict().is_none() && error.failure().is_none());
    let closed = stream(Stage::Operate, Cause::Closed);
    let error = Error::from(OperationFailure::new(Generation::default(), 0, closed));
    assert_eq!(error.failure().map(|failure| &failure.cause), Some(&Cause::Closed));
    assert!(error.as_operation().is_some() && error.reply().is_none() && error.server().is_none());
}

#[test]
fn the_text_is_that_of_what_has_failed_with_the_server_and_where_the_time_went() {
    let particular = stream(Stage::Operate, Cause::Closed);
    let alone = Error::from(particular.clone());
    assert_eq!(alone.to_string(), "planted");
    let spent = Spent { exchanging: Duration::from_millis(5), ..Spent::default() };
    let cause = crate::error::Repr::Operation(particular);
    let whole = Error::new(cause, Some(address()), spent);
    assert_eq!(
        whole.to_string(),
        "planted (at a:1); 0 ms went into selecting a server, 0 ms into checking out a \
         connection, 5 ms into the exchange"
    );
    assert_eq!((whole.server(), whole.spent()), (Some(&address()), Some(spent)));
    assert!(whole.source().is_none(), "its text is whole");
    let in_all = Duration::from_millis(1005);
    let whole = whole.of_call(in_all);
    assert_eq!(whole.spent(), Some(spent), "its time was not over");
    let late = whole.out_of_time().of_call(in_all);
    let text = "5 ms into the exchange, 1000 ms into what the call had done before";
    assert!(late.to_string().ends_with(text), "{late}");
    assert_eq!(late.spent().unwrap().before, Duration::from_secs(1));
    let options = Arc::new(Options::parse("mongodb://a").unwrap());
    let host = Host::new(options, 1, Puppet::default());
    let unknown = host.diagnose(&Criteria::write()).unwrap();
    let of_selection = crate::error::Repr::Selection(*unknown);
    let text = Error::new(of_selection, None, spent).to_string();
    assert!(text.contains(". 0 ms went into selecting a server"), "{text}");
}

#[test]
fn a_name_of_a_kind_is_one_word_that_no_other_has() {
    use ErrorKind::{
        Authentication, CheckOut, Closed, Command, Configuration, Dns, Forked, Invalid, Network,
        Protocol, Runtime, Selection, Timeout, Tls,
    };
    let all = [
        Authentication,
        CheckOut,
        Closed,
        Command,
        Configuration,
        Dns,
        Forked,
        Invalid,
        Network,
        Protocol,
        Runtime,
        Selection,
        Timeout,
        Tls,
    ];
    for kind in all {
        assert!(kind.name().chars().all(char::is_alphanumeric), "{kind}");
        assert_eq!(all.iter().filter(|other| other.name() == kind.name()).count(), 1, "{kind}");
    }
}
