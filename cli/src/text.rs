//! Texts of others, made fit to be printed.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use sdam_core::config::ServerAddress;

/// Returns whether a terminal might obey the character, or show others in a false order.
pub(crate) fn is_unsafe(c: char) -> bool {
    let reorders_or_hides = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    );
    c.is_control() || reorders_or_hides
}

/// Writes unsafe characters as escapes such as `\n` and `\u{1b}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_unsafe(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Escapes what serde_json may leave as it is, but a terminal obeys; it only occurs inside strings.
pub(crate) fn ascii_controls(object: String) -> String {
    if !object.contains(is_unsafe) {
        return object;
    }
    let mut escaped = String::with_capacity(object.len() + 16);
    for c in object.chars() {
        match is_unsafe(c) {
            // All of them are in the basic plane, so that one escape suffices.
            true => write!(escaped, "\\u{:04x}", u32::from(c)).expect("writing to memory"),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Cuts a text to at most `limit` characters; an ellipsis shows that it was longer.
pub(crate) fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if text.chars().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(limit.saturating_sub(1)).collect();
    Cow::Owned(kept + "…")
}

/// Leaves out so much of the middle of a text that at most `limit` characters remain; an ellipsis
/// shows where. What matters may be at either end.
pub(crate) fn abridged(text: &str, limit: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= limit {
        return Cow::Borrowed(text);
    }
    let kept = limit.saturating_sub(1);
    let end = kept / 2;
    let start: String = text.chars().take(kept - end).collect();
    let mark = if limit == 0 { "" } else { "…" };
    Cow::Owned(start + mark + &text.chars().skip(length - end).collect::<String>())
}

/// Leaves out of an error what is shown beside it, the server's own address at its beginning, and
/// what says nothing to a person, the number of the system's error at its end.
pub(crate) fn of_server<'t>(error: &'t str, address: &ServerAddress) -> &'t str {
    let rest = error.strip_prefix(&address.to_string()).and_then(|rest| rest.strip_prefix(": "));
    let rest = rest.unwrap_or(error);
    match rest.rsplit_once(" (os error ") {
        Some((text, number)) if number.trim_end_matches(')').parse::<u32>().is_ok() => text,
        _ => rest,
    }
}

/// Replaces, in each line, all from the first `://` to the last `@`, which may be a password.
pub(crate) fn without_credentials(text: &str) -> String {
    let clean = |line: &str| match credentials(line) {
        Some(range) => format!("{}…{}", &line[..range.start], &line[range.end..]),
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(clean).collect()
}

/// Returns the part of a line that may be the credentials of a connection string, whose slashes
/// JSON may have escaped.
pub(crate) fn credentials(line: &str) -> Option<Range<usize>> {
    let end_of = |mark: &str| line.find(mark).map(|start| start + mark.len());
    let ends = [end_of("://"), end_of(":\\/\\/")];
    let start = ends.into_iter().flatten().min()?;
    let end = line.rfind('@').filter(|end| start <= *end)?;
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::{abridged, escaped, of_server, shortened, without_credentials};

    #[test]
    fn a_terminal_obeys_nothing_that_was_escaped() {
        assert_eq!(escaped("plain → “ünïcode”"), "plain → “ünïcode”");
        assert_eq!(escaped("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(escaped("\u{9b}31m \u{202e}x"), "\\u{9b}31m \\u{202e}x");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("höhö", 4), "höhö");
        assert_eq!(shortened("höhöh", 4), "höh…");
    }

    #[test]
    fn an_abridged_text_keeps_both_ends() {
        assert_eq!(abridged("höhö", 4), "höhö");
        assert_eq!(abridged("the beginning and the end", 9), "the … end");
        assert_eq!(abridged("höhöhö", 2), "h…");
        assert_eq!(abridged("höhöhö", 1), "…");
        assert_eq!(abridged("höhöhö", 0), "");
    }

    #[test]
    fn an_address_is_left_out_where_it_begins_its_own_error() {
        let address = "a:27017".parse().expect("an address");
        assert_eq!(of_server("a:27017: refused", &address), "refused");
        assert_eq!(of_server("a:27017: refused (os error 111)", &address), "refused");
        for whole in ["b:27017: refused", "a:270171: refused", "a (os error x)", "a:27017"] {
            assert_eq!(of_server(whole, &address), whole);
        }
    }

    #[test]
    fn credentials_are_left_out_whatever_they_contain() {
        let said = without_credentials("error: 'mongodb://me:p@ss/w?rd@host/' found\n\ntry help\n");
        assert_eq!(said, "error: 'mongodb://…@host/' found\n\ntry help\n");
        assert_eq!(without_credentials("a@b://c"), "a@b://c");
        let said = without_credentials(r#"{"uri":"mongodb:\/\/me:word@host\/"}"#);
        assert_eq!(said, r#"{"uri":"mongodb:\/\/…@host\/"}"#);
    }
}
