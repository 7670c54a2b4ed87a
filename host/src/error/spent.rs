//! The time that a command took.

use std::fmt;
use std::time::Duration;

/// The time that each part of running a command took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Spent {
    /// Selecting servers.
    pub selecting: Duration,
    /// Checking out connections.
    pub checking_out: Duration,
    /// The exchange.
    pub exchanging: Duration,
    /// Waiting before a command was sent again, as a server had said that it is overloaded.
    pub waiting: Duration,
    /// All that came before the command in the same call, such as other commands of a change stream
    /// that waits for an event.
    pub before: Duration,
}

impl Spent {
    /// Returns all of it.
    pub(crate) fn total(&self) -> Duration {
        let Self { selecting, checking_out, exchanging, waiting, before } = self;
        [selecting, checking_out, exchanging, waiting, before].into_iter().sum()
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |duration: Duration| duration.as_millis();
        write!(
            f,
            "{} ms went into selecting a server, {} ms into checking out a connection, {} ms into \
             the exchange",
            millis(self.selecting),
            millis(self.checking_out),
            millis(self.exchanging)
        )?;
        if !self.waiting.is_zero() {
            write!(f, ", {} ms into waiting for an overloaded server", millis(self.waiting))?;
        }
        match millis(self.before) {
            0 => Ok(()),
            before => write!(f, ", {before} ms into what the call had done before"),
        }
    }
}
