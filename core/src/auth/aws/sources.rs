//! Sources of the credentials of AWS where the application gives none: the environment, or the
//! services of AWS that the environment points at (Authentication, "Obtaining Credentials").

mod container;

use bson::DateTime;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::auth::AwsCredentials;
use crate::config::Secret;
use crate::http::{Endpoint, HttpError, HttpRequest, Method, ResponseReader};

pub use container::{Authorization, Container};

/// The time that the token is valid by which the metadata of EC2 are read, in seconds.
const METADATA_TOKEN_SECONDS: u32 = 30;

/// The path at which EC2 returns the name of an instance's role, and below it the role's
/// credentials.
const EC2_ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// The maximum length of the body of a response, in bytes.
const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// The header that asks for JSON, where a service has a choice.
const JSON: (&str, &str) = ("Accept", "application/json");

/// The maximum length of the name of a role, a token or a path, in bytes.
const MAX_TEXT_LEN: usize = 32 * 1024;

/// A source of credentials of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwsSource {
    /// The environment variables themselves.
    Environment(AwsCredentials),
    /// The Security Token Service, which is shown a token of OpenID Connect that a file contains.
    WebIdentity(WebIdentity),
    /// The agent of the Elastic Container Service, or that of EKS Pod Identity.
    Container(Container),
    /// The metadata of an EC2 instance.
    Ec2,
}

/// The request to the Security Token Service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebIdentity {
    /// The file that contains the token.
    pub token_file: String,
    /// The role to assume.
    pub role_arn: String,
    /// The name of the session; something random, if there is none.
    pub session_name: Option<String>,
}

impl WebIdentity {
    /// Shows the token in this file, in order to assume this role.
    pub fn new(token_file: impl Into<String>, role_arn: impl Into<String>) -> Self {
        Self { token_file: token_file.into(), role_arn: role_arn.into(), session_name: None }
    }

    /// Replaces [`session_name`](Self::session_name).
    #[must_use]
    pub fn with_session_name(mut self, session_name: Option<String>) -> Self {
        self.session_name = session_name;
        self
    }
}

/// The endpoints of the services of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AwsEndpoints {
    /// The Security Token Service.
    pub sts: Endpoint,
    /// The agent of the Elastic Container Service.
    pub ecs: Endpoint,
    /// The metadata of an EC2 instance.
    pub ec2: Endpoint,
}

impl AwsEndpoints {
    /// Names all three.
    pub const fn new(sts: Endpoint, ecs: Endpoint, ec2: Endpoint) -> Self {
        Self { sts, ecs, ec2 }
    }
}

/// The addresses that AWS has fixed.
impl Default for AwsEndpoints {
    fn default() -> Self {
        let link_local = |host: &str| Endpoint { host: host.into(), port: 80, tls: false };
        Self {
            sts: Endpoint { host: "sts.amazonaws.com".into(), port: 443, tls: true },
            ecs: link_local("169.254.170.2"),
            ec2: link_local("169.254.169.254"),
        }
    }
}

/// The reason why there are no credentials of AWS. None of them shows a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AwsSourceError {
    /// Some environment variables are set, and others are missing.
    #[error(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set, or neither of them and no \
         AWS_SESSION_TOKEN"
    )]
    Incomplete,
    /// The path to the agent of ECS is none.
    #[error(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with a slash, and contain printable \
         ASCII characters only"
    )]
    Path,
    /// The URI of an agent is none, or one that may not be shown a token.
    #[error("AWS_CONTAINER_CREDENTIALS_FULL_URI {0}")]
    Uri(&'static str),
    /// The text for the agent is not a token.
    #[error(
        "AWS_CONTAINER_AUTHORIZATION_TOKEN, or the file that \
         AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names, must contain one line of printable ASCII"
    )]
    ContainerToken,
    /// The token in the file is none.
    #[error(
        "the file that AWS_WEB_IDENTITY_TOKEN_FILE names must contain a token, and nothing else"
    )]
    WebToken,
    /// A service did not answer as HTTP prescribes, or with an error.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer of EC2 to one of the first two questions is not a token, or not a name of a role.
    #[error("the metadata of EC2 contain no {0}")]
    Metadata(&'static str),
    /// The response is not a set of credentials.
    #[error(
        "the answer is not the JSON of credentials, with AccessKeyId, SecretAccessKey, Token (or \
         SessionToken) and Expiration"
    )]
    Json,
}

