//! The transactions that a mongos knows: those that it has begun itself. It can recover any other
//! one, by the token that the replies have given (Transactions, "recoveryToken field").

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::arguments::Arguments;
use super::is_write;
use super::transactions::{is_unknown, too_old};
use crate::model::{Cluster, Role};
use crate::options::MemberId;
use crate::store::Routed;
use crate::wire::{CommandError, Request};

/// The name of the shard that knows what becomes of a transaction.
const RECOVERY_SHARD: &str = "shard0";

/// The number of sessions that a mongos remembers; of the others it knows nothing.
const MAX_SESSIONS: usize = 4096;

impl Cluster {
    /// Has a mongos find the transaction of a command, and returns whether it does not know it but
    /// recovers its outcome. Others know all transactions that there are.
    ///
    /// # Errors
    ///
    /// Fails as mongos do if it neither knows it nor can recover it.
    pub(super) fn route(
        &mut self,
        member: MemberId,
        session: &[u8],
        number: i64,
        name: &str,
        arguments: &Arguments,
    ) -> Result<bool, CommandError> {
        let Some(process) = self.process_mut(member).filter(|it| it.role == Role::Mongos) else {
            return Ok(false);
        };
        let routed = process.routed.get(session).copied();
        let active = routed.map(|it| it.number);
        if active.is_some_and(|active| active > number) {
            return Err(too_old(number, active.unwrap_or_default()));
        }
        let writes = is_write(name) || routed.is_some_and(|it| it.number == number && it.writes);
        if active == Some(number) || arguments.body.contains_key("startTransaction") {
            if routed.is_none() && process.routed.len() >= MAX_SESSIONS {
                process.routed.pop_first();
            }
            process.routed.insert(session.to_vec(), Routed { number, writes });
            return Ok(false);
        }
        match name {
            "commitTransaction" => check_token(arguments).map(|()| true),
            _ => Err(is_unknown(number, active.unwrap_or(-1))),
        }
    }

    /// Adds to a mongos' reply to a command of a transaction what another one needs to recover it.
    pub(crate) fn append_recovery_token(
        &self,
        member: MemberId,
        request: &Request<'_>,
        reply: &mut RawDocumentBuf,
    ) {
        let process = self.process(member).filter(|it| it.role == Role::Mongos);
        let Some(process) = process.filter(|_| request.is_in_transaction()) else { return };
        let number = request.body.get_i64("txnNumber").unwrap_or(-1);
        let routed = request.session_id().and_then(|it| process.routed.get(it));
        let token = match routed.filter(|it| it.number == number) {
            None if self.options.keeps_data => {
                let given = request.body.get_document("recoveryToken");
                given.map(ToOwned::to_owned).unwrap_or_default()
            }
            // One that has only read can be run again.
            Some(routed) if !routed.writes => RawDocumentBuf::new(),
            _ => rawdoc! { "recoveryShardId": RECOVERY_SHARD },
        };
        reply.append(cstr!("recoveryToken"), token);
    }
}

/// Checks that a commit says how to learn what has become of the transaction.
fn check_token(arguments: &Arguments) -> Result<(), CommandError> {
    match arguments.body.get_document("recoveryToken") {
        Err(_) => {
            let reason = "cannot recover the transaction decision without a recovery token";
            Err(CommandError::numbered(50940, reason))
        }
        Ok(token) if token.get_str("recoveryShardId").is_ok() => Ok(()),
        Ok(_) => {
            let reason = "Recovery token is empty, meaning the transaction only performed reads \
                          and can be safely retried";
            Err(CommandError::coded(251, reason))
        }
    }
}
