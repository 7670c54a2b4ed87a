//! Connections to members that are never selected.

use sdam_conformance::mongod::{Binary, Member, Options as SetOptions, ReplicaSet, User};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::failure::Cause;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::ErrorKind;
use sdam_tokio::Topology;

use super::fixture::play;
use super::{Outcome, Scenario, V4_2};
use crate::support::view;

pub(crate) const SCENARIOS: [Scenario; 1] = [("every_member_is_reached_itself", V4_2, each_member)];

/// An arbiter knows no users, so that clients do not log in to it (Authentication, "Arbiters"); a
/// hidden member is no member for clients of the set, and can still be connected to.
fn each_member(binary: &Binary) -> Outcome {
    let hidden = Member { hidden: true, priority: 0.0, ..Member::default() };
    let never = Member { priority: 0.0, ..Member::default() };
    let arbiter = Member { arbiter_only: true, ..Member::default() };
    let members = [Member::default(), never, hidden, arbiter];
    let mut set = ReplicaSet::start_with(binary, &members, &SetOptions::calm())?;
    set.enable_auth(&[User::new("root", "root")])?;
    let addresses = set.seed_list();
    play(async {
        let uri = format!("mongodb://root:root@{}/?replicaSet=rs", addresses[0]);
        let (client, mut events) = Topology::with_events(Options::parse(&uri)?)?;
        view(&client, |view| {
            view.servers().len() == 3
                && view.servers().iter().all(|server| server.server_type != ServerType::Unknown)
        })
        .await;
        let roles = [ServerType::RsPrimary, ServerType::RsSecondary, ServerType::RsArbiter];
        let expected = [&addresses[0], &addresses[1], &addresses[3]];
        let found = client.members();
        assert_eq!(found.len(), 3, "the hidden one is not reported");
        for (address, role) in expected.into_iter().zip(roles) {
            let member = found.iter().find(|member| member.address() == address);
            let member = member.ok_or_else(|| format!("{address} is missing"))?;
            assert_eq!(member.description().server_type, role);
            let mut checked_out = member.connect().await?;
            let reply = checked_out.command("admin", &rawdoc! { "isMaster": 1 }).await?;
            assert_eq!(reply.get_str("me")?, address.to_string());
            assert_eq!(checked_out.connection_description().server_type, role);
            let status = checked_out.command("admin", &rawdoc! { "connectionStatus": 1 }).await?;
            let users = status.get_document("authInfo")?.get_array("authenticatedUsers")?;
            let logged_in = users.into_iter().next().is_some();
            assert_eq!(logged_in, role != ServerType::RsArbiter, "{address}");
        }
        // No other server answers in its place.
        set.kill(1)?;
        let killed = found.iter().find(|member| member.address() == &addresses[1]);
        let error = killed.ok_or("it was there")?.connect().await.expect_err("it is gone");
        assert_eq!((error.kind(), error.server()), (ErrorKind::Network, Some(&addresses[1])));
        assert_eq!(error.failure().map(|failure| &failure.cause), Some(&Cause::Refused));
        // What is set aside is no business of the pools.
        client.close().await;
        while let Some(event) = events.next().await {
            assert!(
                !matches!(
                    event.kind,
                    EventKind::Pool { event: PoolEvent::ConnectionCreated { .. }, .. }
                ),
                "{event:?}"
            );
        }

        let uri = format!("mongodb://root:root@{}/?directConnection=true", addresses[2]);
        let client = Topology::new(Options::parse(&uri)?)?;
        view(&client, |view| view.servers()[0].server_type != ServerType::Unknown).await;
        let mut checked_out = client.members()[0].connect().await?;
        let reply = checked_out.command("admin", &rawdoc! { "isMaster": 1 }).await?;
        assert_eq!(reply.get_str("me")?, addresses[2].to_string());
        assert!(reply.get_bool("hidden")?);
        Ok(())
    })
}
