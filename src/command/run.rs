//! Commands that the application writes itself (Run Command).

use std::borrow::Cow;
use std::time::Duration;

use bson::RawDocumentBuf;
use bson::raw::cstr;
use sdam_core::config::ReadPreference;
use sdam_core::operation::OperationKind;
use sdam_core::wire::ReplyDocument;

use super::aggregate::first_key;
use super::fields::{Value, get};
use super::single::Rules;
use super::{Command, Facts, Operation, Progress, Route, Scope, find};
use crate::cursor::{CursorState, Settings, TimeoutMode, Timing};
use crate::error::Error;
use crate::value::IntoDocument;

/// `runCommand`: a command as the application has written it.
///
/// It is neither inspected nor repeated, and no concern of the handle is added to it: if it is to
/// have one, the application writes that into it. It goes to the primary, unless
/// [`read_preference`](Self::read_preference) says otherwise.
///
/// Fields that the driver adds, such as `lsid` and `$db`, take the place of the application's
/// fields of the same name. A `maxTimeMS` in the command is sent as it is; with `timeoutMS`, what
/// is left of that time takes its place, and is what counts.
#[derive(Clone, Debug)]
pub struct RunCommand {
    command: Value,
    read_preference: ReadPreference,
}

impl RunCommand {
    /// Runs a command.
    pub fn new(command: impl IntoDocument) -> Self {
        Self { command: Value::document(command), read_preference: ReadPreference::default() }
    }

    /// Sets which servers may run it.
    #[must_use]
    pub fn read_preference(mut self, preference: ReadPreference) -> Self {
        self.read_preference = preference;
        self
    }
}

impl<D: IntoDocument> From<D> for RunCommand {
    fn from(command: D) -> Self {
        Self::new(command)
    }
}

fn command_name(command: &Value) -> Cow<'static, str> {
    let command = command.0.as_ref().ok().and_then(bson::RawBson::as_document);
    command.and_then(first_key).unwrap_or_default().to_owned().into()
}

fn body(command: &Value) -> Result<RawDocumentBuf, Error> {
    let body = get(command)?.as_document().map(ToOwned::to_owned);
    Ok(body.unwrap_or_default())
}

impl Operation for RunCommand {
    type Output = RawDocumentBuf;

    fn name(&self) -> &'static str {
        "runCommand"
    }

    fn command_name(&self) -> Cow<'static, str> {
        command_name(&self.command)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::Command
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn route(&self) -> Route {
        Route::Read
    }

    /// "RunCommand MUST assume all commands are read operations", with mode primary by default.
    fn read_preference(&self) -> Option<&ReadPreference> {
        Some(&self.read_preference)
    }

    fn set_read_preference(&mut self, preference: &ReadPreference) {
        self.read_preference = preference.clone();
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        Rules::RUN.command(scope, body(&self.command)?)
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<Self::Output>, Error> {
        Ok(Progress::Done((**reply).to_owned()))
    }
}

operation! {
    /// `runCursorCommand`: a command of the application's that opens a cursor.
    ///
    /// The options are about getMore alone: what the first command says, the application has
    /// written. A `maxTimeMS` in it is sent as with [`RunCommand`]. Setting both
    /// [`max_time`](Self::max_time) and `timeoutMS` is not supported, except for cursors that await
    /// data; nor is calling a cursor [`tailable`](Self::tailable) that the command does not open as
    /// such.
    #[derive(Clone, Debug)]
    pub struct RunCursorCommand as RunCursorCommandOptions {
        read_preference: ReadPreference,
        timeout_mode: Option<TimeoutMode>,
        max_await_time: Option<Duration>,
        tailable: bool,
    }

    arguments {
        /// Runs a command whose reply has a cursor.
        new(command: document = "command");
    }

    options {
        /// Sets what `timeoutMS` limits.
        timeout_mode: TimeoutMode = "timeoutMode" in timeout_mode;
        /// Sets how many documents the next batches have; zero leaves it to the server.
        batch_size: u32 = "batchSize";
        /// Sets how long the server waits for new documents: `maxTimeMS` of each getMore.
        max_time: millis = "maxTimeMS" in max_await_time;
        /// Adds a comment to each getMore.
        comment: value = "comment";
    }
}

impl RunCursorCommand {
    /// Sets which servers may run it.
    #[must_use]
    pub fn read_preference(mut self, preference: ReadPreference) -> Self {
        self.read_preference = preference;
        self
    }

    /// Says that an empty batch is no end, as of a cursor that the command opens as tailable.
    #[must_use]
    pub const fn tailable(mut self) -> Self {
        self.tailable = true;
        self
    }
}

impl Operation for RunCursorCommand {
    type Output = CursorState;

    fn timing(&self) -> Timing {
        Timing {
            mode: self.timeout_mode,
            tailable: self.tailable,
            await_data: self.max_await_time.is_some(),
            max_await_time: self.max_await_time,
            writes: false,
        }
    }

    fn name(&self) -> &'static str {
        "runCursorCommand"
    }

    fn command_name(&self) -> Cow<'static, str> {
        command_name(&self.command)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::Command
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn route(&self) -> Route {
        Route::Read
    }

    fn read_preference(&self) -> Option<&ReadPreference> {
        Some(&self.read_preference)
    }

    fn set_read_preference(&mut self, preference: &ReadPreference) {
        self.read_preference = preference.clone();
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        self.options.check()?;
        Rules::RUN.opening().command(scope, body(&self.command)?)
    }

    /// "if the server does not include a cursor field the driver MUST throw an error"
    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<CursorState>, Error> {
        let settings = Settings {
            batch_size: find::batch_size(&self.options),
            limit: 0,
            comment: self.options.get(cstr!("comment")).map(Into::into),
            max_await_time: self.max_await_time,
            tailable: self.tailable,
            await_data: self.max_await_time.is_some(),
        };
        Ok(Progress::Done(CursorState::open(self.name(), reply, settings)?))
    }
}

/// Returns the `name` of a document.
pub(crate) fn name(document: &bson::RawDocument) -> Option<String> {
    document.get_str("name").ok().map(ToOwned::to_owned)
}
