//! The hosts of a connection string.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{UriError, decode};
use crate::config::{AddressError, MAX_HOST_LEN, ServerAddress};
use crate::text::beginning;

/// Parses the hosts (Connection String, "Host Information").
pub(super) fn parse_all(hosts: &str) -> Result<Vec<ServerAddress>, UriError> {
    if hosts.is_empty() {
        return Err(UriError::NoHost);
    }
    let named = |text| {
        parse(text)
            .map_err(|problem| UriError::Host { host: without_port(text).to_owned(), problem })
    };
    hosts.split(',').map(named).collect()
}

/// Parses the name to look up in DNS (Initial DNS Seedlist Discovery, "Validation Before Querying
/// DNS").
pub(super) fn parse_srv(hosts: &str) -> Result<Arc<str>, UriError> {
    if hosts.is_empty() {
        return Err(UriError::NoHost);
    }
    if hosts.contains(',') {
        return Err(UriError::Srv("there are several"));
    }
    let address = hosts.split_once(':').map_or(hosts, |(host, _)| host);
    if hosts.starts_with('[') || hosts.parse::<Ipv6Addr>().is_ok() || is_ipv4(address) {
        return Err(UriError::Srv("this is an IP address, which is connected to with mongodb://"));
    }
    if hosts.contains(':') {
        return Err(UriError::Srv("there is a port"));
    }
    let host = || shortened(hosts).to_owned();
    match parse(hosts) {
        Ok(ServerAddress::Tcp { host, .. }) => Ok(host),
        Ok(ServerAddress::Unix { .. }) => Err(UriError::Srv("this is the path of a socket")),
        Err(problem) => Err(UriError::Host { host: host(), problem }),
    }
}

fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

fn parse(text: &str) -> Result<ServerAddress, &'static str> {
    let decoded = decode(text).ok_or("it has a % that is not the escape of a UTF-8 character")?;
    if decoded.contains('/') {
        if !decoded.ends_with(".sock") {
            return Err("the path of a Unix domain socket must end in .sock");
        }
    } else if delimiters(&decoded) != delimiters(text) {
        return Err("an escape may not stand for a comma, colon, bracket or at-sign");
    }
    decoded.parse().map_err(|error| problem(&error))
}

fn delimiters(text: &str) -> usize {
    text.matches([',', ':', '[', ']', '@']).count()
}

/// Says what is wrong without quoting: behind the first colon may be a password that lacks its `@`.
fn problem(error: &AddressError) -> &'static str {
    match error {
        AddressError::Empty => "the name is empty",
        AddressError::TooLong(_) => "it is too long; at most 255 bytes are allowed",
        AddressError::Port(_) => "the port is not a number from 1 to 65535",
        AddressError::Brackets(_) => "write an IPv6 address as [::1] or [::1]:27017",
        AddressError::Colons(_) => {
            "there is more than one colon; write an IPv6 address in brackets, as [::1]:27017"
        }
        AddressError::Character(_) => "it contains a space, a bracket or a control character",
    }
}

/// Returns the text up to its port, shortened.
fn without_port(text: &str) -> &str {
    let end = match text.starts_with('[') {
        true => text.find(']').map(|bracket| bracket + 1),
        false if text.parse::<Ipv6Addr>().is_ok() => None,
        false => text.find(':'),
    };
    shortened(&text[..end.unwrap_or(text.len())])
}

fn shortened(text: &str) -> &str {
    beginning(text, MAX_HOST_LEN)
}
