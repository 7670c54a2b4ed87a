//! Secrets in texts of others, as far as they can be recognised: credentials in connection strings,
//! and values of fields whose names say that they are secret.

use std::borrow::Cow;
use std::ops::Range;

use crate::text::credentials;

/// The parts of such names; a payload is what is said in a login.
const SECRET: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "privatekey",
    "private_key",
    "accesskey",
    "access_key",
    "payload",
];

/// The length up to which letters before a quotation mark belong to it, as in `b"…"`.
const MAX_MARK_LEN: usize = 2;

/// Writes an ellipsis for each secret.
pub(in crate::report) fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut hidden = values(text);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        hidden.extend(credentials(line).map(|it| start + it.start..start + it.end));
        start += line.len();
    }
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    hidden.sort_by_key(|range| range.start);
    let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
    // One may be within another, or reach into it.
    for Range { start, end } in hidden {
        if start >= done {
            clean.push_str(&text[done..start]);
            clean.push('…');
        }
        done = done.max(end);
    }
    clean.push_str(&text[done..]);
    Cow::Owned(clean)
}

/// Finds the values of secret fields, each behind its name.
fn values(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(start) = text[from..].find(is_of_name).map(|start| from + start) {
        let name = &text[start..start + name_len(&text[start..])];
        from = start + name.len();
        if is_secret(name)
            && let Some(value) = value(text, from)
        {
            from = value.end;
            found.push(value);
        }
    }
    found
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

fn name_len(text: &str) -> usize {
    text.find(|c| !is_of_name(c)).unwrap_or(text.len())
}

fn is_secret(name: &str) -> bool {
    let has = |part: &str| {
        let mut windows = name.as_bytes().windows(part.len());
        windows.any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
    };
    SECRET.into_iter().any(has)
}

/// Finds the value of the field whose name ends there, if a colon or an equals sign follows.
fn value(text: &str, end_of_name: usize) -> Option<Range<usize>> {
    let rest = &text[end_of_name..];
    let unquoted = rest.trim_start_matches('\\').strip_prefix(is_quotation_mark);
    let rest = blank(unquoted.unwrap_or(rest)).strip_prefix([':', '='])?;
    let rest = blank(rest.strip_prefix(['=', '>']).unwrap_or(rest));
    let start = text.len() - rest.len();
    let within = |range: Range<usize>| start + range.start..start + range.end;
    let mark = name_len(rest);
    let (of_mark, behind) = rest.split_at(mark);
    let quoted = (of_mark.len() <= MAX_MARK_LEN).then(|| Quoted::at(behind)).flatten();
    let found = match quoted {
        Some(Quoted { content, .. }) => mark + content.start..mark + content.end,
        // As in `Some("…")` and `{"$binary": …}`.
        _ if behind.starts_with(['(', '[', '{']) => 0..mark + group_len(behind),
        _ => {
            let ends = |c: char| {
                let is_of_json = unquoted.is_some() && matches!(c, ',' | '}' | ']');
                c.is_whitespace() || is_quotation_mark(c) || is_of_json
            };
            0..rest.find(ends).unwrap_or(rest.len())
        }
    };
    (!found.is_empty()).then(|| within(found))
}

const fn is_quotation_mark(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

fn blank(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// A text in quotation marks, which have backslashes before them if it is within another such text.
struct Quoted {
    /// The part between the marks.
    content: Range<usize>,
    /// The end of all.
    end: usize,
}

impl Quoted {
    /// Reads what a text begins with; without an end, it goes on to that of the text.
    fn at(text: &str) -> Option<Self> {
        let depth = text.bytes().take_while(|byte| *byte == b'\\').count();
        let mark = *text.as_bytes().get(depth)?;
        if !is_quotation_mark(char::from(mark)) {
            return None;
        }
        let start = depth + 1;
        let mut backslashes = 0;
        for (index, byte) in text.bytes().enumerate().skip(start) {
            // Each escape within doubles them.
            if byte == mark && backslashes % (2 * start) <= depth {
                let content = start..index - backslashes.min(depth);
                return Some(Self { content, end: index + 1 });
            }
            backslashes = if byte == b'\\' { backslashes + 1 } else { 0 };
        }
        Some(Self { content: start..text.len(), end: text.len() })
    }
}

/// Returns the length of what is in brackets; without an end, it goes on to that of the text.
fn group_len(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(c) = text[at..].chars().next() {
        match c {
            '\\' | '"' | '\'' | '`' => {
                let rest = &text[at..];
                let others = || rest.len() - rest.trim_start_matches('\\').len();
                at += Quoted::at(rest).map_or_else(others, |quoted| quoted.end);
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += c.len_utf8();
        if depth == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_connection_strings_are_hidden() {
        for (text, shown) in [
            ("cannot log in to mongodb://me:se/sa@me@db1", "cannot log in to mongodb://…@db1"),
            ("first\nmongodb+srv://me:sesame@db1/\n", "first\nmongodb+srv://…@db1/\n"),
            (r#"{"uri":"mongodb:\/\/me:sesame@db1\/"}"#, r#"{"uri":"mongodb:\/\/…@db1\/"}"#),
            ("mongodb://db1:27017/?tls=true", "mongodb://db1:27017/?tls=true"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn values_of_fields_with_secret_names_are_hidden_in_json() {
        for (text, shown) in [
            (r#"{"password":"sesame","at":1}"#, r#"{"password":"…","at":1}"#),
            (r#"{"a": {"dbPassword" : "se\"sa\\"}}"#, r#"{"a": {"dbPassword" : "…"}}"#),
            (r#"{"pwd":1234,"at":1}"#, r#"{"pwd":…,"at":1}"#),
            (r#"{"b":{"refresh_token":1234}}"#, r#"{"b":{"refresh_token":…}}"#),
            (r#"{"clientSecret":["ses]ame",{"a":"b"}],"at":1}"#, r#"{"clientSecret":…,"at":1}"#),
            (
                r#"{"m":"{\"passwd\":\"s\\\"es\",\"at\":1}"}"#,
                r#"{"m":"{\"passwd\":\"…\",\"at\":1}"}"#,
            ),
            (
                r#"{"m":"{\"payload\":{\"base64\":\"AG1lAHNl}\"},\"at\":1}"}"#,
                r#"{"m":"{\"payload\":…,\"at\":1}"}"#,
            ),
            (r#"{"password":"never ends, at: 1"#, r#"{"password":"…"#),
            (r#"{"password":""}"#, r#"{"password":""}"#),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn values_of_fields_with_secret_names_are_hidden_elsewhere() {
        for (text, shown) in [
            ("user=me PASSWORD=sesame host=db1", "user=me PASSWORD=… host=db1"),
            ("pwd='open sesame' host=db1", "pwd='…' host=db1"),
            ("{'secret': b'sesame', 'at': 1}", "{'secret': b'…', 'at': 1}"),
            (
                "Credential { password: Some(\"ses)ame\"), at: 1 }",
                "Credential { password: …, at: 1 }",
            ),
            ("the api_key => sesame is wrong", "the api_key => … is wrong"),
            ("AWS_SESSION_TOKEN:sesame", "AWS_SESSION_TOKEN:…"),
            ("db1/?tlsCertificateKeyFilePassword=sesame", "db1/?tlsCertificateKeyFilePassword=…"),
            ("{\"failure\":\"password=sesame\",\"at\":1}", "{\"failure\":\"password=…\",\"at\":1}"),
            ("password=", "password="),
            ("the password is wrong", "the password is wrong"),
            ("db1:27017: connection refused", "db1:27017: connection refused"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn secrets_that_reach_into_each_other_are_hidden_whole() {
        let text = r#"{"uri":"mongodb://me:sesame@db1/","password":"s@same","at":1}"#;
        assert_eq!(without_secrets(text), r#"{"uri":"mongodb://…","at":1}"#);
        let text = "mongodb://me:token:sesame@db1/ 'at'";
        assert_eq!(without_secrets(text), "mongodb://… 'at'");
    }

    #[test]
    fn a_text_that_was_cleaned_stays_as_it_is() {
        let text = "mongodb://me:sesame@db1/?password=sesame {\"pwd\": \"höhö\"} token=(a";
        let clean = without_secrets(text).into_owned();
        assert_eq!(without_secrets(&clean), clean);
        assert!(!clean.contains("sesame") && !clean.contains("höhö"), "{clean}");
    }
}
