//! The address of a server: a host name with a port, or the path of a Unix domain socket.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// The port of a server whose address names none.
pub const DEFAULT_PORT: u16 = 27017;

/// The longest host name or socket path that is accepted, in bytes.
///
/// DNS allows 253 and Linux 107; what is longer is nonsense or an attack.
pub const MAX_HOST_LEN: usize = 255;

/// The address of a server, as the seed list or another server names it.
///
/// Host names are normalised to lower case (SDAM: "Hostnames are normalized to lower-case").
///
/// ```
/// use sdam_core::config::ServerAddress;
///
/// let address: ServerAddress = "DB1.Example.com".parse()?;
/// assert_eq!(address.to_string(), "db1.example.com:27017");
/// assert_eq!("[::1]:5".parse::<ServerAddress>()?.to_string(), "[::1]:5");
/// assert_eq!("/tmp/mongodb-27017.sock".parse::<ServerAddress>()?.port(), None);
/// # Ok::<(), sdam_core::config::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServerAddress {
    /// A host name or IP address (an IPv6 address without its brackets), and a port.
    Tcp {
        /// The name, in lower case.
        host: Arc<str>,
        /// The port, never 0.
        port: u16,
    },
    /// The path of a Unix domain socket; it contains a `/`.
    Unix {
        /// The path, in the case it was given.
        path: Arc<str>,
    },
}

impl ServerAddress {
    /// Returns the host name, or the path of a Unix domain socket.
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix { path } => path,
        }
    }

    /// Returns whether parsing `text` would give this address, where that is cheap to see:
    /// lower-case names with a port, as servers advertise them.
    pub(crate) fn is_written(&self, text: &str) -> bool {
        match self {
            Self::Tcp { host, port } => text
                .strip_prefix(&**host)
                .and_then(|rest| rest.strip_prefix(':'))
                .is_some_and(|digits| is_number(digits, *port) && !host.contains(':')),
            Self::Unix { path } => **path == *text,
        }
    }

    /// Returns the port, or `None` for a Unix domain socket.
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp { port, .. } => Some(*port),
            Self::Unix { .. } => None,
        }
    }
}

/// The reason why a text is not a server address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no host name.
    #[error("the host name is empty")]
    Empty,
    /// The host name or path exceeds [`MAX_HOST_LEN`].
    #[error("the host name is {0} bytes long; at most {MAX_HOST_LEN} are allowed")]
    TooLong(usize),
    /// The port is not a number from 1 to 65535.
    #[error("the port {0:?} is not a number from 1 to 65535")]
    Port(String),
    /// An opening bracket without a closing one, or text behind the closing one.
    #[error("{0:?} is not an IPv6 address in brackets; write it as [::1] or [::1]:27017")]
    Brackets(String),
    /// More than one colon outside brackets.
    #[error("{0:?} has more than one colon; write an IPv6 address in brackets, as [::1]:27017")]
    Colons(String),
    /// A character that no host name has.
    #[error("the host name has the character {0:?}, which no host name may contain")]
    Character(char),
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > MAX_HOST_LEN + ":65535".len() {
            return Err(AddressError::TooLong(text.len()));
        }
        if text.contains('/') {
            return match text.chars().find(|c| c.is_control()) {
                Some(character) => Err(AddressError::Character(character)),
                None => Ok(Self::Unix { path: text.into() }),
            };
        }
        let (host, port) = split_port(text)?;
        let host = normalized(host)?;
        let port = match port {
            None => DEFAULT_PORT,
            Some(digits) => parse_port(digits)?,
        };
        Ok(Self::Tcp { host, port })
    }
}

/// An IP address with its scope, if it has one. The port 0, which no server has, stands for
/// [`DEFAULT_PORT`].
impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        let host = match address {
            SocketAddr::V6(address) if address.scope_id() != 0 => {
                format!("{}%{}", address.ip(), address.scope_id())
            }
            _ => address.ip().to_string(),
        };
        let port = if address.port() == 0 { DEFAULT_PORT } else { address.port() };
        Self::Tcp { host: host.into(), port }
    }
}

/// Checks the name of a host, and makes it lower case.
pub(crate) fn normalized(host: &str) -> Result<Arc<str>, AddressError> {
    if host.is_empty() {
        return Err(AddressError::Empty);
    }
    if host.len() > MAX_HOST_LEN {
        return Err(AddressError::TooLong(host.len()));
    }
    let no_host_has = |c: &char| c.is_control() || c.is_whitespace() || "[]".contains(*c);
    if let Some(character) = host.chars().find(no_host_has) {
        return Err(AddressError::Character(character));
    }
    // Most servers advertise lower-case names; those cost no copy of the copy.
    Ok(match host.chars().any(char::is_uppercase) {
        true => host.to_lowercase().into(),
        false => host.into(),
    })
}

