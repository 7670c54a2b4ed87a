//! The reply to hello of a proxy, made from its view of the deployment behind it.
//!
//! The reverse of "Parsing a hello or legacy hello response" of SDAM.

use bson::{RawArrayBuf, RawDocumentBuf, cstr, rawdoc};

use crate::config::ServerAddress;
use crate::description::{
    ServerDescription, ServerType, TopologyDescription, TopologyType, TopologyVersion,
};
use crate::wire::{Compressor, MAX_MESSAGE_LEN};

/// The length of the longest document that servers store, in bytes.
const MAX_BSON_OBJECT_SIZE: i32 = 16 * 1024 * 1024;

/// The number of writes in one command that servers accept at most.
const MAX_WRITE_BATCH_SIZE: i32 = 100_000;

/// The reply to hello of a proxy: as a mongos in front of a whole deployment, or as one of the
/// members that its view names.
///
/// The wire versions are those that every server behind a mongos speaks. What a proxy offers it has
/// to keep: compressors only if it decompresses or its servers do, a topologyVersion only if it
/// answers awaitable hellos.
///
/// ```
/// use sdam_core::description::TopologyDescription;
/// use sdam_core::hello::ProxyReply;
///
/// # fn example(view: &TopologyDescription) -> Result<(), Box<dyn std::error::Error>> {
/// let hello = ProxyReply::mongos().document(view)?;
/// assert!(hello.get_bool("isWritablePrimary")?);
/// let legacy = ProxyReply::mongos().to_legacy(true).document(view)?;
/// assert!(legacy.get_bool("ismaster")?);
/// # Ok(())
/// # }
/// assert!(ProxyReply::mongos().document(&TopologyDescription::default()).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyReply {
    /// The member that the proxy stands for; without one it is a mongos.
    pub member: Option<ServerAddress>,
    /// True for a reply to legacy hello (`isMaster`), which says `ismaster`.
    pub legacy: bool,
    /// The compressors that the proxy has in common with its client; none by default.
    pub compressors: Vec<Compressor>,
    /// The freshness of the reply; without one clients poll.
    pub topology_version: Option<TopologyVersion>,
    /// The length of the longest document, 16 MiB by default.
    pub max_bson_object_size: i32,
    /// The length of the longest message, 48,000,000 bytes by default.
    pub max_message_size: i32,
    /// The number of writes in one command, 100,000 by default.
    pub max_write_batch_size: i32,
}

/// The reason why there is nothing to reply yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyReplyError {
    /// A load balancer is all that the view has; the reply to a hello on a connection says what is
    /// behind it.
    #[error(
        "a load balancer hides its servers from the view; pass on the reply of a server to a hello"
    )]
    LoadBalanced,
    /// No server has answered.
    #[error("no server of the deployment has answered a check, so that there is nothing to say")]
    NoServer,
    /// The view does not name the member.
    #[error("{0} is no member of the deployment; a proxy can only stand for one that is")]
    NoMember(ServerAddress),
    /// The member has not answered, or its last check has failed.
    #[error("{0} has not answered its last check, so that there is nothing to say of it")]
    NotKnown(ServerAddress),
    /// There is no wire version that all servers speak.
    #[error(
        "the servers have no wire version in common: one needs {least} at least, another speaks \
         {most} at most"
    )]
    WireVersions {
        /// The largest of the lowest versions.
        least: i32,
        /// The smallest of the highest versions.
        most: i32,
    },
}

impl ProxyReply {
    /// Replies as a mongos.
    pub const fn mongos() -> Self {
        Self {
            member: None,
            legacy: false,
            compressors: Vec::new(),
            topology_version: None,
            max_bson_object_size: MAX_BSON_OBJECT_SIZE,
            max_message_size: MAX_MESSAGE_LEN as i32,
            max_write_batch_size: MAX_WRITE_BATCH_SIZE,
        }
    }

    /// Replies as the server at an address of the view.
    pub fn member(address: ServerAddress) -> Self {
        Self { member: Some(address), ..Self::mongos() }
    }

    /// Says whether the reply is to legacy hello (`isMaster`, `ismaster`).
    #[must_use]
    pub const fn to_legacy(mut self, legacy: bool) -> Self {
        self.legacy = legacy;
        self
    }

    /// Replaces [`compressors`](Self::compressors).
    #[must_use]
    pub fn with_compressors(mut self, compressors: impl IntoIterator<Item = Compressor>) -> Self {
        self.compressors = compressors.into_iter().collect();
        self
    }

