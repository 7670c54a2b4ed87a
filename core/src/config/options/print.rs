//! Prints options as the connection string that means them.

use std::fmt::{self, Display};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Settings;
use super::table::URI_OPTIONS;
use super::value::{Secrets, UriOption};
use crate::config::{Secret, ServerAddress};

/// The characters that RFC 3986 reserves, and all that are not ASCII.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters to encode in the value of an option.
const IN_VALUE: &AsciiSet =
    &RESERVED.remove(b':').remove(b',').remove(b'/').remove(b'$').remove(b'*');

/// The characters to encode in a host, where no escape may stand for a delimiter.
const IN_HOST: &AsciiSet = &RESERVED.remove(b':').remove(b'[').remove(b']');

/// Prints the connection string that means some options.
pub(super) struct Printer<'a> {
    pub(super) settings: &'a Settings,
    pub(super) secrets: Secrets,
}

impl Display for Printer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings;
        f.write_str(if settings.srv.is_some() { "mongodb+srv://" } else { "mongodb://" })?;
        if let Some(username) = &settings.username {
            write!(f, "{}", utf8_percent_encode(username, RESERVED))?;
            if let Some(password) = &settings.password {
                let password = match self.secrets {
                    Secrets::Shown => utf8_percent_encode(password.expose(), RESERVED).to_string(),
                    Secrets::Hidden => Secret::REDACTED.to_owned(),
                };
                write!(f, ":{password}")?;
            }
            f.write_str("@")?;
        }
        match &settings.srv {
            Some(srv) => write!(f, "{}", utf8_percent_encode(&srv.hostname, IN_HOST))?,
            None => print_hosts(f, &settings.seeds)?,
        }
        let database = settings.database.as_deref().unwrap_or_default();
        write!(f, "/{}", utf8_percent_encode(database, RESERVED))?;
        let mut separator = '?';
        for UriOption { name, meaning } in URI_OPTIONS {
            let values = (meaning.print)(settings, self.secrets);
            // An empty value would be ignored.
            let values = values.iter().filter(|it| !it.is_empty() || meaning.form.may_be_empty());
            for value in values {
                write!(f, "{separator}{name}={}", utf8_percent_encode(value, IN_VALUE))?;
                separator = '&';
            }
        }
        Ok(())
    }
}

fn print_hosts(f: &mut fmt::Formatter<'_>, seeds: &[ServerAddress]) -> fmt::Result {
    for (index, seed) in seeds.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        match seed {
            ServerAddress::Unix { path } => {
                write!(f, "{}", utf8_percent_encode(path, RESERVED))?;
            }
            ServerAddress::Tcp { .. } => {
                write!(f, "{}", utf8_percent_encode(&seed.to_string(), IN_HOST))?;
            }
        }
    }
    Ok(())
}
