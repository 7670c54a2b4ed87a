//! What tells two worlds apart, in 128 bits.

use std::fmt::Write;

use sdam_core::time::Instant;

/// What decides nothing, or is the same in all worlds.
const IGNORED: &[&str] = &[
    "at",
    "average",
    "client",
    "clock",
    "count",
    "failing",
    "found_set",
    "frames",
    "last_update_time",
    "links",
    "metadata",
    "min_round_trip_time",
    "now",
    "options",
    "primary_seen",
    "recent",
    "request_id",
    "response_to",
    "rng",
    "round_trip_time",
    "since",
    "snapshot",
    "started",
];

/// How long something stays of interest after it has happened, in nanoseconds.
const MEMORY: u64 = 500_000_000;

/// Returns the digest of what a world consists of, as its parts describe themselves.
///
/// With a plus sign every number is signed except for an [`Instant`], which passes no flags on: so
/// instants are told from durations.
pub(super) fn digest(parts: &dyn std::fmt::Debug, now: Instant, text: &mut String) -> u128 {
    text.clear();
    // Writing to a string cannot fail.
    let _ = write!(text, "{parts:+?}");
    let mut reader = Reader { text: text.as_bytes(), at: 0, now: now.as_nanos(), hash: BASIS };
    reader.read();
    reader.hash
}

/// FNV-1a of 128 bits.
const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    now: u64,
    hash: u128,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            let from = self.at;
            match byte {
                b'"' => self.skip_string(),
                b'+' | b'-' => {
                    self.at += 1;
                    self.skip_while(is_of_word);
                }
                b'0'..=b'9' => {
                    self.instant();
                    continue;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    if self.is_ignored(from) {
                        self.skip_value();
                        continue;
                    }
                    self.fold(from);
                    self.skip_link_number(from);
                    continue;
                }
                _ => self.at += 1,
            }
            self.fold(from);
        }
    }

    fn fold(&mut self, from: usize) {
        for &byte in &self.text[from..self.at] {
            self.hash = (self.hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.text.get(self.at).is_some_and(|byte| wanted(*byte)) {
            self.at += 1;
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }

    /// Returns whether what was just read is the name of a field that does not count.
    fn is_ignored(&self, from: usize) -> bool {
        let name = &self.text[from..self.at];
        self.text[self.at..].starts_with(b": ")
            && IGNORED.iter().any(|ignored| ignored.as_bytes() == name)
    }

    /// Reads up to the end of the field.
    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' | b',' if depth == 0 => return,
                b')' | b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// A link is its server's: `s0.7` reads as `s0`. A server has two at most, and the older one
    /// is never the one that measures round trips.
    fn skip_link_number(&mut self, from: usize) {
        if self.text[from] == b's'
            && self.at - from > 1
            && self.text[from + 1..self.at].iter().all(u8::is_ascii_digit)
            && self.text.get(self.at) == Some(&b'.')
        {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
        }
    }

    /// An instant counts from now, or is long over.
    fn instant(&mut self) {
        let from = self.at;
        self.skip_while(is_of_word);
        // Names of topologies begin with digits, too.
        let Some(instant) = nanoseconds(&self.text[from..self.at]) else {
            return self.fold(from);
        };
        let relative = match instant.checked_sub(self.now) {
            Some(ahead) => ahead,
            None => u64::MAX - (self.now - instant).min(MEMORY),
        };
        for byte in relative.to_le_bytes() {
            self.hash = (self.hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }
}

/// Durations have a point, and a micro sign.
const fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.' || !byte.is_ascii()
}

/// Reads what a duration's `Debug` writes.
fn nanoseconds(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let mut digits = match unit {
        b"s" => 9,
        b"ms" => 6,
        b"ns" => 0,
        unit if unit == "µs".as_bytes() => 3,
        _ => return None,
    };
    let (mut value, mut is_fraction) = (0_u64, false);
    for &byte in number {
        if byte == b'.' {
            is_fraction = true;
            continue;
        }
        value = value * 10 + u64::from(byte - b'0');
        digits -= i32::from(is_fraction);
    }
    Some(value * 10_u64.pow(u32::try_from(digits).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::time::Instant;

    use super::digest;

    fn of(parts: &dyn std::fmt::Debug, now: u64) -> u128 {
        digest(parts, Instant::from_millis(now), &mut String::new())
    }

    #[test]
    fn instants_count_from_now_and_durations_do_not() {
        let at = Instant::from_millis;
        assert_eq!(of(&at(1500), 1000), of(&at(2500), 2000));
        assert_ne!(of(&at(1500), 1000), of(&at(1501), 1000));
        assert_ne!(of(&at(900), 1000), of(&at(1900), 2001), "both have just been");
        assert_eq!(of(&at(100), 1000), of(&at(200), 9000), "both are long over");
        let duration = Duration::from_millis;
        assert_eq!(of(&duration(1500), 1000), of(&duration(1500), 2000));
        assert_ne!(of(&duration(1500), 1000), of(&duration(2500), 2000));
    }
}
