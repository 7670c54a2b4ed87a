//! Texts that are cut, as they come from peers and have to end somewhere, and durations as texts.

use std::time::Duration;

/// Returns the beginning of a text, of at most so many bytes and whole characters.
pub(crate) fn beginning(text: &str, longest: usize) -> &str {
    // What `str::floor_char_boundary` finds, which older toolchains lack.
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// A duration as a person says it.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::beginning;

    #[test]
    fn a_text_is_cut_between_characters() {
        let shown: Vec<_> = (0..=6).map(|longest| beginning("aßê", longest)).collect();
        assert_eq!(shown, ["", "a", "a", "aß", "aß", "aßê", "aßê"]);
        assert_eq!(beginning("", usize::MAX), "");
    }
}
