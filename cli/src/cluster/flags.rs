//! The flags of `sdam cluster` that describe the deployment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use sdam_cluster::certificates::{Authority, CertificateError};
use sdam_cluster::{
    Deployment, EmbeddedOptions, MAX_MEMBERS, MAX_PRIORITY, MemberId, MemberOptions,
    ScramMechanism, ServerVersion, TlsIdentity, TlsIdentityError, User,
};
use sdam_core::config::Secret;

use super::step::{MAX_NAMES, Name};
use crate::{duration, file};

/// The number of bytes that the file with a password may have.
const MAX_PASSWORD_FILE_LEN: u64 = 1 << 16;

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam cluster
  sdam cluster --members 5 --version 8.0 --scenario failover.scenario
  sdam cluster --user app --password-file app.password --tls-self-signed ca.pem --for 10m

Exit codes:
  0  it was stopped, or its time is over
  1  it cannot start, or has ended by itself
  2  the arguments or the scenario are invalid";

/// Runs a deployment on loopback, for drivers and people: the servers store no data, but elect,
/// fail, demand logins and speak TLS as real ones do.
///
/// The connection string is printed first, and then a line for each event. What happens to the
/// deployment comes from a scenario file, from keys on a terminal, or else from lines on standard
/// input, which say the same as those of a scenario file, without times.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// The number of members that the replica set has; they are named a, b, c and so on
    #[arg(long, value_name = "N", default_value_t = 3)]
    members: usize,
    /// The number of mongos that there are, instead of a replica set
    #[arg(long, value_name = "N", conflicts_with_all = ["members", "set"])]
    mongos: Option<usize>,
    /// The name of the replica set
    #[arg(long, value_name = "NAME", default_value = "demo")]
    set: String,
    /// The server version that they imitate: 4.2, 4.4, 5.0, 6.0, 7.0, 8.0, 8.2 or 9.0
    #[arg(long, default_value = "6.0", value_parser = version)]
    version: ServerVersion,
    /// A member that votes but holds no data; may be repeated
    #[arg(long, value_name = "NAME", value_parser = name)]
    arbiter: Vec<Name>,
    /// A member that no reply names, and that is never primary; may be repeated
    #[arg(long, value_name = "NAME", value_parser = name)]
    hidden: Vec<Name>,
    /// The priority of a member, from 0 (never primary) to 1000; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = priority)]
    priority: Vec<(Name, u16)>,
    /// A tag of a member; may be repeated
    #[arg(long, value_name = "NAME=KEY:VALUE", value_parser = tag)]
    tag: Vec<(Name, (String, String))>,
    /// The port of the first member, those of the others following it; free ones by default, and
    /// if it is 0
    #[arg(long)]
    port: Option<u16>,
    /// The time from the loss of a primary until an election begins
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    election_timeout: Duration,
    /// Determines who wins the elections
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A user that may log in; may be repeated. Without users, no login is needed
    ///
    /// A password given here can be read by anyone who lists processes: prefer --password-file.
    #[arg(long, value_name = "NAME[:PASSWORD]", value_parser = user)]
    user: Vec<UserFlag>,
    /// A file whose first line is the password of the users without one
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// By which mechanism users log in; may be repeated, both by default
    #[arg(
        long,
        value_name = "SCRAM-SHA-1|SCRAM-SHA-256",
        value_parser = mechanism,
        requires = "user"
    )]
    mechanism: Vec<ScramMechanism>,
    /// Speak TLS with the certificate and the key in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "tls_self_signed")]
    tls: Option<PathBuf>,
    /// Speak TLS with a new certificate for 127.0.0.1 and localhost, and write that of its
    /// authority, which clients have to trust, to this file
    #[arg(long, value_name = "FILE")]
    tls_self_signed: Option<PathBuf>,
    /// An extra delay of each hello, as if the members were far away
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration::parse)]
    pub(super) hello_latency: Duration,
    /// A file of timed steps, as cli/CLUSTER.md describes it
    #[arg(long, value_name = "FILE")]
    pub(super) scenario: Option<PathBuf>,
    /// End after this time: a whole number and ms, s, m or h, as in 500ms or 30s
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    pub(super) limit: Option<Duration>,
    /// Print one JSON object for each event
    #[arg(long)]
    pub(super) json: bool,
}

/// A user as a flag names it.
#[derive(Clone, Debug)]
struct UserFlag {
    name: String,
    password: Option<Secret>,
}

