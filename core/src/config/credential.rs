//! The client's identity, for mechanisms; monitors never log in.

use std::collections::BTreeMap;

use super::Secret;
use super::options::Settings;

/// A mechanism by which a client proves its identity (Authentication, "Supported Authentication
/// Methods").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthMechanism {
    /// SCRAM with SHA-1.
    ScramSha1,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// X.509: the certificate of the TLS connection.
    X509,
    /// PLAIN, as with LDAP.
    Plain,
    /// GSSAPI, that is Kerberos.
    Gssapi,
    /// The credentials of Amazon Web Services, which come from the environment or a provider.
    Aws,
    /// OpenID Connect.
    Oidc,
}

impl AuthMechanism {
    const ALL: [Self; 7] = [
        Self::ScramSha1,
        Self::ScramSha256,
        Self::X509,
        Self::Plain,
        Self::Gssapi,
        Self::Aws,
        Self::Oidc,
    ];

    /// Returns the name in `authMechanism` and in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::X509 => "MONGODB-X509",
            Self::Plain => "PLAIN",
            Self::Gssapi => "GSSAPI",
            Self::Aws => "MONGODB-AWS",
            Self::Oidc => "MONGODB-OIDC",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Returns whether the users are not in a database of the server, and never are.
    const fn is_external(self) -> bool {
        matches!(self, Self::X509 | Self::Gssapi | Self::Aws | Self::Oidc)
    }
}

/// The client's identity. No form of showing it shows the password or a property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credential {
    /// The user's name; absent where the mechanism finds it out.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The database that knows the user.
    pub source: String,
    /// The mechanism, or `None` to agree on a SCRAM with the server.
    pub mechanism: Option<AuthMechanism>,
    /// The mechanism's properties: `authMechanismProperties`. Some of them are secrets.
    pub mechanism_properties: BTreeMap<String, Secret>,
}

/// The reason why a credential is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// `authSource` is empty.
    #[error("authSource is empty; it must name a database, or be left out")]
    EmptySource,
    /// The mechanism knows no databases.
    #[error("authSource must be $external or left out with {mechanism}")]
    Source {
        /// The mechanism.
        mechanism: &'static str,
    },
    /// The user name is empty.
    #[error("the user name is empty; it must have at least one character, or be left out")]
    EmptyUsername,
    /// There is a password and no user name.
    #[error("there is a password, but no user name; both or neither are needed")]
    PasswordWithoutUsername,
    /// Something is missing.
    #[error("{mechanism} needs {what}")]
    Missing {
        /// The mechanism.
        mechanism: &'static str,
        /// The missing part.
        what: &'static str,
    },
    /// Something must not be there.
    #[error("{mechanism} does not allow {what}")]
    NotAllowed {
        /// The mechanism.
        mechanism: &'static str,
        /// The part that is not allowed.
        what: &'static str,
    },
    /// A property has a value that it does not allow.
    #[error("the property {property} of {mechanism} must be {allowed}")]
    Property {
        /// The mechanism.
        mechanism: &'static str,
        /// The property.
        property: &'static str,
        /// The values that it allows.
        allowed: &'static str,
    },
}

/// The number of callbacks of MONGODB-OIDC that the settings announce.
#[derive(Clone, Copy, PartialEq)]
enum Callbacks {
    None,
    One,
    Both,
}

impl Callbacks {
    const fn of(settings: &Settings) -> Self {
        match (settings.oidc_callback, settings.oidc_human_callback.is_some()) {
            (false, false) => Self::None,
            (true, true) => Self::Both,
            _ => Self::One,
        }
    }
}

/// The database of users that no database of the server knows.
const EXTERNAL: &str = "$external";

impl Credential {
    /// Judges and completes what the settings say of the client (Authentication, "Connection
    /// String Options"); a database alone is no request to authenticate.
    pub(in crate::config) fn from_settings(
        settings: &Settings,
    ) -> Result<Option<Self>, CredentialError> {
        let auth_source = settings.auth_source.as_deref();
        if auth_source == Some("") {
            return Err(CredentialError::EmptySource);
        }
        match (settings.username.as_deref(), &settings.password) {
            (Some(""), _) => return Err(CredentialError::EmptyUsername),
            (None, Some(_)) => return Err(CredentialError::PasswordWithoutUsername),
            (None, None) if settings.auth_mechanism.is_none() => return Ok(None),
            _ => {}
        }
        let mechanism = settings.auth_mechanism;
        if let Some(mechanism) = mechanism.filter(|mechanism| mechanism.is_external())
            && auth_source.is_some_and(|source| source != EXTERNAL)
        {
            return Err(CredentialError::Source { mechanism: mechanism.name() });
        }
        let source = match mechanism {
            Some(mechanism) if mechanism.is_external() => EXTERNAL,
            Some(AuthMechanism::Plain) => {
                auth_source.or(settings.database.as_deref()).unwrap_or(EXTERNAL)
            }
            _ => auth_source.or(settings.database.as_deref()).unwrap_or("admin"),
        };
        let mut credential = Self {
            username: settings.username.clone(),
            password: settings.password.clone(),
            source: source.to_owned(),
            mechanism,
            mechanism_properties: settings.auth_mechanism_properties.clone(),
        };
        if let Some(mechanism) = mechanism {
            credential.check(mechanism, Callbacks::of(settings))?;
        }
        if mechanism == Some(AuthMechanism::Gssapi) {
            let properties = &mut credential.mechanism_properties;
            properties.entry("SERVICE_NAME".into()).or_insert_with(|| "mongodb".into());
        }
        Ok(Some(credential))
    }

