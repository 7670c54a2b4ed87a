//! Reasons why a test has not passed: a difference from what it wants, or the runner itself.

use crate::spec::Difference;

/// The reason why a test has not passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Something is not as the test wants it.
    Differs(Difference),
    /// The runner itself broke down, which no test can ask for.
    Broken(Broken),
}

/// A breakdown of the runner itself: what it needs for a test is not there, or could not be done.
/// It says nothing of the client, and fails those tests, too, that have to fail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runner broke down over {subject}: {reason}")]
pub struct Broken {
    /// The thing that could not be done.
    pub subject: String,
    /// The reason.
    pub reason: String,
}

impl Broken {
    /// Names what could not be done, and the reason.
    pub fn new(subject: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self { subject: subject.into(), reason: reason.to_string() }
    }
}

impl From<Difference> for Fault {
    fn from(difference: Difference) -> Self {
        Self::Differs(difference)
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<Broken> for Difference {
    fn from(Broken { subject, reason }: Broken) -> Self {
        let expected = "the runner can do it".to_owned();
        Self { place: subject, expected, found: reason }
    }
}
