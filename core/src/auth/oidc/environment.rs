//! The environments of MONGODB-OIDC whose metadata hand tokens out, Azure and Google Cloud: the
//! request, and the token in the response (Authentication, "Built-in OIDC Environment
//! Integrations").

use std::fmt;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::auth::OidcToken;
use crate::config::{AuthMechanism, Credential, Secret};
use crate::http::{Endpoint, HttpRequest, HttpResponse, Method, ResponseReader};
use crate::text::beginning;

/// The maximum length of the body of a response, in bytes.
const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// The number of bytes of a refusal that its error shows.
const MAX_SHOWN_LEN: usize = 1024;

/// The bytes that a value of a query escapes: all but those that RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An environment whose metadata hand tokens out.
///
/// ```
/// use sdam_core::auth::{OidcEndpoints, OidcEnvironment};
/// use sdam_core::config::Options;
/// use sdam_core::http::HttpResponse;
///
/// let uri = "mongodb://h/?authMechanism=MONGODB-OIDC&\
///     authMechanismProperties=ENVIRONMENT:gcp,TOKEN_RESOURCE:api";
/// let options = Options::parse(uri)?;
/// let environment = OidcEnvironment::of(options.credential().unwrap()).unwrap();
/// let request = environment.request(&OidcEndpoints::default());
/// assert_eq!(request.endpoint.host, "metadata");
/// let token = environment.token(&HttpResponse::new(200, "ey..."))?;
/// assert_eq!(token.access_token.expose(), "ey...");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct OidcEnvironment {
    cloud: Cloud,
    /// The path of the request, with what the token is for.
    target: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cloud {
    Azure,
    Gcp,
}

/// The endpoints of the metadata, which are asked without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OidcEndpoints {
    /// The metadata of a virtual machine of Azure.
    pub azure: Endpoint,
    /// The metadata of Google Cloud.
    pub gcp: Endpoint,
}

impl OidcEndpoints {
    /// Names both.
    pub const fn new(azure: Endpoint, gcp: Endpoint) -> Self {
        Self { azure, gcp }
    }
}

/// The addresses that the clouds have fixed.
impl Default for OidcEndpoints {
    fn default() -> Self {
        let endpoint = |host: &str| Endpoint::new(host, 80, false);
        Self { azure: endpoint("169.254.169.254"), gcp: endpoint("metadata") }
    }
}

/// The reason why a response has no token. None of them shows a part of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OidcEnvironmentError {
    /// The service refuses.
    #[error("the answer has the HTTP status {status}, not 200, and says: {body}")]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of the body, on one line.
        body: String,
    },
    /// The answer of Azure is not what it should be.
    #[error(
        "the answer is not the JSON of a token, with access_token as a text, and expires_in, if it \
         is there, as a number of seconds that is not negative"
    )]
    Json,
    /// There is no token in the answer.
    #[error("the answer contains no token, which is one line of printable ASCII without spaces")]
    NoToken,
}

impl OidcEnvironment {
    /// Returns the environment that the credential names, `None` if it names none or another.
    pub fn of(credential: &Credential) -> Option<Self> {
        let property = |name| credential.mechanism_properties.get(name).map(Secret::expose);
        let cloud = match property("ENVIRONMENT") {
            Some("azure") if credential.mechanism == Some(AuthMechanism::Oidc) => Cloud::Azure,
            Some("gcp") if credential.mechanism == Some(AuthMechanism::Oidc) => Cloud::Gcp,
            _ => return None,
        };
        let resource = utf8_percent_encode(property("TOKEN_RESOURCE")?, ESCAPED);
        let target = match (cloud, credential.username.as_deref()) {
            (Cloud::Azure, username) => {
                let path = "/metadata/identity/oauth2/token?api-version=2018-02-01";
                let client = username.map(|name| utf8_percent_encode(name, ESCAPED));
                let client = client.map(|name| format!("&client_id={name}")).unwrap_or_default();
                format!("{path}&resource={resource}{client}")
            }
            (Cloud::Gcp, _) => {
                let path = "/computeMetadata/v1/instance/service-accounts/default/identity";
                format!("{path}?audience={resource}")
            }
        };
        Some(Self { cloud, target })
    }

    /// Returns its name in the property `ENVIRONMENT`.
    pub const fn name(&self) -> &'static str {
        match self.cloud {
            Cloud::Azure => "azure",
            Cloud::Gcp => "gcp",
        }
    }

    /// Writes the request for a token.
    pub fn request(&self, endpoints: &OidcEndpoints) -> HttpRequest {
        let (endpoint, headers): (_, &[_]) = match self.cloud {
            Cloud::Azure => {
                (&endpoints.azure, &[("Accept", "application/json"), ("Metadata", "true")])
            }
            Cloud::Gcp => (&endpoints.gcp, &[("Metadata-Flavor", "Google")]),
        };
        let endpoint = Endpoint { tls: false, ..endpoint.clone() };
        endpoint.request(Method::Get, &self.target, headers, None)
    }

    /// Returns what reads the response, up to 64 KiB of it.
    pub fn reader(&self) -> ResponseReader {
        ResponseReader::new(MAX_RESPONSE_LEN)
    }

    /// Returns the token in a response.
    ///
    /// # Errors
    ///
    /// The service refuses, or its answer is no token.
    pub fn token(&self, response: &HttpResponse) -> Result<OidcToken, OidcEnvironmentError> {
        if response.status != 200 {
            let (status, body) = (response.status, shown(&response.body));
            return Err(OidcEnvironmentError::Refused { status, body });
        }
        match self.cloud {
            Cloud::Azure => azure_token(&response.body),
            Cloud::Gcp => std::str::from_utf8(response.body.trim_ascii())
                .ok()
                .filter(|token| is_token(token))
                .map(OidcToken::new)
                .ok_or(OidcEnvironmentError::NoToken),
        }
    }
}

/// Shows its name, and not what the tokens are for.
impl fmt::Debug for OidcEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OidcEnvironment({})", self.name())
    }
}

/// Returns the beginning of a body as a text of one line.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words: Vec<&str> =
        text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect();
    match words.is_empty() {
        true => "nothing".to_owned(),
        false => beginning(&words.join(" "), MAX_SHOWN_LEN).to_owned(),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The answer of Azure; whatever else is in there is of no interest.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    expires_in: Option<Expiry>,
}

/// A number of seconds, which Azure writes as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Expiry {
    Text(String),
    Seconds(u64),
}

fn azure_token(json: &[u8]) -> Result<OidcToken, OidcEnvironmentError> {
    // What the parser says could show a part of it.
    let given: Given = serde_json::from_slice(json).map_err(|_| OidcEnvironmentError::Json)?;
    let mut token = OidcToken::new(given.access_token);
    if !is_token(token.access_token.expose()) {
        return Err(OidcEnvironmentError::NoToken);
    }
    let seconds = match given.expires_in {
        None => None,
        Some(Expiry::Seconds(seconds)) => Some(seconds),
        Some(Expiry::Text(text)) => Some(text.parse().map_err(|_| OidcEnvironmentError::Json)?),
    };
    token.expires_in = seconds.map(Duration::from_secs);
    Ok(token)
}

#[cfg(test)]
mod tests;
