//! What becomes of a description by what is heard of a server, as pure functions: for tools that
//! judge what others report, without monitors and time.

use std::sync::Arc;

use bson::RawDocument;

use super::server::ServerDescription;
use super::topology::TopologyDescription;
use super::update::Update;
use crate::config::{Options, ServerAddress};
use crate::failure::Failure;
use crate::hello::{HelloReply, ReplyError};
use crate::time::Instant;

impl TopologyDescription {
    /// Describes the deployment that `options` name, before anything was heard of it.
    ///
    /// ```
    /// use sdam_core::bson::rawdoc;
    /// use sdam_core::description::{TopologyDescription, TopologyType};
    /// use sdam_core::config::Options;
    ///
    /// let options = Options::parse("mongodb://a,b/?replicaSet=rs")?;
    /// let reply = rawdoc! {
    ///     "ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["a:27017", "c:27017"],
    ///     "minWireVersion": 0, "maxWireVersion": 17,
    /// };
    /// let known = TopologyDescription::of_seeds(&options);
    /// let known = known.after_reply(&options, &"a:27017".parse()?, &reply)?;
    /// assert_eq!(known.topology_type, TopologyType::ReplicaSetWithPrimary);
    /// assert!(known.server(&"b:27017".parse()?).is_none(), "it is not among the hosts");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_seeds(options: &Options) -> Self {
        Self::initial(options)
    }

    /// Returns what is known once the server at `address` has replied to hello.
    ///
    /// A server that is no member changes nothing, nor does a reply that is older than what is
    /// known. One that says `ok: 0` makes the server Unknown.
    ///
    /// # Errors
    ///
    /// The reply is none, or a field of it is of the wrong type or size.
    pub fn after_reply(
        &self,
        options: &Options,
        address: &ServerAddress,
        reply: &RawDocument,
    ) -> Result<Self, ReplyError> {
        let Some(known) = self.server(address) else { return Ok(self.clone()) };
        let hello = HelloReply::parse(reply, None)?;
        if !hello.ok {
            return Ok(self.after_failure(options, address, hello.refusal()));
        }
        let server = hello.into_description(known.id, address.clone());
        Ok(self.after(options, server))
    }

    /// Returns what is known once a check of the server at `address` has failed, or an operation on
    /// it with an error that makes it Unknown.
    #[must_use]
    pub fn after_failure(
        &self,
        options: &Options,
        address: &ServerAddress,
        failure: Failure,
    ) -> Self {
        match self.server(address) {
            Some(known) => self.after(options, known.failed(Instant::ZERO, failure)),
            None => self.clone(),
        }
    }

    /// Returns what is known once DNS has named other hosts (Polling SRV Records).
    #[must_use]
    pub fn after_rescan(
        &self,
        options: &Options,
        added: &[ServerAddress],
        removed: &[ServerAddress],
    ) -> Self {
        Update::of_hosts(self, options, Instant::ZERO, added, removed).topology
    }

    fn after(&self, options: &Options, server: ServerDescription) -> Self {
        let update = Update::new(self, options, Instant::ZERO, Arc::new(server));
        update.map_or_else(|| self.clone(), |update| update.topology)
    }
}
