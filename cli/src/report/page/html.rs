//! Texts of others as HTML, and times as places.

use std::fmt;
use std::fmt::Write;

use sdam_core::time::Instant;

use crate::text::escaped;

/// A text that is no markup, whatever it contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t>(pub(super) &'t str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in escaped(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// JSON as the content of an element, which nothing in it can end.
pub(super) fn embedded(json: &str) -> String {
    let mut embedded = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // All of these stand in strings only.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(embedded, "\\u{:04x}", u32::from(c));
            }
            c => embedded.push(c),
        }
    }
    embedded
}

/// A moment, as its share of all time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) end: Instant,
}

impl Axis {
    /// Returns the share of a moment, from 0 to 1.
    pub(super) fn share(self, at: Instant) -> f64 {
        match self.end.as_nanos() {
            0 => 0.0,
            end => at.as_nanos() as f64 / end as f64,
        }
    }

    /// Returns the style of what is at a moment.
    pub(super) fn at(self, at: Instant) -> String {
        format!("left:{:.5}%", 100.0 * self.share(at))
    }

    /// Returns the style of what lasts from one moment to another.
    pub(super) fn span(self, from: Instant, to: Instant) -> String {
        let (left, width) = (self.share(from), self.share(to) - self.share(from));
        format!("left:{:.5}%;width:{:.5}%", 100.0 * left, 100.0 * width.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_markup() {
        let text = Text("<b a=\"1\" b='2'>&\u{1b}\u{202e}").to_string();
        assert_eq!(text, "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;\\u{1b}\\u{202e}");
    }

    #[test]
    fn nothing_in_json_ends_its_element() {
        let json = serde_json::json!("</script><!--\u{2028}&").to_string();
        let text = embedded(&json);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        let back: String = serde_json::from_str(&text).expect("the same");
        assert_eq!(back, "</script><!--\u{2028}&");
    }

    #[test]
    fn a_moment_has_a_place() {
        let at = Instant::from_millis;
        let axis = Axis { end: at(2000) };
        assert_eq!(axis.at(at(500)), "left:25.00000%");
        assert_eq!(axis.span(at(500), at(1500)), "left:25.00000%;width:50.00000%");
        assert_eq!(Axis { end: at(0) }.at(at(0)), "left:0.00000%");
    }
}
