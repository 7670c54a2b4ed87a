//! The file of budgets, and what is said of a count beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use crate::callgrind::Count;

/// The share that work may take above its budget, in per cent.
const ALLOWED: f64 = 3.0;

/// The same where another compiler has made the program.
const ALLOWED_ELSEWHERE: f64 = 20.0;

/// The number of places that moved which are named.
const NAMED: usize = 8;

/// Budgets by the names of benches, and what they hold for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budgets {
    pub(crate) compiler: String,
    pub(crate) counts: BTreeMap<String, Count>,
}

/// The judgement of a count beside its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Within,
    /// The budget can be lowered.
    Below(String),
    Above(String),
}

/// Returns what the program was compiled with, and for.
pub(crate) fn compiler() -> String {
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.map(|rustc| String::from_utf8_lossy(&rustc.stdout).trim().to_owned());
    format!("{}, {}", rustc.unwrap_or_default(), std::env::consts::ARCH)
}

impl Budgets {
    /// Reads the file.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (mut budgets, mut current) = (Self::default(), None);
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(compiler) = line.strip_prefix("compiler: ") {
                compiler.clone_into(&mut budgets.compiler);
                continue;
            }
            let counted = line.trim().rsplit_once(' ').and_then(|(name, count)| {
                Some((name.trim().to_owned(), count.replace(',', "").parse().ok()?))
            });
            let (name, count) = counted.ok_or_else(|| format!("{line:?} is no name and count"))?;
            if !line.starts_with(' ') {
                let new = Count { total: count, ..Count::default() };
                current = Some(budgets.counts.entry(name).or_insert(new));
            } else if let Some(current) = &mut current {
                current.parts.insert(name, count);
            }
        }
        Ok(budgets)
    }

    /// Writes the file, with benches in this order and in each the places that matter.
    pub(crate) fn write<'a>(&self, order: impl Iterator<Item = &'a str>) -> String {
        let mut text = String::from(
            "# The instructions that each bench may take, and where it takes them. Written by\n\
             # scripts/budgets --update; see README.md.\n\n",
        );
        let _ = writeln!(text, "compiler: {}", self.compiler);
        for (name, count) in order.filter_map(|name| Some((name, self.counts.get(name)?))) {
            let _ = writeln!(text, "\n{name:42} {:>12}", thousands(count.total));
            let mut parts: Vec<_> = count.parts.iter().collect();
            parts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (place, part) in parts.into_iter().filter(|(_, part)| **part * 50 > count.total) {
                let _ = writeln!(text, "  {place:40} {:>12}", thousands(*part));
            }
        }
        text
    }

    /// Judges a count.
    pub(crate) fn judge(&self, name: &str, count: &Count, compiler: &str) -> Verdict {
        let Some(budget) = self.counts.get(name) else {
            return Verdict::Above(format!("{name} has no budget: {}", update(name)));
        };
        let is_same = compiler == self.compiler;
        let allowed = if is_same { ALLOWED } else { ALLOWED_ELSEWHERE };
        let change = (count.total as f64 / budget.total as f64 - 1.0) * 100.0;
        if change.abs() <= allowed {
            return Verdict::Within;
        }
        let mut text = format!(
            "{name}: {} instructions, {change:+.1} % of its budget of {}\n",
            thousands(count.total),
            thousands(budget.total),
        );
        for (place, before, now) in moved(budget, count) {
            let (before, now) = (thousands(before), thousands(now));
            let _ = writeln!(text, "  {place:40} {before:>12} -> {now:>12}");
        }
        if !is_same {
            let _ = writeln!(
                text,
                "The budgets were written with {}, and this is {compiler}: if nothing else has \
                 changed, write all of them again.",
                self.compiler
            );
        }
        if change > 0.0 {
            let _ =
                writeln!(text, "{allowed} % are allowed. If it is worth more: {}", update(name));
            Verdict::Above(text)
        } else {
            let _ = writeln!(text, "The budget can be lowered: {}", update(name));
            Verdict::Below(text)
        }
    }
}

fn update(name: &str) -> String {
    format!("scripts/budgets --update {name}")
}

/// Returns the places whose counts have changed most, with both counts. What the file leaves out of
/// a bench, because it is little, counts as nothing.
fn moved(budget: &Count, count: &Count) -> Vec<(String, u64, u64)> {
    let places = budget.parts.keys().chain(count.parts.keys().filter(|place| {
        let is_new = !budget.parts.contains_key(*place);
        is_new && count.parts[*place] * 50 > budget.total
    }));
    let of = |count: &Count, place| count.parts.get(place).copied().unwrap_or_default();
    let changes = places.map(|place| (place.clone(), of(budget, place), of(count, place)));
    let mut changes: Vec<_> = changes.filter(|(_, before, now)| before != now).collect();
    changes.sort_by_key(|(_, before, now)| std::cmp::Reverse(before.abs_diff(*now)));
    changes.truncate(NAMED);
    changes
}

/// Writes a number with commas.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
