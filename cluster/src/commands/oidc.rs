//! MONGODB-OIDC: a client shows a token, and is who the token says.
//!
//! Implements the server's side of Authentication, "MONGODB-OIDC", for machines. Real servers
//! verify a signature; here the tokens that are good are known.

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::bson;

use crate::authentication::{
    EXTERNAL, OIDC, Payload, UserName, check_external, malformed, refused,
};
use crate::model::{Cluster, ConnectionId};
use crate::options::ServerVersion;
use crate::wire::CommandError;

/// The name of the one whom all tokens are of.
const USER: &str = "sdam/oidc";

impl Cluster {
    /// Returns whether the members offer the mechanism.
    pub(super) fn offers_oidc(&self) -> bool {
        !self.options.oidc_tokens.is_empty() && self.options.version >= ServerVersion::V7_0
    }

    /// Logs in by the token of a `saslStart`, in one step; a token that is new on this connection
    /// takes the place of the former.
    pub(super) fn show_token(
        &mut self,
        id: ConnectionId,
        payload: &Payload,
        database: &str,
    ) -> Result<RawDocumentBuf, CommandError> {
        check_external(database, OIDC)?;
        let shown = RawDocument::from_bytes(&payload.bytes).ok();
        let token = shown.and_then(|it| it.get_str("jwt").ok());
        let token = token.ok_or_else(|| malformed("the payload is a document with a jwt"))?;
        if !self.options.oidc_tokens.iter().any(|it| it.expose() == token) {
            return Err(refused());
        }
        let version = self.options.version;
        let user = UserName::new(EXTERNAL, USER);
        self.login_mut(id).ok_or_else(refused)?.log_in(user, version)?;
        Ok(payload.answer(RawDocumentBuf::new().as_bytes(), true))
    }
}
