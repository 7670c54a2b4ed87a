//! The options that are ignored.

use std::fmt;

/// A part of the options that was ignored, or should be written differently.
///
/// The values are not quoted, because they may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// An option that does not exist; it was ignored.
    UnknownOption {
        /// Its name as written, shortened; or its position if the name may be part of a secret.
        option: String,
    },
    /// A value that the option does not allow; the default holds.
    InvalidValue {
        /// The option.
        option: &'static str,
        /// The values that it allows.
        allowed: &'static str,
    },
    /// An element of a list that the option does not allow; only that element was ignored.
    InvalidElement {
        /// The option.
        option: &'static str,
        /// The elements that it allows.
        allowed: &'static str,
    },
    /// An option that has another name by now; it was understood, unless the new name appears too.
    DeprecatedOption {
        /// The option.
        option: &'static str,
        /// Its name by now.
        replacement: &'static str,
    },
    /// An option without a value; it was ignored.
    EmptyValue {
        /// The option.
        option: &'static str,
    },
    /// An option that appears more than once; the first one holds.
    RepeatedOption {
        /// The option.
        option: &'static str,
    },
    /// An option that counts in the single-threaded mode only.
    SingleThreadedOnly {
        /// The option.
        option: &'static str,
    },
    /// An element of a list that needs a feature which this build does not have; it was left out.
    NotInThisBuild {
        /// The option.
        option: &'static str,
        /// The element, and the feature.
        element: &'static str,
        /// The elements that this build has.
        available: Vec<&'static str>,
    },
    /// An option that counts with another value only, which is not there.
    CountsOnlyWith {
        /// The option.
        option: &'static str,
        /// With what it would count.
        with: &'static str,
    },
    /// An old way to write `true` or `false`; it was understood.
    DeprecatedBoolean {
        /// The option.
        option: &'static str,
        /// The value as understood.
        value: bool,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOption { option } => write!(f, "ignored {option}, which is unknown"),
            Self::InvalidValue { option, allowed } => {
                write!(f, "ignored the value of {option}, which must be {allowed}")
            }
            Self::InvalidElement { option, allowed } => {
                write!(f, "ignored an element of {option}; each must be {allowed}")
            }
            Self::DeprecatedOption { option, replacement } => {
                write!(f, "{option} is deprecated and has been replaced with {replacement}")
            }
            Self::EmptyValue { option } => write!(f, "ignored {option}, which has no value"),
            Self::RepeatedOption { option } => {
                write!(f, "{option} appears more than once; the first one holds")
            }
            Self::SingleThreadedOnly { option } => {
                write!(f, "{option} has no effect, as it is for single-threaded clients")
            }
            Self::NotInThisBuild { option, element, available } => {
                let available = match available.is_empty() {
                    true => "none".to_owned(),
                    false => available.join(" and "),
                };
                write!(
                    f,
                    "ignored {element} of {option}, which needs the feature {element}; this build \
                     has {available}",
                )
            }
            Self::CountsOnlyWith { option, with } => {
                write!(f, "{option} has no effect without {with}")
            }
            Self::DeprecatedBoolean { option, value } => {
                write!(f, "deprecated value of {option}; write {option}={value}")
            }
        }
    }
}
