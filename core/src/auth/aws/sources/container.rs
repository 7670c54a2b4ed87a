//! The credentials of a container: where its environment says that they are handed out, and what
//! to show there (AWS SDKs and Tools Reference Guide, "Container credential provider").
//!
//! The agent of ECS is named by a path, and that of EKS Pod Identity by a URI and a file with a
//! token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AwsSourceError, MAX_TEXT_LEN, is_line};
use crate::config::Secret;
use crate::http::Endpoint;

/// The agents that may be asked without TLS besides loopback: those of ECS and of EKS.
const AGENTS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23)),
];

/// An agent that hands out the credentials of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// Its endpoint: [`AwsEndpoints::ecs`](super::AwsEndpoints::ecs) if the environment names only
    /// a path.
    pub endpoint: Option<Endpoint>,
    /// The path, with the query if there is one.
    pub path: String,
    /// The authorization to show, if there is one.
    pub authorization: Option<Authorization>,
}

/// The authorization that a container shows to the agent that hands out its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// This: `AWS_CONTAINER_AUTHORIZATION_TOKEN`.
    Token(Secret),
    /// The content of this file at the time, as it is replaced before it expires:
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`.
    File(String),
}

impl Container {
    /// Finds out what the environment says of it, `None` if nothing; a path comes before a URI,
    /// and a file before a token.
    pub(super) fn find(
        set: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, AwsSourceError> {
        let (endpoint, path) = match set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            Some(path) if path.starts_with('/') && is_line(&path) => (None, path),
            Some(_) => return Err(AwsSourceError::Path),
            None => match set("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
                Some(uri) => {
                    let (endpoint, path) = parse(&uri).map_err(AwsSourceError::Uri)?;
                    (Some(endpoint), path)
                }
                None => return Ok(None),
            },
        };
        let file = set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(Authorization::File);
        let token = || set("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::from);
        let authorization = file.or_else(|| token().map(Authorization::Token));
        Ok(Some(Self { endpoint, path, authorization }))
    }

    /// Asks the agent at the usual endpoint for this path, and shows it nothing.
    pub fn new(path: impl Into<String>) -> Self {
        Self { endpoint: None, path: path.into(), authorization: None }
    }

    /// Replaces [`endpoint`](Self::endpoint).
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: Option<Endpoint>) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// Replaces [`authorization`](Self::authorization).
    #[must_use]
    pub fn with_authorization(mut self, authorization: Option<Authorization>) -> Self {
        self.authorization = authorization;
        self
    }
}

/// Returns a token as a part of a header, if it can be one.
pub(super) fn header_value(token: &Secret) -> Result<&str, AwsSourceError> {
    let token = token.expose().trim_ascii();
    let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    match !token.is_empty() && token.len() <= MAX_TEXT_LEN && token.bytes().all(is_printable) {
        true => Ok(token),
        false => Err(AwsSourceError::ContainerToken),
    }
}

/// Takes a URI apart; without TLS, only this machine and the agents may be shown a token, and a
/// name could lead anywhere.
fn parse(uri: &str) -> Result<(Endpoint, String), &'static str> {
    if !is_line(uri) || uri.contains('#') {
        return Err("must be printable ASCII, without spaces and #");
    }
    let (tls, rest) = match (uri.strip_prefix("https://"), uri.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("must begin with http:// or https://"),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("must have no user name");
    }
    let (host, port) = split_port(authority).ok_or("must have one host, and a port as a number")?;
    let port = match port {
        None => 443 * u16::from(tls) + 80 * u16::from(!tls),
        Some(port) => port.parse().map_err(|_| "must have a port from 1 to 65535")?,
    };
    let address = host.parse::<IpAddr>().ok();
    let is_agent = |ip: IpAddr| ip.is_loopback() || AGENTS.contains(&ip);
    if port == 0 {
        return Err("must have a port from 1 to 65535");
    }
    if !tls && !address.map_or(host == "localhost", is_agent) {
        return Err("must begin with https://, or lead to localhost, a loopback address, \
                    169.254.170.2, 169.254.170.23 or [fd00:ec2::23]");
    }
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    Ok((Endpoint { host: host.to_owned(), port, tls }, path))
}

/// Splits `host:port`, where an IPv6 address is in brackets.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_digits = |port: &&str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port {
        _ if host.is_empty() => None,
        "" => Some((host, None)),
        port => Some((host, Some(port.strip_prefix(':').filter(is_digits)?))),
    }
}
