//! The meaning of SRV and TXT records: which hosts may be seeds, and which options they bring.
//!
//! The rules of Initial DNS Seedlist Discovery, which Polling SRV Records applies again. Priorities
//! and weights are ignored.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::config::{
    MAX_HOST_LEN, MIN_RESCAN_INTERVAL, Options, OptionsError, ServerAddress, SrvOptions,
};
use crate::dns::{DnsError, MAX_RECORDS, without_final_dot};
use crate::rng::Rng;

/// A host of a deployment, as DNS names it, not judged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrvRecord {
    /// The host: the record's target.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The time that the record may be remembered.
    pub ttl: Duration,
    /// The reason why a function of the application refuses the host, if one does.
    pub refused: Option<Arc<str>>,
}

impl SrvRecord {
    /// Names a host and a port, and how long that may be remembered.
    pub fn new(host: impl Into<Arc<str>>, port: u16, ttl: Duration) -> Self {
        Self { host: host.into(), port, ttl, refused: None }
    }

    /// Has `judge` look at the host, by its name in lower case and without a dot at its end.
    ///
    /// It counts with [`Options::with_judged_hosts`] only.
    #[must_use]
    pub fn judged(mut self, judge: impl FnOnce(&str) -> Result<(), Arc<str>>) -> Self {
        self.refused = judge(&normal(&self.host)).err();
        self
    }
}

/// Returns a name in the form in which names are compared.
fn normal(host: &str) -> String {
    without_final_dot(host).to_ascii_lowercase()
}

/// The reason why the records of a deployment cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SrvError {
    /// They cannot be had.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// There is not one SRV record.
    #[error("there are no SRV records for {hostname}")]
    NoRecords {
        /// The deployment.
        hostname: Arc<str>,
    },
    /// There are more than [`MAX_RECORDS`].
    #[error("there are {found} SRV records for {hostname}; at most {MAX_RECORDS} are allowed")]
    TooManyRecords {
        /// The deployment.
        hostname: Arc<str>,
        /// Their number.
        found: usize,
    },
    /// A host is outside the deployment's domain, where anybody may have put it.
    #[error(
        "an SRV record for {hostname} names the host {host:?}, which does not end in .{domain}"
    )]
    OutsideDomain {
        /// The deployment.
        hostname: Arc<str>,
        /// The host.
        host: Arc<str>,
        /// The required end of its name, behind a dot.
        domain: Arc<str>,
    },
    /// A function of the application refuses a host.
    #[error("an SRV record for {hostname} names the host {host:?}, which is refused: {reason}")]
    HostRefused {
        /// The deployment.
        hostname: Arc<str>,
        /// The host.
        host: Arc<str>,
        /// The reason, in the words of the application.
        reason: Arc<str>,
    },
    /// A host or port is none.
    #[error("an SRV record for {hostname} names {host:?} port {port}, which is no server address")]
    Address {
        /// The deployment.
        hostname: Arc<str>,
        /// The host.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// Only one TXT record is allowed, since the order of several is random.
    #[error("there are {found} TXT records for {hostname}; at most one is allowed")]
    SeveralTxtRecords {
        /// The deployment.
        hostname: Arc<str>,
        /// Their number.
        found: usize,
    },
    /// The options in DNS are not allowed.
    #[error("the options in DNS are not allowed: {0}")]
    Options(OptionsError),
}

impl From<OptionsError> for SrvError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

/// Returns what every host of the deployment `hostname` must end in, behind a dot: the name without
/// its first part, or all of a name with fewer than three parts ("Connection String Format").
///
/// ```
/// use sdam_core::dns::srv::domain_name;
///
/// assert_eq!(domain_name("cluster0.example.com"), "example.com");
/// assert_eq!(domain_name("mongodb.local"), "mongodb.local");
/// ```
pub fn domain_name(hostname: &str) -> &str {
    let hostname = without_final_dot(hostname);
    match hostname.split_once('.') {
        Some((_, domain)) if domain.contains('.') => domain,
        _ => hostname,
    }
}

