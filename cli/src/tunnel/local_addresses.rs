//! The local address of each member: decided once, and kept as long as the tunnel is there.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use sdam_core::config::ServerAddress;

/// The number of members that may ever have a local address.
pub(super) const MAX_MEMBERS: usize = 1000;

/// The rule by which members get local addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// One address for all, and a port for each.
    Ports {
        /// The address.
        address: IpAddr,
        /// The port of the first member, from which on free ones are taken; any without it.
        first: Option<u16>,
    },
    /// An address for each host, from this one on, and the port that the member advertises.
    Hosts(Ipv4Addr),
}

/// The reason why a member has no local address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalAddressError {
    /// There are too many already.
    #[error("{MAX_MEMBERS} members have had a port, and no more are allowed")]
    TooMany,
    /// All ports are taken.
    #[error("no port from {first} to 65535 is free at {address}")]
    NoPort {
        /// The address.
        address: IpAddr,
        /// From which port on.
        first: u16,
    },
    /// No name can stand for a member.
    #[error(
        "it advertises an address, which clients would connect to themselves; without \
         --tls-passthrough it can be reached"
    )]
    NoName,
    /// A member at a path has neither host nor port.
    #[error("{0} is a path, which no name of a host can stand for")]
    Path(ServerAddress),
    /// There are more hosts than addresses.
    #[error("there are no more addresses after {0}")]
    NoAddress(Ipv4Addr),
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
    },
}

/// The local addresses of all members that have one.
#[derive(Debug)]
pub(super) struct LocalAddresses {
    plan: Plan,
    open: BTreeMap<ServerAddress, SocketAddr>,
}

impl LocalAddresses {
    /// Begins with none.
    pub(super) const fn new(plan: Plan) -> Self {
        Self { plan, open: BTreeMap::new() }
    }

    /// Returns the local address of a member that has one.
    pub(super) fn find(&self, member: &ServerAddress) -> Option<SocketAddr> {
        self.open.get(member).copied()
    }

