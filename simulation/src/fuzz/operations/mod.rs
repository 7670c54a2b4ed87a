//! Random inputs of one operation, against the rules for sending it again, written naively:
//! Retryable Reads, Retryable Writes, Transactions, Client Backpressure and Client Side Operations
//! Timeout.

mod model;
mod outcome;
#[cfg(test)]
mod tests;

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sdam_core::bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::config::Options;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{
    CommandError, ConnectionFacts, InvalidCommand, MaxTime, NO_WRITES_PERFORMED, OperationError,
    OperationOptions, RETRYABLE, RETRYABLE_WRITE, ReplyFacts, RetryPolicy, SYSTEM_OVERLOADED,
    SelectedFacts, SessionUse, TRANSIENT_TRANSACTION, Timeout, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::session::TransactionRole;
use sdam_core::time::Instant;

use model::{Asked, Model, Rules};
use outcome::What;

/// The number of steps that are taken.
const MAX_STEPS: usize = 100;

/// The first bytes say what the operation is and by which rules it is sent; the others are steps:
/// how much later something happens, and what.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn operations(bytes: &[u8]) {
    assert_eq!(play(bytes), play(bytes), "law 4: the same inputs bring the same actions");
}

/// Plays an input to its end; returns what distinguishes one run from another.
fn play(bytes: &[u8]) -> Vec<String> {
    let mut input = Unstructured::new(bytes);
    let Ok(rules) = rules(&mut input) else { return Vec::new() };
    let mut model = Model::new(rules);
    model.begin();
    for _ in 0..MAX_STEPS {
        // An input that is too short has said all that it has to say.
        if input.is_empty() || step(&mut model, &mut input).is_err() {
            break;
        }
    }
    model.end()
}

fn rules(input: &mut Unstructured<'_>) -> Result<Rules> {
    let mut policy = RetryPolicy::of(&Options::parse("mongodb://a").expect("a connection string"));
    (policy.reads, policy.writes) = (!input.ratio(1, 4)?, !input.ratio(1, 4)?);
    policy.max_adaptive_retries = *input.choose(&[2, 2, 0, 1, 5])?;
    policy.overload_retargeting = input.arbitrary()?;
    let session = *input.choose(&[
        SessionUse::Implicit,
        SessionUse::Implicit,
        SessionUse::None,
        SessionUse::Explicit { snapshot: false, transaction: None },
        SessionUse::Explicit { snapshot: true, transaction: None },
        of_transaction(TransactionRole::Within),
        of_transaction(TransactionRole::Commit),
        of_transaction(TransactionRole::Abort),
        SessionUse::Ended,
    ])?;
    let timeout = match input.int_in_range(0..=3_u8)? {
        0 | 1 => Timeout::Unset,
        2 => Timeout::Infinite,
        _ => Timeout::At(Instant::from_millis(*input.choose(&[1_000, 20, 60_000, 0])?)),
    };
    let selection = *input.choose(&[Some(30_000), Some(10), None])?;
    let ends = matches!(
        session,
        SessionUse::Explicit {
            transaction: Some(TransactionRole::Commit | TransactionRole::Abort),
            ..
        }
    );
    Ok(Rules {
        options: match ends {
            true => OperationOptions::write().with_retryable(true),
            false => options(input)?,
        },
        policy,
        session,
        timeout,
        selection: selection.map(Duration::from_millis),
    })
}

const fn of_transaction(role: TransactionRole) -> SessionUse {
    SessionUse::Explicit { snapshot: false, transaction: Some(role) }
}

fn options(input: &mut Unstructured<'_>) -> Result<OperationOptions> {
    let options = match input.int_in_range(0..=4_u8)? {
        0 | 1 => OperationOptions::read().with_retryable(!input.ratio(1, 4)?),
        2 | 3 => OperationOptions::write().with_retryable(!input.ratio(1, 4)?),
        _ => OperationOptions::command(),
    };
    let max_time = *input.choose(&[
        MaxTime::Remaining,
        MaxTime::Never,
        MaxTime::AtMost(Duration::from_millis(100)),
    ])?;
    Ok(options.with_acknowledged(!input.ratio(1, 8)?).with_max_time(max_time))
}

/// Time passes, and something happens.
fn step(model: &mut Model, input: &mut Unstructured<'_>) -> Result<()> {
    let millis = *input.choose(&[0, 0, 1, 9, 30, 500, 11_000])?;
    model.pass(Duration::from_millis(millis), !input.ratio(1, 4)?);
    if input.ratio(1, 8)? {
        model.stray(selected(input)?, connection(input)?);
    }
    match model.asked() {
        Asked::Nothing | Asked::Told => {}
        Asked::Select => match input.int_in_range(0..=5_u8)? {
            0..=4 => model.selected(selected(input)?, letter(input)?),
            _ => model.ended(What::NoServer(input.arbitrary()?), None, random(input)?),
        },
        Asked::CheckOut => check_out(model, input)?,
        Asked::Send => {
            let (what, base) = exchanged(input)?;
            model.ended(what, base, random(input)?);
        }
        Asked::Refuse(reason) => model.ended(What::Refused(reason), None, random(input)?),
    }
    Ok(())
}

