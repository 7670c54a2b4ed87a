//! The values that options may have in a connection string: how each is read and printed.

use std::sync::Arc;
use std::time::Duration;

use super::query::Query;
use super::{MonitoringMode, Settings};
use crate::config::{AuthMechanism, Secret};

/// An option of connection strings.
pub(super) struct UriOption {
    pub(super) name: &'static str,
    pub(super) meaning: Meaning,
}

/// The values of an option, and what they set.
pub(super) struct Meaning {
    pub(super) form: Form,
    /// The values that are allowed, for warnings.
    pub(super) allowed: &'static str,
    /// True if a text is allowed at all.
    pub(super) check: fn(&str) -> bool,
    pub(super) read: fn(&mut Query<'_>, &str) -> Outcome,
    /// Prints a value for each time that the option is to appear.
    pub(super) print: fn(&Settings, Secrets) -> Vec<String>,
}

/// The number of times that an option may appear, and whether its value may be empty or shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Once; an empty value is ignored.
    Once,
    /// Once, and an empty value counts.
    OrEmpty,
    /// Again and again, and empty values count.
    Repeated,
    /// Once, as a text that is never shown; an empty one is ignored.
    Secret,
}

impl Form {
    pub(super) const fn may_be_empty(self) -> bool {
        matches!(self, Self::OrEmpty | Self::Repeated)
    }
}

/// The outcome of reading a value.
pub(super) enum Outcome {
    Set,
    /// The value is an old way to write this one.
    SetByOldName(bool),
    /// Some elements of a list are not allowed.
    SetInPart,
    NotAllowed,
}

impl Outcome {
    pub(super) fn set_if(allowed: bool) -> Self {
        if allowed { Self::Set } else { Self::NotAllowed }
    }
}

/// True if secrets are printed.
#[derive(Clone, Copy)]
pub(super) enum Secrets {
    Shown,
    Hidden,
}

impl Secrets {
    pub(super) fn show(self, secret: &Secret) -> &str {
        match self {
            Self::Shown => secret.expose(),
            Self::Hidden => Secret::REDACTED,
        }
    }
}

impl Meaning {
    pub(super) const fn new(
        allowed: &'static str,
        read: fn(&mut Query<'_>, &str) -> Outcome,
        print: fn(&Settings, Secrets) -> Vec<String>,
    ) -> Self {
        Self { form: Form::Once, allowed, check: |_| true, read, print }
    }

    /// Returns the same in another form.
    pub(super) const fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Returns the same for certain texts only.
    pub(super) const fn only(self, allowed: &'static str, check: fn(&str) -> bool) -> Self {
        Self { allowed, check, ..self }
    }
}

/// The values of a type that an option allows, if they are numbers; and how to say so.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub(super) text: &'static str,
    least: i64,
    most: i64,
}

impl Allowed {
    const fn numbers(least: i64, most: i64, text: &'static str) -> Self {
        Self { text, least, most }
    }

    /// Allows whatever the type can be.
    pub(super) const fn any(text: &'static str) -> Self {
        Self::numbers(i64::MIN, i64::MAX, text)
    }
}

/// The greatest number of URI Options: "All integer options are 32-bit".
const MOST: i64 = i32::MAX as i64;

pub(super) const BOOLEAN: Allowed = Allowed::any("true or false");
pub(super) const TEXT: Allowed = Allowed::any("a text");
pub(super) const FROM_MINUS_1: Allowed =
    Allowed::numbers(-1, MOST, "-1 or a whole number from 1 to 2147483647");
pub(super) const FROM_0: Allowed = Allowed::numbers(0, MOST, "a whole number from 0 to 2147483647");
pub(super) const FROM_1: Allowed = Allowed::numbers(1, MOST, "a whole number from 1 to 2147483647");
pub(super) const FROM_500: Allowed =
    Allowed::numbers(500, MOST, "a whole number from 500 to 2147483647");
pub(super) const FROM_4096: Allowed =
    Allowed::numbers(4096, MOST, "a whole number from 4096 to 2147483647");
pub(super) const PORT: Allowed = Allowed::numbers(1, 65535, "a whole number from 1 to 65535");
pub(super) const ZLIB_LEVEL: Allowed = Allowed::numbers(-1, 9, "a whole number from -1 to 9");
/// wTimeoutMS is a "non-negative 64-bit integer".
pub(super) const LONG: Allowed =
    Allowed::numbers(0, i64::MAX, "a whole number from 0 to 9223372036854775807");

/// A type of values that are read by themselves.
pub(super) trait OptionValue: Sized {
    /// Reads an allowed value.
    fn read(text: &str, allowed: Allowed) -> Option<Self>;

    /// Prints the value, unless there is none.
    fn print(&self, allowed: Allowed, secrets: Secrets) -> Option<String>;

    /// Returns what a value says that is written in an old way.
    fn by_old_name(_text: &str) -> Option<bool> {
        None
    }
}

/// Reads an allowed value into its place.
pub(super) fn read<T: OptionValue>(place: &mut T, text: &str, allowed: Allowed) -> Outcome {
    let Some(value) = T::read(text, allowed) else { return Outcome::NotAllowed };
    *place = value;
    T::by_old_name(text).map_or(Outcome::Set, Outcome::SetByOldName)
}

