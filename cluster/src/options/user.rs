//! The users of a deployment, and their mechanisms.

use std::collections::{BTreeMap, BTreeSet};

use sdam_core::auth::MIN_ITERATIONS;
use sdam_core::config::Secret;

/// The number of users that a deployment may have.
pub const MAX_USERS: usize = 100;

/// The number of iterations of SCRAM that a user may have at most; a client takes part in more than
/// 100,000 only if its `maxScramIterations` says so.
const MAX_ITERATIONS: u32 = 2_000_000;

/// A mechanism by which users of a deployment log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ScramMechanism {
    /// SCRAM-SHA-1, over the digest that MongoDB makes of name and password.
    Sha1,
    /// SCRAM-SHA-256, over the password prepared with SASLprep.
    Sha256,
}

impl ScramMechanism {
    /// Returns the name that clients ask for it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// Returns how often real servers hash a password by default.
    pub const fn default_iterations(self) -> u32 {
        match self {
            Self::Sha1 => 10_000,
            Self::Sha256 => 15_000,
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::Sha1, Self::Sha256].into_iter().find(|it| it.name() == name)
    }
}

/// A user, who may do everything once logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The name, which is stored as it is.
    pub name: String,
    /// The password.
    pub password: Secret,
    /// The database that the user belongs to, `admin` by default.
    pub database: String,
    /// The mechanisms that the user may log in by, both by default, and for each how often the
    /// password is hashed: 10,000 times for SCRAM-SHA-1 and 15,000 times for SCRAM-SHA-256 by
    /// default, as on real servers, and from [`MIN_ITERATIONS`] to 2,000,000 times.
    pub mechanisms: BTreeMap<ScramMechanism, u32>,
}

impl User {
    /// Describes a user of the database `admin` with both mechanisms.
    pub fn new(name: impl Into<String>, password: impl Into<Secret>) -> Self {
        let user = Self {
            name: name.into(),
            password: password.into(),
            database: "admin".to_owned(),
            mechanisms: BTreeMap::new(),
        };
        user.with_mechanisms(&[ScramMechanism::Sha1, ScramMechanism::Sha256])
    }

    /// Describes the same user of another database.
    #[must_use]
    pub fn of_database(self, database: impl Into<String>) -> Self {
        Self { database: database.into(), ..self }
    }

    /// Describes the same user with these mechanisms only, and their default iterations.
    #[must_use]
    pub fn with_mechanisms(self, mechanisms: &[ScramMechanism]) -> Self {
        let mechanisms = mechanisms.iter().map(|it| (*it, it.default_iterations())).collect();
        Self { mechanisms, ..self }
    }

    /// Describes the same user with so many iterations for each mechanism;
    /// [`MIN_ITERATIONS`] is the quickest.
    #[must_use]
    pub fn with_iterations(mut self, iterations: u32) -> Self {
        self.mechanisms.values_mut().for_each(|it| *it = iterations);
        self
    }

    fn validate(&self) -> Result<(), UserError> {
        if self.name.is_empty() {
            return Err(UserError::NoName);
        }
        if self.database.is_empty() || self.database.contains('.') || self.database == "$external" {
            return Err(UserError::Database(self.database.clone()));
        }
        if self.password.expose().is_empty() {
            return Err(UserError::NoPassword(self.name.clone()));
        }
        if self.mechanisms.is_empty() {
            return Err(UserError::NoMechanism(self.name.clone()));
        }
        let range = MIN_ITERATIONS..=MAX_ITERATIONS;
        if let Some(&iterations) = self.mechanisms.values().find(|it| !range.contains(it)) {
            return Err(UserError::Iterations { name: self.name.clone(), iterations });
        }
        let is_prepared = self.mechanisms.contains_key(&ScramMechanism::Sha256);
        match is_prepared && stringprep::saslprep(self.password.expose()).is_err() {
            true => Err(UserError::Password(self.name.clone())),
            false => Ok(()),
        }
    }
}

/// Checks users, each by itself and all together.
pub(crate) fn validate_users(users: &[User]) -> Result<(), UserError> {
    if users.len() > MAX_USERS {
        return Err(UserError::TooMany(users.len()));
    }
    let mut names = BTreeSet::new();
    for user in users {
        user.validate()?;
        if !names.insert((&user.database, &user.name)) {
            let (database, name) = (user.database.clone(), user.name.clone());
            return Err(UserError::SameName { database, name });
        }
    }
    Ok(())
}

/// The reason why users cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// More than [`MAX_USERS`].
    #[error("{0} users; at most {MAX_USERS} are allowed")]
    TooMany(usize),
    /// A user without a name.
    #[error("the name of a user is empty")]
    NoName,
    /// Two users of a database with the same name.
    #[error("the database {database:?} has two users {name:?}; each needs a name of its own")]
    SameName {
        /// The database of both.
        database: String,
        /// The name of both.
        name: String,
    },
    /// A database that no user can belong to.
    #[error(
        "a user of the database {0:?}; its name is not empty, contains no dot, and is not $external"
    )]
    Database(String),
    /// A user without a password.
    #[error("the password of the user {0:?} is empty")]
    NoPassword(String),
    /// A password that SASLprep prohibits.
    #[error(
        "the password of the user {0:?} contains what SASLprep prohibits, and SCRAM-SHA-256 needs \
         that; SCRAM-SHA-1 takes any password"
    )]
    Password(String),
    /// A user who could not log in.
    #[error("the user {0:?} has no mechanism; SCRAM-SHA-1, SCRAM-SHA-256 or both are needed")]
    NoMechanism(String),
    /// A number of iterations that clients refuse.
    #[error(
        "{iterations} iterations for the user {name:?}; from {MIN_ITERATIONS} to {MAX_ITERATIONS} \
         are allowed"
    )]
    Iterations {
        /// The user.
        name: String,
        /// Their number.
        iterations: u32,
    },
}
