//! Users whom a server does not know itself, and the mechanisms by which they log in.

use super::scram::malformed;
use crate::wire::CommandError;

/// The database of those users.
pub(crate) const EXTERNAL: &str = "$external";

/// The name of GSSAPI.
pub(crate) const GSSAPI: &str = "GSSAPI";

/// The name of OpenID Connect.
pub(crate) const OIDC: &str = "MONGODB-OIDC";

/// Refuses a login at another database than [`EXTERNAL`].
pub(crate) fn check_external(database: &str, mechanism: &str) -> Result<(), CommandError> {
    match database {
        EXTERNAL => Ok(()),
        _ => Err(malformed(&format!("the users of {mechanism} are of {EXTERNAL}"))),
    }
}
