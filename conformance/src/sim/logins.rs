//! Users that log in, and logins that are refused for a while.

use sdam_core::auth::MIN_ITERATIONS;

use super::world::World;
use crate::cluster::{Input, ScramMechanism, User};

/// Name and password, as in a connection string.
pub(super) const USER_INFO: &str = "app:secret@";

/// Returns the only user: whose password is hashed as few times as clients allow.
pub(super) fn user(password: &str) -> User {
    let user = User::new("app", password).with_mechanisms(&[ScramMechanism::Sha256]);
    user.with_iterations(MIN_ITERATIONS)
}

impl World {
    /// The user gets another password, or its own again. Whoever is logged in stays so.
    pub(super) fn change_password(&mut self, password: &str) {
        // Without users, nobody logs in.
        if !self.plan.cluster.users.is_empty() {
            self.tell(Input::Users { users: &[user(password)] });
        }
    }
}
