//! Connection strings: what parses prints and parses to the same, and no secret is shown.

use std::fmt::Write as _;

use sdam_core::config::Options;

/// The text that no printed form may contain.
const SECRET: &str = "hunter2";

/// The input is the text.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn uri(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = Options::parse(text);
    match &parsed {
        Ok(options) => prints_and_parses_to_the_same(options),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            assert_eq!(Options::parse(text).as_ref(), Err(error), "the same text, the same error");
        }
    }
    // Hosts are shown in lower case, and may be the secret.
    if !text.to_ascii_lowercase().contains("hunter") {
        planted(text).into_iter().flatten().for_each(|text| shows_nothing(&text));
    }
}

fn prints_and_parses_to_the_same(options: &Options) {
    let printed = options.to_uri_with_secrets();
    let printed = printed.expose();
    let again = match Options::parse(printed) {
        Ok(again) => again,
        Err(error) => panic!("{printed}: {error}"),
    };
    assert_eq!(again.to_uri_with_secrets().expose(), printed, "printed twice, the same");
    // Warnings are of what the text contained without effect, which is not printed.
    if again.warnings() == options.warnings() {
        assert_eq!(&again, options, "{printed}");
    }
    let redacted = options.to_uri();
    assert_eq!(redacted, options.to_string(), "there is one way to show options");
}

/// The same text with a secret in several places.
fn planted(text: &str) -> [Option<String>; 3] {
    let with_password = text.split_once("://").map(|(scheme, rest)| {
        let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
        format!("{scheme}://user:{SECRET}@{rest}")
    });
    let separator = if text.contains('?') { '&' } else { '?' };
    let with_key_password = format!("{text}{separator}tlsCertificateKeyFilePassword={SECRET}");
    let with_proxy_password = format!("{text}{separator}proxyPassword={SECRET}");
    [with_password, Some(with_key_password), Some(with_proxy_password)]
}

fn shows_nothing(text: &str) {
    let mut shown = String::new();
    let written = match Options::parse(text) {
        Ok(options) => {
            let (credential, proxy) = (options.credential(), options.proxy());
            let warnings: Vec<String> =
                options.warnings().iter().map(ToString::to_string).collect();
            write!(shown, "{options} {options:?} {credential:?} {proxy:?} {warnings:?}")
        }
        Err(error) => write!(shown, "{error} {error:?}"),
    };
    written.expect("memory can be written to");
    assert!(!shown.contains(SECRET), "{text}: {shown}");
}
