//! Reads from secondaries: what was selected travels with the connection, and a reply says where it
//! came from, so that its cursor can be continued there.

use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::description::ServerType;
use sdam_core::selection::Criteria;
use sdam_host::{Reply, Topology};

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, is_whole};
use sdam_cluster::ServerVersion;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("reads::a_connection_to_a_secondary_reads_there", over_a_loan),
        Test::new("reads::a_cursor_goes_on_where_its_first_reply_came_from", over_the_client),
    ]
}

/// Servers before 4.4 send no topologyVersion with errors, so that each counts.
const VERSIONS: [ServerVersion; 2] = [ServerVersion::V4_2, ServerVersion::V8_0];

fn secondary() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Secondary))
}

fn find() -> RawDocumentBuf {
    rawdoc! { "find": "things", "batchSize": 2 }
}

/// Returns what asks for the rest of a cursor.
fn get_more(reply: &Reply) -> Outcome<RawDocumentBuf> {
    let cursor = reply.get_document("cursor")?.get_i64("id")?;
    ensure!(cursor != 0, "there is no more to come: {reply:?}");
    Ok(rawdoc! { "getMore": cursor, "collection": "things" })
}

/// Returns whether all members are what they were.
fn all_are_well<A: Adapter>(client: &Topology<A::Runtime>) -> Outcome {
    let view = client.view();
    ensure!(is_whole(&view), "{view:?}");
    Ok(())
}

fn over_a_loan<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    for version in VERSIONS {
        let deployment = Deployment::of(version)?;
        let client = fixture.client(&deployment.0.uri())?;
        fixture.view(&client, is_whole)?;
        let selected = fixture.block_on(client.select(secondary()))?;
        let address = selected.address().clone();
        let alone = fixture.client(&direct(&address))?;
        let only = fixture.block_on(alone.select(Criteria::write()))?;
        let only_type = only.description().server_type;
        ensure!(only_type == ServerType::RsSecondary, "{only_type}");
        let in_use = [
            fixture.block_on(selected.check_out())?,
            fixture.block_on(selected.connect())?,
            fixture.block_on(only.check_out())?,
        ];
        for mut checked_out in in_use {
            let reply = fixture.block_on(checked_out.command("test", &find()))?;
            let from = (reply.server(), reply.connection_id());
            ensure!(from == (&address, checked_out.connection_id()), "{from:?}");
            fixture.block_on(checked_out.command("test", &get_more(&reply)?))?;
        }
        all_are_well::<A>(&client)?;
        let left = alone.view().servers()[0].server_type;
        ensure!(left == ServerType::RsSecondary, "{left:?}");
    }
    Ok(())
}

fn over_the_client<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    for version in VERSIONS {
        let deployment = Deployment::of(version)?;
        let client = fixture.client(&deployment.0.uri())?;
        fixture.view(&client, is_whole)?;
        let reply = fixture.block_on(client.run_command_on(secondary(), "test", &find()))?;
        let member = client.member(reply.server()).ok_or("the server has left")?;
        let mut checked_out = fixture.block_on(member.check_out())?;
        let rest = fixture.block_on(checked_out.command("test", &get_more(&reply)?))?;
        ensure!(rest.server() == reply.server(), "{rest:?}");
        all_are_well::<A>(&client)?;
    }
    Ok(())
}
