//! Passwords and tokens, which are never shown.

use std::fmt;

use zeroize::Zeroizing;

/// A password or a token: shown as `***`, and wiped from memory when dropped.
///
/// ```
/// use sdam_core::config::Secret;
///
/// let password = Secret::from("hunter2");
/// assert_eq!(format!("{password:?}"), "***");
/// assert_eq!(password.expose(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text in place of a secret.
    pub(crate) const REDACTED: &str = "***";

    /// Returns the text itself. The caller that copies it takes care of the copy.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::REDACTED)
    }
}
