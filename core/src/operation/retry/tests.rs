//! The table of retries, row by row.

use std::time::Duration;

use bson::{RawBson, rawdoc};

use super::{
    Fault, Judgement, Retry, RetryPolicy, Situation, TRANSIENT_TRANSACTION, TransactionRole,
    UNKNOWN_COMMIT_RESULT, base_backoff, judge,
};
use crate::config::Options;
use crate::failure::{Cause, Failure, Stage};
use crate::operation::{CommandError, OperationError, OperationKind};

const HALF: u64 = 1 << 63;

const CODES: [i32; 12] = [11600, 11602, 10107, 13435, 13436, 189, 91, 7, 6, 89, 9001, 262];

const KINDS: [OperationKind; 3] =
    [OperationKind::Read, OperationKind::Write, OperationKind::Command];

fn policy(options: &str) -> RetryPolicy {
    RetryPolicy::of(&Options::parse(&format!("mongodb://a/?{options}")).unwrap())
}

fn situation(kind: OperationKind) -> Situation {
    Situation {
        max_wire_version: 17,
        ..Situation::new(kind, kind != OperationKind::Command, policy(""))
    }
}

fn network(stage: Stage, cause: Cause) -> OperationError {
    OperationError::Stream(Failure::new(stage, cause, "no more"))
}

fn lost() -> OperationError {
    network(Stage::Operate, Cause::Closed)
}

fn refused_with(stage: Stage, code: i32, labels: &[&str]) -> OperationError {
    let mut reply = rawdoc! { "ok": 0, "code": code, "errmsg": "no" };
    let labels: bson::Array = labels.iter().map(|&label| label.into()).collect();
    reply.append(bson::cstr!("errorLabels"), bson::RawArrayBuf::try_from(labels).unwrap());
    OperationError::Reply { stage, error: CommandError::in_reply(&reply).unwrap() }
}

fn reply(code: i32, labels: &[&str]) -> OperationError {
    refused_with(Stage::Operate, code, labels)
}

fn overloaded() -> OperationError {
    reply(462, &["SystemOverloadedError", "RetryableError"])
}

fn judged(situation: &Situation, error: &OperationError) -> Judgement {
    judge(situation, &Fault::Exchange(error), None, HALF)
}

/// Retryable Reads, "Retryable Error": the network, and a table of codes, whatever the labels.
#[test]
fn reads_are_sent_again_after_errors_of_the_network_and_of_the_table() {
    let read = situation(OperationKind::Read);
    assert_eq!(judged(&read, &lost()).retry, Retry::Now);
    for code in CODES.into_iter().chain([134]) {
        assert_eq!(judged(&read, &reply(code, &[])).retry, Retry::Now, "{code}");
    }
    for code in [1, 43, 50, 112] {
        let error = reply(code, &["RetryableWriteError"]);
        assert_eq!(judged(&read, &error).retry, Retry::No, "{code}");
    }
    let getmore = Situation { retryable: false, ..read };
    assert_eq!(judged(&getmore, &lost()).retry, Retry::No);
    let unwanted = Situation { policy: policy("retryReads=false"), ..read };
    assert_eq!(judged(&unwanted, &lost()).retry, Retry::No);
    assert_eq!(judged(&read, &lost()).adds_label, None);
}

/// Retryable Writes, "RetryableWriteError Labels": from 4.4 on servers label their errors.
#[test]
fn writes_are_sent_again_after_errors_with_the_label() {
    let write = situation(OperationKind::Write);
    let labelled = reply(112, &["RetryableWriteError"]);
    let judgement = judged(&write, &labelled);
    assert_eq!((judgement.retry, judgement.adds_label.is_some()), (Retry::Now, false));
    let judgement = judged(&write, &lost());
    assert_eq!((judgement.retry, judgement.adds_label.is_some()), (Retry::Now, true));
    let oldest = Situation { max_wire_version: 9, ..write };
    for (situation, code) in CODES.into_iter().flat_map(|code| [(write, code), (oldest, code)]) {
        let judgement = judged(&situation, &reply(code, &[]));
        let expected = (Retry::No, false);
        assert_eq!((judgement.retry, judgement.adds_label.is_some()), expected, "{code}");
    }
    let update_many = Situation { retryable: false, ..write };
    let unwanted = Situation { policy: policy("retryWrites=false"), ..write };
    for situation in [update_many, unwanted] {
        for error in [&lost(), &labelled] {
            let judgement = judged(&situation, error);
            assert_eq!((judgement.retry, judgement.adds_label.is_some()), (Retry::No, false));
        }
    }
    // The label of a reply is that of the error of its write concern, too.
    for (label, retry) in [("RetryableWriteError", Retry::Now), ("Other", Retry::No)] {
        let late = rawdoc! { "code": 64 };
        let reply = rawdoc! { "ok": 1, "errorLabels": [label], "writeConcernError": late };
        let error = CommandError::in_reply(&reply).unwrap();
        assert_eq!(judge(&write, &Fault::WriteConcern(&error), None, HALF).retry, retry, "{label}");
    }
}