    /// Replaces [`topology_version`](Self::topology_version).
    #[must_use]
    pub const fn with_topology_version(mut self, version: Option<TopologyVersion>) -> Self {
        self.topology_version = version;
        self
    }

    /// Makes the reply.
    ///
    /// # Errors
    ///
    /// Fails if no server, or the member, is known well enough, which may change with the next
    /// view; and always behind a load balancer, whose view has no servers.
    pub fn document(&self, view: &TopologyDescription) -> Result<RawDocumentBuf, ProxyReplyError> {
        if view.topology_type == TopologyType::LoadBalanced {
            return Err(ProxyReplyError::LoadBalanced);
        }
        let mut reply = rawdoc! { "helloOk": true };
        match &self.member {
            Some(address) => self.append_member(&mut reply, address, view)?,
            None => self.append_mongos(&mut reply, view)?,
        }
        if !self.compressors.is_empty() {
            let names = self.compressors.iter().map(|compressor| compressor.name());
            reply.append(cstr!("compression"), array(names));
        }
        if let Some(version) = &self.topology_version {
            let version = rawdoc! { "processId": version.process_id, "counter": version.counter };
            reply.append(cstr!("topologyVersion"), version);
        }
        reply.append(cstr!("maxBsonObjectSize"), self.max_bson_object_size);
        reply.append(cstr!("maxMessageSizeBytes"), self.max_message_size);
        reply.append(cstr!("maxWriteBatchSize"), self.max_write_batch_size);
        reply.append(cstr!("readOnly"), false);
        reply.append(cstr!("ok"), 1.0);
        Ok(reply)
    }

    fn append_writable(&self, reply: &mut RawDocumentBuf, writable: bool) {
        match self.legacy {
            true => reply.append(cstr!("ismaster"), writable),
            false => reply.append(cstr!("isWritablePrimary"), writable),
        }
    }

    fn append_mongos(
        &self,
        reply: &mut RawDocumentBuf,
        view: &TopologyDescription,
    ) -> Result<(), ProxyReplyError> {
        let servers = || view.servers().into_iter().filter(|server| has_answered(server));
        let least = servers().map(|server| server.min_wire_version).max();
        let most = servers().map(|server| server.max_wire_version).min();
        let (least, most) = least.zip(most).ok_or(ProxyReplyError::NoServer)?;
        if least > most {
            return Err(ProxyReplyError::WireVersions { least, most });
        }
        self.append_writable(reply, true);
        reply.append(cstr!("msg"), "isdbgrid");
        append_sessions(reply, view.logical_session_timeout_minutes);
        reply.append(cstr!("minWireVersion"), least);
        reply.append(cstr!("maxWireVersion"), most);
        Ok(())
    }

    fn append_member(
        &self,
        reply: &mut RawDocumentBuf,
        address: &ServerAddress,
        view: &TopologyDescription,
    ) -> Result<(), ProxyReplyError> {
        let Some(server) = view.server(address) else {
            return Err(ProxyReplyError::NoMember(address.clone()));
        };
        if !has_answered(server) {
            return Err(ProxyReplyError::NotKnown(address.clone()));
        }
        let writable = [ServerType::RsPrimary, ServerType::Standalone, ServerType::Mongos];
        self.append_writable(reply, writable.contains(&server.server_type));
        match server.server_type {
            ServerType::Mongos => reply.append(cstr!("msg"), "isdbgrid"),
            ServerType::RsGhost => reply.append(cstr!("isreplicaset"), true),
            ServerType::RsSecondary => reply.append(cstr!("secondary"), true),
            ServerType::RsArbiter => reply.append(cstr!("arbiterOnly"), true),
            // Hidden or starting, which a view does not distinguish; clients may not use it either
            // way.
            ServerType::RsOther => reply.append(cstr!("hidden"), true),
            _ => {}
        }
        append_replica_set(reply, server);
        append_sessions(reply, server.logical_session_timeout_minutes);
        reply.append(cstr!("minWireVersion"), server.min_wire_version);
        reply.append(cstr!("maxWireVersion"), server.max_wire_version);
        Ok(())
    }
}

/// Returns whether a server has said what it is.
fn has_answered(server: &ServerDescription) -> bool {
    server.server_type != ServerType::Unknown
}