    fn check(&self, mechanism: AuthMechanism, callbacks: Callbacks) -> Result<(), CredentialError> {
        let name = mechanism.name();
        let missing = |what| Err(CredentialError::Missing { mechanism: name, what });
        let not_allowed = |what| Err(CredentialError::NotAllowed { mechanism: name, what });
        let (username, password) = (self.username.is_some(), self.password.is_some());
        match mechanism {
            AuthMechanism::ScramSha1 | AuthMechanism::ScramSha256 | AuthMechanism::Plain => {
                match (username, password) {
                    (false, _) => missing("a user name"),
                    (true, false) => missing("a password"),
                    // It separates the parts of its message with NUL (RFC 4616).
                    (true, true) if mechanism == AuthMechanism::Plain && self.has_nul() => {
                        not_allowed("a NUL in the user name or the password")
                    }
                    (true, true) => Ok(()),
                }
            }
            AuthMechanism::Gssapi if !username => missing("a user name"),
            AuthMechanism::Gssapi => self.check_gssapi(),
            AuthMechanism::X509 if password => not_allowed("a password"),
            AuthMechanism::X509 => Ok(()),
            // Since September 2025 these come from the environment or a provider only.
            AuthMechanism::Aws if username => {
                not_allowed("a user name or password; they come from the environment")
            }
            AuthMechanism::Aws if !self.mechanism_properties.is_empty() => {
                not_allowed("properties; they come from the environment")
            }
            AuthMechanism::Aws => Ok(()),
            AuthMechanism::Oidc if password => not_allowed("a password"),
            AuthMechanism::Oidc => self.check_oidc(callbacks),
        }
    }

    fn has_nul(&self) -> bool {
        let password = self.password.as_ref().map(Secret::expose);
        [self.username.as_deref(), password].into_iter().flatten().any(|text| text.contains('\0'))
    }

    fn property(&self, name: &str) -> Option<&str> {
        self.mechanism_properties.get(name).map(Secret::expose)
    }

    fn check_gssapi(&self) -> Result<(), CredentialError> {
        const KNOWN: [&str; 4] =
            ["SERVICE_NAME", "SERVICE_HOST", "SERVICE_REALM", "CANONICALIZE_HOST_NAME"];
        if !self.mechanism_properties.keys().all(|name| KNOWN.contains(&name.as_str())) {
            return Err(CredentialError::NotAllowed {
                mechanism: AuthMechanism::Gssapi.name(),
                what: "other properties than SERVICE_NAME, SERVICE_HOST, SERVICE_REALM and \
                       CANONICALIZE_HOST_NAME",
            });
        }
        match self.property("CANONICALIZE_HOST_NAME") {
            None | Some("none" | "forward" | "forwardAndReverse" | "true" | "false") => Ok(()),
            Some(_) => Err(CredentialError::Property {
                mechanism: AuthMechanism::Gssapi.name(),
                property: "CANONICALIZE_HOST_NAME",
                allowed: "none, forward or forwardAndReverse",
            }),
        }
    }

    fn check_oidc(&self, callbacks: Callbacks) -> Result<(), CredentialError> {
        let mechanism = AuthMechanism::Oidc.name();
        let missing = |what| Err(CredentialError::Missing { mechanism, what });
        let not_allowed = |what| Err(CredentialError::NotAllowed { mechanism, what });
        let known = |name: &String| ["ENVIRONMENT", "TOKEN_RESOURCE"].contains(&name.as_str());
        if !self.mechanism_properties.keys().all(known) {
            return not_allowed("other properties than ENVIRONMENT and TOKEN_RESOURCE");
        }
        let username = self.username.is_some();
        let resource = self.property("TOKEN_RESOURCE").is_some();
        match self.property("ENVIRONMENT") {
            _ if callbacks == Callbacks::Both => {
                not_allowed("both a callback and a human callback")
            }
            None if callbacks == Callbacks::None => {
                missing("the property ENVIRONMENT, or a callback")
            }
            Some(_) if callbacks == Callbacks::One => {
                not_allowed("both the property ENVIRONMENT and a callback")
            }
            Some("azure" | "gcp") if !resource => missing("the property TOKEN_RESOURCE here"),
            Some("test" | "k8s") | None if resource => {
                not_allowed("the property TOKEN_RESOURCE here")
            }
            Some("test" | "gcp" | "k8s") if username => not_allowed("a user name here"),
            None | Some("test" | "azure" | "gcp" | "k8s") => Ok(()),
            Some(_) => Err(CredentialError::Property {
                mechanism,
                property: "ENVIRONMENT",
                allowed: "test, azure, gcp or k8s",
            }),
        }
    }
}
