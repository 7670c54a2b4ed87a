//! True if integration tests can run, and what is said where they cannot.

use std::env;
use std::process::ExitCode;

use super::{Binary, HarnessError, Version};

/// The binaries that integration tests run against, and what is left out for want of others.
///
/// A test target asks once, makes one test per binary, and returns [`conclude`](Self::conclude)
/// from `main`, so that what was left out is neither silent nor, on CI, a success.
#[derive(Debug)]
pub struct Availability {
    binaries: Vec<Binary>,
    left_out: Vec<String>,
}

impl Availability {
    /// Looks for binaries: the user's own if there is one, or else those of `.mongod/`, only those
    /// that `MONGOD_VERSIONS` names if it is set.
    pub fn look() -> Self {
        let found = Binary::user().map_or_else(Self::fetched, |binary| vec![binary]);
        Self::from_found(found)
    }

    fn fetched() -> Vec<Result<Binary, HarnessError>> {
        let mut found = Binary::all();
        if let Ok(versions) = env::var("MONGOD_VERSIONS") {
            let is_named = |version: Version| {
                versions.split_whitespace().any(|named| named == version.to_string())
            };
            found.retain(|it| it.as_ref().map_or(true, |binary| is_named(binary.version())));
        }
        found
    }

    fn from_found(found: Vec<Result<Binary, HarnessError>>) -> Self {
        let mut availability = Self { binaries: Vec::new(), left_out: Vec::new() };
        if found.is_empty() {
            let reason = "the tests against mongod, for want of one: run scripts/fetch-mongod, \
                          or set SDAM_MONGOD to the path of one";
            availability.left_out.push(reason.to_owned());
        }
        for binary in found {
            match binary {
                Ok(binary) => availability.binaries.push(binary),
                Err(error) => availability.left_out.push(error.to_string()),
            }
        }
        availability
    }

    /// Returns the binaries to test against, the oldest first; none if tests are to be skipped.
    pub fn binaries(&self) -> &[Binary] {
        &self.binaries
    }

    /// Returns what cannot be tested and why, one line each; empty where all is well.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Prints what was left out and returns how the test target ends.
    ///
    /// That is a failure if the tests did not pass, or if something was left out although the
    /// environment has `CI=true`.
    pub fn conclude(&self, passed: bool) -> ExitCode {
        for reason in &self.left_out {
            eprintln!("left out: {reason}");
        }
        let on_ci = env::var_os("CI").is_some_and(|value| value == "true");
        match self.is_success(passed, on_ci) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    fn is_success(&self, passed: bool, on_ci: bool) -> bool {
        passed && (self.left_out.is_empty() || !on_ci)
    }
}

#[cfg(test)]
mod tests {
    use super::{Availability, HarnessError};

    fn broken() -> HarnessError {
        HarnessError::Binary { path: "/bin/mongod".into(), reason: "no libssl".to_owned() }
    }

    #[test]
    fn without_a_binary_the_reason_says_what_to_do() {
        let nothing = Availability::from_found(Vec::new());
        assert!(nothing.binaries().is_empty());
        assert!(nothing.left_out()[0].contains("run scripts/fetch-mongod"));
    }

    #[test]
    fn a_binary_that_does_not_run_is_left_out_by_name() {
        let availability = Availability::from_found(vec![Err(broken())]);
        assert_eq!(availability.left_out(), ["/bin/mongod is no usable mongod: no libssl"]);
    }

    #[test]
    fn what_is_left_out_is_a_failure_on_ci_only() {
        let lacking = Availability::from_found(Vec::new());
        assert!(lacking.is_success(true, false));
        assert!(!lacking.is_success(true, true));
        let complete = Availability { binaries: Vec::new(), left_out: Vec::new() };
        assert!(complete.is_success(true, true));
        assert!(!complete.is_success(false, false));
    }
}
