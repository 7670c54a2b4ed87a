//! The answers of members to commands, one file a family.

mod aggregate;
mod collections;
mod cursor;
mod diagnostics;
mod error_labels;
mod gssapi;
mod hello;
mod login;
mod oidc;
mod oplog;
mod parameters;
mod replication_config;
mod replication_status;
mod server_status;
mod stable_api;
mod writes;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Message, ReplyFlags, write_op_reply};

use self::oplog::is_about_oplog;
use crate::data::{read_concern, search};
use crate::model::fail_point::{FailPoint, Injection, Name};
use crate::model::{Action, Cluster, ConnectionId, Done, Process, Role, Then};
use crate::options::{Deployment, MemberId};
use crate::store::LIFETIME;
use crate::wire::{CommandError, Hello, Request, integer, no_documents, reply};

impl Cluster {
    /// Returns what the fail point of the member, and its latency, do to a command that begins now.
    pub(crate) fn injection(&mut self, id: ConnectionId, command: &str) -> Injection {
        // As on real servers: it could never be switched off, and a refusal is no failure.
        if command == "configureFailPoint" || !self.may_run(id, command) {
            return Injection::default();
        }
        let Some(connection) = self.connections.get(&id) else {
            return Injection::default();
        };
        let (member, app_name) = (connection.member, connection.app_name.clone());
        let fail_points = self.process_mut(member).map(|it| &mut it.fail_points);
        let by_command = fail_points.into_iter().flatten();
        let mut by_command = by_command.filter(|(name, _)| **name != Name::OnTransactionalWrite);
        let struck = by_command.find_map(|(_, it)| it.strike(command, app_name.as_deref()));
        let mut injection = struck.unwrap_or_default();
        if matches!(command, "hello" | "isMaster") {
            injection.block = injection.block.saturating_add(self.members[member.0].hello_latency);
        }
        injection
    }