fn check_out(model: &mut Model, input: &mut Unstructured<'_>) -> Result<()> {
    let what = match input.int_in_range(0..=9_u8)? {
        0..=4 => {
            if model.is_unwritten() && input.ratio(1, 4)? {
                model.write(options(input)?);
            }
            model.checked_out(connection(input)?);
            return Ok(());
        }
        5 => What::Cleared,
        6 => What::Dead(error(input)?),
        7 => What::Unconnected(error(input)?),
        8 => What::NoConnection(input.arbitrary()?),
        _ => What::Exchanged(OperationError::Invalid(InvalidCommand::Busy)),
    };
    model.ended(what, None, random(input)?);
    Ok(())
}

fn exchanged(input: &mut Unstructured<'_>) -> Result<(What, Option<Duration>)> {
    let base = *input.choose(&[None, Some(50), Some(60_000)])?;
    let what = match input.int_in_range(0..=7_u8)? {
        0 => What::Reply,
        1 => What::WriteConcern(command_error(input)?),
        _ => What::Exchanged(error(input)?),
    };
    Ok((what, base.map(Duration::from_millis)))
}

fn error(input: &mut Unstructured<'_>) -> Result<OperationError> {
    let stages =
        [Stage::Operate, Stage::Hello, Stage::Connect, Stage::Credentials, Stage::Authenticate];
    let stage = *input.choose(&stages)?;
    Ok(match input.int_in_range(0..=3_u8)? {
        0 | 1 => {
            let causes = [
                Cause::Closed,
                Cause::Timeout,
                Cause::NotResolved,
                Cause::Malformed,
                Cause::Configuration,
            ];
            let cause = input.choose(&causes)?.clone();
            OperationError::Stream(Failure::new(stage, cause, "it is made up"))
        }
        _ => OperationError::Reply { stage, error: command_error(input)? },
    })
}

fn command_error(input: &mut Unstructured<'_>) -> Result<CommandError> {
    let code = *input.choose(&[1, 50, 79, 91, 100, 134, 189, 262, 462, 10107])?;
    let bits: u8 = input.arbitrary()?;
    let all = [
        (0, SYSTEM_OVERLOADED),
        (1, RETRYABLE),
        (2, RETRYABLE_WRITE),
        (3, NO_WRITES_PERFORMED),
        (5, TRANSIENT_TRANSACTION),
        (6, UNKNOWN_COMMIT_RESULT),
    ];
    let mut labels = RawArrayBuf::new();
    for (bit, label) in all {
        // The first two come together more often than not.
        let position = if bit == 1 && bits & 16 == 0 { 0 } else { bit };
        if bits >> position & 1 == 1 {
            labels.push(label);
        }
    }
    let reply = |message: &str| {
        let labels = labels.clone();
        rawdoc! { "ok": 0, "errmsg": message, "code": code, "errorLabels": labels }
    };
    let intact = CommandError::in_reply(&reply("")).expect("it is an error");
    let facts = of_cut_message(reply("cut: ?"));
    assert_eq!((facts.code, &facts.labels), (intact.code, &intact.labels), "texts decide nothing");
    Ok(facts)
}

/// Reads an error whose message was cut within a character, as a client reads a reply.
fn of_cut_message(reply: RawDocumentBuf) -> CommandError {
    let mut bytes = reply.into_bytes();
    let message = bytes.windows(6).position(|at| at == b"cut: ?").expect("it has the message");
    bytes[message + 5] = 0xc3;
    let reply = RawDocumentBuf::from_bytes(bytes).expect("its length is what it was");
    let facts = ReplyFacts::of(&reply).expect("a message that cannot be read hides nothing");
    assert!(!facts.ok);
    facts.error.expect("it is an error")
}

fn selected(input: &mut Unstructured<'_>) -> Result<SelectedFacts> {
    Ok(SelectedFacts {
        min_round_trip_time: Duration::from_millis(*input.choose(&[10, 0, 500])?),
        sharded: input.ratio(1, 3)?,
        retryable_writes: !input.ratio(1, 6)?,
        max_wire_version: *input.choose(&[17, 8, 13, 9])?,
    })
}

fn connection(input: &mut Unstructured<'_>) -> Result<ConnectionFacts> {
    let sessions = !input.ratio(1, 8)?;
    Ok(ConnectionFacts {
        sessions,
        retryable_writes: sessions && !input.ratio(1, 8)?,
        max_wire_version: *input.choose(&[17, 8, 13, 12])?,
    })
}

fn letter(input: &mut Unstructured<'_>) -> Result<&'static str> {
    Ok(input.choose(&["a", "b", "c"])?)
}

/// A jitter of so many quarters: a number whose consequences are known to the nanosecond.
fn random(input: &mut Unstructured<'_>) -> Result<u64> {
    input.int_in_range(0..=3)
}