impl AwsSource {
    /// Finds out which source applies, by the environment variables; empty ones count as not set.
    ///
    /// # Errors
    ///
    /// Fails if variables contradict each other, or one has a value that it does not allow.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Self, AwsSourceError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let session_token = set("AWS_SESSION_TOKEN").map(Secret::from);
        match (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY"), session_token) {
            (Some(access_key_id), Some(secret), session_token) => {
                let secret_access_key = secret.into();
                return Ok(Self::Environment(AwsCredentials {
                    access_key_id,
                    secret_access_key,
                    session_token,
                    expires: None,
                }));
            }
            (None, None, None) => {}
            _ => return Err(AwsSourceError::Incomplete),
        }
        if let Some((token_file, role_arn)) =
            set("AWS_WEB_IDENTITY_TOKEN_FILE").zip(set("AWS_ROLE_ARN"))
        {
            let session_name = set("AWS_ROLE_SESSION_NAME");
            return Ok(Self::WebIdentity(WebIdentity { token_file, role_arn, session_name }));
        }
        Ok(Container::find(set)?.map_or(Self::Ec2, Self::Container))
    }
}

/// Returns whether a text can be a part of a line of HTTP.
fn is_line(text: &str) -> bool {
    let is_printable = |byte: u8| byte.is_ascii_graphic();
    !text.is_empty() && text.len() <= MAX_TEXT_LEN && text.bytes().all(is_printable)
}

/// Credentials that are being fetched from a service of AWS, by one exchange of HTTP after another,
/// each over a connection of its own.
///
/// ```
/// use sdam_core::auth::{AwsEndpoints, AwsFetch, AwsStep, Container};
///
/// let container = Container::new("/v2/credentials");
/// let (mut fetch, request) = AwsFetch::container(&AwsEndpoints::default(), &container, None)?;
/// assert_eq!(request.endpoint.host, "169.254.170.2");
/// let body = r#"{"AccessKeyId": "AKID", "SecretAccessKey": "s", "Token": "t",
///     "Expiration": "2026-08-25T12:00:00Z"}"#;
/// let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
/// let Some(AwsStep::Found(credentials)) = fetch.receive(response.as_bytes())? else {
///     panic!("the response is complete");
/// };
/// assert_eq!(credentials.access_key_id, "AKID");
/// # Ok::<(), sdam_core::auth::AwsSourceError>(())
/// ```
pub struct AwsFetch {
    endpoint: Endpoint,
    response: ResponseReader,
    due: Due,
}

/// The expected content of the next response.
enum Due {
    MetadataToken,
    Role { token: Zeroizing<String> },
    Credentials,
}

/// The step after a response.
#[derive(Debug)]
pub enum AwsStep {
    /// One more exchange is needed.
    Next(HttpRequest),
    /// There they are.
    Found(AwsCredentials),
}

