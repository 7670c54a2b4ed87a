//! Connection strings: `mongodb://` with hosts and options, taken apart into options.
//!
//! Implements the [connection string specification] for what monitoring needs. A user name and
//! password are checked for their form and then dropped, since monitors never authenticate; a
//! database is checked and dropped too. Options fall into four kinds, compared without regard to
//! case:
//!
//! - those that [`Options`](crate::options::Options) has: they are set, and a value that is not
//!   allowed leaves the default and a [`Warning`](crate::options::Warning);
//! - those that only mean something to commands, pools or authentication: they are accepted;
//! - those whose loss would endanger or mislead, such as `tls=true`: they are refused;
//! - unknown ones: they are ignored, with a warning.
//!
//! No error and no warning quotes a value, a port or anything else that may be part of a password
//! in a badly encoded string.
//!
//! [connection string specification]: https://github.com/mongodb/specifications/blob/master/source/connection-string/connection-string-spec.md

mod host;
mod query;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::options::OptionsBuilder;

/// The longest connection string that is accepted, in bytes.
pub const MAX_URI_LEN: usize = 65_536;

/// Why a text is not a connection string that this version can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The text exceeds [`MAX_URI_LEN`].
    #[error("the connection string is {0} bytes long; at most {MAX_URI_LEN} are allowed")]
    TooLong(usize),
    /// The text has another scheme, or none.
    #[error("the connection string must begin with mongodb://")]
    Scheme,
    /// The seeds would come from DNS.
    #[error("mongodb+srv:// is not supported by this version yet; list the hosts with mongodb://")]
    Srv,
    /// The user name and password are malformed.
    #[error("the user name and password {0}; every reserved character must be percent-encoded")]
    UserInfo(&'static str),
    /// There are no hosts.
    #[error("there is no host; one or more are needed, the / of a socket path written as %2F")]
    NoHost,
    /// A host is malformed.
    #[error("host {host:?}: {problem}")]
    Host {
        /// The host as written, without its port.
        host: String,
        /// What is wrong, and what is allowed.
        problem: &'static str,
    },
    /// The name of the database is malformed.
    #[error("the database name {0}")]
    Database(&'static str),
    /// An option is not of the form `name=value`.
    #[error("{option} of the connection string is not of the form name=value")]
    OptionForm {
        /// The text of the option, shortened; or its position if that may be part of a secret.
        option: String,
    },
    /// The value of an option is malformed.
    #[error("the value of {option} has a % that is not the escape of a UTF-8 character")]
    Escape {
        /// The option.
        option: &'static str,
    },
    /// An option that cannot be ignored without danger.
    #[error("{option} is not supported yet, and ignoring it would endanger or mislead")]
    Unsupported {
        /// The option.
        option: &'static str,
    },
    /// An option that only `mongodb+srv://` allows.
    #[error("{option} is only allowed with mongodb+srv://")]
    NeedsSrv {
        /// The option.
        option: &'static str,
    },
}

/// The parts of a connection string, still encoded.
struct Parts<'a> {
    user_info: Option<&'a str>,
    hosts: &'a str,
    database: &'a str,
    query: &'a str,
    /// Whether what follows the hosts has an `@`, so that a user name and password with an
    /// unescaped `/` or `?` may have been taken for hosts, a database and options.
    ambiguous: bool,
}

/// Sets in `builder` what the connection string mentions.
pub(crate) fn apply(uri: &str, builder: OptionsBuilder) -> Result<OptionsBuilder, UriError> {
    let parts = split(uri)?;
    if let Some(user_info) = parts.user_info {
        check_user_info(user_info)?;
    }
    if parts.database.contains('@') || query::has_at_sign_in_name(parts.query) {
        return Err(UriError::UserInfo("may not contain / or ?"));
    }
    let seeds = match host::parse_all(parts.hosts) {
        Err(UriError::Host { .. }) if parts.ambiguous => {
            return Err(UriError::UserInfo("may not contain / or ?, or a host is malformed"));
        }
        seeds => seeds?,
    };
    check_database(parts.database)?;
    query::apply(parts.query, parts.ambiguous, builder.seeds(seeds))
}

/// Takes the text apart as Connection String, "Reference Implementation", does; the slash before
/// the options is optional (Connection String, "Host Information").
fn split(uri: &str) -> Result<Parts<'_>, UriError> {
    if uri.len() > MAX_URI_LEN {
        return Err(UriError::TooLong(uri.len()));
    }
    if uri.starts_with("mongodb+srv://") {
        return Err(UriError::Srv);
    }
    let body = uri.strip_prefix("mongodb://").ok_or(UriError::Scheme)?;
    let (authority, rest) = body.split_at(body.find(['/', '?']).unwrap_or(body.len()));
    let (user_info, hosts) = match authority.rsplit_once('@') {
        None => (None, authority),
        Some((user_info, hosts)) => (Some(user_info), hosts),
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok(Parts {
        user_info,
        hosts,
        database: path.strip_prefix('/').unwrap_or(path),
        query,
        ambiguous: rest.contains('@'),
    })
}

/// Connection String, "Userinfo": RFC 3986's characters, one colon at most, no `@`.
fn check_user_info(text: &str) -> Result<(), UriError> {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:%".contains(c) || !c.is_ascii();
    let problem = if text.contains('@') {
        "may not contain @"
    } else if text.matches(':').count() > 1 {
        "may be separated by one : only"
    } else if text.is_empty() || text.starts_with(':') {
        "are announced by @, but the user name is empty"
    } else if !text.chars().all(allowed) {
        "contain a reserved character"
    } else if decode(text).is_none() {
        "have a % that is not the escape of a UTF-8 character"
    } else {
        return Ok(());
    };
    Err(UriError::UserInfo(problem))
}

/// Connection String, "Auth Database".
fn check_database(text: &str) -> Result<(), UriError> {
    let escape = "has a % that is not the escape of a UTF-8 character";
    let name = decode(text).ok_or(UriError::Database(escape))?;
    match name.contains(['/', '\\', ' ', '"', '$']) {
        true => Err(UriError::Database(
            "may not contain a slash, backslash, space, double quote or dollar sign",
        )),
        false => Ok(()),
    }
}

/// Replaces the escapes, or returns `None` if one is malformed or the result is not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    let well_formed = |escape: &str| {
        let digits = escape.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match text.split('%').skip(1).all(well_formed) {
        true => percent_decode_str(text).decode_utf8().ok(),
        false => None,
    }
}
