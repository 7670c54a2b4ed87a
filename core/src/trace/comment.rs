//! The comments for readers besides the replayed lines: the state of the pools, and views.

use std::fmt::Write;

use super::action::redacted;
use super::time;
use crate::config::ServerAddress;
use crate::description::TopologyDescription;
use crate::operation::{Action, Fault, OperationError};
use crate::pool::PoolEvent;
use crate::time::Instant;
use crate::topology::{Event, EventKind};

/// Writes what happened to a pool as a comment, a line for the readers of a trace; nothing of other
/// events, and of those that come with every operation.
pub fn pool_comment(event: &Event) -> Option<String> {
    let EventKind::Pool { event: happened, .. } = &event.kind else { return None };
    match happened {
        PoolEvent::PoolReady
        | PoolEvent::PoolCleared { .. }
        | PoolEvent::ConnectionCreated { .. }
        | PoolEvent::ConnectionReady { .. }
        | PoolEvent::ConnectionClosed { .. }
        | PoolEvent::ConnectionCheckOutFailed { .. } => {
            Some(format!("# {} {}\n", time::written(event.at), redacted(&event.kind)))
        }
        PoolEvent::PoolCreated { .. }
        | PoolEvent::PoolClosed
        | PoolEvent::ConnectionCheckOutStarted
        | PoolEvent::ConnectionCheckedOut { .. }
        | PoolEvent::ConnectionCheckedIn { .. } => None,
    }
}

/// The longest name of a command that a comment repeats.
const MAX_NAME_LEN: usize = 32;

/// A comment on an attempt of an operation that has failed, a line for the readers of a trace: the
/// command's name, the server, where and how it failed, and what its machine makes of that. Nothing
/// of documents and of messages is in it.
#[derive(Clone, Debug)]
pub struct AttemptComment(String);

impl AttemptComment {
    /// Begins the comment on an attempt with a command of this name at a server, if one was
    /// selected.
    pub fn new(
        at: Instant,
        (command, server): (&str, Option<&ServerAddress>),
        fault: &Fault<'_>,
    ) -> Self {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let command = match (command.len(), is_name(command)) {
            (1..=MAX_NAME_LEN, true) => command,
            _ => "a command",
        };
        let mut line = format!("# {} {command}", time::written(at));
        if let Some(server) = server {
            let _ = write!(line, " at {server}");
        }
        let _ = write!(line, " has failed: {}; ", shape(fault));
        Self(line)
    }

    /// Returns the line, which ends with what the machine asks for next, or with when the next
    /// attempt begins if it asks for nothing before.
    pub fn followed_by<O>(self, next: Option<&Action<O>>, deadline: Option<Instant>) -> String {
        let Self(mut line) = self;
        match (next, deadline) {
            (Some(Action::Done { .. }), _) => line.push_str("that is the end\n"),
            (None, Some(until)) => {
                let _ = writeln!(line, "the next attempt begins at {}", time::written(until));
            }
            _ => line.push_str("it is tried again\n"),
        }
        line
    }
}

/// Returns where and how an attempt has failed.
fn shape(fault: &Fault<'_>) -> String {
    match fault {
        Fault::Selection(true) => "no server in time".to_owned(),
        Fault::Selection(false) => "no server".to_owned(),
        Fault::PoolCleared => "the pool was not ready".to_owned(),
        Fault::CheckOut(true) => "no connection in time".to_owned(),
        Fault::CheckOut(false) => "no connection".to_owned(),
        Fault::Refused(true) => "not sent for lack of time".to_owned(),
        Fault::Refused(false) => "not sent".to_owned(),
        Fault::WriteConcern(error) => format!("write concern, code {}", error.code.unwrap_or(0)),
        Fault::IdleConnection(error) => format!("idle connection, {}", cause(error)),
        Fault::Establishing(error) | Fault::Exchange(error) => cause(error),
    }
}

fn cause(error: &OperationError) -> String {
    match error {
        OperationError::Stream(failure) => {
            format!("{}, {}", failure.stage.name(), failure.cause.name())
        }
        OperationError::Reply { stage, error } => {
            format!("{}, code {}", stage.name(), error.code.unwrap_or(0))
        }
        OperationError::Invalid(_) => "not sent".to_owned(),
    }
}

/// Writes all that is known as a comment, a line for the readers of a trace.
pub fn description_comment(description: &TopologyDescription) -> String {
    format!("# what is known at the end: {}\n", redacted(description))
}

#[cfg(test)]
mod tests {
    use super::AttemptComment;
    use crate::config::ServerAddress;
    use crate::failure::{Cause, Failure, Stage};
    use crate::operation::{Action, CommandError, Fault, OperationError};
    use crate::time::Instant;

    /// The shape of an operation, and nothing that an application or a server has written.
    #[test]
    fn attempts_that_fail_are_told_without_what_was_said() {
        let server: ServerAddress = "a:1".parse().unwrap();
        let at = Instant::from_millis(1500);
        let line = |command, fault: &Fault<'_>, next: Option<&Action<()>>, until| {
            AttemptComment::new(at, (command, Some(&server)), fault).followed_by(next, until)
        };
        let failure = Failure::new(Stage::Operate, Cause::Closed, "a secret of the network");
        let lost = OperationError::Stream(failure);
        let again = Action::Select { deadline: None };
        assert_eq!(
            line("find", &Fault::Exchange(&lost), Some(&again), None),
            "# +1.500000000 find at a:1 has failed: operate, closed; it is tried again\n"
        );
        let error =
            CommandError { code: Some(462), message: "a secret".into(), ..Default::default() };
        let refused = OperationError::Reply { stage: Stage::Operate, error };
        let later = Some(Instant::from_millis(1600));
        assert_eq!(
            line("insert", &Fault::Exchange(&refused), None, later),
            "# +1.500000000 insert at a:1 has failed: operate, code 462; \
             the next attempt begins at +1.600000000\n"
        );
        let done = Action::Done { outcome: (), timed_out: true };
        assert_eq!(
            line("a\n> secret", &Fault::Refused(true), Some(&done), None),
            "# +1.500000000 a command at a:1 has failed: not sent for lack of time; \
             that is the end\n"
        );
        let nowhere = AttemptComment::new(at, ("", None), &Fault::Selection(true));
        assert_eq!(
            nowhere.followed_by(Some(&done), None),
            "# +1.500000000 a command has failed: no server in time; that is the end\n"
        );
    }
}
