//! The time-out that has ended a wait for a server, by its name, and another one that was set in
//! its place.

use std::time::Duration;

use super::error::SelectionError;
use super::verdict::Verdict;
use crate::config::Options;

/// The difference between the time that an operation had and the value of the option that gave it:
/// the time that it took to begin.
const SLACK: Duration = Duration::from_millis(100);

/// The option that limits selections where no other does, and its default.
const SELECTION: &str = "serverSelectionTimeoutMS";
const DEFAULT_SELECTION: Duration = Duration::from_secs(30);

/// The default of connectTimeoutMS.
const DEFAULT_CONNECT: Duration = Duration::from_secs(10);

impl SelectionError {
    /// Names the option that has limited the wait to `limit`, if one has; and says what another
    /// time-out is for that is set while that one is not.
    ///
    /// The caller that sets the deadline of a selection knows that limit.
    #[must_use]
    pub fn limited(mut self, limit: Duration, options: &Options) -> Self {
        let is = |value: Duration| limit <= value && value - limit <= SLACK;
        self.limited_by = match options.timeout().filter(|timeout| !timeout.is_zero()) {
            Some(timeout) if is(timeout) => Some("timeoutMS"),
            _ if is(options.server_selection_timeout()) => Some(SELECTION),
            Some(_) | None => None,
        };
        if self.limited_by == Some(SELECTION) {
            self.also.extend(other_timeout(options));
        }
        self
    }
}

/// Finds a time-out that is set where serverSelectionTimeoutMS, which operations wait for, is not.
pub fn other_timeout(options: &Options) -> Option<Verdict> {
    let waited = options.server_selection_timeout();
    if waited != DEFAULT_SELECTION || options.timeout().is_some() {
        return None;
    }
    let connect = options.connect_timeout().filter(|value| *value != DEFAULT_CONNECT);
    let others = [
        ("connectTimeoutMS", connect),
        ("socketTimeoutMS", options.socket_timeout()),
        ("waitQueueTimeoutMS", options.pool().wait_queue_timeout),
    ];
    others.into_iter().find_map(|(set, value)| {
        Some(Verdict::TimeoutOfAnotherKind {
            waited_for: SELECTION.to_owned(),
            waited,
            set: set.to_owned(),
            set_to: value.filter(|value| *value < waited)?,
        })
    })
}
