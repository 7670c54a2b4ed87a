//! Regular expressions: those of filters, in the dialect of PCRE as far as it is known here.

use std::borrow::Cow;

use bson::{Bson, Regex};
use sdam_core::bson;

use super::error::StoreError;

/// A regular expression that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    source: Regex,
    compiled: regex_lite::Regex,
}

impl Pattern {
    /// Reads a regular expression with its options.
    ///
    /// # Errors
    ///
    /// Fails with the codes of servers if it is none, or has an option that there is not; and says
    /// what is not known here, though PCRE knows it: look-around, back references, and upper and
    /// lower case beyond ASCII.
    pub(crate) fn parse(source: &Regex) -> Result<Self, StoreError> {
        let (pattern, options) = (source.pattern.as_str(), source.options.as_str());
        let has = |option: char| options.contains(option);
        if let Some(option) = options.chars().find(|it| !"imsxu".contains(*it)) {
            let reason = format!("invalid flag in regex options: {option}");
            return Err(StoreError::new(51108, reason));
        }
        if has('i') && !pattern.is_ascii() {
            let what = format!("the option i of the regular expression {pattern} beyond ASCII");
            return Err(StoreError::not_implemented(&what));
        }
        let built = regex_lite::RegexBuilder::new(&with_end(pattern, has('m')))
            .case_insensitive(has('i'))
            .multi_line(has('m'))
            .dot_matches_new_line(has('s'))
            .ignore_whitespace(has('x'))
            .build();
        match built {
            Ok(compiled) => Ok(Self { source: source.clone(), compiled }),
            Err(error) => {
                let reason = format!("Regular expression is invalid, or not known here: {error}");
                Err(StoreError::new(51091, reason))
            }
        }
    }

    /// Reads the operator `$regex`, and `$options` beside it.
    ///
    /// # Errors
    ///
    /// Fails as servers do if one of them is none, or if both say options.
    pub(super) fn of_operators(regex: &Bson, options: Option<&Bson>) -> Result<Self, StoreError> {
        let (pattern, own) = match regex {
            Bson::String(pattern) => (pattern.as_str(), ""),
            Bson::RegularExpression(regex) => (regex.pattern.as_str(), regex.options.as_str()),
            _ => return Err(StoreError::bad_value("$regex has to be a string")),
        };
        let options = match options {
            None => own,
            Some(Bson::String(options)) if own.is_empty() => options,
            Some(Bson::String(_)) => {
                return Err(StoreError::new(51075, "options set in both $regex and $options"));
            }
            Some(_) => return Err(StoreError::bad_value("$options has to be a string")),
        };
        let wrong =
            |_| StoreError::bad_value("Regular expression cannot contain an embedded null byte");
        let pattern = pattern.to_owned().try_into().map_err(wrong)?;
        let options = options.to_owned().try_into().map_err(wrong)?;
        Self::parse(&Regex { pattern, options })
    }

    /// Returns whether it finds something in a text; one that is stored finds itself.
    pub(crate) fn finds(&self, value: &Bson) -> bool {
        match value {
            Bson::String(text) | Bson::Symbol(text) => self.compiled.is_match(text),
            Bson::RegularExpression(stored) => *stored == self.source,
            _ => false,
        }
    }
}

/// Returns a pattern in which `$` stands, as it does in PCRE, for the end of a text or for what is
/// before a newline at its end.
fn with_end(pattern: &str, by_line: bool) -> Cow<'_, str> {
    if by_line || !pattern.contains('$') {
        return Cow::Borrowed(pattern);
    }
    let (mut made, mut in_class, mut characters) = (String::new(), false, pattern.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                made.push(character);
                made.extend(characters.next());
                continue;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '$' if !in_class => {
                made.push_str("(?:\\n?$)");
                continue;
            }
            _ => {}
        }
        made.push(character);
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use super::{Bson, Pattern, Regex};

    fn parse(pattern: &str, options: &str) -> Result<Pattern, i32> {
        let (pattern, options) = (pattern.to_owned(), options.to_owned());
        let regex =
            Regex { pattern: pattern.try_into().unwrap(), options: options.try_into().unwrap() };
        Pattern::parse(&regex).map_err(|error| error.code)
    }

    #[test]
    fn a_pattern_finds_what_it_finds_on_servers() {
        let cases = [
            ("^ab", "", "abc", true),
            ("^ab", "", "ABC", false),
            ("^ab", "i", "ABC", true),
            ("^x", "", "abc\nxyz", false),
            ("^x", "m", "abc\nxyz", true),
            ("c.x", "", "abc\nxyz", false),
            ("c.x", "s", "abc\nxyz", true),
            ("a b  c", "x", "abc", true),
            ("c$", "", "abc\n", true),
            ("c$", "", "abc\n\n", false),
            (r"\$", "", "a$", true),
            ("[$]", "", "a$", true),
            ("c$", "m", "abc\nxyz", true),
            ("\u{e9}", "", "caf\u{e9}", true),
        ];
        for (pattern, options, text, expected) in cases {
            let found = parse(pattern, options).unwrap().finds(&Bson::from(text));
            assert_eq!(found, expected, "{pattern} {options} in {text:?}");
        }
    }

    #[test]
    fn a_pattern_that_is_not_known_is_refused() {
        for pattern in ["(", "(?=a)b", r"(a)\1", "(?<!a)b"] {
            assert_eq!(parse(pattern, "").unwrap_err(), 51091, "{pattern}");
        }
        assert_eq!(parse("a", "q").unwrap_err(), 51108);
        assert_eq!(parse("\u{e9}", "i").unwrap_err(), 238);
    }
}
