//! A look at a bucket of GridFS: its indexes, all chunks in the order of their files, and the
//! documents of all files. The bytes of files stay where they are, and memory is bounded, however
//! many there are.

mod commands;
mod looking;
mod tally;

use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_tokio::{CheckedOut, Topology};
use tokio::time::timeout_at;

use self::looking::Looking;
use super::Means;
use crate::doctor::evidence::{BucketEnd, BucketSeen};

/// The first version of the protocol whose servers compute the length of data: that of 4.4.
const WIRE_VERSION_OF_LENGTHS: i32 = 9;

/// The bucket that is looked at, and what is done about it.
#[derive(Clone, Debug)]
pub(in crate::doctor) struct Bucket {
    pub(in crate::doctor) database: String,
    pub(in crate::doctor) name: String,
    /// True if orphaned chunks are removed.
    pub(in crate::doctor) removes: bool,
    /// The age from which on chunks without a file are orphaned.
    pub(in crate::doctor) grace: Duration,
}

/// Looks at a bucket, and notes on the way what is found.
pub(in crate::doctor) async fn look(
    client: &Topology,
    means: &Means,
    bucket: &Bucket,
    note: &(dyn Fn(&BucketSeen) + Sync),
) {
    let mut seen = BucketSeen {
        name: format!("{}.{}", bucket.database, bucket.name),
        grace: bucket.grace,
        has_empty_files: true,
        ..BucketSeen::default()
    };
    // It stays so if time is over within a step.
    seen.end = Some(BucketEnd::Late);
    note(&seen);
    match connect(client, means).await {
        Ok((connection, address, wire_version)) => {
            seen.server = Some(address);
            seen.has_lengths = wire_version >= WIRE_VERSION_OF_LENGTHS;
            let mut looking = Looking::new(connection, means, bucket, seen, note);
            let end = looking.all().await.err();
            seen = looking.seen();
            seen.end = end;
        }
        Err(end) => seen.end = Some(end),
    }
    note(&seen);
}

/// Checks out a connection to the server that has the newest state of the bucket.
async fn connect(
    client: &Topology,
    means: &Means,
) -> Result<(CheckedOut, ServerAddress, i32), BucketEnd> {
    use ServerType::{LoadBalancer, Mongos, RsPrimary, Standalone};
    let is_asked = |it: ServerType| matches!(it, RsPrimary | Standalone | Mongos | LoadBalancer);
    let view = client.view();
    let server = view.servers().iter().find(|it| is_asked(it.server_type));
    let address = server.map(|it| it.address.clone()).ok_or(BucketEnd::NoServer)?;
    let member = client.member(&address).ok_or(BucketEnd::NoServer)?;
    let checked_out = timeout_at(means.deadline(), member.check_out()).await;
    let connection = checked_out.map_err(|_| BucketEnd::Late)?.map_err(|error| {
        let (command, text) = ("connect", error.to_string());
        BucketEnd::Failed { command, is_forbidden: false, text }
    })?;
    let wire_version = connection.connection_description().max_wire_version;
    Ok((connection, address, wire_version))
}
