//! The source of security contexts for logins by GSSAPI.

use std::sync::Arc;

use sdam_core::auth::GssapiProvider;
use sdam_core::config::{AuthMechanism, Options};

use crate::error::ClientError;

/// Takes the application's, if there is one, or the system's; there is none for other mechanisms.
pub(crate) fn choose(
    options: &Options,
    given: Option<Arc<dyn GssapiProvider>>,
) -> Result<Option<Arc<dyn GssapiProvider>>, ClientError> {
    let mechanism = options.credential().and_then(|credential| credential.mechanism);
    match (mechanism, given) {
        (Some(AuthMechanism::Gssapi), None) => of_system().map(Some),
        (Some(AuthMechanism::Gssapi), given) => Ok(given),
        _ => Ok(None),
    }
}

#[cfg(feature = "gssapi")]
fn of_system() -> Result<Arc<dyn GssapiProvider>, ClientError> {
    Ok(Arc::new(sdam_gssapi::SystemGssapi))
}

#[cfg(not(feature = "gssapi"))]
const fn of_system() -> Result<Arc<dyn GssapiProvider>, ClientError> {
    Err(ClientError::GssapiUnsupported)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdam_core::auth::{GssapiContext, GssapiError, GssapiLogin, GssapiProvider};
    use sdam_core::config::Options;
    use sdam_core::failure::GssapiProblem;

    use super::choose;

    struct Own;

    impl GssapiProvider for Own {
        fn begin(&self, _: &GssapiLogin) -> Result<Box<dyn GssapiContext>, GssapiError> {
            Err(GssapiError::new(GssapiProblem::Other, "own"))
        }
    }

    #[test]
    fn a_client_has_its_own_provider_or_that_of_the_system_or_is_refused() {
        let kerberos = Options::parse("mongodb://ann@db/?authMechanism=GSSAPI").unwrap();
        assert!(choose(&kerberos, Some(Arc::new(Own))).unwrap().is_some());
        let chosen = choose(&kerberos, None);
        match cfg!(feature = "gssapi") {
            true => assert!(chosen.unwrap().is_some()),
            false => {
                let error = chosen.unwrap_err().to_string();
                for wanted in ["the feature gssapi", "ClientBuilder::gssapi_provider"] {
                    assert!(error.contains(wanted), "{error}");
                }
            }
        }
        let other = Options::parse("mongodb://db").unwrap();
        assert!(choose(&other, None).unwrap().is_none());
    }
}
