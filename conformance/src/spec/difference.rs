//! The difference between expected and found, as short texts that can be read side by side.

use std::fmt::Display;

use serde::{Deserialize, Deserializer, Serialize};

/// One thing that a case expected and that came out differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The place in the case, as in `phase 2, server a:27017, type`.
    pub place: String,
    /// The expected value.
    pub expected: String,
    /// The found value.
    pub found: String,
}

impl Difference {
    /// Says that a case, or a step of it, could not be run at all.
    pub(super) fn cannot_run(error: impl Display) -> Self {
        let (place, expected) = ("the case".into(), "a case that this runner can run".into());
        Self { place, expected, found: error.to_string() }
    }
}

/// The differences found so far, and the place that is being compared.
#[derive(Debug, Default)]
pub(super) struct Differences {
    place: Vec<String>,
    found: Vec<Difference>,
}

impl Differences {
    /// Compares within a part of the present place.
    pub(super) fn within<T>(
        &mut self,
        part: impl Display,
        compare: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.place.push(part.to_string());
        let compared = compare(self);
        self.place.pop();
        compared
    }

    /// Returns a value, or notes why there is none.
    pub(super) fn value<T>(&mut self, field: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|error| self.differs(field, "a value", error)).ok()
    }

    /// Returns whether nothing was noted.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Notes that two texts differ, if they do.
    pub(super) fn text(&mut self, field: &str, expected: &str, found: &str) {
        if expected != found {
            self.differs(field, expected, found);
        }
    }

    /// Notes that two values differ, if they do.
    pub(super) fn equal<T: PartialEq + Display>(&mut self, field: &str, expected: &T, found: &T) {
        if expected != found {
            self.differs(field, expected, found);
        }
    }

    /// Notes that a value is not what the case expects of it, if it expects anything.
    pub(super) fn expect<T: PartialEq + Display>(
        &mut self,
        field: &str,
        expected: &Expected<T>,
        found: Option<&T>,
    ) {
        match (expected, found) {
            (Expected::Unset, Some(found)) => self.differs(field, "unset", found),
            (Expected::Exactly(expected), None) => self.differs(field, expected, "unset"),
            (Expected::Exactly(expected), Some(found)) => self.equal(field, expected, found),
            (Expected::Anything, _) | (Expected::Unset, None) => {}
        }
    }

    /// Notes a difference.
    pub(super) fn differs(&mut self, field: &str, expected: impl Display, found: impl Display) {
        let mut place = self.place.clone();
        place.push(field.to_owned());
        self.found.push(Difference {
            place: place.join(", "),
            expected: expected.to_string(),
            found: found.to_string(),
        });
    }

    /// Returns what was noted.
    pub(super) fn into_vec(self) -> Vec<Difference> {
        self.found
    }
}

/// The expectation of a field: an absent key is no expectation, `null` is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Expected<T> {
    /// The key is absent: no check.
    #[default]
    Anything,
    /// The key is `null`: there must be no value.
    Unset,
    /// There must be this value.
    Exactly(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Expected<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Option::deserialize(deserializer)? {
            None => Self::Unset,
            Some(value) => Self::Exactly(value),
        })
    }
}
