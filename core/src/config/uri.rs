//! Connection strings: `mongodb://` with hosts and options.
//!
//! Implements the [connection string specification] and the [URI options specification]. All that
//! can be said of a deployment is in the string itself: neither DNS nor files are consulted.
//!
//! - An option that is unknown, empty, repeated, deprecated, or has a value that is not allowed, is
//!   ignored or understood with a [`Warning`](crate::config::Warning). Names are compared without
//!   regard to case.
//! - What would endanger or mislead is refused: malformed user names and hosts, options that
//!   contradict each other, and options of a proxy or of DNS where there is none.
//! - `tls=` with a value that cannot be understood turns TLS on.
//! - A value of `authMechanismProperties`, `compressors` or `readPreferenceTags` that holds a comma
//!   cannot be written here, encoded or not: the comma separates.
//!
//! No error and no warning quotes a value, a port or anything else that may be part of a password
//! in a badly encoded string.
//!
//! [connection string specification]: https://github.com/mongodb/specifications/blob/master/source/connection-string/connection-string-spec.md
//! [URI options specification]: https://github.com/mongodb/specifications/blob/master/source/uri-options/uri-options.md

mod host;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::config::{Secret, ServerAddress};

/// The longest connection string that is accepted, in bytes.
pub const MAX_URI_LEN: usize = 65_536;

/// The reason why a text is not a connection string that this version can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The text exceeds [`MAX_URI_LEN`].
    #[error("the connection string is {0} bytes long; at most {MAX_URI_LEN} are allowed")]
    TooLong(usize),
    /// The text has another scheme, or none.
    #[error("the connection string must begin with mongodb:// or mongodb+srv://")]
    Scheme,
    /// The text is a connection string within something else.
    #[error("the connection string is in {0}; leave that out")]
    Wrapped(&'static str),
    /// There is white space around the connection string, as behind a line of a file.
    #[error("the connection string {0} with white space, such as a line break; leave that out")]
    WhiteSpace(&'static str),
    /// The rest of the `mongodb+srv://` string is not one host name.
    #[error("mongodb+srv:// needs one host name without a port, and {0}")]
    Srv(&'static str),
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
        /// The problem, and the values that are allowed.
        problem: &'static str,
    },
    /// The name of the database is malformed.
    #[error("the database name {0}")]
    Database(&'static str),
    /// An option is not of the form `name=value`. Its text may be a secret that lacks its `=`.
    #[error("option {position} is not of the form name=value")]
    OptionForm {
        /// Its position among the options, counted from 1.
        position: usize,
    },
    /// The value of an option is malformed.
    #[error("the value of {option} has a % that is not the escape of a UTF-8 character")]
    Escape {
        /// The option.
        option: &'static str,
    },
    /// An option of which no instance can be ignored without danger.
    #[error("{option} appears more than once; at most one is allowed")]
    Repeated {
        /// The option.
        option: &'static str,
    },
    /// A number of servers that no deployment has.
    #[error("w is not a whole number from 0 to 2147483647, nor a name")]
    Acknowledgment,
    /// An option that only `mongodb+srv://` allows.
    #[error("{option} is only allowed with mongodb+srv://")]
    NeedsSrv {
        /// The option.
        option: &'static str,
    },
}

/// The parts of a connection string, still encoded.
struct Parts<'a> {
    is_srv: bool,
    user_info: Option<&'a str>,
    hosts: &'a str,
    database: &'a str,
    query: &'a str,
    /// True if what follows the hosts has an `@`, so that a user name and password with an
    /// unescaped `/` or `?` may have been taken for hosts, a database and options.
    ambiguous: bool,
}

/// A connection string, taken apart down to its options, which are still as they were written.
pub(crate) struct ConnectionString<'a> {
    pub(crate) user: Option<(String, Option<Secret>)>,
    pub(crate) hosts: Hosts,
    pub(crate) database: Option<String>,
    pub(crate) options: &'a str,
    /// True if the options may be part of a password.
    pub(crate) ambiguous: bool,
}

/// The servers that a connection string names, or the name under which DNS has them.
pub(crate) enum Hosts {
    Seeds(Vec<ServerAddress>),
    Srv(Arc<str>),
}

