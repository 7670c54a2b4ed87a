//! The arrows between folders, from the paths that sources name.

use std::collections::{BTreeMap, BTreeSet};

use super::Arrows;
use super::source::Source;

/// Returns the arrows between the modules at the top of a crate.
pub(super) fn at_the_top(sources: &[Source]) -> Arrows {
    let mut arrows: Arrows = sources
        .iter()
        .filter_map(|source| source.module.first())
        .map(|top| (top.clone(), BTreeSet::new()))
        .collect();
    for source in sources {
        let Some(from) = source.module.first() else { continue };
        for to in source.named.iter().filter_map(|path| path.first()) {
            if to != from && arrows.contains_key(to) {
                arrows.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    arrows
}

/// Returns the arrows between folders that stand next to each other, by the folder they are in.
pub(super) fn between_folders(sources: &[Source]) -> BTreeMap<String, Arrows> {
    let folders: BTreeSet<&[String]> = sources
        .iter()
        .flat_map(|source| (1..source.module.len()).map(|end| &source.module[..end]))
        .collect();
    let mut found: BTreeMap<String, Arrows> = BTreeMap::new();
    for source in sources {
        for path in &source.named {
            let common = source.module.iter().zip(path).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (source.module.get(..=common), path.get(..=common)) else {
                continue;
            };
            if folders.contains(from) && folders.contains(to) {
                let place = match common {
                    0 => "src".to_owned(),
                    _ => from[..common].join("/"),
                };
                let arrows = found.entry(place).or_default();
                arrows.entry(to[common].clone()).or_default();
                arrows.entry(from[common].clone()).or_default().insert(to[common].clone());
            }
        }
    }
    found
}

/// Returns the file that defines a type, as far as its name and the nearness of files say.
pub(super) fn definition(sources: &[Source], user: &Source, name: &str) -> String {
    let common = |source: &&Source| {
        source.module.iter().zip(&user.module).take_while(|(a, b)| a == b).count()
    };
    let defines = |source: &&Source| source.defines.contains(name);
    let nearest = |source: &&Source| {
        let imported = user.named.iter().any(|path| {
            path.last().is_some_and(|last| last == name) && path.starts_with(&source.module)
        });
        (source.file == user.file, imported, common(source))
    };
    let found = sources.iter().filter(defines).max_by_key(nearest);
    found.map_or_else(|| user.file.clone(), |source| source.file.clone())
}
