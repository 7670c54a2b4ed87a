//! The commands that shells, exporters and other tools send before anything else.

use bson::raw::cstr;
use bson::{DateTime, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::config::ServerAddress;
use sdam_core::time::Instant;

use super::collections;
use crate::model::{Cluster, ConnectionId, Process, Role};
use crate::options::{MemberId, ServerVersion};
use crate::wire::{CommandError, Request};

/// The commands that are refused on any other database than `admin`.
const ON_ADMIN: [&str; 6] = [
    "getCmdLineOpts",
    "getDefaultRWConcern",
    "getLog",
    "listDatabases",
    "replSetGetConfig",
    "replSetGetStatus",
];

impl Cluster {
    /// Answers a command that only asks.
    ///
    /// # Errors
    ///
    /// Fails as real servers do, also if there is no such command.
    pub(super) fn describe(
        &self,
        now: Instant,
        id: ConnectionId,
        member: MemberId,
        request: &Request<'_>,
    ) -> Result<RawDocumentBuf, CommandError> {
        let not_found = || CommandError::not_found(request.command);
        let process = self.process(member).ok_or_else(not_found)?;
        let (body, name) = (request.body, request.command_name());
        let database = request.database.unwrap_or_default();
        if ON_ADMIN.contains(&name) && database != "admin" {
            let reason = format!("{name} may only be run against the admin database.");
            return Err(CommandError::coded(13, reason));
        }
        Ok(match name {
            "aggregate" => self.aggregate(now, id, process, request)?,
            "connectionStatus" => self.connection_status(id, body),
            "count" | "distinct" | "listCollections" | "listDatabases" => {
                process.role.check_readable(request)?;
                match name {
                    "count" => collections::count(body)?,
                    "distinct" => collections::distinct(body)?,
                    "listCollections" => collections::collections(database)?,
                    _ => collections::databases(process.version, body),
                }
            }
            "getCmdLineOpts" => self.command_line(member, process),
            "getDefaultRWConcern" if process.version.has_awaitable_hello() => {
                self.default_concerns(now, process)
            }
            "getLastError" => self.last_error(id, process)?,
            "getLog" => self.server_log(member, body)?,
            "hostInfo" => self.host_info(now, member),
            "isdbgrid" if process.role == Role::Mongos => {
                rawdoc! { "isdbgrid": 1, "hostname": self.host(member), "ok": 1.0 }
            }
            "replSetGetConfig" => self.replication_config(now, member)?,
            "replSetGetStatus" => self.replication_status(now, member)?,
            "serverStatus" => self.server_status(now, id, process, body),
            "whatsmyuri" => {
                let peer = self.connections.get(&id).and_then(|it| it.peer);
                // One that the deployment itself has opened comes from nowhere.
                let peer = peer.map_or_else(|| "anonymous:0".to_owned(), |it| it.to_string());
                rawdoc! { "you": peer, "ok": 1.0 }
            }
            _ => return Err(not_found()),
        })
    }

    /// Says how the last write of the connection went: well, as its own reply has said.
    fn last_error(
        &self,
        id: ConnectionId,
        process: &Process,
    ) -> Result<RawDocumentBuf, CommandError> {
        if process.version > ServerVersion::V5_0 {
            return Err(CommandError::numbered(5_739_000, "there is no getLastError any more"));
        }
        let connection = self.connections.get(&id).map_or(0, |it| it.number);
        let mut reply = rawdoc! {
            "connectionId": connection, "n": 0, "syncMillis": 0, "writtenTo": null,
        };
        if process.version.has_awaitable_hello() {
            reply.append(cstr!("writeConcern"), rawdoc! { "w": 1, "wtimeout": 0 });
        }
        reply.append(cstr!("err"), RawBson::Null);
        reply.append(cstr!("ok"), 1.0);
        Ok(reply)
    }

    /// Returns where a member is, as it says itself.
    pub(super) fn host(&self, member: MemberId) -> String {
        self.members[member.0].address.to_string()
    }

    /// Answers `connectionStatus`: the user who is logged in, who may do everything.
    fn connection_status(&self, id: ConnectionId, command: &RawDocument) -> RawDocumentBuf {
        let user = self.connections.get(&id).and_then(|it| it.login.user());
        let users = user.map(|(database, name)| rawdoc! { "user": name, "db": database });
        let roles = user.map(|_| rawdoc! { "role": "root", "db": "admin" });
        let mut info = rawdoc! {
            "authenticatedUsers": RawArrayBuf::from_iter(users),
            "authenticatedUserRoles": RawArrayBuf::from_iter(roles),
        };
        if command.get_bool("showPrivileges").unwrap_or(false) {
            let all = user.map(|_| {
                rawdoc! { "resource": { "anyResource": true }, "actions": ["anyAction"] }
            });
            info.append(cstr!("authenticatedUserPrivileges"), RawArrayBuf::from_iter(all));
        }
        rawdoc! { "authInfo": info, "ok": 1.0 }
    }

    /// Says how a server like this one would have been started.
    fn command_line(&self, member: MemberId, process: &Process) -> RawDocumentBuf {
        let mut parsed = RawDocumentBuf::new();
        if let ServerAddress::Tcp { port, .. } = &self.members[member.0].address {
            parsed.append(cstr!("net"), rawdoc! { "port": i32::from(*port) });
        }
        if process.role.is_of_set() {
            let name = self.options.set_name.as_str();
            parsed.append(cstr!("replication"), rawdoc! { "replSet": name });
        }
        if !self.accounts.is_empty() {
            parsed.append(cstr!("security"), rawdoc! { "authorization": "enabled" });
        }
        rawdoc! { "argv": [process.program()], "parsed": parsed, "ok": 1.0 }
    }

    /// Says what is meant by reads and writes that do not say it.
    fn default_concerns(&self, now: Instant, process: &Process) -> RawDocumentBuf {
        let mut concerns = RawDocumentBuf::new();
        if process.version.has_majority_by_default() {
            concerns.append(cstr!("defaultReadConcern"), rawdoc! { "level": "local" });
            if self.config.implies_majority() {
                let majority = rawdoc! { "w": "majority", "wtimeout": 0 };
                concerns.append(cstr!("defaultWriteConcern"), majority);
            }
            concerns.append(cstr!("defaultWriteConcernSource"), "implicit");
            concerns.append(cstr!("defaultReadConcernSource"), "implicit");
        }
        let updated = DateTime::from_millis(self.wall_millis(now));
        concerns.append(cstr!("localUpdateWallClockTime"), updated);
        concerns.append(cstr!("ok"), 1.0);
        concerns
    }

    /// Answers a `getLog`: nothing is ever logged but which transactions were open for too long.
    fn server_log(
        &self,
        member: MemberId,
        command: &RawDocument,
    ) -> Result<RawDocumentBuf, CommandError> {
        let lines = match command.get_str("getLog") {
            Ok("*") => {
                return Ok(rawdoc! { "names": ["global", "startupWarnings"], "ok": 1.0 });
            }
            Ok("startupWarnings") => Vec::new(),
            Ok("global") => self.expired_transactions(member),
            Ok(_) => {
                return Err(CommandError::coded(
                    96,
                    "there is no such log; getLog: '*' lists them",
                ));
            }
            Err(_) => return Err(CommandError::coded(14, "getLog is a text")),
        };
        let count = i32::try_from(lines.len()).unwrap_or(i32::MAX);
        let lines = RawArrayBuf::from_iter(lines);
        Ok(rawdoc! { "totalLinesWritten": count, "log": lines, "ok": 1.0 })
    }

    fn host_info(&self, now: Instant, member: MemberId) -> RawDocumentBuf {
        let bits = i32::try_from(usize::BITS).unwrap_or(i32::MAX);
        let system = rawdoc! {
            "currentTime": DateTime::from_millis(self.wall_millis(now)),
            "hostname": self.host(member),
            "cpuAddrSize": bits,
            "cpuArch": std::env::consts::ARCH,
        };
        rawdoc! { "system": system, "os": { "type": std::env::consts::OS }, "extra": {}, "ok": 1.0 }
    }
}
