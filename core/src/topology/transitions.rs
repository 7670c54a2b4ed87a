//! The deduction of descriptions from replies, as pure functions: for tools that
//! judge what others report, without monitors and time.
//!
//! ```
//! use sdam_core::bson::rawdoc;
//! use sdam_core::config::Options;
//! use sdam_core::description::TopologyType;
//! use sdam_core::topology::transitions;
//!
//! let options = Options::parse("mongodb://a,b/?replicaSet=rs")?;
//! let reply = rawdoc! {
//!     "ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["a:27017", "c:27017"],
//!     "minWireVersion": 0, "maxWireVersion": 17,
//! };
//! let known = transitions::initial(&options);
//! let known = transitions::after_reply(&known, &options, &"a:27017".parse()?, &reply)?;
//! assert_eq!(known.topology_type, TopologyType::ReplicaSetWithPrimary);
//! assert!(known.server(&"b:27017".parse()?).is_none(), "it is not among the hosts");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use bson::RawDocument;

use super::update::{Update, initial_description};
use crate::config::{Options, ServerAddress};
use crate::description::{ServerDescription, TopologyDescription};
use crate::failure::Failure;
use crate::hello::{HelloReply, ReplyError};
use crate::time::Instant;

/// Describes the deployment that `options` name, before anything was heard of it.
pub fn initial(options: &Options) -> TopologyDescription {
    initial_description(options)
}

/// Returns what is known once the server at `address` has replied to hello.
///
/// A server that is no member changes nothing, nor does a reply that is older than what is known.
/// One that says `ok: 0` makes the server Unknown.
///
/// # Errors
///
/// The reply is none, or a field of it is of the wrong type or size.
pub fn after_reply(
    known: &TopologyDescription,
    options: &Options,
    address: &ServerAddress,
    reply: &RawDocument,
) -> Result<TopologyDescription, ReplyError> {
    let Some(server) = known.server(address) else { return Ok(known.clone()) };
    let hello = HelloReply::parse(reply, None)?;
    if !hello.ok {
        return Ok(after_failure(known, options, address, hello.refusal()));
    }
    let server = hello.into_description(server.id, address.clone());
    Ok(after(known, options, server))
}

/// Returns what is known once a check of the server at `address` has failed, or an operation on it
/// with an error that makes it Unknown.
pub fn after_failure(
    known: &TopologyDescription,
    options: &Options,
    address: &ServerAddress,
    failure: Failure,
) -> TopologyDescription {
    match known.server(address) {
        Some(server) => after(known, options, server.failed(Instant::ZERO, failure)),
        None => known.clone(),
    }
}

/// Returns what is known once DNS has named other hosts (Polling SRV Records).
pub fn after_rescan(
    known: &TopologyDescription,
    options: &Options,
    added: &[ServerAddress],
    removed: &[ServerAddress],
) -> TopologyDescription {
    Update::of_hosts(known, options, Instant::ZERO, added, removed).topology
}

fn after(
    known: &TopologyDescription,
    options: &Options,
    server: ServerDescription,
) -> TopologyDescription {
    let update = Update::new(known, options, Instant::ZERO, Arc::new(server));
    update.map_or_else(|| known.clone(), |update| update.topology)
}

#[cfg(test)]
mod tests {
    use super::{after_rescan, initial};
    use crate::config::Options;

    /// "Hosts that have not changed, MUST be left alone": the same description, not another one.
    #[test]
    fn what_is_known_after_a_rescan_is_of_the_hosts_that_dns_names() {
        let options = Options::parse("mongodb://a,b").unwrap();
        let known = initial(&options);
        let [a, c] = ["a", "c"].map(|host| host.parse().unwrap());
        let found = after_rescan(&known, &options, &[c], &[a]);
        let hosts: Vec<&str> = found.servers().iter().map(|it| it.address.host()).collect();
        assert_eq!(hosts, ["b", "c"]);
        assert_eq!(found.servers()[0].id, known.servers()[1].id);
    }
}