impl AwsFetch {
    /// Asks the Security Token Service: "AssumeRoleWithWebIdentity". `random` names the session if
    /// nothing else does.
    ///
    /// # Errors
    ///
    /// Fails if the token is none.
    pub fn web_identity(
        endpoints: &AwsEndpoints,
        identity: &WebIdentity,
        token: &Secret,
        random: u64,
    ) -> Result<(Self, HttpRequest), AwsSourceError> {
        let token = token.expose().trim_ascii();
        if !is_line(token) {
            return Err(AwsSourceError::WebToken);
        }
        let random = format!("sdam-{random:016x}");
        let session = identity.session_name.as_deref().unwrap_or(&random);
        let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let body = Zeroizing::new(format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&\
             WebIdentityToken={}",
            escaped(&identity.role_arn),
            escaped(session),
            escaped(token),
        ));
        let headers = [("Content-Type", "application/x-www-form-urlencoded"), JSON];
        let body = Some(body.as_bytes());
        let request = endpoints.sts.request(Method::Post, "/", &headers, body);
        Ok((Self::new(&endpoints.sts, Due::Credentials), request))
    }

    /// Asks the agent that hands out the credentials of a container, and shows it `token`, which
    /// the caller has read where [`Container::authorization`] says.
    ///
    /// # Errors
    ///
    /// Fails if the token is none.
    pub fn container(
        endpoints: &AwsEndpoints,
        container: &Container,
        token: Option<&Secret>,
    ) -> Result<(Self, HttpRequest), AwsSourceError> {
        let token = token.map(container::header_value).transpose()?;
        let headers: Vec<_> =
            token.map(|token| ("Authorization", token)).into_iter().chain([JSON]).collect();
        let endpoint = container.endpoint.as_ref().unwrap_or(&endpoints.ecs);
        let request = endpoint.request(Method::Get, &container.path, &headers, None);
        Ok((Self::new(endpoint, Due::Credentials), request))
    }

    /// Asks for the metadata of an EC2 instance, by their second version: for a token, then for the
    /// name of the role, then for its credentials.
    pub fn ec2(endpoints: &AwsEndpoints) -> (Self, HttpRequest) {
        let lifetime = METADATA_TOKEN_SECONDS.to_string();
        let headers = [("X-aws-ec2-metadata-token-ttl-seconds", lifetime.as_str())];
        let request = endpoints.ec2.request(Method::Put, "/latest/api/token", &headers, Some(b""));
        (Self::new(&endpoints.ec2, Due::MetadataToken), request)
    }

    fn new(endpoint: &Endpoint, due: Due) -> Self {
        Self { endpoint: endpoint.clone(), response: ResponseReader::new(MAX_RESPONSE_LEN), due }
    }

    /// Takes bytes of the response to the last request, however they are split; `None` if it goes
    /// on.
    ///
    /// # Errors
    ///
    /// Fails if the service refuses, or its answer is not as it should be.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<AwsStep>, AwsSourceError> {
        let received = self.response.receive(bytes);
        // What else it says is not waited for.
        if let Some(status) = self.response.status().filter(|status| *status != 200) {
            return Err(HttpError::Status(status).into());
        }
        match received? {
            Some(response) => self.answered(&response.body).map(Some),
            None => Ok(None),
        }
    }

    /// Takes note that the peer has closed the connection while its response was awaited.
    ///
    /// # Errors
    ///
    /// Fails as [`receive`](Self::receive) does, and if that was too early.
    pub fn ended(&mut self) -> Result<AwsStep, AwsSourceError> {
        let response = self.response.end()?;
        self.answered(&response.body)
    }

    fn answered(&mut self, body: &[u8]) -> Result<AwsStep, AwsSourceError> {
        self.response = ResponseReader::new(MAX_RESPONSE_LEN);
        let line = || std::str::from_utf8(body.trim_ascii()).ok().filter(|text| is_line(text));
        match &self.due {
            Due::MetadataToken => {
                let token = line().ok_or(AwsSourceError::Metadata("token"))?;
                let token = Zeroizing::new(token.to_owned());
                let request = self.metadata(EC2_ROLES, &token);
                self.due = Due::Role { token };
                Ok(AwsStep::Next(request))
            }
            Due::Role { token } => {
                let role = line().ok_or(AwsSourceError::Metadata("name of a role"))?;
                let request = self.metadata(&format!("{EC2_ROLES}{role}"), token);
                self.due = Due::Credentials;
                Ok(AwsStep::Next(request))
            }
            Due::Credentials => credentials(body).map(AwsStep::Found),
        }
    }

    fn metadata(&self, path: &str, token: &str) -> HttpRequest {
        self.endpoint.request(Method::Get, path, &[("X-aws-ec2-metadata-token", token)], None)
    }
}

impl std::fmt::Debug for AwsFetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsFetch").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// The answer of ECS and EC2, and the content of that of STS.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    access_key_id: String,
    secret_access_key: String,
    #[serde(alias = "SessionToken")]
    token: String,
    expiration: Expiration,
}

/// "2026-08-25T12:00:00Z", or the seconds since 1970.
#[derive(Deserialize)]
#[serde(untagged)]
enum Expiration {
    Text(String),
    Seconds(f64),
}

/// Any of the forms of an answer; STS wraps it twice more where it speaks JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Plain(Given),
    Credentials {
        #[serde(rename = "Credentials")]
        given: Given,
    },
    Sts {
        #[serde(rename = "AssumeRoleWithWebIdentityResponse")]
        response: StsResponse,
    },
}

#[derive(Deserialize)]
struct StsResponse {
    #[serde(rename = "AssumeRoleWithWebIdentityResult")]
    result: StsResult,
}

#[derive(Deserialize)]
struct StsResult {
    #[serde(rename = "Credentials")]
    given: Given,
}

fn credentials(json: &[u8]) -> Result<AwsCredentials, AwsSourceError> {
    // What the parser says could show a part of it.
    let given = match serde_json::from_slice(json).map_err(|_| AwsSourceError::Json)? {
        Document::Plain(given) | Document::Credentials { given } => given,
        Document::Sts { response } => response.result.given,
    };
    let expires = match given.expiration {
        Expiration::Text(text) => DateTime::parse_rfc3339_str(text).ok(),
        #[expect(clippy::cast_possible_truncation, reason = "a time beyond the range is its end")]
        Expiration::Seconds(seconds) => Some(DateTime::from_millis((seconds * 1000.0) as i64)),
    };
    if given.access_key_id.is_empty() || given.secret_access_key.is_empty() {
        return Err(AwsSourceError::Json);
    }
    Ok(AwsCredentials {
        access_key_id: given.access_key_id,
        secret_access_key: given.secret_access_key.into(),
        session_token: Some(given.token.into()),
        expires: Some(expires.ok_or(AwsSourceError::Json)?),
    })
}

#[cfg(test)]
mod tests;