    /// Runs a command, or makes it fail, and replies; one that has waited before has a limit, if
    /// its time has one.
    pub(crate) fn run(
        &mut self,
        now: Instant,
        id: ConnectionId,
        message: &Message,
        mut injection: Injection,
        limit: Option<Instant>,
        out: &mut Vec<Action>,
    ) {
        let member = self.connections.get(&id).map(|connection| connection.member);
        let (Ok(request), Some(member), false) = (Request::parse(message), member, injection.close)
        else {
            return self.close(id, out);
        };
        let Some(server) = self.process(member) else { return };
        let (version, request) = (server.version, request.streamed_if(server.streams_batches()));
        if let Err(error) = request.check(version) {
            let (replies, position) = (Err(error), self.data_of(member).last());
            let done = Done { injection, replies, position };
            return self.answer(now, (id, member), &request, done, out);
        }
        if injection.error.is_none()
            && let Some(until) = self.must_wait(now, id, &request, limit)
        {
            return self.wait(id, until, Then::Await(message.clone(), injection));
        }
        self.strike_cursor(member, &request, &mut injection);
        self.count_request(member, &request);
        if request.is_for_documents() {
            return self.refuse_query((id, member), &request, out);
        }
        let refusal = || request.refusal(version).or(stable_api::check(&request, version).err());
        let mut replies = match injection.error.clone().or_else(refusal) {
            Some(error) => Err(error),
            None if request.command == "hello" && !version.has_awaitable_hello() => {
                Err(CommandError::not_found("hello"))
            }
            None if request.is_hello() => match Hello::parse(&request, version) {
                Ok(_) if request.silent => return,
                Ok(hello) => match self.hello_login(id, request.body) {
                    Ok(fields) => {
                        return self.begin_hello(now, id, request.reply_to, hello, fields, out);
                    }
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
            None if !self.may_run(id, request.command_name()) => {
                Err(CommandError::unauthorized(request.command))
            }
            None => match self.authenticate(id, &request) {
                Some(reply) => reply.map(|reply| vec![reply]),
                None => self.execute(now, id, member, &request, out),
            },
        };
        let error = replies.as_ref().err().filter(|_| injection.error.is_none());
        let waits = self.must_wait_for_transaction(now, &request, error, limit);
        if waits.is_some()
            && let Some(process) = self.process_mut(member)
        {
            process.counters.note_conflict();
        }
        match waits {
            Some(Some(until)) if until <= now => replies = Err(CommandError::time_is_over()),
            Some(until) => return self.wait(id, until, Then::Await(message.clone(), injection)),
            None => {}
        }
        let has_concern = self.has_concern(member, &request, &replies, &injection);
        let confirms = replies.is_ok() && self.is_linearizable(&request);
        self.note_nothing(now, member, has_concern && replies.is_err() || confirms);
        let done = Done { injection, replies, position: self.data_of(member).last() };
        match has_concern.then(|| self.unsatisfied(now, member, &request)).flatten() {
            Some(until) => {
                let done = Box::new(done);
                self.wait(id, until, Then::Acknowledge(message.clone(), done));
            }
            None => self.answer(now, (id, member), &request, done, out),
        }
    }

    /// Applies a fail point to a retryable write when it is done, not when it comes again and
    /// receives the same answer.
    fn strike_write(&mut self, member: MemberId, request: &Request<'_>, injection: &mut Injection) {
        let is_numbered = request.body.get("txnNumber").is_ok_and(|it| it.is_some());
        let has_struck = injection.error.is_some() || injection.close_after;
        if !is_numbered || request.is_in_transaction() || has_struck {
            return;
        }
        let is_set = |it: &Process| it.fail_points.contains_key(&Name::OnTransactionalWrite);
        if !self.process(member).is_some_and(is_set) || self.has_done(member, request.body) {
            return;
        }
        let process = self.process_mut(member).filter(|it| it.role.is_writable());
        let point = process.and_then(|it| it.fail_points.get_mut(&Name::OnTransactionalWrite));
        if let Some(struck) = point.and_then(|it| it.strike(request.command_name(), None)) {
            injection.close_after = struck.close_after;
            injection.error = struck.error;
        }
    }

    /// Applies a fail point to a `getMore` that has its cursor, which is gone then; the error has a
    /// label if it was that of a change stream. Others are struck as they write.
    fn strike_cursor(
        &mut self,
        member: MemberId,
        request: &Request<'_>,
        injection: &mut Injection,
    ) {
        let Some(error) = injection.error.as_ref().filter(|_| injection.drops_cursor) else {
            return self.strike_write(member, request, injection);
        };
        let is_stream = request
            .body
            .get_i64("getMore")
            .is_ok_and(|id| self.take_cursor(member, id).is_some_and(|it| it.stream.is_some()));
        if is_stream && error_labels::is_resumable(error.code, self.version_of(member)) {
            let label = || vec!["ResumableChangeStreamError".to_owned()];
            injection.labels.get_or_insert_with(label);
        }
    }

    /// Replies to a command that has been run, or has failed.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        (id, member): (ConnectionId, MemberId),
        request: &Request<'_>,
        done: Done,
        out: &mut Vec<Action>,
    ) {
        let Done { injection, replies, position } = done;
        let replies = match self.unconfirmed(member, request, position) {
            Some(error) => replies.and(Err(error)),
            None => replies,
        };
        if injection.close_after {
            return self.close(id, out);
        }
        let Some(version) = self.process(member).map(|it| it.version) else {
            return;
        };
        let fails = injection.error.is_some();
        if let Some(process) = self.process_mut(member) {
            process.counters.note_outcome(request.command_name(), replies.is_err());
        }
        // A command that fails by itself has no write concern to fail, but such a commit.
        let has_concern = self.has_concern(member, request, &replies, &injection);
        let own = || self.write_concern_error(member, request, position).filter(|_| has_concern);
        let injected = injection.write_concern_error.filter(|_| replies.is_ok());
        let write_concern_error = injected.or_else(own);
        let of_concern = write_concern_error.as_ref().and_then(|error| error.get_i32("code").ok());
        let replies_failed = replies.is_err() && of_concern.is_none();
        let code = match &replies {
            Err(error) if of_concern.is_none() => Some(error.code),
            _ => of_concern,
        };
        let shows_token = replies.is_ok();
        let mut replies = replies.unwrap_or_else(|error| vec![self.error_reply(member, &error)]);
        let Some(mut last) = replies.pop().filter(|_| !request.silent) else {
            return;
        };
        // Those of a fail point replace what the server itself would say, even if there are none.
        let chosen = injection.labels.filter(|_| fails || write_concern_error.is_some());
        let own = || match replies_failed {
            true => error_labels::of(code?, request, version).map(str::to_owned),
            false => error_labels::of_concern(code?, request, version).map(str::to_owned),
        };
        let labels = chosen.unwrap_or_else(|| own().into_iter().collect());
        append_errors(&mut last, &labels, write_concern_error);
        if shows_token {
            self.append_recovery_token(member, request, &mut last);
        }
        let mut reply_to = request.reply_to;
        for document in replies {
            let flags = Flags::MORE_TO_COME;
            reply_to.request_id = self.send(now, id, reply_to, flags, document, out);
        }
        self.send(now, id, reply_to, Flags::NONE, last, out);
    }

    /// Answers a query for documents, which is no command.
    fn refuse_query(
        &mut self,
        (id, member): (ConnectionId, MemberId),
        request: &Request<'_>,
        out: &mut Vec<Action>,
    ) {
        let Some(process) = self.process_mut(member) else { return };
        let (request_id, to) = (process.next_request_id(), request.reply_to.request_id);
        let (document, mut bytes) = (no_documents(process.version), Vec::new());
        write_op_reply(&mut bytes, request_id, to, ReplyFlags::QUERY_FAILURE, &document);
        self.send_bytes(id, bytes, out);
    }

    /// Checks the read concern of a command against the member that is to answer it.
    fn check_read_concern(
        &self,
        member: MemberId,
        request: &Request<'_>,
    ) -> Result<(), CommandError> {
        let process = self.process(member);
        let version = process.map_or(self.options.version, |it| it.version);
        read_concern::check(request.command_name(), request.body, version)?;
        match process.filter(|_| self.is_linearizable(request)) {
            Some(process) => process.role.check_writable(),
            None => Ok(()),
        }
    }

    /// Executes a command and returns its reply, or its replies if the client takes several.
    fn execute(
        &mut self,
        now: Instant,
        id: ConnectionId,
        member: MemberId,
        request: &Request<'_>,
        out: &mut Vec<Action>,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        if self.options.deployment == Deployment::Standalone {
            check_alone(request)?;
        }
        if self.options.keeps_data {
            self.check_read_concern(member, request)?;
            if let Some(replies) = self.run_on_data(now, member, request) {
                if request.is_in_transaction() {
                    self.note_use(now, (id, member), request);
                }
                return replies;
            }
            if is_about_oplog(request) {
                return Ok(vec![self.oplog_stats(member)?]);
            }
        }
        let (mechanisms, keeps_data) = (self.mechanisms(), self.options.keeps_data);
        let Some(process) = self.process_mut(member) else {
            return Ok(Vec::new());
        };
        let reply = match request.command_name() {
            "ping" | "endSessions" | "killAllSessions" => reply::ok(),
            "killCursors" => cursor::kill(process.process_id, request.body),
            "buildInfo" => reply::build_info(process.version),
            "startSession" => reply::session(self.rng.next_u64(), self.rng.next_u64()),
            "_isSelf" => rawdoc! { "id": process.process_id, "ok": 1.0 },
            "configureFailPoint" => {
                let (name, new) = FailPoint::parse(request.body)?;
                let before = process.fail_points.remove(&name);
                process.fail_points.extend(new.map(|it| (name, it)));
                rawdoc! { "count": before.map_or(0, |it| it.struck()), "ok": 1.0 }
            }
            "getParameter" => {
                let version = Some(process.version).filter(|_| process.role != Role::Mongos);
                let lifetime = Some(LIFETIME).filter(|_| keeps_data && version.is_some());
                let facts = (version, lifetime);
                parameters::read(&process.rate_limit, request.body, facts, &mechanisms)?
            }
            "setParameter" => {
                parameters::write(&mut process.rate_limit, request.body)?;
                reply::ok()
            }
            "find" => {
                process.role.check_readable(request)?;
                cursor::first(process.process_id, request.body)?
            }
            "getMore" => {
                return cursor::next(process.process_id, request.body, request.allows_exhaust());
            }
            name if search::is_about_indexes(name, process.version) => {
                return Err(search::refusal(process.version));
            }
            name if writes::is_write(name) => {
                process.role.check_writable()?;
                self.count_write();
                writes::reply(request, self.options.max_write_batch_size)?
            }
            "replSetStepDown" if process.role.is_of_set() => {
                process.role.check_writable()?;
                self.step_down(now, member, out);
                reply::ok()
            }
            "replSetStepDown" if process.role == Role::Standalone => {
                return Err(CommandError::coded(76, "the server is no member of a replica set"));
            }
            _ => self.describe(now, id, member, request)?,
        };
        Ok(vec![reply])
    }

    /// Returns the reply that reports an error to a client.
    fn error_reply(&self, member: MemberId, error: &CommandError) -> RawDocumentBuf {
        let version = self.process(member).map_or(self.options.version, |it| it.version);
        let mut document = reply::error(&error.named_by(version));
        if let Some(process) = self.process(member)
            && error.is_not_primary()
            && process.version.has_awaitable_hello()
        {
            document.append(cstr!("topologyVersion"), process.topology_version());
        }
        document
    }
}

/// Adds what there is besides the outcome of the command itself.
fn append_errors(
    reply: &mut RawDocumentBuf,
    labels: &[String],
    write_concern_error: Option<RawDocumentBuf>,
) {
    if !labels.is_empty() {
        let labels: RawArrayBuf = labels.iter().map(String::as_str).collect();
        reply.append(cstr!("errorLabels"), labels);
    }
    if let Some(error) = write_concern_error {
        reply.append(cstr!("writeConcernError"), error);
    }
}

/// Refuses what takes a replica set: a number under which a write may come again, a write concern
/// of several members, and the read concerns of one.
fn check_alone(request: &Request<'_>) -> Result<(), CommandError> {
    if request.body.get("txnNumber").is_ok_and(|it| it.is_some()) {
        let reason = "Transaction numbers are only allowed on a replica set member or mongos";
        return Err(CommandError::coded(20, reason));
    }
    let w = request.body.get_document("writeConcern").ok();
    let w = w.and_then(|concern| concern.get("w").ok().flatten());
    if w.and_then(integer).is_some_and(|servers| servers > 1) {
        let reason = "cannot use 'w' > 1 when a host is not replicated";
        return Err(CommandError::coded(2, reason));
    }
    let Ok(concern) = request.body.get_document("readConcern") else { return Ok(()) };
    if concern.get("afterClusterTime").is_ok_and(|it| it.is_some()) {
        let reason = "Cannot specify afterClusterTime readConcern without replication enabled";
        return Err(CommandError::coded(20, reason));
    }
    match concern.get_str("level") {
        Ok("linearizable" | "snapshot") => {
            let reason = "node needs to be a replica set member to use this read concern";
            Err(CommandError::coded(123, reason))
        }
        _ => Ok(()),
    }
}
