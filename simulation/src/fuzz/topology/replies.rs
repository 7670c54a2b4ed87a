//! The replies of servers and name servers, true or not.

use std::net::SocketAddr;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bson::oid::ObjectId;
use bson::{DateTime, RawArrayBuf, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::ServerAddress;
use sdam_core::description::TopologyVersion;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsCause, DnsError, Question, ServerFailure, Transport, Unanswered};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{CommandError, OperationError, SYSTEM_OVERLOADED};

/// The age of servers. Since 6.0 electionId is compared before setVersion, and what servers of
/// both kinds say together is in no order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Age {
    Old,
    New,
}

/// One of the hosts that there are.
pub(super) fn host(input: &mut Unstructured<'_>) -> Result<&'static str> {
    Ok(*input.choose(&["a", "b", "c", "d"])?)
}

/// A record of a host; `d` is outside the domain.
pub(super) fn record(host: &str) -> SrvRecord {
    let domain = if host == "d" { "example.org" } else { "example.com" };
    SrvRecord::new(format!("{host}.{domain}"), 27017, Duration::from_secs(60))
}

/// Returns the error of a lookup.
pub(super) fn dns_error(input: &mut Unstructured<'_>) -> Result<DnsError> {
    let server = SocketAddr::from(([192, 0, 2, 53], 53));
    let cause = match input.int_in_range(0..=4_u8)? {
        0 => DnsCause::NoSuchName { server },
        1 => DnsCause::NoRecords { server },
        2 => DnsCause::NoNameServer,
        3 => DnsCause::Resolver("it does not want to".into()),
        _ => {
            let failure = ServerFailure::Timeout(Duration::from_secs(5));
            let unanswered = Unanswered::new(server, Transport::Udp, failure);
            DnsCause::Unanswered { servers: vec![unanswered] }
        }
    };
    Ok(DnsError::new(Question::srv("mongodb", "c.example.com"), cause))
}

/// A reply to hello, of the server at this address.
pub(super) fn hello(
    input: &mut Unstructured<'_>,
    age: Age,
    own: &ServerAddress,
) -> Result<RawDocumentBuf> {
    let mut reply = rawdoc! { "ok": 1, "helloOk": true };
    let kind = input.int_in_range(0..=15_u8)?;
    match kind {
        0 => return Ok(rawdoc! { "ok": 0, "code": 91, "errmsg": "ShutdownInProgress" }),
        1 => reply.append(cstr!("isWritablePrimary"), true),
        2 | 3 => reply.append(cstr!("msg"), "isdbgrid"),
        4 => reply.append(cstr!("isreplicaset"), true),
        5..=9 => reply.append(cstr!("isWritablePrimary"), true),
        10..=13 => reply.append(cstr!("secondary"), true),
        14 => reply.append(cstr!("hidden"), true),
        _ => reply.append(cstr!("arbiterOnly"), true),
    }
    let versions = match age {
        Age::New => [17, 21, 25, 17],
        Age::Old => [8, 9, 13, 16],
    };
    reply.append(cstr!("maxWireVersion"), *input.choose(&versions)?);
    // Rarely, a server that no client understands.
    let least = if input.ratio(1, 32)? { 99 } else { 0 };
    reply.append(cstr!("minWireVersion"), least);
    if kind >= 5 {
        // A primary that does not list itself is gone as soon as it is believed, which no check of
        // simulations expects.
        member(&mut reply, input, age, (5..=9).contains(&kind).then_some(own))?;
    }
    if input.ratio(3, 4)? {
        let process = ObjectId::from_bytes([input.int_in_range(0..=1)?; 12]);
        let counter = i64::from(input.int_in_range(0..=7_u8)?);
        let version = rawdoc! { "processId": process, "counter": counter };
        reply.append(cstr!("topologyVersion"), version);
    }
    let minutes = input.int_in_range(0..=3_i32)?;
    if minutes > 0 {
        reply.append(cstr!("logicalSessionTimeoutMinutes"), minutes * 10);
    }
    Ok(reply)
}

/// Returns a reply with the fields that only members of a replica set have.
fn member(
    reply: &mut RawDocumentBuf,
    input: &mut Unstructured<'_>,
    age: Age,
    listed: Option<&ServerAddress>,
) -> Result<()> {
    reply.append(cstr!("setName"), if input.ratio(1, 16)? { "other" } else { "rs" });
    for field in [cstr!("hosts"), cstr!("passives")] {
        let (bits, mut hosts) = (input.int_in_range(0..=15_u8)?, RawArrayBuf::new());
        let others = ["a", "b", "c", "d"].into_iter().enumerate();
        others.filter(|(bit, _)| bits >> bit & 1 == 1).for_each(|(_, host)| hosts.push(host));
        listed.into_iter().for_each(|own| hosts.push(own.to_string()));
        reply.append(field, hosts);
    }
    if input.ratio(1, 4)? {
        reply.append(cstr!("me"), host(input)?);
    }
    if input.ratio(1, 2)? {
        reply.append(cstr!("primary"), host(input)?);
    }
    // Old servers have neither or both; what they say otherwise is in no order.
    let (election, version) = (input.int_in_range(0..=4_u8)?, input.int_in_range(0..=3_i32)?);
    let both = age == Age::Old;
    if both || election > 0 {
        reply.append(cstr!("electionId"), ObjectId::from_bytes([election; 12]));
    }
    if both || version > 0 {
        reply.append(cstr!("setVersion"), version);
    }
    if input.ratio(1, 4)? {
        let date = DateTime::from_millis(i64::from(input.arbitrary::<u16>()?));
        reply.append(cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
    }
    Ok(())
}

/// The reason why a stream has ended.
pub(super) fn failure(input: &mut Unstructured<'_>) -> Result<Failure> {
    let stages = [Stage::Connect, Stage::Tls, Stage::Hello, Stage::Resolve, Stage::Certificates];
    let stage = *input.choose(&stages)?;
    let causes = [Cause::Closed, Cause::Refused, Cause::Timeout, Cause::NotResolved, Cause::Io];
    let cause = input.choose(&causes)?.clone();
    Ok(Failure::new(stage, cause, "it was closed"))
}

/// Returns the error of an operation.
pub(super) fn operation_error(input: &mut Unstructured<'_>) -> Result<OperationError> {
    let stages = [
        Stage::Certificates,
        Stage::Connect,
        Stage::Hello,
        Stage::Credentials,
        Stage::Authenticate,
        Stage::Operate,
    ];
    let stage = *input.choose(&stages)?;
    let causes = [Cause::Closed, Cause::Timeout, Cause::Refused, Cause::Io, Cause::Authentication];
    if input.arbitrary()? {
        let cause = input.choose(&causes)?.clone();
        return Ok(OperationError::Stream(Failure::new(stage, cause, "it failed")));
    }
    let mut error = CommandError::default();
    error.code = Some(*input.choose(&[10107, 11600, 91, 11602, 13435, 13436, 189, 18, 462])?);
    if input.ratio(1, 4)? {
        let process_id = ObjectId::from_bytes([input.int_in_range(0..=1)?; 12]);
        let counter = i64::from(input.int_in_range(0..=7_u8)?);
        error.topology_version = Some(TopologyVersion::new(process_id, counter));
    }
    if input.ratio(1, 4)? {
        error.labels.push(SYSTEM_OVERLOADED.to_owned());
    }
    Ok(OperationError::Reply { stage, error })
}