/// "When receiving a command result with an error from a pre-4.4 server that supports retryable
/// writes, the driver MUST add a RetryableWriteError label"; not for `writeConcernError` of mongos.
#[test]
fn errors_of_servers_before_4_4_are_labelled_by_code() {
    let write = Situation { max_wire_version: 8, ..situation(OperationKind::Write) };
    let nested = |code: i32| {
        let nested = rawdoc! { "code": code, "errmsg": "no" };
        CommandError::in_reply(&rawdoc! { "ok": 1, "writeConcernError": nested }).unwrap()
    };
    for code in CODES {
        for judgement in [
            judged(&write, &reply(code, &[])),
            judge(&write, &Fault::WriteConcern(&nested(code)), None, HALF),
        ] {
            let expected = (Retry::Now, true);
            assert_eq!((judgement.retry, judgement.adds_label.is_some()), expected, "{code}");
        }
        let mongos = Situation { sharded: true, ..write };
        let judgement = judge(&mongos, &Fault::WriteConcern(&nested(code)), None, HALF);
        assert_eq!((judgement.retry, judgement.adds_label.is_some()), (Retry::No, false));
        assert_eq!(judged(&mongos, &reply(code, &[])).retry, Retry::Now);
    }
    assert_eq!(judged(&write, &reply(64, &[])).retry, Retry::No);
    assert_eq!(judge(&write, &Fault::WriteConcern(&nested(64)), None, HALF).retry, Retry::No);
}

/// "Any of the above retryable errors that occur during a connection handshake (including the
/// authentication step)"; a pool that was cleared is retryable, too.
#[test]
fn reads_and_writes_are_sent_again_when_nothing_could_be_sent() {
    let errors = [
        network(Stage::Authenticate, Cause::Closed),
        refused_with(Stage::Hello, 91, &[]),
        refused_with(Stage::Authenticate, 91, &[]),
    ];
    for kind in [OperationKind::Read, OperationKind::Write] {
        let situation = situation(kind);
        for error in &errors {
            let judgement = judge(&situation, &Fault::Establishing(error), None, HALF);
            assert_eq!(judgement.retry, Retry::Now, "{error:?}");
            assert_eq!(judgement.adds_label.is_some(), kind == OperationKind::Write);
            assert!(!judgement.shows_attempt);
        }
        let judgement = judge(&situation, &Fault::PoolCleared, None, HALF);
        assert_eq!(judgement.retry, Retry::Now);
        assert_eq!(judgement.adds_label.is_some(), kind == OperationKind::Write);
        // Others than the server were asked, and would be asked for the same again.
        for cause in [Cause::Timeout, Cause::Refused, Cause::Io] {
            let elsewhere = network(Stage::Credentials, cause);
            let judgement = judge(&situation, &Fault::Establishing(&elsewhere), None, HALF);
            assert_eq!((judgement.retry, judgement.adds_label.is_some()), (Retry::No, false));
        }
        let refused = refused_with(Stage::Authenticate, 18, &[]);
        assert_eq!(judge(&situation, &Fault::Establishing(&refused), None, HALF).retry, Retry::No);
        for late in [true, false] {
            assert_eq!(judge(&situation, &Fault::CheckOut(late), None, HALF).retry, Retry::No);
            assert_eq!(judge(&situation, &Fault::Selection(late), None, HALF).retry, Retry::No);
        }
    }
    let command = situation(OperationKind::Command);
    assert_eq!(judge(&command, &Fault::Establishing(&errors[0]), None, HALF).retry, Retry::No);
}

