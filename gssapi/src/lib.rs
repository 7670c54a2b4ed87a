//! Security contexts of the system's Kerberos, for logins by GSSAPI (RFC 4752).
//!
//! [`SystemGssapi`] asks the GSSAPI of MIT Kerberos, Heimdal or macOS, whichever is installed, so
//! that tickets come from where `kinit` has put them (`KRB5CCNAME`), and everything else is
//! configured as for all programs (`krb5.conf`, `KRB5_CONFIG`). Clients of `sdam` with the feature
//! `gssapi` use it unless they are given another provider.
//!
//! Building it needs the headers of that library and libclang: on Debian, the packages
//! `libkrb5-dev` and `libclang-dev`. There is no library of that kind on Windows.
//!
//! ```
//! use sdam_core::auth::{GssapiLogin, GssapiProvider, GssapiService};
//! use sdam_core::failure::GssapiProblem;
//! use sdam_gssapi::SystemGssapi;
//!
//! let service = GssapiService::new("mongodb", "db.example").with_realm(Some("NONE".into()));
//! let login = GssapiLogin::new("ann@NONE", service);
//! let error = SystemGssapi.begin(&login).err().expect("there is no such ticket");
//! assert_eq!(error.problem, GssapiProblem::NoTicket);
//! ```

#![forbid(unsafe_code)]

mod canonical_name;
mod context;
mod problem;

use libgssapi::credential::{Cred, CredUsage};
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_KRB5_PRINCIPAL, OidSet};
use sdam_core::auth::{
    Canonicalization, GssapiContext, GssapiError, GssapiLogin, GssapiProvider, GssapiService,
};
use sdam_core::config::Secret;

use context::SystemContext;
use problem::error;

/// The GSSAPI of the system, with Kerberos as its mechanism.
///
/// A password obtains a ticket for one login, which is in no cache; without one, the cache has to
/// have a ticket of the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemGssapi;

impl GssapiProvider for SystemGssapi {
    fn canonical_name(&self, host: &str, canonicalization: Canonicalization) -> Option<String> {
        canonical_name::of(host, canonicalization)
    }

    fn begin(&self, login: &GssapiLogin) -> Result<Box<dyn GssapiContext>, GssapiError> {
        let user = &login.username;
        let failed = |failure| error(failure, || format!("Kerberos has no ticket of {user}"));
        let mechanisms = OidSet::singleton(GSS_MECH_KRB5).map_err(failed)?;
        let name = Name::new(user.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL)).map_err(failed)?;
        let (name, usage) = (Some(&name), CredUsage::Initiate);
        let credential = match login.password.as_ref().map(Secret::expose) {
            None => Cred::acquire(name, None, usage, Some(&mechanisms)),
            Some(password) => {
                Cred::acquire_with_password(name, password, None, usage, Some(&mechanisms))
            }
        };
        let credential = credential.map_err(failed)?;
        Ok(Box::new(SystemContext::new(credential, &login.service)?))
    }
}

/// Returns the name of a service as a principal, so that the library looks no host up by itself.
fn service_name(service: &GssapiService) -> Result<Name, GssapiError> {
    let (name, host) = (escaped(&service.name), escaped(&service.host));
    let realm = service.realm.as_ref().map(|realm| format!("@{}", escaped(realm)));
    let principal = format!("{name}/{host}{}", realm.unwrap_or_default());
    Name::new(principal.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL))
        .map_err(|failure| error(failure, || format!("no service can be called {principal:?}")))
}

/// Escapes what separates the parts of a principal.
fn escaped(part: &str) -> String {
    let mut escaped = String::with_capacity(part.len());
    for character in part.chars() {
        if matches!(character, '/' | '@' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use sdam_core::auth::{GssapiProvider as _, GssapiService};

    use super::{SystemGssapi, escaped, service_name};
    use sdam_core::auth::Canonicalization;

    #[test]
    fn a_part_of_a_principal_is_one_part() {
        assert_eq!(escaped(r"a/b@c\d.e"), r"a\/b\@c\\d.e");
        let service = GssapiService::new("mongodb", "db/x").with_realm(Some("HERE".into()));
        assert_eq!(service_name(&service).unwrap().to_string(), r"mongodb/db\/x@HERE");
    }

    /// "Hostname Canonicalization": a lookup that fails is none.
    #[test]
    fn a_host_that_is_unknown_has_no_canonical_name() {
        for way in [Canonicalization::Forward, Canonicalization::ForwardAndReverse] {
            assert_eq!(SystemGssapi.canonical_name("no.such.host.invalid", way), None);
            assert_eq!(SystemGssapi.canonical_name("not\0a host", way), None);
            let found = SystemGssapi.canonical_name("LOCALHOST", way);
            assert!(found.is_none_or(|name| name == name.to_lowercase() && !name.is_empty()));
        }
    }
}
