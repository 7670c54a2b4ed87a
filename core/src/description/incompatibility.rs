//! The versions of the wire protocol that this client speaks, and servers that speak none of them
//! (SDAM: "Checking wire protocol compatibility").

use serde::Serialize;

use super::server::{ServerDescription, ServerType};
use crate::config::ServerAddress;

/// The lowest wire protocol version that this client speaks, that of MongoDB 4.2.
pub const CLIENT_MIN_WIRE_VERSION: i32 = 8;

/// The highest wire protocol version that this client knows, that of MongoDB 8.0.
pub const CLIENT_MAX_WIRE_VERSION: i32 = 25;

/// The reason why the client and a server share no version of the wire protocol (SDAM: "Checking
/// wire protocol compatibility").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Incompatibility {
    /// The server is too new for this client.
    #[error(
        "Server at {address} requires wire version {min_wire_version}, but this version of sdam \
         only supports up to {CLIENT_MAX_WIRE_VERSION}."
    )]
    #[serde(rename_all = "camelCase")]
    ServerTooNew {
        /// The server.
        address: ServerAddress,
        /// The lowest version it speaks.
        min_wire_version: i32,
    },
    /// The server is too old for this client.
    #[error(
        "Server at {address} reports wire version {max_wire_version}, but this version of sdam \
         requires at least {CLIENT_MIN_WIRE_VERSION} (MongoDB 4.2)."
    )]
    #[serde(rename_all = "camelCase")]
    ServerTooOld {
        /// The server.
        address: ServerAddress,
        /// The highest version it speaks.
        max_wire_version: i32,
    },
}

impl Incompatibility {
    /// Returns why a server is of no use to this client, if it speaks other versions only.
    pub(super) fn of(server: &ServerDescription) -> Option<Self> {
        if server.server_type == ServerType::Unknown
            || server.server_type == ServerType::LoadBalancer
        {
            return None;
        }
        let ServerDescription { address, min_wire_version, max_wire_version, .. } = server;
        let (min_wire_version, max_wire_version) = (*min_wire_version, *max_wire_version);
        if min_wire_version > CLIENT_MAX_WIRE_VERSION {
            return Some(Self::ServerTooNew { address: address.clone(), min_wire_version });
        }
        (max_wire_version < CLIENT_MIN_WIRE_VERSION)
            .then(|| Self::ServerTooOld { address: address.clone(), max_wire_version })
    }
}