/// Prints a value that does not read as its default does.
pub(super) fn print<T: OptionValue>(
    value: &T,
    default: &T,
    allowed: Allowed,
    secrets: Secrets,
) -> Vec<String> {
    let printed = value.print(allowed, secrets);
    let differs = printed != default.print(allowed, secrets);
    printed.filter(|_| differs).into_iter().collect()
}

/// Returns a number if it is an allowed one, without a plus sign.
pub(super) fn number(text: &str, allowed: Allowed) -> Option<i64> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'))?;
    (allowed.least..=allowed.most).contains(&number).then_some(number)
}

/// Connection String, "Values", with the alternatives that it recommends to understand.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "yes" | "y" | "t" => Some(true),
        "false" | "0" | "-1" | "no" | "n" | "f" => Some(false),
        _ => None,
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    fn read(text: &str, allowed: Allowed) -> Option<Self> {
        T::read(text, allowed).map(Some)
    }

    fn print(&self, allowed: Allowed, secrets: Secrets) -> Option<String> {
        self.as_ref()?.print(allowed, secrets)
    }

    fn by_old_name(text: &str) -> Option<bool> {
        T::by_old_name(text)
    }
}

impl OptionValue for bool {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        boolean(text)
    }

    fn print(&self, _: Allowed, _: Secrets) -> Option<String> {
        Some(self.to_string())
    }

    fn by_old_name(text: &str) -> Option<bool> {
        boolean(text).filter(|value| text != value.to_string())
    }
}

/// Milliseconds.
impl OptionValue for Duration {
    fn read(text: &str, allowed: Allowed) -> Option<Self> {
        number(text, allowed).map(|number| Self::from_millis(number.unsigned_abs()))
    }

    fn print(&self, allowed: Allowed, _: Secrets) -> Option<String> {
        Some(self.as_millis().min(allowed.most.unsigned_abs().into()).to_string())
    }
}

impl OptionValue for String {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        Some(text.to_owned())
    }

    fn print(&self, _: Allowed, _: Secrets) -> Option<String> {
        Some(self.clone())
    }
}

impl OptionValue for Arc<str> {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        Some(text.into())
    }

    fn print(&self, _: Allowed, _: Secrets) -> Option<String> {
        Some(self.to_string())
    }
}

impl OptionValue for Secret {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        Some(text.into())
    }

    fn print(&self, _: Allowed, secrets: Secrets) -> Option<String> {
        Some(secrets.show(self).to_owned())
    }
}

impl OptionValue for MonitoringMode {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        [Self::Auto, Self::Stream, Self::Poll].into_iter().find(|mode| mode.name() == text)
    }

    fn print(&self, _: Allowed, _: Secrets) -> Option<String> {
        Some(self.name().to_owned())
    }
}

impl OptionValue for AuthMechanism {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        Self::from_name(text)
    }

    fn print(&self, _: Allowed, _: Secrets) -> Option<String> {
        Some(self.name().to_owned())
    }
}

/// Implements [`OptionValue`] for numbers.
macro_rules! numbers {
    ($($type:ty),+) => {
        $(impl OptionValue for $type {
            fn read(text: &str, allowed: Allowed) -> Option<Self> {
                number(text, allowed)?.try_into().ok()
            }

            fn print(&self, _: Allowed, _: Secrets) -> Option<String> {
                Some(self.to_string())
            }
        })+
    };
}

numbers!(i32, u16, u32, usize);

/// Says of a value that is read by itself which ones are allowed, and where it stands: in the
/// settings, or in those of TLS, of the proxy or of DNS.
macro_rules! value {
    ($allowed:expr, tls: $field:ident) => {
        value!(@part $allowed, tls_options, TlsOptions::default(), $field, query => {
            query.settings.tls_options.get_or_insert_default()
        })
    };
    ($allowed:expr, proxy: $field:ident) => {
        value!(@part $allowed, proxy, ProxyOptions::new(""), $field, query => {
            query.proxy.get_or_insert_with(|| ProxyOptions::new(""))
        })
    };
    ($allowed:expr, srv: $field:ident) => {
        value!(@part $allowed, srv, SrvOptions::new(""), $field, query => {
            query.settings.srv.as_mut().unwrap_or(&mut query.unused_srv)
        })
    };
    (@part $allowed:expr, $part:ident, $default:expr, $field:ident, $q:ident => $place:expr) => {
        Meaning::new(
            $allowed.text,
            |$q, text| read(&mut $place.$field, text, $allowed),
            |settings, secrets| match &settings.$part {
                Some(part) => print(&part.$field, &$default.$field, $allowed, secrets),
                None => Vec::new(),
            },
        )
    };
    ($allowed:expr, $($field:ident).+) => {
        Meaning::new(
            $allowed.text,
            |query, text| read(&mut query.settings.$($field).+, text, $allowed),
            |settings, secrets| {
                let default = Settings::default();
                print(&settings.$($field).+, &default.$($field).+, $allowed, secrets)
            },
        )
    };
}

pub(super) use value;
