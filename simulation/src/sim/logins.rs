//! Users that log in, and logins that are refused for a while.

use sdam_core::auth::MIN_ITERATIONS;

use super::world::World;
use sdam_cluster::{Input, ScramMechanism, User};

/// Returns name and password, as in a connection string, of a client that logs in.
pub(super) const fn user_info(logs_in: bool) -> &'static str {
    if logs_in { "app:secret@" } else { "" }
}

/// Returns the only user: whose password is hashed as few times as clients allow.
pub(super) fn user(password: &str) -> User {
    let user = User::new("app", password).with_mechanisms(&[ScramMechanism::Sha256]);
    user.with_iterations(MIN_ITERATIONS)
}

impl World {
    /// The user gets another password, or its own again. Connections that are logged in stay so.
    pub(super) fn change_password(&mut self, password: &str) {
        // Without users there are no logins.
        if !self.plan.cluster.users.is_empty() {
            self.input(Input::Users { users: &[user(password)] });
        }
    }
}