/// Failures that the client or its configuration is to blame for are none of the network.
#[test]
fn what_is_not_the_networks_fault_is_not_tried_again() {
    for cause in [
        Cause::Canceled,
        Cause::Configuration,
        Cause::Malformed,
        Cause::Authentication,
        Cause::UnknownIssuer,
        Cause::CertificateName,
    ] {
        let error = network(Stage::Operate, cause);
        for kind in KINDS {
            assert_eq!(judged(&situation(kind), &error).retry, Retry::No, "{error}");
        }
    }
}

/// "CSOT is not enabled and one retry was attempted"; "retry operations as many times as possible
/// before the timeout expires".
#[test]
fn an_operation_is_sent_again_once_or_until_its_time_is_up() {
    let once = situation(OperationKind::Write);
    let twice = Situation { retries: 1, ..once };
    assert_eq!(judged(&twice, &lost()).retry, Retry::No);
    let timed = Situation { retries: 1000, has_timeout: true, ..once };
    assert!(matches!(judged(&timed, &lost()).retry, Retry::After(_)));
}

/// A server that fails and is not Unknown would keep both sides busy if it were retried "as many
/// times as possible": a load balancer whose name cannot be resolved, and a secondary to which a
/// client connects directly and that refuses its writes.
#[test]
fn further_attempts_pause() {
    let error = network(Stage::Resolve, Cause::NotResolved);
    let refusal = reply(10107, &["RetryableWriteError"]);
    let timed = Situation { has_timeout: true, ..situation(OperationKind::Write) };
    for fault in [Fault::Establishing(&error), Fault::Exchange(&refusal), Fault::PoolCleared] {
        let retry = |retries| judge(&Situation { retries, ..timed }, &fault, None, HALF).retry;
        assert_eq!(retry(0), Retry::Now);
        assert_eq!(retry(1), Retry::After(Duration::from_millis(10)), "half of 20 ms");
        assert_eq!(retry(2), Retry::After(Duration::from_millis(20)));
        assert_eq!(retry(6), Retry::After(Duration::from_millis(320)));
        assert_eq!(retry(1000), Retry::After(Duration::from_millis(500)), "as between two checks");
        let once = situation(OperationKind::Write);
        let twice = Situation { retries: 1, ..once };
        assert_eq!(judge(&twice, &fault, None, HALF).retry, Retry::No);
    }
}

/// Client Backpressure, "Overload retry policy", 2: any command, with the options of its kind.
#[test]
fn every_operation_is_sent_again_after_an_error_of_overload() {
    let allowed = [
        ("", [true, true, true]),
        ("retryReads=false", [false, true, false]),
        ("retryWrites=false", [true, false, false]),
    ];
    for (options, expected) in allowed {
        for (kind, expected) in KINDS.into_iter().zip(expected) {
            for retryable in [true, false] {
                let policy = policy(options);
                let situation = Situation { retryable, policy, ..situation(kind) };
                let judgement = judged(&situation, &overloaded());
                assert_eq!(judgement.retry != Retry::No, expected, "{kind:?} {options}");
                assert!(judgement.is_overload);
            }
        }
    }
    let command = situation(OperationKind::Command);
    for label in ["SystemOverloadedError", "RetryableError"] {
        assert_eq!(judged(&command, &reply(462, &[label])).retry, Retry::No, "{label} alone");
    }
    let connecting = network(Stage::Hello, Cause::Timeout);
    let judgement = judge(&command, &Fault::Establishing(&connecting), None, HALF);
    assert!(matches!(judgement.retry, Retry::After(_)), "connecting may be what overloads");
}

/// "2.2: We have not reached MAX_RETRIES", and "Interaction with Other Retry Policies": "This
/// limiting applies to all retry attempts", "regardless of whether CSOT is enabled or not".
#[test]
fn overload_limits_how_often_anything_is_tried() {
    for has_timeout in [true, false] {
        let first = Situation { has_timeout, ..situation(OperationKind::Read) };
        let later = |retries| Situation { retries, overloaded: true, ..first };
        assert_ne!(judged(&later(1), &overloaded()).retry, Retry::No);
        assert_eq!(judged(&later(1), &lost()).retry, Retry::Now, "and without backoff");
        assert_eq!(judged(&later(2), &overloaded()).retry, Retry::No);
        assert_eq!(judged(&later(2), &lost()).retry, Retry::No);
        let never = Situation { policy: policy("maxAdaptiveRetries=0"), ..first };
        assert_eq!(judged(&never, &overloaded()).retry, Retry::No);
    }
}

