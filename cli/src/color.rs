//! Colour, or none: `--color`, the variable NO_COLOR, and whether somebody looks at a terminal.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::ValueEnum;

/// The use of colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless the variable NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl ColorChoice {
    /// Returns whether what goes to a terminal, or elsewhere, is to have colours.
    pub(crate) fn wants_color(self, is_terminal: bool) -> bool {
        let (no_color, terminal) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
        self.decide(is_terminal, no_color.as_deref(), terminal.as_deref())
    }

    fn decide(self, is_terminal: bool, no_color: Option<&OsStr>, terminal: Option<&OsStr>) -> bool {
        // An empty NO_COLOR is as good as none (no-color.org).
        let refused = no_color.is_some_and(|value| !value.is_empty());
        let is_dumb = terminal == Some(OsStr::new("dumb"));
        match self {
            Self::Auto => is_terminal && !refused && !is_dumb,
            Self::Always => true,
            Self::Never => false,
        }
    }

    /// Finds the choice among arguments that may not make sense otherwise.
    pub(crate) fn among(arguments: &[OsString]) -> Self {
        let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
        let mut choice = Self::default();
        while let Some(argument) = arguments.next() {
            let value = match argument.strip_prefix("--color") {
                Some("") => arguments.next().unwrap_or_default().into_owned(),
                Some(value) => value.trim_start_matches('=').to_owned(),
                None if argument == "--" => break,
                None => continue,
            };
            choice = Self::from_str(&value, false).unwrap_or(choice);
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::ColorChoice::{Always, Auto, Never};
    use super::*;

    #[test]
    fn colour_is_for_terminals_unless_an_option_says_otherwise() {
        let set = |value: &'static str| Some(OsStr::new(value));
        assert!(Auto.decide(true, None, None));
        assert!(Auto.decide(true, set(""), set("xterm")));
        assert!(!Auto.decide(false, None, None));
        assert!(!Auto.decide(true, set("1"), None));
        assert!(!Auto.decide(true, None, set("dumb")));
        assert!(Always.decide(false, set("1"), set("dumb")));
        assert!(!Never.decide(true, None, None));
    }

    #[test]
    fn the_choice_is_found_in_what_cannot_be_parsed() {
        let among = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            ColorChoice::among(&arguments)
        };
        assert_eq!(among("watch --nonsense --color always"), Always);
        assert_eq!(among("--color=never watch"), Never);
        assert_eq!(among("watch --color"), Auto);
        assert_eq!(among("watch --color=sometimes"), Auto);
        assert_eq!(among("watch -- --color=never"), Auto);
    }
}
