//! The server that an operation gets, against the rules of the specification written naively.

mod deployment;
mod model;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use sdam_core::config::{ReadMode, ReadPreference, TagSet};
use sdam_core::selection::{Criteria, Refusal, Snapshot};

use model::{Expected, Needs};

/// The number of servers that may be deprioritized by their letters.
const LETTERS: &str = "abcdef";

/// The input says what servers reply to hello and when, and then what operations need.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn selection(bytes: &[u8]) {
    // An input that is too short has said all that it has to say.
    let _ = play(&mut Unstructured::new(bytes));
}

/// The number of operations that are tried.
const OPERATIONS: usize = 6;

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let stage = deployment::show(input)?;
    for _ in 0..OPERATIONS {
        let needs = needs(input)?;
        compare(stage.snapshot(), &needs);
        if input.is_empty() {
            break;
        }
    }
    Ok(())
}

fn needs(input: &mut Unstructured<'_>) -> Result<Needs> {
    let modes = [
        ReadMode::Primary,
        ReadMode::PrimaryPreferred,
        ReadMode::Secondary,
        ReadMode::SecondaryPreferred,
        ReadMode::Nearest,
    ];
    let mode = if input.ratio(1, 8)? { None } else { Some(*input.choose(&modes)?) };
    // Nothing but the mode: what most operations need, and the quick way.
    if input.ratio(1, 3)? {
        return Ok(Needs { mode, ..Needs::default() });
    }
    let mut tag_sets = Vec::new();
    for _ in 0..input.int_in_range(0..=3)? {
        let mut tags = TagSet::new();
        for _ in 0..input.int_in_range(0..=2)? {
            tags.insert(deployment::tag_name(input)?, deployment::tag_value(input)?);
        }
        tag_sets.push(tags);
    }
    let stale = *input.choose(&[None, None, Some(0), Some(89), Some(90), Some(91), Some(120)])?;
    let staleness: Option<u64> = stale;
    let avoided = if input.arbitrary()? { input.arbitrary::<u8>()? } else { 0 };
    let refused = if input.ratio(1, 4)? { input.arbitrary::<u8>()? } else { 0 };
    let is_primary = matches!(mode, None | Some(ReadMode::Primary));
    Ok(Needs {
        mode,
        tag_sets: if is_primary { Vec::new() } else { tag_sets },
        max_staleness: staleness.filter(|_| !is_primary).map(std::time::Duration::from_secs),
        avoided: letters(avoided),
        refused: letters(refused),
    })
}

fn letters(bits: u8) -> BTreeSet<String> {
    let chosen = LETTERS.chars().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
    chosen.map(|(_, letter)| letter.to_string()).collect()
}

fn criteria(needs: &Needs) -> Criteria {
    let criteria = match needs.mode {
        None => Criteria::write(),
        Some(mode) => {
            let preference = ReadPreference::new(mode).with_tag_sets(needs.tag_sets.clone());
            let preference = match needs.max_staleness {
                Some(most) => preference.and_then(|it| it.with_max_staleness(most)),
                None => preference,
            };
            Criteria::read(preference.expect("with primary there is none of that"))
        }
    };
    let avoided = needs.avoided.iter().map(|host| host.parse().expect("an address"));
    let criteria = criteria.deprioritize(avoided);
    if needs.refused.is_empty() {
        return criteria;
    }
    let refused = needs.refused.clone();
    criteria.with_predicate(move |server| !refused.contains(server.address.host()))
}

fn compare(snapshot: &Snapshot, needs: &Needs) {
    let (criteria, description) = (criteria(needs), snapshot.description());
    let expected = model::judge(description, needs);
    let select = |load: &dyn Fn(usize) -> u32, random| snapshot.select(&criteria, load, random);
    let Expected::Servers { suitable, window } = expected else {
        let refusal = select(&|_| 0, 0).expect_err("nothing may be selected");
        let right = match expected {
            Expected::Incompatible => matches!(refusal, Refusal::Incompatible(_)),
            _ => matches!(refusal, Refusal::MaxStaleness { .. }),
        };
        assert!(right, "{expected:?}, and it says {refusal}");
        return;
    };
    let what = || format!("{needs:?} of {description:?}");
    let explained = snapshot.explain(&criteria).servers;
    let positions = |holds: &dyn Fn(&sdam_core::selection::Reason) -> bool| -> Vec<usize> {
        let all = explained.iter().enumerate().filter(|(_, server)| holds(&server.reason));
        all.map(|(index, _)| index).collect()
    };
    let is_in_window = |reason: &_| matches!(reason, sdam_core::selection::Reason::InWindow);
    assert_eq!(positions(&|reason| reason.is_suitable()), suitable, "suitable: {}", what());
    assert_eq!(positions(&is_in_window), window, "in the latency window: {}", what());
    if window.is_empty() {
        assert_eq!(select(&|_| 0, 0), Ok(None), "{}", what());
    }
    for (rank, &server) in window.iter().enumerate() {
        // The half of the number that draws a server, such that it draws this one.
        let random = (((rank as u64) << 32) + (1 << 31)) / window.len() as u64;
        let idle = |index: usize| u32::from(index != server);
        assert_eq!(select(&idle, random), Ok(Some(server)), "drawn and idle: {}", what());
        for other in [0, 1 << 62, u64::MAX] {
            let busy = |index: usize| u32::from(index == server);
            let random = random & 0xffff_ffff | other & !0xffff_ffff;
            let chosen = select(&busy, random).ok().flatten();
            let right = chosen.is_some_and(|chosen| {
                window.contains(&chosen) && (chosen != server || window.len() == 1)
            });
            assert!(right, "drawn and busy, and {chosen:?} is chosen: {}", what());
        }
    }
}