/// Separates the host, without brackets, from the text of the port.
pub(crate) fn split_port(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) =
            rest.split_once(']').ok_or_else(|| AddressError::Brackets(text.to_owned()))?;
        return match (host.is_empty(), tail.strip_prefix(':'), tail) {
            (false, None, "") => Ok((host, None)),
            (false, Some(port), _) => Ok((host, Some(port))),
            _ => Err(AddressError::Brackets(text.to_owned())),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, rest)) if rest.contains(':') => Err(AddressError::Colons(text.to_owned())),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

/// Returns whether these are the digits of `number`, without a leading zero.
fn is_number(digits: &str, number: u16) -> bool {
    let mut rest = u32::from(number);
    let matches = digits.bytes().rev().all(|digit| {
        let same = rest > 0 && u32::from(digit) == rest % 10 + u32::from(b'0');
        rest /= 10;
        same
    });
    matches && rest == 0 && !digits.is_empty()
}

/// Reads a port, which is never 0.
pub(crate) fn parse_port(digits: &str) -> Result<u16, AddressError> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse::<u16>() {
        Ok(port) if port > 0 && all_digits => Ok(port),
        _ => Err(AddressError::Port(digits.to_owned())),
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => f.write_str(path),
        }
    }
}

impl Serialize for ServerAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{AddressError, ServerAddress};

    fn parse(text: &str) -> Result<String, AddressError> {
        text.parse::<ServerAddress>().map(|address| address.to_string())
    }

    #[test]
    fn sdam_hostnames_are_normalized_to_lower_case() {
        assert_eq!(parse("A.Example:1").unwrap(), "a.example:1");
        assert_eq!(parse("[FE80::1]").unwrap(), "[fe80::1]:27017");
        assert_eq!(parse("/Tmp/M.sock").unwrap(), "/Tmp/M.sock");
    }

    #[test]
    fn an_address_of_the_network_is_one_of_a_server() {
        for (text, expected) in [
            ("127.0.0.1:27018", "127.0.0.1:27018"),
            ("[::1]:5", "[::1]:5"),
            ("[fe80::1%3]:5", "[fe80::1%3]:5"),
            ("10.0.0.1:0", "10.0.0.1:27017"),
        ] {
            let address = ServerAddress::from(text.parse::<SocketAddr>().unwrap());
            assert_eq!(address.to_string(), expected);
            assert_eq!(expected.parse(), Ok(address));
        }
    }

    #[test]
    fn an_address_is_a_text_in_documents() {
        let address: ServerAddress = "[::1]:5".parse().unwrap();
        let document = serde_json::to_value(&address).unwrap();
        assert_eq!(document, "[::1]:5");
        assert_eq!(serde_json::from_value::<ServerAddress>(document).unwrap(), address);
        let error = serde_json::from_value::<ServerAddress>("a:0".into()).unwrap_err();
        assert_eq!(error.to_string(), "the port \"0\" is not a number from 1 to 65535");
    }

    #[test]
    fn an_address_knows_how_it_is_written() {
        let address: ServerAddress = "db1.example:27018".parse().unwrap();
        assert!(address.is_written("db1.example:27018"));
        for other in ["db1.example", "db1.example:2701", "db1.example:270180", "db1.example:07018"]
        {
            assert!(!address.is_written(other), "{other}");
        }
        assert!(!"[::1]:27018".parse::<ServerAddress>().unwrap().is_written("::1:27018"));
        assert!("/tmp/a.sock".parse::<ServerAddress>().unwrap().is_written("/tmp/a.sock"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse(""), Err(AddressError::Empty));
        assert_eq!(parse(":27017"), Err(AddressError::Empty));
        assert_eq!(parse("a:0"), Err(AddressError::Port("0".into())));
        assert_eq!(parse("a:+1"), Err(AddressError::Port("+1".into())));
        assert_eq!(parse("a:65536"), Err(AddressError::Port("65536".into())));
        assert_eq!(parse("a:"), Err(AddressError::Port(String::new())));
        assert_eq!(parse("::1"), Err(AddressError::Colons("::1".into())));
        assert_eq!(parse("[::1"), Err(AddressError::Brackets("[::1".into())));
        assert_eq!(parse("[::1]x"), Err(AddressError::Brackets("[::1]x".into())));
        assert_eq!(parse("[]"), Err(AddressError::Brackets("[]".into())));
        assert_eq!(parse("a b"), Err(AddressError::Character(' ')));
        assert_eq!(parse("a]"), Err(AddressError::Character(']')));
        assert_eq!(parse("[[a]"), Err(AddressError::Character('[')));
        assert_eq!(parse(&"x".repeat(300)), Err(AddressError::TooLong(300)));
        assert_eq!(parse(&"x".repeat(256)), Err(AddressError::TooLong(256)));
    }
}
