//! The requests of sdam's runtimes to the operating system, whichever way they wait: files,
//! variables of the environment, options of sockets, and random bytes.
//!
//! It is no part of the core, which does no I/O, and none of any runtime, so that all of them read
//! the same files in the same way. What may take long says so: a runtime calls it where blocking
//! is allowed. Applications have no need of it.

#[cfg(feature = "tls")]
mod certificates;
pub(crate) mod log;
#[cfg(test)]
mod log_lines;
mod sockets;
#[cfg(feature = "ocsp")]
mod statuses;
#[cfg(test)]
mod tests;
mod token;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Mutex;

#[cfg(feature = "tls")]
pub use certificates::{CertificateKeyProvider, Certificates};
pub use sockets::configure_tcp;
#[cfg(feature = "ocsp")]
pub use statuses::Statuses;
pub(crate) use token::read_token;

use crate::error::ClientError;
use sdam_core::bson::DateTime;
use sdam_core::config::Options;
use sdam_core::config::metadata::Environment;
use sdam_core::diagnosis::Verdict;
use sdam_core::dns::{DnsCause, DnsError, LeftOut, NameServers, Question};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::logging::LogSettings;
use sdam_core::spans::SpanSettings;

/// The file that lists the name servers of this machine.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Looks at what this process runs in, for the metadata of a handshake.
pub fn environment() -> Environment {
    Environment::detect(variable, |path| Path::new(path).exists())
}

/// Reads an environment variable; an empty one counts as absent.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the settings of the log in the environment, and logs which of them are invalid.
pub(crate) fn log_settings() -> LogSettings {
    let (settings, invalid) = LogSettings::from_variables(variable);
    for invalid in invalid {
        tracing::warn!(target: "sdam", "{invalid}");
    }
    settings
}

/// Reads the settings of spans in the environment, and logs which of them are invalid.
pub(crate) fn span_settings() -> SpanSettings {
    let (settings, invalid) = SpanSettings::from_variables(variable);
    if let Some(invalid) = invalid {
        tracing::warn!(target: "sdam", "{invalid}");
    }
    settings
}

/// Reads which name servers `/etc/resolv.conf` lists, to ask them `question`; may take as long as
/// opening a file does. The log has a line for each part that is left out, once.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn name_servers(question: &Question) -> Result<NameServers, DnsError> {
    let text = std::fs::read(RESOLV_CONF).map_err(|error| {
        let detail = format!("{RESOLV_CONF} cannot be used: {error}");
        DnsError::new(question.clone(), DnsCause::Resolver(detail.into()))
    })?;
    Ok(servers_of(&text))
}

/// Reads name servers, and logs what is left out if it is news: the file is read for each lookup.
fn servers_of(text: &[u8]) -> NameServers {
    static LOGGED: Mutex<Vec<LeftOut>> = Mutex::new(Vec::new());
    let (servers, left_out) = NameServers::from_resolv_conf(text);
    log_left_out(&LOGGED, &left_out);
    servers
}

/// Logs the lines that are left out, unless they are those of the last time. The log is the
/// application's, and may look up names itself: no lock is held meanwhile.
fn log_left_out(logged: &Mutex<Vec<LeftOut>>, left_out: &[LeftOut]) {
    // In a process that was forked off, the lock may be held for ever.
    let is_news = logged.try_lock().is_ok_and(|mut logged| {
        let is_news = *logged != left_out;
        left_out.clone_into(&mut logged);
        is_news
    });
    for left_out in left_out.iter().filter(|_| is_news) {
        tracing::warn!(target: "sdam", "{RESOLV_CONF}, {left_out}");
    }
}

/// Resolves a name; may take as long as the system's resolver does.
///
/// # Errors
///
/// Fails if the name is unknown, and if the resolver gives no answer.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    (host, port).to_socket_addrs().map(Iterator::collect)
}

/// Reads the wall clock.
pub(crate) fn wall_clock() -> DateTime {
    DateTime::now()
}

/// A time of the wall clock.
pub(crate) type WallClock = std::time::SystemTime;

/// Reads the wall clock when a client's own begins.
pub(crate) fn wall_clock_origin() -> WallClock {
    WallClock::now()
}

/// Logs what a client has found out, and what to do about it.
pub(crate) fn log_finding(verdict: &Verdict) {
    tracing::warn!(target: "sdam", "{}", verdict.sentence());
}

/// Draws the seed of a client's generator.
///
/// # Errors
///
/// Fails if the operating system gives none.
pub fn client_seed() -> Result<u64, ClientError> {
    getrandom::u64().map_err(|error| ClientError::NoSeed(error.into()))
}

/// Draws the seed for looking something up.
///
/// # Errors
///
/// Fails if the operating system gives none.
pub fn lookup_seed(question: &Question) -> Result<u64, DnsError> {
    getrandom::u64().map_err(|error| {
        let detail = format!("the operating system gave no randomness: {error}");
        DnsError::new(question.clone(), DnsCause::Resolver(detail.into()))
    })
}

/// Draws the random bytes of a login.
///
/// # Errors
///
/// Fails if the operating system gives none.
pub fn nonce() -> Result<[u8; 24], Failure> {
    let mut nonce = [0; 24];
    getrandom::fill(&mut nonce).map_err(|error| {
        let detail = format!("the operating system gave no random bytes: {error}");
        Failure::new(Stage::Connect, Cause::Configuration, detail)
    })?;
    Ok(nonce)
}

/// Logs what has no effect in the options, and what is easily overlooked; call it once for a
/// client.
pub fn log_warnings(options: &Options) {
    for warning in options.warnings() {
        tracing::warn!(target: "sdam", "options: {warning}");
    }
    for notice in options.notices() {
        tracing::warn!(target: "sdam", "options: {notice}");
    }
}