/// "3: backoff = jitter * min(MAX_BACKOFF, BASE_BACKOFF * 2^attempt)", and "3.6": the server's own.
#[test]
fn backoff_doubles_up_to_a_limit_and_has_full_jitter() {
    let after = |retries, base: Option<i64>, random| {
        let policy = policy("maxAdaptiveRetries=100");
        let situation = Situation { retries, policy, ..situation(OperationKind::Command) };
        let mut document = rawdoc! { "ok": 0 };
        base.into_iter().for_each(|base| document.append(bson::cstr!("baseBackoffMS"), base));
        let error = overloaded();
        match judge(&situation, &Fault::Exchange(&error), base_backoff(&document), random).retry {
            Retry::After(time) => time,
            other => panic!("{other:?}"),
        }
    };
    let millis = Duration::from_millis;
    assert_eq!(after(0, None, HALF), millis(100));
    assert_eq!(after(1, None, HALF), millis(200));
    assert_eq!(after(6, None, HALF), millis(5000), "half of MAX_BACKOFF");
    assert_eq!(after(60, None, HALF), millis(5000));
    assert_eq!(after(0, None, 0), Duration::ZERO);
    assert!(after(0, None, u64::MAX) <= millis(200));
    assert_eq!(after(0, Some(500), HALF), millis(500));
    for absent in [0, -7] {
        assert_eq!(after(0, Some(absent), HALF), millis(100), "not a positive value");
    }
}

/// Retryable Reads, "Selecting the server for retry"; Client Backpressure, 4.
#[test]
fn the_server_is_avoided_in_sharded_clusters_and_where_overload_is_to_be_spread() {
    let set = situation(OperationKind::Read);
    assert!(!judged(&set, &lost()).avoids_server);
    assert!(!judged(&set, &overloaded()).avoids_server);
    let spread = Situation { policy: policy("enableOverloadRetargeting=true"), ..set };
    assert!(!judged(&spread, &lost()).avoids_server);
    assert!(judged(&spread, &overloaded()).avoids_server);
    let sharded = Situation { sharded: true, ..set };
    assert!(judged(&sharded, &lost()).avoids_server);
}

/// "Some errors that a driver encounters indicate that no writes were attempted".
#[test]
fn errors_tell_whether_anything_was_attempted() {
    let write = situation(OperationKind::Write);
    let tells = |fault| judge(&write, &fault, None, HALF).shows_attempt;
    let (lost, written) = (lost(), reply(91, &["RetryableWriteError"]));
    assert!(tells(Fault::Exchange(&lost)) && tells(Fault::Exchange(&written)));
    let unwritten = reply(91, &["RetryableWriteError", "NoWritesPerformed"]);
    assert!(!tells(Fault::Exchange(&unwritten)));
    assert!(!tells(Fault::PoolCleared) && !tells(Fault::Selection(true)));
    assert!(!tells(Fault::CheckOut(true)) && !tells(Fault::Refused(true)));
}

/// Client Side Operations Timeout, "Error Transformations".
#[test]
fn faults_tell_of_lack_of_time() {
    let late = network(Stage::Operate, Cause::Timeout);
    let expired = reply(50, &[]);
    for fault in [
        Fault::Selection(true),
        Fault::CheckOut(true),
        Fault::Refused(true),
        Fault::Exchange(&late),
        Fault::Exchange(&expired),
        Fault::Establishing(&late),
    ] {
        assert!(fault.is_timeout(), "{fault:?}");
    }
    let (lost, other) = (lost(), reply(91, &[]));
    for fault in [Fault::Selection(false), Fault::PoolCleared, Fault::Exchange(&lost)] {
        assert!(!fault.is_timeout(), "{fault:?}");
    }
    assert!(!Fault::Exchange(&other).is_timeout());
}