    /// Listens for a member that has no local address yet.
    ///
    /// # Errors
    ///
    /// There is no address for it, or none that is free.
    pub(super) fn listen(
        &mut self,
        member: &ServerAddress,
    ) -> Result<(SocketAddr, TcpListener), LocalAddressError> {
        if self.open.len() >= MAX_MEMBERS {
            return Err(LocalAddressError::TooMany);
        }
        let (wanted, last) = self.candidates(member)?;
        for port in wanted.port()..=last {
            let address = SocketAddr::new(wanted.ip(), port);
            if self.open.values().any(|taken| *taken == address) {
                continue;
            }
            match listen(address) {
                Ok((address, listener)) => {
                    self.open.insert(member.clone(), address);
                    return Ok((address, listener));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && wanted.port() < last => {}
                Err(error) => return Err(LocalAddressError::Listen { address, error }),
            }
        }
        Err(LocalAddressError::NoPort { address: wanted.ip(), first: wanted.port() })
    }

    /// Returns where a member may listen: at this address, or a later port of it up to the last.
    fn candidates(&self, member: &ServerAddress) -> Result<(SocketAddr, u16), LocalAddressError> {
        match self.plan {
            Plan::Ports { address, first: None | Some(0) } => Ok((SocketAddr::new(address, 0), 0)),
            Plan::Ports { address, first: Some(first) } => {
                Ok((SocketAddr::new(address, first), u16::MAX))
            }
            Plan::Hosts(first) => {
                let ServerAddress::Tcp { host, port } = member else {
                    return Err(LocalAddressError::Path(member.clone()));
                };
                if host.parse::<IpAddr>().is_ok() {
                    return Err(LocalAddressError::NoName);
                }
                let same_host = self.open.iter().find(|(known, _)| known.host() == &**host);
                let address = match same_host {
                    Some((_, known)) => known.ip(),
                    None => self.next_address(first)?.into(),
                };
                Ok((SocketAddr::new(address, *port), *port))
            }
        }
    }

    fn next_address(&self, first: Ipv4Addr) -> Result<Ipv4Addr, LocalAddressError> {
        let taken = self.open.values().filter_map(|address| match address.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let Some(last) = taken.max() else { return Ok(first) };
        let next = u32::from(last).checked_add(1).map(Ipv4Addr::from);
        let same_network = |next: &Ipv4Addr| next.octets()[0] == first.octets()[0];
        next.filter(same_network).ok_or(LocalAddressError::NoAddress(last))
    }
}

fn listen(address: SocketAddr) -> io::Result<(SocketAddr, TcpListener)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok((listener.local_addr()?, listener))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use sdam_core::config::ServerAddress;

    use super::{LocalAddressError, LocalAddresses, MAX_MEMBERS, Plan};

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn member(text: &str) -> ServerAddress {
        text.parse().unwrap()
    }

    #[test]
    fn each_member_has_a_port_and_keeps_it() {
        let mut local_addresses = LocalAddresses::new(Plan::Ports { address: LOCAL, first: None });
        let (first, _listener) = local_addresses.listen(&member("a")).unwrap();
        let (second, _listener) = local_addresses.listen(&member("b")).unwrap();
        assert_ne!(first, second);
        assert_eq!(local_addresses.find(&member("a")), Some(first));
        assert_eq!(local_addresses.find(&member("c")), None);
    }

    #[test]
    fn ports_that_others_have_are_passed_over() {
        // Two that follow each other, the first of which is taken.
        let (taken, first) = loop {
            let taken = TcpListener::bind((LOCAL, 0)).unwrap();
            let first = taken.local_addr().unwrap().port();
            if first < u16::MAX - 1 && TcpListener::bind((LOCAL, first + 1)).is_ok() {
                break (taken, first);
            }
        };
        let mut local_addresses =
            LocalAddresses::new(Plan::Ports { address: LOCAL, first: Some(first) });
        let (address, _listener) = local_addresses.listen(&member("a")).unwrap();
        assert!(address.port() > first);
        drop(taken);
        // A port that was passed over goes to the next member.
        let (next, _listener) = local_addresses.listen(&member("b")).unwrap();
        assert_ne!(next, address);
        let mut last = LocalAddresses::new(Plan::Ports { address: LOCAL, first: Some(u16::MAX) });
        let (_, _listener) = last.listen(&member("a")).unwrap();
        let error = last.listen(&member("b")).unwrap_err();
        assert_eq!(error.to_string(), "no port from 65535 to 65535 is free at 127.0.0.1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_host_has_an_address_and_its_members_keep_their_ports() {
        let mut local_addresses = LocalAddresses::new(Plan::Hosts(Ipv4Addr::new(127, 9, 8, 255)));
        let mut at =
            |text: &str| local_addresses.listen(&member(text)).map(|(at, _)| at.to_string());
        assert_eq!(at("a:40001").unwrap(), "127.9.8.255:40001");
        assert_eq!(at("b:40001").unwrap(), "127.9.9.0:40001");
        assert_eq!(at("a:40002").unwrap(), "127.9.8.255:40002");
        assert!(matches!(at("/tmp/a.sock"), Err(LocalAddressError::Path(_))));
        for address in ["10.0.0.7:40001", "[2001:db8::7]:40001"] {
            assert!(matches!(at(address), Err(LocalAddressError::NoName)), "{address}");
        }
        let mut local_addresses =
            LocalAddresses::new(Plan::Hosts(Ipv4Addr::new(127, 255, 255, 254)));
        let _listener = local_addresses.listen(&member("a:40001")).unwrap();
        local_addresses.open.insert(member("b:1"), "127.255.255.255:1".parse().unwrap());
        assert!(matches!(
            local_addresses.listen(&member("c:1")),
            Err(LocalAddressError::NoAddress(_))
        ));
    }

    #[test]
    fn there_are_not_more_local_addresses_than_allowed() {
        let mut local_addresses = LocalAddresses::new(Plan::Ports { address: LOCAL, first: None });
        for number in 1..=MAX_MEMBERS {
            let port = u16::try_from(number).unwrap();
            local_addresses.open.insert(member(&format!("db{number}")), (LOCAL, port).into());
        }
        assert!(matches!(
            local_addresses.listen(&member("one-more")),
            Err(LocalAddressError::TooMany)
        ));
    }
}
