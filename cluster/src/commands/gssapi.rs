//! GSSAPI: a client and a member exchange tokens, and agree on no security layer (RFC 4752).
//!
//! Implements the server's side of Authentication, "GSSAPI". Real servers ask a library of
//! Kerberos; here both halves follow a script.

use bson::RawDocumentBuf;
use sdam_core::bson;

use crate::authentication::{
    EXTERNAL, GSSAPI, GssapiConversation, GssapiState, Payload, SERVER_TOKEN, UserName,
    check_external, refused, unwrapped, user_of, wrapped,
};
use crate::model::{Cluster, ConnectionId};
use crate::wire::CommandError;

/// The offer of no security layer, and the beginning of the answer that chooses it.
const NO_LAYER: &[u8] = &[1, 0, 0, 0];

impl Cluster {
    /// Returns whether the members offer the mechanism.
    pub(super) fn offers_gssapi(&self) -> bool {
        !self.options.gssapi_users.is_empty()
    }

    /// Takes the first token of a client.
    pub(super) fn begin_gssapi(
        &mut self,
        id: ConnectionId,
        payload: &Payload,
        database: &str,
    ) -> Result<RawDocumentBuf, CommandError> {
        check_external(database, GSSAPI)?;
        let user = user_of(&payload.bytes).ok_or_else(refused)?.to_owned();
        if !self.options.gssapi_users.contains(&user) {
            return Err(refused());
        }
        let conversation = GssapiConversation { user, state: GssapiState::Established };
        let login = self.login_mut(id).ok_or_else(refused)?;
        (login.conversation, login.gssapi) = (None, Some(conversation));
        Ok(payload.answer(SERVER_TOKEN, false))
    }

    /// Goes on with the login of a client; whatever is wrong ends it.
    pub(super) fn proceed_gssapi(
        &mut self,
        id: ConnectionId,
        conversation: GssapiConversation,
        payload: &Payload,
    ) -> Result<RawDocumentBuf, CommandError> {
        let version = self.options.version;
        let login = self.login_mut(id).ok_or_else(refused)?;
        let GssapiConversation { user, state } = conversation;
        match state {
            GssapiState::Established if payload.bytes.is_empty() => {
                login.gssapi = Some(GssapiConversation { user, state: GssapiState::Offered });
                Ok(payload.answer(&wrapped(NO_LAYER), false))
            }
            GssapiState::Established => Err(refused()),
            GssapiState::Offered => {
                let answer = unwrapped(&payload.bytes).and_then(|it| it.strip_prefix(NO_LAYER));
                if answer != Some(user.as_bytes()) {
                    return Err(refused());
                }
                login.log_in(UserName::new(EXTERNAL, &user), version)?;
                Ok(payload.answer(b"", true))
            }
        }
    }
}
