//! The steps of a deployment's life, as people write them: `kill b`, `cut a from the rest`.

use std::fmt;
use std::time::Duration;

use sdam_cluster::MemberId;
use sdam_core::config::Secret;
use serde::{Serialize, Serializer};

use crate::duration::{self, DurationError};

/// The number of members that there may ever be: as many as there are letters.
pub(super) const MAX_NAMES: usize = 26;

/// All steps, one in a line.
pub(super) const STEPS: &str = "\
step down
kill WHO
shutdown WHO
start NAME
freeze WHO
thaw NAME
cut WHO from the rest
heal [NAME]
add [NAME]
remove NAME
fail COMMAND with CODE [N times]
fail nothing
slow hello [of NAME] by TIME
password USER=NEW
list
quit";

/// The letter that names a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(char);

impl Name {
    /// Returns the name of a member.
    pub(super) fn of(member: MemberId) -> Self {
        let index = u32::try_from(member.0).unwrap_or(u32::MAX);
        let letter = u32::from('a').checked_add(index).and_then(char::from_u32);
        Self(letter.unwrap_or('?'))
    }

    /// Returns the member of this name, be there one or not.
    pub(super) fn member(self) -> MemberId {
        MemberId(usize::try_from(u32::from(self.0) - u32::from('a')).unwrap_or(usize::MAX))
    }
}

impl std::str::FromStr for Name {
    type Err = StepError;

    fn from_str(text: &str) -> Result<Self, StepError> {
        let mut letters = text.chars();
        match (letters.next(), letters.next()) {
            (Some(letter @ 'a'..='z'), None) => Ok(Self(letter)),
            _ => Err(StepError::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The members that a step concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Named(Name),
    /// The member that is primary then.
    Primary,
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(formatter),
            Self::Primary => formatter.write_str("primary"),
        }
    }
}

/// A change of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The primary steps down.
    Resign,
    Kill(Who),
    Shutdown(Who),
    Start(Name),
    Freeze(Who),
    Thaw(Name),
    Cut(Who),
    /// Without a name, all that are cut off.
    Heal(Option<Name>),
    /// Without a name, a new member with the next letter.
    Add(Option<Name>),
    Remove(Name),
    Fail {
        command: String,
        code: i32,
        /// The number of times; without it, until something else is to fail.
        times: Option<u32>,
    },
    FailNothing,
    SlowHello {
        /// Without it, all.
        member: Option<Name>,
        by: Duration,
    },
    Password {
        user: String,
        password: Secret,
    },
    List,
    Quit,
}

/// The reason why a text is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StepError {
    #[error("a line of more than {0} bytes; at most that many are allowed")]
    Length(u64),
    #[error("there is no step {0:?}; there are: {steps}", steps = STEPS.replace('\n', ", "))]
    Unknown(String),
    #[error("write it as: {0}")]
    Form(&'static str),
    #[error("{0:?} is not the name of a member, which is one letter from a to z")]
    Name(String),
    #[error("{0:?} is not the code of an error, which is a whole number above 0")]
    Code(String),
    #[error("{0:?} is not a number of times; write a whole number above 0, as in: 3 times")]
    Times(String),
    #[error("{0:?} is not a time: {1}")]
    Time(String, DurationError),
    #[error("there is no member {name}; there are a to {last} then")]
    NoMember { name: Name, last: Name },
    #[error("{name} is not the next letter; write: add {next}")]
    NotNext { name: Name, next: Name },
    #[error("there have been {MAX_NAMES} members, as many as there are letters; add no more")]
    TooMany,
    #[error(
        "mongos are no replica set, and can only be killed, shut down, started, frozen, thawed"
    )]
    Mongos,
}

