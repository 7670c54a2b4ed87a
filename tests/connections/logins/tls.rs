//! A whole replica set behind TLS and passwords.

use std::time::Duration;

use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Binary, Options as SetOptions, ReplicaSet, Tls, User};
use sdam_core::bson::{RawDocumentBuf, doc, rawdoc};
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::selection::Criteria;
use sdam_tokio::Topology;

use super::fixture::{play, run};
use super::{Outcome, Scenario, V4_2};
use crate::support::{is_whole, view};

pub(crate) const SCENARIOS: [Scenario; 1] =
    [("a_set_is_discovered_and_followed_over_tls", V4_2, followed)];

/// Discovery from one seed, a step-down, and commands on either side of it, all of it over TLS and
/// logged in.
fn followed(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let tls = Tls::new(authority.issue("member", &["127.0.0.1"])?, authority.file());
    let options = SetOptions { tls: Some(tls), ..SetOptions::calm() };
    let mut set = ReplicaSet::start(binary, 3, &options)?;
    set.enable_auth(&[User::new("root", "root")])?;
    let uri = format!(
        "mongodb://root:root@{}/?replicaSet=rs&tls=true&tlsCAFile={}&heartbeatFrequencyMS=500",
        set.seed_list()[1],
        authority.file()
    );
    play(async {
        let client = Topology::new(Options::parse(&uri)?)?;
        view(&client, is_whole).await;
        let old = client.view().primary().ok_or("there is no primary")?.address.clone();
        write(&client, 1).await?;
        let step_down = doc! { "replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 10 };
        // Whatever the answer, the view shows the outcome.
        let answer = run(&client, step_down).await;
        view(&client, |view| view.primary().is_some_and(|primary| primary.address != old)).await;
        view(&client, is_whole).await;
        answer?;
        write(&client, 2).await?;
        let secondary = Criteria::read(ReadPreference::new(ReadMode::Secondary));
        client.run_command_on(secondary, "admin", &rawdoc! { "ping": 1 }).await?;
        for member in client.members() {
            let mut checked_out = member.connect().await?;
            let reply = checked_out.command("admin", &rawdoc! { "isMaster": 1 }).await?;
            assert_eq!(reply.get_str("me")?, member.address().to_string());
        }
        Ok(())
    })
}

/// Writes to the primary, and waits for a majority.
async fn write(client: &Topology, id: i32) -> Outcome {
    let insert = doc! {
        "insert": "written", "documents": [{ "_id": id }],
        "writeConcern": { "w": "majority", "wtimeout": 30_000 },
    };
    let insert = RawDocumentBuf::try_from(&insert)?;
    let client = client.with_timeout(Duration::from_secs(60));
    let reply = client.run_command("test", &insert).await?;
    assert_eq!(reply.get_i32("n")?, 1);
    assert!(reply.write_concern_error().is_none());
    Ok(())
}
