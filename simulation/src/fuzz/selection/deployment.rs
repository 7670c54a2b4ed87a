//! Servers that reply to hello as an input says, seen by a client.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bson::oid::ObjectId;
use bson::{DateTime, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::ServerAddress;

use sdam_core::harness::{CheckOutcome, Harness};

/// The number of servers that there are, and how many replies after the first of each.
const MOST_SERVERS: usize = 6;
const MOST_CHANGES: usize = 10;

/// The heartbeat frequency, which the model has to know.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);

/// Lets servers reply.
pub(super) fn show(input: &mut Unstructured<'_>) -> Result<Harness> {
    let servers: Vec<ServerAddress> = super::LETTERS
        .chars()
        .take(input.int_in_range(1..=MOST_SERVERS)?)
        .map(|letter| letter.to_string().parse().expect("an address"))
        .collect();
    let seeds = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let uri = match input.int_in_range(0..=9_u8)? {
        0 => "mongodb://a/?directConnection=true".to_owned(),
        1 => "mongodb://a/?loadBalanced=true".to_owned(),
        2 | 3 => format!("mongodb://{seeds}"),
        _ => format!("mongodb://{seeds}/?replicaSet=rs"),
    };
    let mut stage = Harness::new(&uri, Some(HEARTBEAT)).expect("options that are allowed");
    for server in &servers {
        reply(&mut stage, &servers, server, input)?;
    }
    for _ in 0..input.int_in_range(0..=MOST_CHANGES)? {
        let server = input.choose(&servers)?;
        reply(&mut stage, &servers, server, input)?;
    }
    Ok(stage)
}

/// One server replies, unless it is not checked.
fn reply(
    stage: &mut Harness,
    servers: &[ServerAddress],
    server: &ServerAddress,
    input: &mut Unstructured<'_>,
) -> Result<()> {
    // Around the width of the latency window, 15 ms.
    let times = [0, 1, 2, 5, 14, 15, 16, 17, 20, 30, 31, 40];
    let time = Duration::from_millis(*input.choose(&times)?);
    let document = document(servers, input)?;
    let answers = input.ratio(9, 10)?;
    if stage.view().server(server).is_none() || stage.accept(server).is_err() {
        return Ok(());
    }
    stage.pass(stage.now() + time);
    let answer = if answers { CheckOutcome::Reply(&document) } else { CheckOutcome::NetworkError };
    // While time passed, nothing else can have ended its check.
    stage.answer(server, answer).expect("it is being checked");
    Ok(())
}

fn document(servers: &[ServerAddress], input: &mut Unstructured<'_>) -> Result<RawDocumentBuf> {
    let max_wire_version = if input.ratio(1, 30)? { 6 } else { 21 };
    let mut reply = rawdoc! { "ok": 1, "helloOk": true, "maxWireVersion": max_wire_version };
    let kind = input.int_in_range(0..=9_u8)?;
    match kind {
        0 => reply.append(cstr!("isWritablePrimary"), true),
        1 => reply.append(cstr!("msg"), "isdbgrid"),
        2 => reply.append(cstr!("isreplicaset"), true),
        3 | 4 => {
            let election = ObjectId::from_bytes([input.int_in_range(0..=3)?; 12]);
            reply.append(cstr!("isWritablePrimary"), true);
            reply.append(cstr!("electionId"), election);
        }
        5..=8 => reply.append(cstr!("secondary"), true),
        _ => reply.append(cstr!("arbiterOnly"), true),
    }
    if kind >= 3 {
        let mut hosts = bson::RawArrayBuf::new();
        servers.iter().for_each(|server| hosts.push(server.to_string()));
        reply.append(cstr!("setName"), "rs");
        reply.append(cstr!("setVersion"), 1);
        reply.append(cstr!("hosts"), hosts);
    }
    let mut tags = bson::Document::new();
    for _ in 0..input.int_in_range(0..=2)? {
        tags.insert(tag_name(input)?, tag_value(input)?);
    }
    reply.append(cstr!("tags"), RawDocumentBuf::try_from(&tags).unwrap_or_default());
    if input.ratio(3, 4)? {
        let date = DateTime::from_millis(i64::from(input.int_in_range(0..=400_u16)?) * 500);
        reply.append(cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
    }
    Ok(reply)
}

pub(super) fn tag_name(input: &mut Unstructured<'_>) -> Result<String> {
    Ok((*input.choose(&["dc", "rack"])?).to_owned())
}

pub(super) fn tag_value(input: &mut Unstructured<'_>) -> Result<String> {
    Ok((*input.choose(&["1", "2"])?).to_owned())
}
