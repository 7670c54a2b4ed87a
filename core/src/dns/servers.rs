//! The name servers to ask, and the time for each.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use resolv_conf::{Config, ParseError, ScopedIp};

use crate::text::beginning;

/// The greatest number of name servers that are asked; those after them are left out.
pub const MAX_SERVERS: usize = 8;

/// The port that name servers listen on.
const PORT: u16 = 53;

/// The maximum number of questions to each name server, and the longest wait for one: those that
/// the system's own resolver allows (resolv.conf(5)).
const MAX_ATTEMPTS: u32 = 5;
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// The name servers to ask in turn, and the time for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServers {
    addresses: Vec<SocketAddr>,
    timeout: Duration,
    attempts: u32,
}

/// The maximum length of a line of `resolv.conf` in a text, in bytes.
const MAX_QUOTED_LEN: usize = 80;

/// A part of `resolv.conf` that is left out, as the system's own resolver leaves it out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} ({text:?}): {problem}, which is left out")]
pub struct LeftOut {
    line: usize,
    text: String,
    problem: &'static str,
}

impl NameServers {
    /// Asks these, five seconds each, in two rounds at most; [`MAX_SERVERS`] are used.
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let mut distinct: Vec<SocketAddr> = Vec::new();
        for address in addresses {
            if distinct.len() < MAX_SERVERS && !distinct.contains(&address) {
                distinct.push(address);
            }
        }
        Self { addresses: distinct, timeout: Duration::from_secs(5), attempts: 2 }
    }

    /// Waits this long for each answer: from one millisecond to 30 seconds, or else the nearest.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(Duration::from_millis(1), MAX_TIMEOUT);
        self
    }

    /// Asks all in so many rounds: from one to five, or else the nearest.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.clamp(1, MAX_ATTEMPTS);
        self
    }

    /// Reads the text of `/etc/resolv.conf`; if that names no server, the one of this machine is
    /// meant. Also lists what is not understood, which is left out (resolv.conf(5)).
    pub fn from_resolv_conf(text: &[u8]) -> (Self, Vec<LeftOut>) {
        let (config, errors) = Config::parse_with_errors(text);
        let mut left_out: Vec<LeftOut> =
            errors.iter().map(|error| LeftOut::of(error, text)).collect();
        left_out.extend(scopes_by_name(text));
        left_out.sort_by_key(|left_out| left_out.line);
        left_out.dedup_by_key(|left_out| left_out.line);
        let addresses = config.get_nameservers_or_local();
        // A time-out of zero would leave no time to answer; the shortest in the file is a second.
        let timeout = Duration::from_secs(config.timeout.max(1).into());
        let servers = Self::new(addresses.iter().filter_map(socket_address));
        (servers.timeout(timeout).attempts(config.attempts), left_out)
    }

    /// Returns the servers, in the order in which they are asked.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns how long each answer is waited for.
    pub(super) const fn patience(&self) -> Duration {
        self.timeout
    }

    /// Returns which server is asked in a turn, until all turns are over.
    pub(super) fn in_turn(&self, turn: usize) -> Option<SocketAddr> {
        let rounds = usize::try_from(self.attempts).unwrap_or(usize::MAX);
        let turns = self.addresses.len().saturating_mul(rounds);
        (turn < turns).then(|| self.addresses[turn % self.addresses.len()])
    }
}

impl LeftOut {
    /// Says in which line of `text` an error was found.
    fn of(error: &ParseError, text: &[u8]) -> Self {
        let (index, problem) = match error {
            ParseError::InvalidUtf8(index, _) => (*index, "bytes that are no text"),
            ParseError::InvalidValue(index) => (*index, "a value is missing"),
            ParseError::InvalidOptionValue(index) => {
                (*index, "an option with a value that it cannot have")
            }
            ParseError::InvalidOption(index) => (*index, "an option that is unknown"),
            ParseError::InvalidDirective(index) => (*index, "a keyword that is unknown"),
            ParseError::InvalidIp(index, _) => (*index, "an address that is none"),
            ParseError::ExtraData(index) => (*index, "more than one value"),
        };
        let line = text.split(|byte| *byte == b'\n').nth(index).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let text = beginning(line.trim(), MAX_QUOTED_LEN).to_owned();
        Self { line: index + 1, text, problem }
    }
}

/// Lists the servers whose interface has a name, which takes the system to understand.
fn scopes_by_name(text: &[u8]) -> impl Iterator<Item = LeftOut> {
    text.split(|byte| *byte == b'\n').enumerate().filter_map(|(index, line)| {
        let line = std::str::from_utf8(line).ok()?.trim();
        let address = line.strip_prefix("nameserver")?.split_whitespace().next()?;
        let (ip, scope) = address.split_once('%')?;
        let is_name = ip.parse::<IpAddr>().is_ok() && scope.parse::<u32>().is_err();
        let problem = "an interface by its name; write its number";
        let text = beginning(line, MAX_QUOTED_LEN).to_owned();
        is_name.then_some(LeftOut { line: index + 1, text, problem })
    })
}

/// A link-local address whose interface has a name is left out.
fn socket_address(address: &ScopedIp) -> Option<SocketAddr> {
    match address {
        ScopedIp::V6(ip, Some(scope)) => {
            let scope = scope.parse().ok()?;
            Some(SocketAddrV6::new(*ip, PORT, 0, scope).into())
        }
        ScopedIp::V6(ip, None) => Some((IpAddr::V6(*ip), PORT).into()),
        ScopedIp::V4(ip) => Some((IpAddr::V4(*ip), PORT).into()),
    }
}
