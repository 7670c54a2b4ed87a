//! Address maps: where the bytes for a server go, when not to the address it advertises.
//!
//! The advertised address stays the key of everything that SDAM knows, and the name that TLS
//! checks; a map decides nothing but which socket is opened. No specification mentions it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::config::address::{normalized, parse_port, split_port};
use crate::config::{AddressError, MAX_HOST_LEN, ServerAddress};
use crate::failure::{Cause, Failure};

/// The greatest number of rules in a map; every connection may have to look at all of them.
pub const MAX_RULES: usize = 1000;

/// The longest text of a rule, in bytes: two addresses, with brackets and ports.
pub const MAX_RULE_LEN: usize = 2 * (MAX_HOST_LEN + "[]:65535".len()) + "=".len();

/// Rules by which the bytes for a server go elsewhere than to the address it advertises.
///
/// The first rule that matches counts, and its target is not mapped again. A map without rules, the
/// default, changes nothing.
///
/// ```
/// use sdam_core::config::address_map::AddressMap;
///
/// let map = AddressMap::new([
///     "db1.internal:27017=127.0.0.1:30001".parse()?,
///     "*.svc.cluster.local=*.example.com".parse()?,
/// ])?;
/// assert_eq!(map.resolve(&"db1.internal".parse()?).to_string(), "127.0.0.1:30001");
/// assert_eq!(map.resolve(&"b.svc.cluster.local:5".parse()?).to_string(), "b.example.com:5");
/// assert_eq!(map.resolve(&"elsewhere".parse()?).to_string(), "elsewhere:27017");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap {
    rules: Vec<AddressRule>,
}

impl AddressMap {
    /// Collects rules, the most important first.
    ///
    /// # Errors
    ///
    /// [`AddressMapError::TooManyRules`] if there are more than [`MAX_RULES`].
    pub fn new(rules: impl IntoIterator<Item = AddressRule>) -> Result<Self, AddressMapError> {
        let rules: Vec<_> = rules.into_iter().take(MAX_RULES + 1).collect();
        match rules.len() > MAX_RULES {
            true => Err(AddressMapError::TooManyRules),
            false => Ok(Self { rules }),
        }
    }

    /// Returns the rules, the most important first.
    pub fn rules(&self) -> &[AddressRule] {
        &self.rules
    }

    /// Returns the address to dial for the advertised one; that itself if no rule matches.
    pub fn resolve(&self, advertised: &ServerAddress) -> ServerAddress {
        let dialled = self.rules.iter().find_map(|rule| rule.apply(advertised));
        dialled.unwrap_or_else(|| advertised.clone())
    }

    /// Names what was dialled in a failure to talk to a server, if that is another address.
    pub(crate) fn explain(&self, advertised: &ServerAddress, failure: Failure) -> Failure {
        let dialled = self.resolve(advertised);
        if dialled == *advertised || failure.cause == Cause::Canceled {
            return failure;
        }
        // Adapters begin with what they dialled where a name has several addresses.
        let detail = failure.detail.strip_prefix(&format!("{dialled}: "));
        let detail = detail.unwrap_or(&failure.detail);
        let detail = format!("dialled as {dialled}: {detail}");
        Failure::new(failure.stage, failure.cause, detail)
    }
}

/// One rule, `FROM=TO`.
///
/// `FROM` is a host, which then stands for all its ports, or `HOST:PORT`. In the host each `*`
/// matches any run of characters, dots included; all but the last `*` match as little as they can.
/// The port may be `*`, too. Unix domain sockets are never mapped.
///
/// `TO` is `HOST:PORT`, a host alone for the port that was advertised, or the path of a Unix domain
/// socket. A `*` in the host stands for what the first `*` of `FROM` matched; where that would make
/// no host name, the rule does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRule {
    from: HostPort,
    to: Target,
}

/// A host, perhaps with `*`, and a port unless any will do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort {
    host: Arc<str>,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Tcp(HostPort),
    Unix(ServerAddress),
}

