//! Fail points: which commands fail, how often, and in which way.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use sdam_core::bson;

use crate::wire::{CommandError, integer, own_name};

/// The number of bytes that may say what a fail point does, which each command that it meets
/// carries along.
const MAX_DATA_LEN: usize = 16 * 1024;

/// The number of times that a fail point strikes.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Always,
    /// So many times more.
    Times(i64),
    /// Always, after it has let so many commands pass.
    Skip(i64),
}

/// The fail points that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// Strikes the commands that it names.
    FailCommand,
    /// Strikes each `getMore`.
    FailGetMore,
    /// Strikes the writes that can be retried: after they are done, unless it says otherwise.
    OnTransactionalWrite,
}

impl Name {
    fn parse(name: &str) -> Result<Self, CommandError> {
        match name {
            "failCommand" => Ok(Self::FailCommand),
            "failGetMoreAfterCursorCheckout" => Ok(Self::FailGetMore),
            "onPrimaryTransactionalWrite" => Ok(Self::OnTransactionalWrite),
            _ => {
                let reason = format!(
                    "there is no fail point {name:?}; known are failCommand, \
                     failGetMoreAfterCursorCheckout and onPrimaryTransactionalWrite"
                );
                Err(CommandError::coded(266, reason))
            }
        }
    }
}

/// The effect of a fail point on a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Injection {
    /// The time that the command waits before anything else happens.
    pub(crate) block: Duration,
    /// The connection is closed, and there is no reply.
    pub(crate) close: bool,
    /// The connection is closed in place of the reply.
    pub(crate) close_after: bool,
    /// The command is not run but fails so.
    pub(crate) error: Option<CommandError>,
    /// The command is run, and its reply has this.
    pub(crate) write_concern_error: Option<RawDocumentBuf>,
    /// It is a `getMore` that fails when it has its cursor, which is gone with it.
    pub(crate) drops_cursor: bool,
    /// The labels of either error, instead of those that the server would choose.
    pub(crate) labels: Option<Vec<String>>,
}

/// A fail point that is switched on.
#[derive(Clone, Debug)]
pub(crate) struct FailPoint {
    mode: Mode,
    /// The number of times that it has struck.
    struck: i32,
    commands: Vec<String>,
    /// The application whose connections are meant, or all.
    app_name: Option<String>,
    injection: Injection,
}

impl FailPoint {
    /// Reads a `configureFailPoint`; `None` switches it off.
    pub(crate) fn parse(command: &RawDocument) -> Result<(Name, Option<Self>), CommandError> {
        let name = Name::parse(command.get_str("configureFailPoint").unwrap_or_default())?;
        let Some(mode) = mode(command)? else {
            return Ok((name, None));
        };
        let mut fail_point = Self {
            mode,
            struck: 0,
            commands: Vec::new(),
            app_name: None,
            injection: Injection::default(),
        };
        let empty = RawDocumentBuf::new();
        let data = match command.get_document("data") {
            Err(_) if name != Name::FailCommand => &empty,
            data => data.map_err(|_| bad("data"))?,
        };
        let length = data.as_bytes().len();
        if length > MAX_DATA_LEN {
            let reason = format!("data has {length} bytes; at most {MAX_DATA_LEN} are allowed");
            return Err(CommandError::coded(2, reason));
        }
        fail_point.injection.close = name == Name::OnTransactionalWrite;
        fail_point.read(data)?;
        match name {
            Name::FailCommand => {}
            Name::FailGetMore => {
                fail_point.injection.drops_cursor = true;
                fail_point.commands = vec!["getMore".to_owned()];
            }
            Name::OnTransactionalWrite => {
                let injection = &mut fail_point.injection;
                injection.close_after = std::mem::take(&mut injection.close);
                let writes = ["insert", "update", "delete", "findAndModify", "bulkWrite"];
                fail_point.commands = writes.map(str::to_owned).to_vec();
            }
        }
        Ok((name, Some(fail_point)))
    }

