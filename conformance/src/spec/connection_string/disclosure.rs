//! Cases of Connection String that hide a password somewhere in a string: no error, no warning and
//! no other text that is made of it may show that.

use sdam_core::config::{Options, OptionsBuilder};
use serde::Deserialize;

use super::super::difference::Differences;
use super::super::report::CaseReport;

/// The password in every string, as it is or in escapes.
const SENTINEL: &str = "SENTINELpassword1234";

/// The part of the sentinel that is looked for: the rest may be cut off.
const BEGINNING: usize = 8;

/// A string with the sentinel in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    description: String,
    uri: String,
}

/// Looks for the sentinel in all that is said of the string.
pub(super) fn run(case: Case) -> CaseReport {
    let mut differences = Differences::default();
    for (place, text) in texts(&case.uri) {
        if shows(&text) {
            differences.differs(place, "nothing of the password", text);
        }
    }
    CaseReport::new(case.description, differences)
}

/// Returns all that an application may see of a connection string, with where it sees it.
fn texts(uri: &str) -> Vec<(&'static str, String)> {
    let built = Options::builder().uri(uri).and_then(OptionsBuilder::build);
    match built {
        Err(error) => vec![("the error", error.to_string()), ("Debug", format!("{error:?}"))],
        Ok(options) => {
            let warnings: Vec<_> = options.warnings().iter().map(ToString::to_string).collect();
            let notices: Vec<_> = options.notices().iter().map(ToString::to_string).collect();
            vec![
                ("the warnings", warnings.join("; ")),
                ("the notices", notices.join("; ")),
                ("the printed string", options.to_string()),
                ("Debug", format!("{options:?}")),
            ]
        }
    }
}

/// Returns whether a text has the sentinel's beginning or end, in whatever case, as it is or in
/// escapes.
fn shows(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let escaped = |part: &str| part.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let (beginning, end) = (&SENTINEL[..BEGINNING], &SENTINEL[BEGINNING..]);
    [beginning, end]
        .iter()
        .any(|part| text.contains(&part.to_ascii_lowercase()) || text.contains(&escaped(part)))
}

#[cfg(test)]
mod tests {
    use super::shows;

    #[test]
    fn the_sentinel_is_found_in_every_form() {
        for text in ["x SENTINELpa", "sentinel…", "%53%45%4E%54%49%4E%45%4C", "Password1234"] {
            assert!(shows(text), "{text}");
        }
        assert!(!shows("option 1 is not of the form name=value"));
    }
}
