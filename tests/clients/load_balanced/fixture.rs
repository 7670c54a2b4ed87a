//! A client behind a load balancer: the balancer in front of mongos, and the events of the client.

use std::future::Future;
use std::io;
use std::time::Duration;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MemberId};
use sdam_conformance::forwarder::Forwarder;
use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::Options;
use sdam_core::pool::PoolEvent;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{Error, Events};
use sdam_tokio::{CheckedOut, Topology};

/// The time limit of steps that depend on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(GENEROUS, work).await.expect("done in time")
}

/// A client whose connections lead to one mongos and to the next in turn.
pub(crate) struct Fixture {
    pub(crate) mongos: EmbeddedCluster,
    pub(crate) balancer: Forwarder,
    pub(crate) client: Topology,
    events: Events,
}

impl Fixture {
    /// A balancer in front of so many mongos, and a client with these options besides.
    pub(crate) async fn new(count: usize, options: &str) -> Self {
        Self::before(EmbeddedOptions::load_balanced(count), options).await
    }

    pub(crate) async fn before(deployment: EmbeddedOptions, options: &str) -> Self {
        let mongos = EmbeddedCluster::start(deployment).await.unwrap();
        let balancer = Forwarder::start(mongos.addresses().to_vec()).unwrap();
        let uri = format!("mongodb://{}/?loadBalanced=true{options}", balancer.address());
        let (client, events) = Topology::with_events(Options::parse(&uri).unwrap()).unwrap();
        Self { mongos, balancer, client, events }
    }

    /// The client, whose operations end in time, but not before: its deadline overrides the
    /// waitQueueTimeoutMS of the options, which bounds the making of connections too.
    pub(crate) fn patient(&self) -> Topology {
        self.client.with_timeout(GENEROUS)
    }

    pub(crate) async fn check_out(&self) -> CheckedOut {
        soon(self.patient().select(Criteria::write())).await.unwrap().check_out().await.unwrap()
    }

    /// Runs a command of one's own choice of connection, which is the pool's.
    pub(crate) async fn run(&self, command: RawDocumentBuf) -> Result<(), Error> {
        soon(self.client.run_command("test", &command)).await.map(drop)
    }

    /// Has a mongos do this to the next command, or the next few.
    pub(crate) async fn fail(&self, member: usize, times: i32, data: RawDocumentBuf) {
        let command = fail_point(times, data);
        self.mongos.run_command(MemberId(member), command).await.unwrap();
    }

    /// Returns the pool's events since the last call, the beginning of a check-out aside.
    pub(crate) fn told(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.events.try_next()).filter_map(|event| told(event.kind)).collect()
    }

    /// The services whose connections were cleared since events were asked for last.
    pub(crate) fn cleared(&mut self) -> Vec<Option<ObjectId>> {
        std::iter::from_fn(|| self.events.try_next())
            .filter_map(|event| match event.kind {
                EventKind::Pool { event: PoolEvent::PoolCleared { service, .. }, .. } => {
                    Some(service)
                }
                _ => None,
            })
            .collect()
    }

    /// Closes the client, and returns the remaining events.
    pub(crate) async fn end(mut self) -> Vec<EventKind> {
        soon(self.client.close()).await;
        let mut kinds = Vec::new();
        while let Some(event) = soon(self.events.next()).await {
            kinds.push(event.kind);
        }
        kinds
    }
}

pub(crate) fn fail_point(times: i32, data: RawDocumentBuf) -> RawDocumentBuf {
    let mode = rawdoc! { "times": times };
    rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data }
}

/// The service that a check-out leads to.
pub(crate) fn service(checked_out: &CheckedOut) -> ObjectId {
    checked_out.connection_description().service.expect("a service behind a load balancer")
}

/// Opens a cursor of which there is more to come, and returns its number.
pub(crate) async fn open_cursor(checked_out: &mut CheckedOut) -> io::Result<i64> {
    let find = rawdoc! { "find": "things", "batchSize": 2 };
    let reply = soon(checked_out.command("test", &find)).await.map_err(io::Error::other)?;
    reply.get_document("cursor").and_then(|it| it.get_i64("id")).map_err(io::Error::other)
}

pub(crate) fn get_more(cursor: i64) -> RawDocumentBuf {
    rawdoc! { "getMore": cursor, "collection": "things", "batchSize": 2 }
}

pub(crate) fn insert() -> RawDocumentBuf {
    rawdoc! { "insert": "things", "documents": [{ "x": 1 }] }
}

fn told(kind: EventKind) -> Option<String> {
    Some(match kind {
        EventKind::Pool { event: PoolEvent::PoolReady, .. } => "pool ready".to_owned(),
        EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. } => "pool cleared".to_owned(),
        EventKind::Pool { event: PoolEvent::ConnectionCreated { connection, .. }, .. } => {
            format!("{connection} created")
        }
        EventKind::Pool { event: PoolEvent::ConnectionReady { connection, .. }, .. } => {
            format!("{connection} ready")
        }
        EventKind::Pool {
            event: PoolEvent::ConnectionClosed { connection, reason, .. }, ..
        } => {
            format!("{connection} closed: {reason:?}")
        }
        EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { error, .. }, .. } => {
            format!("check-out failed: {}", error.reason())
        }
        EventKind::Pool { event: PoolEvent::ConnectionCheckedOut { connection, .. }, .. } => {
            format!("{connection} checked out")
        }
        EventKind::Pool { event: PoolEvent::ConnectionCheckedIn { connection, .. }, .. } => {
            format!("{connection} checked in")
        }
        _ => return None,
    })
}
