//! The moving average of the round trip time: one sample, with or without one before it.

use std::time::Duration;

use bson::rawdoc;
use sdam_core::config::ServerAddress;
use serde::Deserialize;

use super::super::difference::Differences;
use super::super::format::{CaseError, parse};
use super::super::report::CaseReport;
use super::milliseconds;
use sdam_core::harness::{CheckOutcome, Harness, HarnessError};

/// The tolerance of the average, in milliseconds: the machine counts in nanoseconds.
const TOLERANCE: f64 = 1e-4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    avg_rtt_ms: Average,
    new_rtt_ms: f64,
    new_avg_rtt: f64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Average {
    Known(f64),
    Unknown(NoSample),
}

/// The text of the format where there was no sample yet.
#[derive(Debug, Deserialize)]
enum NoSample {
    #[serde(rename = "NULL")]
    Null,
}

pub(in crate::spec) fn run_round_trip_time(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let case: Case = parse(text)?;
    let server: ServerAddress = "a".parse().expect("an address");
    let mut fixture = Harness::new("mongodb://a/?directConnection=true", None)?;
    // The first sample is the average, so it can be set to whatever a case begins with.
    if let Average::Known(average) = case.avg_rtt_ms {
        check(&mut fixture, &server, milliseconds("avg_rtt_ms", average)?)?;
    }
    check(&mut fixture, &server, milliseconds("new_rtt_ms", case.new_rtt_ms)?)?;
    let found = fixture.view().server(&server).and_then(|server| server.round_trip_time);
    let found = found.map_or(f64::NAN, |average| average.as_secs_f64() * 1e3);
    let mut differences = Differences::default();
    let is_close = (found - case.new_avg_rtt).abs() <= TOLERANCE;
    if !is_close {
        differences.differs("average", format!("{} ms", case.new_avg_rtt), format!("{found} ms"));
    }
    Ok(vec![CaseReport::new("", differences)])
}

/// Lets a check take that long from hello to its reply.
fn check(
    fixture: &mut Harness,
    server: &ServerAddress,
    duration: Duration,
) -> Result<(), HarnessError> {
    fixture.accept(server)?;
    fixture.pass(fixture.now() + duration);
    let reply = rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 21 };
    fixture.answer(server, CheckOutcome::Reply(&reply))
}
