//! Servers that demand authentication.
//!
//! The harness itself has no credentials. So a server starts without authentication, is given all
//! its users, and starts again with it, on the same data.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bson::{Bson, doc};

use super::error::poll;
use super::replica_set::SETTLE_LIMIT;
use super::{CommandError, HarnessError, ReplicaSet, Server, TlsMode, command};

/// The time that the creation of a user may take.
const CREATE_LIMIT: Duration = Duration::from_secs(60);

/// The error of a user who is there already.
const ALREADY_EXISTS: i32 = 51003;

/// The key by which the members of a set know each other; it guards nothing.
const KEY: &str = "everybodyOnThisMachineMayKnowThisKey";

/// A user with the role `root`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, which servers store as it is.
    pub name: String,
    /// The password; none for a user whom somebody else vouches for.
    ///
    /// For SCRAM-SHA-256 servers prepare it as clients do (SASLprep).
    pub password: Option<String>,
    /// The database that the user belongs to.
    pub database: String,
    /// The mechanisms the user may use; none means all that go by this password.
    pub mechanisms: Vec<String>,
}

impl User {
    /// Describes a user of the database `admin` who may use every mechanism of SCRAM.
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            password: Some(password.into()),
            database: "admin".to_owned(),
            mechanisms: Vec::new(),
        }
    }

    /// Describes the same user, with these mechanisms only.
    #[must_use]
    pub fn with_mechanisms(self, mechanisms: &[&str]) -> Self {
        let mechanisms = mechanisms.iter().map(|it| (*it).to_owned()).collect();
        Self { mechanisms, ..self }
    }

    /// Describes a user with a certificate of this subject, for MONGODB-X509.
    pub fn with_certificate(subject: impl Into<String>) -> Self {
        Self {
            name: subject.into(),
            password: None,
            database: "$external".to_owned(),
            mechanisms: Vec::new(),
        }
    }

    fn create(&self, server: &Server, majority: bool) -> Result<(), CommandError> {
        let w = if majority { Bson::from("majority") } else { Bson::from(1) };
        let mut create = doc! {
            "createUser": &self.name,
            "roles": [{ "role": "root", "db": "admin" }],
            "writeConcern": { "w": w, "j": true },
        };
        if let Some(password) = &self.password {
            create.insert("pwd", password);
        }
        if !self.mechanisms.is_empty() {
            create.insert("mechanisms", self.mechanisms.clone());
        }
        match command(&server.address(), &self.database, &create, CREATE_LIMIT) {
            // An election may have come between the user and the reply.
            Err(CommandError::Refused { code, .. }) if majority && code == ALREADY_EXISTS => Ok(()),
            result => result.map(drop),
        }
    }
}

impl Server {
    /// Creates users, and starts again with `--auth`.
    ///
    /// From then on the harness can still ask what the server is, restart, kill and freeze it, but
    /// send no other command; nor is there a localhost exception, as there are users.
    ///
    /// # Errors
    ///
    /// Says which step failed; [`CommandError::Refused`] if the
    /// server does not take such a user.
    pub fn enable_auth(&mut self, users: &[User]) -> Result<(), HarnessError> {
        let mode = self.config.tls.as_ref().map(|tls| tls.mode);
        if mode == Some(TlsMode::Require) {
            // Without TLS there is no other way to create them.
            self.restart_with_tls(TlsMode::Prefer)?;
        }
        for user in users {
            user.create(self, false)?;
        }
        self.authenticates = true;
        match mode {
            Some(mode) => self.restart_with_tls(mode),
            None => self.restart(),
        }
    }

    fn restart_with_tls(&mut self, mode: TlsMode) -> Result<(), HarnessError> {
        if let Some(tls) = &mut self.config.tls {
            tls.mode = mode;
        }
        self.restart()
    }
}

impl ReplicaSet {
    /// Creates users, and starts all members again with authentication, among themselves by a key
    /// file; waits until the set has settled.
    ///
    /// From then on the harness can still ask who is primary, restart, kill and freeze members, but
    /// neither make the primary step down nor add or remove a member.
    ///
    /// # Errors
    ///
    /// Says which step failed.
    pub fn enable_auth(&mut self, users: &[User]) -> Result<(), HarnessError> {
        // On a busy machine members miss each other, and another one is elected meanwhile.
        poll("a primary that creates the users", SETTLE_LIMIT, || {
            let primary = self.primary().map_err(|error| error.to_string())?;
            let mut created = users.iter().map(|user| user.create(&self.members[primary], true));
            created.try_for_each(|it| it.map_err(|error| error.to_string()))
        })?;
        self.wait_until_committed()?;
        // One that went on alone would not be believed by the others, nor believe them.
        self.members.iter_mut().try_for_each(Server::kill)?;
        thread::scope(|scope| {
            let restart = |member: &mut Server| {
                member.authenticates = true;
                member.restart()
            };
            let starts: Vec<_> =
                self.members.iter_mut().map(|it| scope.spawn(move || restart(it))).collect();
            starts
                .into_iter()
                .try_for_each(|start| start.join().expect("starting a server does not panic"))
        })?;
        self.wait_until_settled(SETTLE_LIMIT)?;
        self.wait_until_committed()
    }
}

/// Writes the key of the members, as they want it: for their owner only.
pub(super) fn write_key(path: &Path) -> io::Result<()> {
    fs::write(path, KEY)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))
}