fn append_sessions(reply: &mut RawDocumentBuf, minutes: Option<i64>) {
    if let Some(minutes) = minutes {
        // Drivers of statically typed languages expect 32 bits, as servers send.
        match i32::try_from(minutes) {
            Ok(minutes) => reply.append(cstr!("logicalSessionTimeoutMinutes"), minutes),
            Err(_) => reply.append(cstr!("logicalSessionTimeoutMinutes"), minutes),
        }
    }
}

/// Appends what a member of a replica set says of itself and of the set.
fn append_replica_set(reply: &mut RawDocumentBuf, server: &ServerDescription) {
    if let Some(name) = &server.set_name {
        reply.append(cstr!("setName"), &**name);
    }
    if let Some(version) = server.set_version {
        match i32::try_from(version) {
            Ok(version) => reply.append(cstr!("setVersion"), version),
            Err(_) => reply.append(cstr!("setVersion"), version),
        }
    }
    for (field, members) in [
        (cstr!("hosts"), &server.hosts),
        (cstr!("passives"), &server.passives),
        (cstr!("arbiters"), &server.arbiters),
    ] {
        if !members.is_empty() {
            reply.append(field, array(members.iter().map(ToString::to_string)));
        }
    }
    if let Some(primary) = &server.primary {
        reply.append(cstr!("primary"), primary.to_string());
    }
    if let Some(me) = &server.me {
        reply.append(cstr!("me"), me.to_string());
    }
    if !server.tags.is_empty() {
        let mut tags = RawDocumentBuf::new();
        for (name, value) in server.tags.iter() {
            // A name with a NUL in it came in no reply.
            if let Ok(name) = <&bson::raw::CStr>::try_from(name.as_str()) {
                tags.append(name, value.as_str());
            }
        }
        reply.append(cstr!("tags"), tags);
    }
    if let Some(election) = server.election_id {
        reply.append(cstr!("electionId"), election);
    }
    if let Some(date) = server.last_write_date {
        reply.append(cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
    }
}

fn array<T: Into<bson::raw::RawBson>>(elements: impl Iterator<Item = T>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    elements.for_each(|element| array.push(element.into()));
    array
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::oid::ObjectId;
    use bson::{DateTime, RawDocumentBuf};
    use proptest::prelude::*;

    use super::{ProxyReply, ProxyReplyError};
    use crate::config::ServerAddress;
    use crate::description::{
        ServerDescription, ServerType, TopologyDescription, TopologyType, TopologyVersion,
    };
    use crate::hello::HelloReply;
    use crate::id::ServerId;
    use crate::wire::Compressor;

    fn address(name: &str) -> ServerAddress {
        name.parse().unwrap()
    }

    fn parsed(reply: &RawDocumentBuf, of: &ServerAddress) -> ServerDescription {
        let reply = HelloReply::parse(reply, None).unwrap();
        assert!(reply.ok && reply.hello_ok);
        reply.into_description(ServerId(0), of.clone())
    }

    /// A view of servers that differ from Unknown ones as the function says.
    fn view(names: &[&str], change: impl Fn(usize, &mut ServerDescription)) -> TopologyDescription {
        let seeds: Vec<ServerAddress> = names.iter().map(|name| address(name)).collect();
        let mut view =
            TopologyDescription::of_seeds(TopologyType::Unknown, None, Default::default(), &seeds);
        for index in 0..view.servers.len() {
            let mut server = (*view.servers[index]).clone();
            server.max_wire_version = 21;
            change(index, &mut server);
            view.servers.replace(index, Arc::new(server));
        }
        view.summarise();
        view
    }

    #[test]
    fn a_mongos_speaks_what_all_servers_speak() {
        let view = view(&["a", "b", "c"], |index, server| {
            server.server_type =
                [ServerType::RsPrimary, ServerType::RsSecondary, ServerType::Unknown][index];
            (server.min_wire_version, server.max_wire_version) = [(0, 21), (6, 17), (9, 3)][index];
            server.logical_session_timeout_minutes = [Some(30), Some(20), None][index];
        });
        let version = TopologyVersion::new(ObjectId::from_bytes([3; 12]), 4);
        let reply = ProxyReply::mongos()
            .with_compressors([Compressor::Zstd, Compressor::Snappy])
            .with_topology_version(Some(version))
            .document(&view)
            .unwrap();
        let server = parsed(&reply, &address("proxy"));
        assert_eq!(server.server_type, ServerType::Mongos);
        assert_eq!((server.min_wire_version, server.max_wire_version), (6, 17));
        assert_eq!(server.logical_session_timeout_minutes, Some(20));
        assert_eq!(server.topology_version, Some(version));
        assert_eq!(server.members().count(), 0, "it names no server");
        let compression: Vec<_> = reply.get_array("compression").unwrap().into_iter().collect();
        assert_eq!(compression[0].as_ref().unwrap().as_str(), Some("zstd"));
        assert!(reply.get_bool("isWritablePrimary").unwrap());
        assert_eq!(reply.get("ismaster").unwrap(), None);
    }

    #[test]
    fn legacy_hello_is_answered_by_legacy_names() {
        let view = view(&["a"], |_, server| server.server_type = ServerType::Standalone);
        for reply in [ProxyReply::mongos(), ProxyReply::member(address("a"))] {
            let reply = reply.to_legacy(true).document(&view).unwrap();
            assert!(reply.get_bool("ismaster").unwrap());
            assert_eq!(reply.get("isWritablePrimary").unwrap(), None);
        }
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let unknown = view(&["a"], |_, _| {});
        let of_a = ProxyReply::member(address("a"));
        assert_eq!(ProxyReply::mongos().document(&unknown), Err(ProxyReplyError::NoServer));
        assert_eq!(of_a.document(&unknown), Err(ProxyReplyError::NotKnown(address("a"))));
        let of_b = ProxyReply::member(address("b"));
        assert_eq!(of_b.document(&unknown), Err(ProxyReplyError::NoMember(address("b"))));
        let apart = view(&["a", "b"], |index, server| {
            server.server_type = ServerType::Mongos;
            (server.min_wire_version, server.max_wire_version) = [(0, 8), (9, 21)][index];
        });
        let error = ProxyReplyError::WireVersions { least: 9, most: 8 };
        assert_eq!(ProxyReply::mongos().document(&apart), Err(error));
        let mut balanced = view(&["a"], |_, server| server.server_type = ServerType::LoadBalancer);
        balanced.topology_type = TopologyType::LoadBalanced;
        for reply in [ProxyReply::mongos(), of_a] {
            assert_eq!(reply.document(&balanced), Err(ProxyReplyError::LoadBalanced));
        }
    }

    fn member() -> impl Strategy<Value = ServerDescription> {
        let names = || prop::collection::btree_set("[a-d]:[1-9]", 0..4);
        let kind = prop::sample::select(vec![
            ServerType::RsPrimary,
            ServerType::RsSecondary,
            ServerType::RsArbiter,
            ServerType::RsOther,
        ]);
        let tags = prop::collection::btree_map("[a-z]{0,3}", ".{0,3}", 0..3);
        let numbers = (
            0..10,
            10..30,
            prop::option::of(0_i64..i64::MAX),
            prop::option::of(any::<[u8; 12]>()),
            prop::option::of(any::<i64>()),
            prop::option::of(0_i64..i64::MAX),
        );
        let who = (prop::option::of("[a-d]:[1-9]"), prop::option::of("[a-d]:[1-9]"));
        let lists = (names(), names(), names(), tags);
        (kind, "[a-z]{1,5}", numbers, who, lists).prop_map(|(kind, set, numbers, who, lists)| {
            let list = |names: std::collections::BTreeSet<String>| {
                names.iter().map(|name| address(name)).collect()
            };
            let (min, max, sessions, election, written, set_version) = numbers;
            let (hosts, passives, arbiters, tags) = lists;
            ServerDescription {
                server_type: kind,
                set_name: Some(set.into()),
                min_wire_version: min,
                max_wire_version: max,
                logical_session_timeout_minutes: sessions,
                election_id: election.map(ObjectId::from_bytes),
                last_write_date: written.map(DateTime::from_millis),
                set_version,
                me: who.0.map(|name| address(&name)),
                primary: who.1.map(|name| address(&name)),
                hosts: list(hosts),
                passives: list(passives),
                arbiters: list(arbiters),
                tags: Arc::new(tags),
                ..ServerDescription::unknown(ServerId(0), address("a:1"))
            }
        })
    }

    proptest! {
        /// A reader of the reply describes the member as the view does.
        #[test]
        fn a_member_is_read_as_the_view_describes_it(server in member()) {
            let view = view(&["a:1"], |_, place| *place = server.clone());
            let reply = ProxyReply::member(address("a:1")).document(&view).unwrap();
            let read = parsed(&reply, &address("a:1"));
            prop_assert!(read.same_as(&server), "{:?}\n{:?}", read, server);
            prop_assert_eq!(read.last_write_date, server.last_write_date);
        }
    }
}