/// The reason why flags do not describe a deployment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlagError {
    /// Too many of them for their names.
    #[error("--mongos {0}; from 1 to {MAX_NAMES} are allowed")]
    Mongos(usize),
    /// Too many of them, or none.
    #[error("--members {0}; from 1 to {MAX_MEMBERS} are allowed")]
    Members(usize),
    /// A flag is about a member that there is not.
    #[error("{flag} {name}: unknown member; use a to {last}")]
    NoMember {
        /// The flag.
        flag: &'static str,
        /// The member that it names.
        name: String,
        /// The last one that there is.
        last: String,
    },
    /// A member that is hidden and yet wants to be primary.
    #[error("--priority {name}={priority}: {name} is hidden, and only 0 is allowed")]
    Hidden {
        /// The name of the member.
        name: String,
        /// The priority.
        priority: u16,
    },
    /// Two tags of a member with the same key.
    #[error("--tag {name}={key}:…: {name} has two tags {key:?}; each key is allowed once")]
    SameTag {
        /// The member that has them.
        name: String,
        /// The key of both.
        key: String,
    },
    /// A flag that says nothing of mongos.
    #[error("{0} is about members of a replica set, and --mongos makes none")]
    NotForMongos(&'static str),
    /// A user without a password.
    #[error("--user {0} has no password; write NAME:PASSWORD, or name a --password-file")]
    NoPassword(String),
    /// The password cannot be read.
    #[error("--password-file {file}: {error}", file = .0.display(), error = .1)]
    PasswordFile(PathBuf, io::Error),
    /// The certificate does not serve.
    #[error("--tls {file}: {error}", file = .0.display(), error = .1)]
    Tls(PathBuf, TlsIdentityError),
    /// There is no certificate.
    #[error("--tls-self-signed: {0}")]
    Certificate(CertificateError),
    /// The new certificate does not serve.
    #[error("--tls-self-signed: {0}")]
    Identity(TlsIdentityError),
    /// The authority's certificate cannot be written.
    #[error("--tls-self-signed {file}: {error}", file = .0.display(), error = .1)]
    Write(PathBuf, io::Error),
}

impl From<TlsIdentityError> for FlagError {
    fn from(error: TlsIdentityError) -> Self {
        Self::Identity(error)
    }
}

impl From<CertificateError> for FlagError {
    fn from(error: CertificateError) -> Self {
        Self::Certificate(error)
    }
}

impl Args {
    /// Returns how many members or mongos there are.
    pub(super) fn count(&self) -> usize {
        self.mongos.unwrap_or(self.members)
    }

    /// Returns whether they are mongos.
    pub(super) const fn has_mongos(&self) -> bool {
        self.mongos.is_some()
    }

    /// Returns the file in which clients find whom to trust, if there is TLS and we know.
    pub(super) fn ca_file(&self) -> Option<&Path> {
        self.tls_self_signed.as_deref()
    }

    /// Returns what is to be started.
    pub(super) fn options(&self) -> Result<EmbeddedOptions, FlagError> {
        let count = self.count();
        match self.mongos {
            Some(1..=MAX_NAMES) => {}
            Some(count) => return Err(FlagError::Mongos(count)),
            None if (1..=MAX_MEMBERS).contains(&count) => {}
            None => return Err(FlagError::Members(count)),
        }
        self.check_names()?;
        Ok(EmbeddedOptions::default()
            .with_deployment(match self.mongos {
                Some(_) => Deployment::Sharded,
                None => Deployment::ReplicaSet,
            })
            .with_set_name(self.set.clone())
            .with_members(count)
            .with_version(self.version)
            .with_users(self.users()?)
            .with_tls(self.identity()?)
            .with_seed(self.seed)
            .with_election_timeout(self.election_timeout)
            .with_first_port(self.port))
    }

    /// Describes a member as the flags do.
    pub(super) fn adjust(&self, member: MemberId, options: &mut MemberOptions) {
        let name = Name::of(member);
        options.arbiter = self.arbiter.contains(&name);
        options.hidden = self.hidden.contains(&name);
        let priority = self.priority.iter().rev().find(|(it, _)| *it == name);
        options.priority = match priority {
            Some((_, priority)) => *priority,
            None => u16::from(!options.hidden),
        };
        let tags = self.tag.iter().filter(|(it, _)| *it == name);
        options.tags = tags.map(|(_, tag)| tag.clone()).collect();
    }

    fn check_names(&self) -> Result<(), FlagError> {
        let priorities = self.priority.iter().map(|(name, _)| ("--priority", name));
        let tags = self.tag.iter().map(|(name, _)| ("--tag", name));
        let named = self.arbiter.iter().map(|name| ("--arbiter", name)).chain(priorities);
        let named = named.chain(self.hidden.iter().map(|name| ("--hidden", name))).chain(tags);
        for (flag, name) in named {
            if self.has_mongos() {
                return Err(FlagError::NotForMongos(flag));
            }
            if name.member().0 >= self.count() {
                let last = Name::of(MemberId(self.count() - 1)).to_string();
                return Err(FlagError::NoMember { flag, name: name.to_string(), last });
            }
        }
        self.check_contradictions()
    }

