//! The deployment on real sockets, whose members come, change and go.

use std::io;
use std::time::Duration;

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::description::ServerType;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{SECOND, is};
use crate::{
    Change, ClusterState, EmbeddedCluster, EmbeddedOptions, MemberId, MemberOptions, ReconfigError,
};

/// Generous, because nothing depends on it while the test succeeds.
const DEADLINE: Duration = Duration::from_secs(60);

async fn start() -> (EmbeddedCluster, MemberId) {
    start_with(Duration::from_millis(100)).await
}

async fn start_with(election_timeout: Duration) -> (EmbeddedCluster, MemberId) {
    let options = EmbeddedOptions { election_timeout, ..EmbeddedOptions::default() };
    let cluster = EmbeddedCluster::start_with(options, |member, options| {
        options.hidden = member == MemberId(2);
        options.priority = u16::from(member != MemberId(2));
    });
    let cluster = cluster.await.unwrap();
    let primary = timeout(DEADLINE, cluster.elected()).await.unwrap().unwrap();
    (cluster, primary)
}

async fn until(cluster: &EmbeddedCluster, holds: impl Fn(&ClusterState) -> bool) {
    let poll = async {
        while !holds(&cluster.state().await.unwrap()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, poll).await.expect("it must come true");
}

fn hello() -> bson::RawDocumentBuf {
    rawdoc! { "hello": 1 }
}

#[tokio::test]
async fn a_member_is_added_at_a_port_of_its_own_and_removed_again() {
    let (cluster, _) = start().await;
    let added = cluster.add_member(|it| it.tags = vec![("dc".into(), "ny".into())]).await.unwrap();
    assert_eq!(added, MemberId(3));
    until(&cluster, |state| state.members[&added].server_type == ServerType::RsSecondary).await;
    let reply = cluster.run_command(added, hello()).await.unwrap();
    assert_eq!(reply.get_document("tags").unwrap().get_str("dc").unwrap(), "ny");
    assert_eq!(cluster.state().await.unwrap().known.len(), 3, "one is hidden");
    cluster.reconfig(vec![Change::Remove(added)]).await.unwrap();
    until(&cluster, |state| state.members[&added].server_type == ServerType::RsGhost).await;
    assert!(is(&cluster.run_command(added, hello()).await.unwrap(), "isreplicaset"));
}

#[tokio::test]
async fn a_refused_change_says_why_and_leaves_no_port_open() {
    let (cluster, primary) = start().await;
    let refused = cluster.reconfig(vec![Change::Remove(primary)]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(refused.to_string(), ReconfigError::Primary(primary).to_string());
    let refused = cluster.add_member(|it| it.hidden = true).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    let nowhere = MemberOptions::new("db.example.com:1".parse().unwrap());
    let refused = cluster.reconfig(vec![Change::Add(nowhere)]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(cluster.state().await.unwrap().members.len(), 3);
    let added = cluster.add_member(|_| {}).await.unwrap();
    assert_eq!(added, MemberId(3), "none was used up");
}

#[tokio::test]
async fn a_member_that_is_shut_down_says_so_and_then_refuses_and_can_be_started_again() {
    // It says so for one and a half of these.
    let (cluster, primary) = start_with(4 * SECOND).await;
    cluster.shutdown(primary).await.unwrap();
    let shutdown_reply = cluster.run_command(primary, hello()).await.unwrap_err();
    assert_eq!(shutdown_reply.to_string(), "the server is shutting down");
    let gone = async {
        while TcpStream::connect(cluster.addresses()[primary.0]).await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, gone).await.expect("it must end");
    cluster.restart(primary).await.unwrap();
    until(&cluster, |state| state.members[&primary].set_version == Some(1)).await;
}