    /// Reads `data`; a field that is not known here is refused, lest a test prove nothing.
    fn read(&mut self, data: &RawDocument) -> Result<(), CommandError> {
        let (mut blocks, mut block) = (false, Duration::ZERO);
        for field in data {
            let (name, value) = field.map_err(|_| bad("data"))?;
            let wrong = || bad(name.as_str());
            let injection = &mut self.injection;
            match name.as_str() {
                "failCommands" => self.commands = strings(value).ok_or_else(wrong)?,
                "appName" => self.app_name = Some(value.as_str().ok_or_else(wrong)?.to_owned()),
                "closeConnection" => injection.close = value.as_bool().ok_or_else(wrong)?,
                "errorLabels" => injection.labels = Some(strings(value).ok_or_else(wrong)?),
                "errorCode" | "failBeforeCommitExceptionCode" => {
                    let code = integer(value).and_then(|it| i32::try_from(it).ok());
                    let message = "failing the command, as the fail point failCommand wants";
                    let error = CommandError::coded(code.ok_or_else(wrong)?, message);
                    injection.error = Some(error);
                }
                "writeConcernError" => {
                    let document = value.as_document().ok_or_else(wrong)?;
                    injection.write_concern_error = Some(document.to_owned());
                }
                "blockConnection" => blocks = value.as_bool().ok_or_else(wrong)?,
                "blockTimeMS" => {
                    let millis = integer(value).and_then(|it| u64::try_from(it).ok());
                    block = Duration::from_millis(millis.ok_or_else(wrong)?);
                }
                _ => return Err(wrong()),
            }
        }
        if blocks {
            self.injection.block = block;
        }
        Ok(())
    }

    /// Returns what happens to a command, and counts it if it is one of those meant.
    pub(crate) fn strike(&mut self, command: &str, app_name: Option<&str>) -> Option<Injection> {
        let is_meant = self.commands.iter().any(|it| own_name(it) == command)
            && self.app_name.as_deref().is_none_or(|it| Some(it) == app_name);
        if !is_meant {
            return None;
        }
        match &mut self.mode {
            Mode::Always | Mode::Skip(..=0) => {}
            Mode::Skip(left) => {
                *left -= 1;
                return None;
            }
            Mode::Times(..=0) => return None,
            Mode::Times(left) => *left -= 1,
        }
        self.struck = self.struck.saturating_add(1);
        Some(self.injection.clone())
    }

    /// Returns how often it has struck: part of the reply to the command that replaces it.
    pub(crate) const fn struck(&self) -> i32 {
        self.struck
    }
}

fn mode(command: &RawDocument) -> Result<Option<Mode>, CommandError> {
    let mode = command.get("mode").ok().flatten().ok_or_else(|| bad("mode"))?;
    let number = |name| {
        let number = mode.as_document()?.get(name).ok().flatten();
        number.and_then(integer).filter(|number| *number >= 0)
    };
    match (mode.as_str(), number("times"), number("skip")) {
        (Some("off"), ..) => Ok(None),
        (Some("alwaysOn"), ..) => Ok(Some(Mode::Always)),
        (None, Some(times), None) => Ok(Some(Mode::Times(times))),
        (None, None, Some(skip)) => Ok(Some(Mode::Skip(skip))),
        _ => Err(bad("mode")),
    }
}

fn strings(value: RawBsonRef<'_>) -> Option<Vec<String>> {
    let strings = value.as_array()?.into_iter();
    strings.map(|it| it.ok()?.as_str().map(str::to_owned)).collect()
}

fn bad(field: &str) -> CommandError {
    let message = format!(
        "{field:?} is not as failCommand takes it: mode is \"off\", \"alwaysOn\", {{times: <int>}} \
         or {{skip: <int>}}, and data has failCommands, errorCode, errorLabels, closeConnection, \
         blockConnection, blockTimeMS, writeConcernError and appName"
    );
    CommandError::coded(2, message)
}