/// Judges one record, and returns the address of its server.
///
/// A host of a deployment whose name has fewer than three parts thereby has at least one part more
/// than that name ("Querying DNS"). With `srvAllowedHostsSuffix` that is the domain, and where a
/// function of the application judges the hosts, there is none.
///
/// # Errors
///
/// The host is outside the deployment's domain, or refused by the application, or is no host name,
/// or the port is 0.
pub fn verify(srv: &SrvOptions, record: &SrvRecord) -> Result<ServerAddress, SrvError> {
    let host = normal(&record.host);
    let refusal = || (Arc::clone(&srv.hostname), Arc::clone(&record.host));
    if srv.hosts_are_judged {
        if let Some(reason) = &record.refused {
            let ((hostname, host), reason) = (refusal(), Arc::clone(reason));
            return Err(SrvError::HostRefused { hostname, host, reason });
        }
    } else {
        let suffix = srv.allowed_hosts_suffix.as_deref();
        let domain = suffix.unwrap_or_else(|| domain_name(&srv.hostname));
        let domain = domain.trim_matches('.').to_ascii_lowercase();
        let sub = host.strip_suffix(&*domain).and_then(|rest| rest.strip_suffix('.'));
        if sub.is_none_or(str::is_empty) {
            let (hostname, host) = refusal();
            return Err(SrvError::OutsideDomain { hostname, host, domain: domain.into() });
        }
    }
    if record.port == 0 || !is_host_name(&host) {
        let (hostname, host) = refusal();
        return Err(SrvError::Address { hostname, host, port: record.port });
    }
    Ok(ServerAddress::Tcp { host: host.into(), port: record.port })
}

fn is_host_name(host: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && !part.contains(|c: char| c.is_control() || c.is_whitespace())
    };
    host.len() <= MAX_HOST_LEN && host.split('.').all(is_part) && !host.contains(['/', ':'])
}

/// Turns the records of a deployment into its seeds: all of them, each once, or `srvMaxHosts` of
/// them drawn at random if it is neither 0 nor greater than their number.
///
/// # Errors
///
/// There is no record or more than [`MAX_RECORDS`], or one of them may not be used, for which the
/// others have to pay.
pub fn seeds(
    srv: &SrvOptions,
    records: &[SrvRecord],
    rng: &mut Rng,
) -> Result<Vec<ServerAddress>, SrvError> {
    let hostname = || Arc::clone(&srv.hostname);
    if records.is_empty() {
        return Err(SrvError::NoRecords { hostname: hostname() });
    }
    if records.len() > MAX_RECORDS {
        return Err(SrvError::TooManyRecords { hostname: hostname(), found: records.len() });
    }
    let mut seeds = Vec::new();
    for record in records {
        let seed = verify(srv, record)?;
        if !seeds.contains(&seed) {
            seeds.push(seed);
        }
    }
    if srv.max_hosts > 0 {
        draw(&mut seeds, srv.max_hosts, rng);
    }
    Ok(seeds)
}

/// Completes options whose seeds are in DNS with what a lookup of its SRV and TXT records brought;
/// options without [`Options::srv`] stay as they are.
///
/// `seed` decides which hosts are drawn where not all may be used.
///
/// # Errors
///
/// As [`seeds`] and [`default_options`], and if the options that result are not allowed.
pub fn complete(
    options: &Options,
    records: &[SrvRecord],
    txt: Result<Vec<String>, DnsError>,
    seed: u64,
) -> Result<Options, SrvError> {
    let Some(srv) = options.srv() else { return Ok(options.clone()) };
    let seeds = seeds(srv, records, &mut Rng::new(seed))?;
    let txt = default_options(&srv.hostname, txt)?.unwrap_or_default();
    Ok(options.resolved(seeds, &txt)?.with_rescan_interval(rescan_interval(records)))
}

/// Leaves `count` items drawn at random: a Fisher-Yates shuffle that ends once they are drawn.
/// Fewer items stay as they are.
pub(crate) fn draw<T>(items: &mut Vec<T>, count: usize, rng: &mut Rng) {
    if items.len() <= count {
        return;
    }
    for drawn in 0..count {
        let left = items.len() - drawn;
        // 64 random bits as a fraction of the number left; the bias is one in 2^50.
        let offset = (u128::from(rng.next_u64()) * left as u128) >> 64;
        items.swap(drawn, drawn + offset as usize);
    }
    items.truncate(count);
}

/// Returns how long to wait from the end of a lookup to the next: as long as the first of its
/// records lives, and 60 seconds at least ("rescanSRVIntervalMS").
pub fn rescan_interval(records: &[SrvRecord]) -> Duration {
    let shortest = records.iter().map(|record| record.ttl).min();
    shortest.unwrap_or_default().max(MIN_RESCAN_INTERVAL)
}

/// Returns the default options that a lookup of the TXT records of `hostname` brings, if any; that
/// there are none is no error ("Default Connection String Options").
///
/// # Errors
///
/// The lookup failed, or there are several records.
pub fn default_options(
    hostname: &str,
    records: Result<Vec<String>, DnsError>,
) -> Result<Option<String>, SrvError> {
    let mut records = match records {
        Err(error) if error.is_absence() => return Ok(None),
        records => records?,
    };
    match records.len() {
        0 | 1 => Ok(records.pop()),
        found => Err(SrvError::SeveralTxtRecords { hostname: hostname.into(), found }),
    }
}
