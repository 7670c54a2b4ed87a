//! The verdict on what one operation has met at the server that was found for it.

use std::time::Duration;

use super::failure::of_connecting;
use super::verdict::Verdict;
use crate::config::{AuthMechanism, Credential, ServerAddress};
use crate::failure::{Cause, Failure, GssapiProblem, Stage};
use crate::operation::{CommandError, OperationError, SYSTEM_OVERLOADED, StateChange};

/// The number of writes in a row that a primary has to refuse to contradict itself: one or two may
/// come between its step-down and its word of that.
pub(crate) const MANY_REFUSALS: u32 = 3;

/// The numbers of the errors by which servers before 5.0, and since, refuse a mechanism that they
/// do not offer. The words, of 4.2 and since, distinguish that from a user without credentials of
/// the mechanism.
const UNAVAILABLE: [i32; 2] = [2, 334];
const NOT_OFFERED: [&str; 2] = ["Unsupported mechanism", "not enabled"];

/// The time after a pause of the process in which failures say nothing of servers.
const AFTERMATH: Duration = Duration::from_secs(1);

/// A time in which the process did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// The time that it took, at least: by how much the clock was late.
    pub paused: Duration,
    /// The time since its end.
    pub since: Duration,
}

impl Pause {
    /// Says how long it took at least, and how long ago it ended.
    pub const fn new(paused: Duration, since: Duration) -> Self {
        Self { paused, since }
    }

    /// Returns whether what fails now may have failed because of it.
    pub fn explains_failures(self) -> bool {
        self.since <= AFTERMATH
    }

    /// Returns the verdict on it.
    pub const fn verdict(self) -> Verdict {
        Verdict::ProcessPaused { paused: self.paused, since: self.since }
    }
}

/// The facts about a server that explain why an operation has failed there.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerEvidence {
    /// The number of operations in a row that the server has refused because it is no primary, with
    /// a minute between two of them at most: it says in each reply to hello that it is.
    pub refusals: u32,
    /// The number of connections to it that are open.
    pub open: usize,
    /// The last time that the process did not run.
    pub pause: Option<Pause>,
}

impl ServerEvidence {
    /// Finds the likely cause of an operation's error, as far as there is more to say than the
    /// error does; `credential` is who the client is.
    pub fn judge(
        &self,
        server: &ServerAddress,
        credential: Option<&Credential>,
        error: &OperationError,
    ) -> Option<Verdict> {
        match error {
            OperationError::Reply { stage: Stage::Authenticate, error } => {
                Some(refused_login(server, credential, error))
            }
            OperationError::Reply { error, .. } => self.of_reply(server, error),
            OperationError::Stream(failure)
                if failure.stage == Stage::Credentials && failure.cause != Cause::Canceled =>
            {
                Some(without_credentials(server, credential, failure))
            }
            OperationError::Stream(Failure {
                cause: Cause::GssapiFailed { problem },
                detail,
                ..
            }) => {
                let (server, problem) = (server.clone(), *problem);
                Some(Verdict::GssapiFailed { server, problem, reason: detail.to_string() })
            }
            OperationError::Stream(failure) => {
                let pause = self.pause.filter(|pause| pause.explains_failures());
                if let Some(pause) = pause.filter(|_| failure.is_network_error()) {
                    return Some(pause.verdict());
                }
                let is_closed = failure.cause == Cause::Closed
                    && matches!(failure.stage, Stage::Connect | Stage::Tls | Stage::Hello);
                if is_closed && self.open > 0 {
                    return Some(Verdict::ConnectionLimit {
                        server: server.clone(),
                        open: self.open,
                    });
                }
                of_connecting(server, failure)
            }
            OperationError::Invalid(_) => None,
        }
    }

    fn of_reply(&self, server: &ServerAddress, error: &CommandError) -> Option<Verdict> {
        let server = server.clone();
        if error.labels.iter().any(|label| label == SYSTEM_OVERLOADED) {
            let reason = error.to_string();
            return Some(Verdict::Overloaded { server: Some(server), reason });
        }
        let is_no_primary = error.state_change() == Some(StateChange::NotWritablePrimary);
        (is_no_primary && self.refusals >= MANY_REFUSALS).then(|| Verdict::PrimaryRefusesWrites {
            server,
            refusals: self.refusals,
            code_name: error.name_or_code(),
        })
    }
}

/// Returns the verdict where others than the server have not given what a login needs. A library of
/// Kerberos that gives no answer waits for a server of the realm.
fn without_credentials(
    server: &ServerAddress,
    credential: Option<&Credential>,
    failure: &Failure,
) -> Verdict {
    let reason = failure.detail.to_string();
    let mechanism = credential.and_then(|credential| credential.mechanism);
    let problem = match failure.cause {
        Cause::GssapiFailed { problem } => Some(problem),
        Cause::Timeout if mechanism == Some(AuthMechanism::Gssapi) => {
            Some(GssapiProblem::RealmUnreachable)
        }
        _ => None,
    };
    match problem {
        Some(problem) => Verdict::GssapiFailed { server: server.clone(), problem, reason },
        None => Verdict::CredentialsUnavailable { reason },
    }
}

fn refused_login(
    server: &ServerAddress,
    credential: Option<&Credential>,
    error: &CommandError,
) -> Verdict {
    let mechanism = credential.and_then(|credential| credential.mechanism);
    let (mechanism, reason) = (mechanism.map(|it| it.name().to_owned()), error.to_string());
    if UNAVAILABLE.contains(&error.code.unwrap_or_default())
        && NOT_OFFERED.iter().any(|words| error.message.contains(words))
    {
        return Verdict::MechanismUnavailable { server: server.clone(), mechanism, reason };
    }
    Verdict::LoginRefused {
        server: Some(server.clone()),
        user: credential.and_then(|credential| credential.username.clone()),
        auth_source: credential.map(|credential| credential.source.clone()),
        mechanism,
        reason,
    }
}