/// The reason why a text is no rule, or rules are no map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressMapError {
    /// There are more than [`MAX_RULES`].
    #[error("there are too many rules; at most {MAX_RULES} are allowed")]
    TooManyRules,
    /// The text exceeds [`MAX_RULE_LEN`].
    #[error("the rule is {0} bytes long; at most {MAX_RULE_LEN} are allowed")]
    TooLong(usize),
    /// There is nothing that separates the two addresses.
    #[error("{0:?} has no =; write FROM=TO, as in db1.internal:27017=127.0.0.1:30001")]
    NoEquals(String),
    /// The text in front of the `=` is not a pattern.
    #[error("{from:?} cannot be mapped: {source}; write HOST or HOST:PORT, * for any")]
    From {
        /// The text in front of the `=`.
        from: String,
        /// The fault of the line.
        source: AddressError,
    },
    /// The text in front of the `=` is a path.
    #[error("{0:?} is a path, which is never mapped; only HOST or HOST:PORT can be")]
    FromPath(String),
    /// The text behind the `=` is not an address.
    #[error("{to:?} cannot be dialled: {source}; write HOST, HOST:PORT or the path of a socket")]
    To {
        /// The text behind the `=`.
        to: String,
        /// The fault of the line.
        source: AddressError,
    },
    /// A `*` behind the `=` that nothing stands for.
    #[error("the * in {0:?} stands for nothing; one is allowed, in a host, if FROM has one too")]
    Star(String),
}

impl AddressRule {
    /// Returns what to dial instead of `advertised`, `None` if the rule does not match.
    fn apply(&self, advertised: &ServerAddress) -> Option<ServerAddress> {
        let ServerAddress::Tcp { host, port } = advertised else {
            return None;
        };
        if self.from.port.is_some_and(|wanted| wanted != *port) {
            return None;
        }
        let captured = captured(&self.from.host, host)?;
        let to = match &self.to {
            Target::Unix(path) => return Some(path.clone()),
            Target::Tcp(to) => to,
        };
        let host = match to.host.contains('*') {
            false => Arc::clone(&to.host),
            true => normalized(&to.host.replacen('*', captured, 1)).ok()?,
        };
        Some(ServerAddress::Tcp { host, port: to.port.unwrap_or(*port) })
    }
}

/// Matches a host, and returns what the first `*` matched, or `""` if there is none.
///
/// The pieces between the stars are looked for from left to right and never again, so this takes
/// no more time than looking for each of them once in the whole host.
fn captured<'h>(pattern: &str, host: &'h str) -> Option<&'h str> {
    let Some((prefix, rest)) = pattern.split_once('*') else {
        return (pattern == host).then_some("");
    };
    let (middle, suffix) = rest.rsplit_once('*').map_or((None, rest), |(m, s)| (Some(m), s));
    let inner = host.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let Some(middle) = middle else {
        return Some(inner);
    };
    let (mut first, mut left) = (None, inner);
    for piece in middle.split('*') {
        let at = left.find(piece)?;
        first.get_or_insert(&left[..at]);
        left = &left[at + piece.len()..];
    }
    first
}

impl FromStr for AddressRule {
    type Err = AddressMapError;

    fn from_str(text: &str) -> Result<Self, AddressMapError> {
        if text.len() > MAX_RULE_LEN {
            return Err(AddressMapError::TooLong(text.len()));
        }
        let (from, to) =
            text.split_once('=').ok_or_else(|| AddressMapError::NoEquals(text.to_owned()))?;
        if from.contains('/') {
            return Err(AddressMapError::FromPath(from.to_owned()));
        }
        let from = split_port(from)
            .and_then(|(host, port)| HostPort::new(host, port.filter(|port| *port != "*")))
            .map_err(|source| AddressMapError::From { from: from.to_owned(), source })?;
        let target: Target =
            to.parse().map_err(|source| AddressMapError::To { to: to.to_owned(), source })?;
        let allowed = match target {
            Target::Tcp(_) => usize::from(from.host.contains('*')),
            Target::Unix(_) => 0,
        };
        match to.matches('*').count() > allowed {
            true => Err(AddressMapError::Star(to.to_owned())),
            false => Ok(Self { from, to: target }),
        }
    }
}

impl HostPort {
    fn new(host: &str, port: Option<&str>) -> Result<Self, AddressError> {
        // The author most likely meant to write several rules.
        if let Some(character) = host.chars().find(|c| matches!(c, ',' | '=')) {
            return Err(AddressError::Character(character));
        }
        Ok(Self { host: normalized(host)?, port: port.map(parse_port).transpose()? })
    }
}

impl FromStr for Target {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('/') || text.ends_with(".sock") {
            return text.parse().map(Self::Unix);
        }
        let (host, port) = split_port(text)?;
        HostPort::new(host, port).map(Self::Tcp)
    }
}

impl fmt::Display for AddressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.from, self.to)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(target) => target.fmt(f),
            Self::Unix(path) => path.fmt(f),
        }
    }
}