    /// Checks what is said of the same member at several places.
    fn check_contradictions(&self) -> Result<(), FlagError> {
        let hidden = self.priority.iter().find(|(name, it)| *it > 0 && self.hidden.contains(name));
        if let Some((name, priority)) = hidden {
            return Err(FlagError::Hidden { name: name.to_string(), priority: *priority });
        }
        let mut keys = BTreeSet::new();
        match self.tag.iter().find(|(name, (key, _))| !keys.insert((*name, key))) {
            Some((name, (key, _))) => {
                Err(FlagError::SameTag { name: name.to_string(), key: key.clone() })
            }
            None => Ok(()),
        }
    }

    fn users(&self) -> Result<Vec<User>, FlagError> {
        let in_file = self.password_file.as_deref().map(first_line).transpose()?;
        let users = self.user.iter().map(|UserFlag { name, password }| {
            let password = password.clone().or_else(|| in_file.clone());
            let password = password.ok_or_else(|| FlagError::NoPassword(name.clone()))?;
            let user = User::new(name.as_str(), password);
            Ok(match self.mechanism.as_slice() {
                [] => user,
                mechanisms => user.with_mechanisms(mechanisms),
            })
        });
        users.collect()
    }

    fn identity(&self) -> Result<Option<TlsIdentity>, FlagError> {
        if let Some(file) = &self.tls {
            let identity = TlsIdentity::from_pem_file(file);
            return identity.map(Some).map_err(|error| FlagError::Tls(file.clone(), error));
        }
        let Some(file) = &self.tls_self_signed else {
            return Ok(None);
        };
        let authority = Authority::new("sdam cluster")?;
        let issued = authority.issue("sdam cluster member", &["127.0.0.1", "localhost"])?;
        let written = fs::copy(authority.file(), file);
        written.map_err(|error| FlagError::Write(file.clone(), error))?;
        Ok(Some(TlsIdentity::from_pem_file(issued)?))
    }
}

fn first_line(file: &Path) -> Result<Secret, FlagError> {
    let unreadable = |error| FlagError::PasswordFile(file.to_owned(), error);
    let content = file::read(file, MAX_PASSWORD_FILE_LEN).map_err(unreadable)?;
    let text = str::from_utf8(&content);
    let text = text.map_err(|_| unreadable(io::Error::other("a password is UTF-8")))?;
    Ok(text.lines().next().unwrap_or_default().into())
}

fn version(text: &str) -> Result<ServerVersion, String> {
    let named = |version: &ServerVersion| {
        let (major, minor) = version.number();
        format!("{major}.{minor}")
    };
    let known = ServerVersion::ALL.into_iter().find(|version| named(version) == text);
    known.ok_or_else(|| {
        let all: Vec<String> = ServerVersion::ALL.iter().map(named).collect();
        format!("there are {}", all.join(", "))
    })
}

fn name(text: &str) -> Result<Name, String> {
    text.parse().map_err(|error: super::step::StepError| error.to_string())
}

fn priority(text: &str) -> Result<(Name, u16), String> {
    let (member, number) = text.split_once('=').ok_or("write NAME=N, as in b=2")?;
    let allowed = || format!("a priority is a whole number from 0 to {MAX_PRIORITY}, as in b=2");
    let number = number.parse().ok().filter(|number| *number <= MAX_PRIORITY);
    Ok((name(member)?, number.ok_or_else(allowed)?))
}

fn tag(text: &str) -> Result<(Name, (String, String)), String> {
    let form = "write NAME=KEY:VALUE, as in b=dc:east";
    let (member, tag) = text.split_once('=').ok_or(form)?;
    let (key, value) = tag.split_once(':').ok_or(form)?;
    Ok((name(member)?, (key.to_owned(), value.to_owned())))
}

#[allow(clippy::unnecessary_wraps, reason = "an error would repeat the text, and so a password")]
fn user(text: &str) -> Result<UserFlag, String> {
    Ok(match text.split_once(':') {
        Some((name, password)) => {
            UserFlag { name: name.to_owned(), password: Some(password.into()) }
        }
        None => UserFlag { name: text.to_owned(), password: None },
    })
}

fn mechanism(text: &str) -> Result<ScramMechanism, String> {
    let all = [ScramMechanism::Sha1, ScramMechanism::Sha256];
    let known = all.into_iter().find(|mechanism| mechanism.name() == text);
    known.ok_or_else(|| "there are SCRAM-SHA-1 and SCRAM-SHA-256".to_owned())
}