impl<'a> ConnectionString<'a> {
    /// Takes a connection string apart.
    pub(crate) fn parse(uri: &'a str) -> Result<Self, UriError> {
        let parts = split(uri)?;
        let user = parts.user_info.map(parse_user_info).transpose()?;
        if parts.database.contains('@') || has_at_sign_in_name(parts.query) {
            return Err(UriError::UserInfo("may not contain / or ?"));
        }
        let hosts = match parts.is_srv {
            true => host::parse_srv(parts.hosts).map(Hosts::Srv),
            false => host::parse_all(parts.hosts).map(Hosts::Seeds),
        };
        let hosts = hosts.map_err(|error| match error {
            UriError::Host { .. } if parts.ambiguous => {
                UriError::UserInfo("may not contain / or ?, or a host is malformed")
            }
            error => error,
        })?;
        let database = parse_database(parts.database)?;
        Ok(Self { user, hosts, database, options: parts.query, ambiguous: parts.ambiguous })
    }
}

/// Returns whether there is an `@` outside the values of options.
fn has_at_sign_in_name(options: &str) -> bool {
    let name = |pair: &str| pair.split('=').next().is_some_and(|name| name.contains('@'));
    options.split('&').any(name)
}

/// Takes the text apart as Connection String, "Reference Implementation", does; the slash before
/// the options is optional (Connection String, "Host Information").
fn split(uri: &str) -> Result<Parts<'_>, UriError> {
    if uri.len() > MAX_URI_LEN {
        return Err(UriError::TooLong(uri.len()));
    }
    let srv = uri.strip_prefix("mongodb+srv://");
    let body = srv.or_else(|| uri.strip_prefix("mongodb://")).ok_or_else(|| no_scheme(uri))?;
    if uri.ends_with(char::is_whitespace) {
        return Err(UriError::WhiteSpace("ends"));
    }
    let (authority, rest) = body.split_at(body.find(['/', '?']).unwrap_or(body.len()));
    let (user_info, hosts) = match authority.rsplit_once('@') {
        None => (None, authority),
        Some((user_info, hosts)) => (Some(user_info), hosts),
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok(Parts {
        is_srv: srv.is_some(),
        user_info,
        hosts,
        database: path.strip_prefix('/').unwrap_or(path),
        query,
        ambiguous: rest.contains('@'),
    })
}

/// Says why a text does not begin with a scheme, where that shows.
fn no_scheme(uri: &str) -> UriError {
    let begins =
        |text: &str| ["mongodb://", "mongodb+srv://"].iter().any(|it| text.starts_with(it));
    let bare = uri.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let unquoted = bare.trim_start_matches(['"', '\'', '`', '\u{201c}', '\u{2018}', '<']);
    match (begins(bare), begins(unquoted)) {
        (true, _) => UriError::WhiteSpace("begins"),
        (_, true) if bare.starts_with('<') => UriError::Wrapped("angle brackets"),
        (_, true) => UriError::Wrapped("quotation marks"),
        (false, false) => UriError::Scheme,
    }
}

/// Connection String, "Userinfo": RFC 3986's characters, one colon at most, no `@`.
fn parse_user_info(text: &str) -> Result<(String, Option<Secret>), UriError> {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:%".contains(c) || !c.is_ascii();
    let refused = |problem| Err(UriError::UserInfo(problem));
    let escape = UriError::UserInfo("have a % that is not the escape of a UTF-8 character");
    if text.contains('@') {
        return refused("may not contain @");
    } else if text.matches(':').count() > 1 {
        return refused("may be separated by one : only");
    } else if text.is_empty() || text.starts_with(':') {
        return refused("are announced by @, but the user name is empty");
    } else if !text.chars().all(allowed) {
        return refused("contain a reserved character");
    }
    let decoded = |text| decode(text).map(Cow::into_owned).ok_or_else(|| escape.clone());
    match text.split_once(':') {
        None => Ok((decoded(text)?, None)),
        Some((name, password)) => Ok((decoded(name)?, Some(decoded(password)?.into()))),
    }
}

/// Connection String, "Auth Database".
fn parse_database(text: &str) -> Result<Option<String>, UriError> {
    let escape = "has a % that is not the escape of a UTF-8 character";
    let name = decode(text).ok_or(UriError::Database(escape))?;
    match name.contains(['/', '\\', ' ', '"', '$']) {
        true => Err(UriError::Database(
            "may not contain a slash, backslash, space, double quote or dollar sign",
        )),
        false => Ok(Some(name.into_owned()).filter(|name| !name.is_empty())),
    }
}

/// Replaces the escapes, or returns `None` if one is malformed or the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    let well_formed = |escape: &str| {
        let digits = escape.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match text.split('%').skip(1).all(well_formed) {
        true => percent_decode_str(text).decode_utf8().ok(),
        false => None,
    }
}
