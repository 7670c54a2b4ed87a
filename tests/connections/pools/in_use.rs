//! Reads over connections in use: what was selected travels with them (Server Selection, "Passing
//! read preference to mongos and load balancers" and "Topology type: Single").

use libtest_mimic::Trial;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_conformance::mongod::ReplicaSet;
use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::ServerType;
use sdam_core::operation::OperationError;
use sdam_core::selection::Criteria;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg};
use sdam_host::{Outcome as Judgement, Reply};
use sdam_tokio::{CheckedOut, Topology};

use super::{Outcome, runtime};
use crate::support::{GENEROUS, is_whole, soon, view};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for version in ServerVersion::ALL {
        trials.push(super::trial(format!("embedded::{version:?}::a_loan_reads"), move || {
            runtime()?.block_on(embedded(version))
        }));
        let name = format!("embedded::{version:?}::a_raw_read_that_is_refused_harms_no_secondary");
        trials.push(super::trial(name, move || runtime()?.block_on(refused(version))));
    }
    trials
}

/// A test on a set of three that has settled.
type OnASet = fn(&ReplicaSet) -> Outcome;

pub(crate) const ON_A_SET: [(&str, OnASet); 1] = [("loans_read_from_secondaries", real)];

fn secondary() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Secondary))
}

fn find() -> RawDocumentBuf {
    rawdoc! { "find": "loans", "batchSize": 2 }
}

fn get_more(reply: &Reply) -> Result<RawDocumentBuf, Box<dyn std::error::Error>> {
    let cursor = reply.get_document("cursor")?.get_i64("id")?;
    assert_ne!(cursor, 0, "there is more to come: {reply:?}");
    Ok(rawdoc! { "getMore": cursor, "collection": "loans", "batchSize": 2 })
}

/// Reads two batches, and a third as replies that come unasked.
async fn read(mut checked_out: CheckedOut) -> Outcome {
    let address = checked_out.server().clone();
    let reply = soon(checked_out.command("test", &find())).await?;
    assert_eq!((reply.server(), reply.connection_id()), (&address, checked_out.connection_id()));
    let more = get_more(&reply)?;
    let reply = soon(checked_out.command_with_sequences("test", &more, &[])).await?;
    assert_eq!(reply.get_document("cursor")?.get_array("nextBatch")?.into_iter().count(), 2);
    let more = get_more(&reply)?;
    let mut replies = soon(checked_out.command_exhaust("test", &more)).await?;
    while let Some(reply) = soon(replies.next()).await {
        assert_eq!(reply?.server(), &address);
    }
    Ok(())
}

/// Reads on a secondary in every way there is to get a check-out of one.
async fn read_everywhere(client: &Topology) -> Outcome {
    let selected = soon(client.select(secondary())).await?;
    assert_eq!(selected.description().server_type, ServerType::RsSecondary);
    read(soon(selected.check_out()).await?).await?;
    read(soon(selected.connect()).await?).await?;
    for member in client.members() {
        read(soon(member.check_out()).await?).await?;
        read(soon(member.connect()).await?).await?;
    }
    // The cursor of a reply goes on where it was opened.
    let reply = soon(client.run_command_on(secondary(), "test", &find())).await?;
    let member = client.member(reply.server()).ok_or("it is a member")?;
    let mut checked_out = soon(member.check_out()).await?;
    soon(checked_out.command("test", &get_more(&reply)?)).await?;
    let (address, more) = (selected.address(), "directConnection=true");
    let direct = Topology::new(Options::parse(&format!("mongodb://{address}/?{more}"))?)?;
    for criteria in [secondary(), Criteria::write()] {
        read(soon(soon(direct.select(criteria)).await?.check_out()).await?).await?;
    }
    assert!(is_whole(&client.view()), "{:?}", client.view());
    assert_eq!(direct.view().servers()[0].server_type, ServerType::RsSecondary);
    Ok(())
}

async fn discovered(
    version: ServerVersion,
) -> Result<(EmbeddedCluster, Topology), Box<dyn std::error::Error>> {
    let options = EmbeddedOptions::default().with_version(version);
    let cluster = EmbeddedCluster::start(options).await?;
    // Servers of 4.2 are asked every ten seconds only.
    cluster.elected().await?;
    let client = Topology::new(Options::parse(&cluster.uri())?)?;
    view(&client, is_whole).await;
    Ok((cluster, client))
}

async fn embedded(version: ServerVersion) -> Outcome {
    let (_cluster, client) = discovered(version).await?;
    read_everywhere(&client).await
}

fn real(set: &ReplicaSet) -> Outcome {
    set.wait_for_primary(GENEROUS)?;
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let uri = format!("mongodb://{}/?replicaSet={}", seeds.join(","), set.set_name());
    runtime()?.block_on(async {
        let client = Topology::new(Options::parse(&uri)?)?;
        view(&client, is_whole).await;
        let insert = rawdoc! {
            "insert": "loans",
            "documents": [{}, {}, {}, {}, {}, {}],
            "writeConcern": { "w": 3 },
        };
        soon(client.run_command("test", &insert)).await?;
        read_everywhere(&client).await
    })
}

fn raw(command: &RawDocumentBuf) -> Result<Message, Box<dyn std::error::Error>> {
    let (mut bytes, mut frames) = (Vec::new(), Frames::new());
    write_op_msg(&mut bytes, 1, 0, Flags::NONE, command);
    frames.extend(&bytes);
    frames.next()?.ok_or_else(|| "it is whole".into())
}

/// A proxy passes on what its own clients forget to say; that the secondary is no primary was
/// known, and is no reason to do without it.
async fn refused(version: ServerVersion) -> Outcome {
    let (_cluster, client) = discovered(version).await?;
    let mut checked_out = soon(soon(client.select(secondary())).await?.check_out()).await?;
    let address = checked_out.server().clone();
    soon(checked_out.send_message(&raw(&rawdoc! { "find": "loans", "$db": "test" })?)).await?;
    let reply = soon(checked_out.receive_message()).await?;
    let judgement = Judgement::of_reply(reply.op_msg()?.body);
    let Judgement::Failure(OperationError::Reply { error, .. }) = &judgement else {
        return Err(format!("{judgement:?}").into());
    };
    assert_eq!(error.code, Some(13435));
    checked_out.report(judgement);
    let view = client.view();
    let known = view.server(&address).map(|server| server.server_type);
    assert_eq!(known, Some(ServerType::RsSecondary));
    Ok(())
}