/// Client Backpressure: "if `baseBackoffMS` is present on the error and has a positive value".
#[test]
fn a_server_may_say_from_which_time_pauses_grow() {
    let millis = |count| Some(Duration::from_millis(count));
    for (value, expected) in [
        (RawBson::Int32(50), millis(50)),
        (RawBson::Int64(50), millis(50)),
        (RawBson::Double(50.9), millis(50)),
        (RawBson::Int32(0), None),
        (RawBson::Int32(-1), None),
        (RawBson::Int64(-1), None),
        (RawBson::Double(-1.0), None),
        (RawBson::Double(f64::NAN), None),
        (RawBson::String("50".to_owned()), None),
    ] {
        let mut reply = rawdoc! { "ok": 0 };
        reply.append(bson::cstr!("baseBackoffMS"), value);
        assert_eq!(base_backoff(&reply), expected, "{reply:?}");
    }
    assert_eq!(base_backoff(&rawdoc! { "ok": 0 }), None);
}

fn in_transaction(role: TransactionRole) -> Situation {
    let (kind, retryable) = (OperationKind::Write, role != TransactionRole::Within);
    Situation {
        max_wire_version: 17,
        transaction: Some(role),
        ..Situation::new(kind, retryable, policy(""))
    }
}

/// Transactions, "TransientTransactionError": of the network and of selection, of any command but
/// the commit; it is never sent again, and the session is unpinned.
#[test]
fn errors_of_the_network_in_a_transaction_are_transient() {
    let error = lost();
    let faults = [Fault::Exchange(&error), Fault::Selection(true), Fault::PoolCleared];
    for fault in faults {
        for role in [TransactionRole::Within, TransactionRole::Abort] {
            let judgement = judge(&in_transaction(role), &fault, None, HALF);
            assert_eq!(judgement.adds_transaction_label, Some(TRANSIENT_TRANSACTION), "{fault:?}");
            assert!(judgement.unpins);
        }
        let within = judge(&in_transaction(TransactionRole::Within), &fault, None, HALF);
        assert_eq!((within.retry, within.adds_label), (Retry::No, None), "{fault:?}");
        let commit = judge(&in_transaction(TransactionRole::Commit), &fault, None, HALF);
        assert_eq!(commit.adds_transaction_label, Some(UNKNOWN_COMMIT_RESULT), "{fault:?}");
        assert!(commit.unpins);
    }
    let within = in_transaction(TransactionRole::Within);
    let duplicate = judged(&within, &reply(11000, &[]));
    assert_eq!((duplicate.adds_transaction_label, duplicate.unpins), (None, false));
    let conflict = judged(&within, &reply(112, &[TRANSIENT_TRANSACTION]));
    assert_eq!((conflict.adds_transaction_label, conflict.unpins), (None, true));
    let overload = judged(&within, &overloaded());
    assert!(matches!(overload.retry, Retry::After(_)), "nothing was done");
    assert!(!overload.unpins);
}

/// Transactions, "UnknownTransactionCommitResult", and "When to unpin".
#[test]
fn the_result_of_a_commit_is_unknown_unless_a_server_says_it() {
    let commit = in_transaction(TransactionRole::Commit);
    for (code, labels, is_unknown) in [
        (50, &[][..], true),
        (91, &["RetryableWriteError"], true),
        (251, &[TRANSIENT_TRANSACTION], false),
        (251, &[], true),
        (8000, &[], false),
    ] {
        let judgement = judged(&commit, &reply(code, labels));
        assert_eq!(judgement.adds_transaction_label.is_some(), is_unknown, "{code}");
        assert_eq!(judgement.unpins, code != 8000, "{code}");
    }
    for (code, is_unknown) in [(64, true), (91, true), (50, true), (100, false), (79, false)] {
        let error = CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap();
        let judgement = judge(&commit, &Fault::WriteConcern(&error), None, HALF);
        assert_eq!(judgement.adds_transaction_label.is_some(), is_unknown, "{code}");
    }
}

/// Transactions, "When to unpin": an abort does, whatever comes of it.
#[test]
fn an_abort_unpins_before_it_comes_again() {
    let abort = in_transaction(TransactionRole::Abort);
    for error in [reply(91, &["RetryableWriteError"]), reply(8000, &[]), overloaded()] {
        assert!(judged(&abort, &error).unpins);
    }
}

/// An abort that has come to no server within its time is made later, and only its mongos knows
/// the transaction.
#[test]
fn an_abort_that_was_not_sent_in_time_keeps_its_pin() {
    let abort = in_transaction(TransactionRole::Abort);
    for fault in [Fault::CheckOut(true), Fault::Refused(true)] {
        let judgement = judge(&abort, &fault, None, HALF);
        assert_eq!((judgement.unpins, judgement.retry), (false, Retry::No), "{fault:?}");
    }
}
