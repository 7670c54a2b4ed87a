//! The settings of spans that the environment has.

/// The variable that enables spans.
const ENABLED: &str = "OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED";
/// The variable with the maximum length of the text of commands.
const LENGTH: &str = "OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH";

/// The variables with which Rust programs turn stack traces off, of which the first one set counts.
const STACK_TRACES: [&str; 2] = ["RUST_LIB_BACKTRACE", "RUST_BACKTRACE"];

/// The settings of spans: whether there are any, and what of commands is in them ("Enabling,
/// Disabling, and Configuring OpenTelemetry"). By default there are none.
///
/// ```
/// use sdam_core::spans::SpanSettings;
///
/// let environment = |name: &str| match name {
///     "OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED" => Some("true".to_owned()),
///     _ => None,
/// };
/// let (settings, invalid) = SpanSettings::from_variables(environment);
/// assert_eq!((settings, invalid), (SpanSettings::enabled(), None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanSettings {
    /// True if there are spans.
    pub enabled: bool,
    /// The maximum length of `db.query.text`, the text of a command, in code points; 0 for none.
    pub query_text_max_length: usize,
    /// True if what fails has a stack trace, `exception.stacktrace`.
    pub stack_traces: bool,
    /// True if servers receive the `traceparent` of the span of each command: those of 9.0 and
    /// later, whose own spans join the trace.
    pub trace_contexts: bool,
}

/// A variable of the environment that is passed over: the length is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LENGTH} is ignored: {0:?} is no number of characters")]
pub struct InvalidSpanSetting(String);

impl SpanSettings {
    /// Enables spans, without the text of commands, with stack traces, and with trace contexts for
    /// servers.
    pub const fn enabled() -> Self {
        Self { enabled: true, query_text_max_length: 0, stack_traces: true, trace_contexts: true }
    }

    /// Replaces [`query_text_max_length`](Self::query_text_max_length).
    #[must_use]
    pub const fn with_query_text_max_length(mut self, length: usize) -> Self {
        self.query_text_max_length = length;
        self
    }

    /// Replaces [`stack_traces`](Self::stack_traces).
    #[must_use]
    pub const fn with_stack_traces(mut self, stack_traces: bool) -> Self {
        self.stack_traces = stack_traces;
        self
    }

    /// Replaces [`trace_contexts`](Self::trace_contexts): without them, what a client sends is the
    /// same with spans as without.
    #[must_use]
    pub const fn with_trace_contexts(mut self, trace_contexts: bool) -> Self {
        self.trace_contexts = trace_contexts;
        self
    }

    /// Reads the settings from variables, which `get` returns by their names; also returns what is
    /// passed over, as it is invalid.
    pub fn from_variables(
        get: impl Fn(&str) -> Option<String>,
    ) -> (Self, Option<InvalidSpanSetting>) {
        let is_on = |text: String| {
            ["1", "true", "yes"].iter().any(|on| text.trim().eq_ignore_ascii_case(on))
        };
        let enabled = get(ENABLED).is_some_and(is_on);
        let length = get(LENGTH).filter(|text| !text.is_empty());
        let length =
            length.map_or(Ok(0), |text| text.trim().parse().map_err(|_| InvalidSpanSetting(text)));
        let is_off = |text: String| text == "0";
        let settings = Self {
            enabled,
            query_text_max_length: *length.as_ref().unwrap_or(&0),
            stack_traces: !STACK_TRACES.into_iter().find_map(get).is_some_and(is_off),
            trace_contexts: true,
        };
        (settings, length.err())
    }
}

#[cfg(test)]
mod tests {
    use super::{ENABLED, LENGTH, STACK_TRACES, SpanSettings};

    /// Those of an environment without variables.
    const NONE: SpanSettings = SpanSettings { enabled: false, ..SpanSettings::enabled() };

    fn settings(variables: &[(&str, &str)]) -> (SpanSettings, Option<String>) {
        let (settings, invalid) = SpanSettings::from_variables(|name| {
            let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
            Some((*value).to_owned())
        });
        (settings, invalid.map(|invalid| invalid.to_string()))
    }

    /// OpenTelemetry, "Environment Variables for configuring OpenTelemetry": "enables OpenTelemetry
    /// when set to `1`, `true`, `yes`"; it "SHOULD be disabled by default".
    #[test]
    fn spans_are_enabled_by_three_words_only() {
        for word in ["1", "true", "yes", "TRUE", "Yes"] {
            assert_eq!(settings(&[(ENABLED, word)]), (SpanSettings::enabled(), None), "{word}");
        }
        for word in ["", "0", "false", "no", "on", "2"] {
            assert_eq!(settings(&[(ENABLED, word)]), (NONE, None), "{word}");
        }
        assert_eq!(settings(&[]), (NONE, None));
        assert!(!SpanSettings::default().enabled);
    }

    /// OpenTelemetry, "Exceptions": stack traces are there "when the content for the attribute if
    /// available", which Rust's own variables decide.
    #[test]
    fn the_variables_of_rust_turn_stack_traces_off() {
        let has = |variables: &[(&str, &str)]| settings(variables).0.stack_traces;
        let [first, second] = STACK_TRACES;
        assert!(has(&[]) && has(&[(second, "1")]) && has(&[(second, "full")]));
        assert!(!has(&[(second, "0")]) && !has(&[(first, "0"), (second, "1")]));
        assert!(has(&[(first, "1"), (second, "0")]));
    }

    /// OpenTelemetry, "Environment Variables for configuring OpenTelemetry": "Default is `0`".
    #[test]
    fn the_text_of_commands_has_the_length_that_is_asked_for() {
        let length = |text| settings(&[(LENGTH, text)]).0.query_text_max_length;
        assert_eq!((length("1024"), length("0"), length("")), (1024, 0, 0));
        let (passed_over, told) = settings(&[(ENABLED, "1"), (LENGTH, "-1")]);
        assert_eq!(passed_over, SpanSettings::enabled());
        assert!(told.is_some_and(|told| told.contains(LENGTH) && told.contains("\"-1\"")));
    }
}