impl Step {
    /// Reads a step; how much space is between the words does not matter.
    pub(super) fn parse(text: &str) -> Result<Self, StepError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["step", "down"] => Self::Resign,
            ["step", ..] => return Err(StepError::Form("step down")),
            ["kill", who] => Self::Kill(parse_who(who)?),
            ["kill", ..] => return Err(StepError::Form("kill WHO, as in: kill b, kill primary")),
            ["shutdown", who] => Self::Shutdown(parse_who(who)?),
            ["shutdown", ..] => return Err(StepError::Form("shutdown WHO, as in: shutdown b")),
            ["start", name] => Self::Start(name.parse()?),
            ["start", ..] => return Err(StepError::Form("start NAME, as in: start b")),
            ["freeze", who] => Self::Freeze(parse_who(who)?),
            ["freeze", ..] => return Err(StepError::Form("freeze WHO, as in: freeze b")),
            ["thaw", name] => Self::Thaw(name.parse()?),
            ["thaw", ..] => return Err(StepError::Form("thaw NAME, as in: thaw b")),
            ["cut", who, "from", "the", "rest"] => Self::Cut(parse_who(who)?),
            ["cut", ..] => return Err(StepError::Form("cut WHO from the rest")),
            ["heal"] => Self::Heal(None),
            ["heal", name] => Self::Heal(Some(name.parse()?)),
            ["heal", ..] => return Err(StepError::Form("heal, or heal NAME")),
            ["add"] => Self::Add(None),
            ["add", name] => Self::Add(Some(name.parse()?)),
            ["add", ..] => return Err(StepError::Form("add, or add NAME")),
            ["remove", name] => Self::Remove(name.parse()?),
            ["remove", ..] => return Err(StepError::Form("remove NAME, as in: remove b")),
            ["fail", ref rest @ ..] => parse_fail(rest)?,
            ["slow", ref rest @ ..] => parse_slow(rest)?,
            ["password", change] => parse_password(change)?,
            ["password", ..] => return Err(StepError::Form("password USER=NEW")),
            ["list"] => Self::List,
            ["quit"] => Self::Quit,
            _ => return Err(StepError::Unknown(text.to_owned())),
        })
    }

    /// Checks that the members exist of which there have been `count`, and returns how many there
    /// have been after the step.
    pub(super) fn check(&self, count: usize, has_mongos: bool) -> Result<usize, StepError> {
        let named = |name: Name| match name.member().0 < count {
            true => Ok(count),
            false => {
                Err(StepError::NoMember { name, last: Name::of(MemberId(count.saturating_sub(1))) })
            }
        };
        match *self {
            Self::Resign | Self::Cut(_) | Self::Heal(_) | Self::Add(_) | Self::Remove(_)
                if has_mongos =>
            {
                Err(StepError::Mongos)
            }
            Self::Kill(Who::Primary)
            | Self::Shutdown(Who::Primary)
            | Self::Freeze(Who::Primary)
                if has_mongos =>
            {
                Err(StepError::Mongos)
            }
            Self::Add(None) if count >= MAX_NAMES => Err(StepError::TooMany),
            Self::Add(None) => Ok(count + 1),
            Self::Add(Some(name)) if name.member().0 == count => Ok(count + 1),
            Self::Add(Some(name)) if name.member().0 > count => {
                Err(StepError::NotNext { name, next: Name::of(MemberId(count)) })
            }
            Self::Kill(Who::Named(name))
            | Self::Shutdown(Who::Named(name))
            | Self::Freeze(Who::Named(name))
            | Self::Cut(Who::Named(name))
            | Self::Start(name)
            | Self::Thaw(name)
            | Self::Heal(Some(name))
            | Self::Add(Some(name))
            | Self::Remove(name)
            | Self::SlowHello { member: Some(name), .. } => named(name),
            _ => Ok(count),
        }
    }
}

fn parse_who(text: &str) -> Result<Who, StepError> {
    match text {
        "primary" => Ok(Who::Primary),
        name => Ok(Who::Named(name.parse()?)),
    }
}

fn parse_fail(words: &[&str]) -> Result<Step, StepError> {
    let (command, code, times) = match *words {
        ["nothing"] => return Ok(Step::FailNothing),
        [command, "with", code] => (command, code, None),
        [command, "with", code, times, "times" | "time"] => (command, code, Some(times)),
        _ => {
            let form = "fail COMMAND with CODE [N times], or fail nothing";
            return Err(StepError::Form(form));
        }
    };
    let wrong_code = || StepError::Code(code.to_owned());
    let code = code.parse().ok().filter(|code: &i32| *code > 0).ok_or_else(wrong_code)?;
    let counted = |times: &str| {
        let number = times.parse().ok().filter(|times| *times > 0);
        number.ok_or_else(|| StepError::Times(times.to_owned()))
    };
    let times = times.map(counted).transpose()?;
    Ok(Step::Fail { command: command.to_owned(), code, times })
}

fn parse_slow(words: &[&str]) -> Result<Step, StepError> {
    let (member, by) = match *words {
        ["hello", "by", by] => (None, by),
        ["hello", "of", name, "by", by] => (Some(name.parse()?), by),
        _ => {
            return Err(StepError::Form("slow hello [of NAME] by TIME, as in: slow hello by 50ms"));
        }
    };
    let by = duration::parse(by).map_err(|error| StepError::Time(by.to_owned(), error))?;
    Ok(Step::SlowHello { member, by })
}

fn parse_password(change: &str) -> Result<Step, StepError> {
    match change.split_once('=') {
        Some((user, password)) if !user.is_empty() && !password.is_empty() => {
            Ok(Step::Password { user: user.to_owned(), password: password.into() })
        }
        // What was written is not repeated: part of it is a password.
        _ => Err(StepError::Form("password USER=NEW")),
    }
}

/// As it is written, but for passwords.
impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resign => formatter.write_str("step down"),
            Self::Kill(who) => write!(formatter, "kill {who}"),
            Self::Shutdown(who) => write!(formatter, "shutdown {who}"),
            Self::Start(name) => write!(formatter, "start {name}"),
            Self::Freeze(who) => write!(formatter, "freeze {who}"),
            Self::Thaw(name) => write!(formatter, "thaw {name}"),
            Self::Cut(who) => write!(formatter, "cut {who} from the rest"),
            Self::Heal(None) => formatter.write_str("heal"),
            Self::Heal(Some(name)) => write!(formatter, "heal {name}"),
            Self::Add(None) => formatter.write_str("add"),
            Self::Add(Some(name)) => write!(formatter, "add {name}"),
            Self::Remove(name) => write!(formatter, "remove {name}"),
            Self::Fail { command, code, times: None } => {
                write!(formatter, "fail {command} with {code}")
            }
            Self::Fail { command, code, times: Some(times) } => {
                write!(formatter, "fail {command} with {code} {times} times")
            }
            Self::FailNothing => formatter.write_str("fail nothing"),
            Self::SlowHello { member: None, by } => write!(formatter, "slow hello by {by:?}"),
            Self::SlowHello { member: Some(name), by } => {
                write!(formatter, "slow hello of {name} by {by:?}")
            }
            Self::Password { user, .. } => write!(formatter, "password {user}=…"),
            Self::List => formatter.write_str("list"),
            Self::Quit => formatter.write_str("quit"),
        }
    }
}
