//! The structure of a workspace, read off its sources: crates, folders, the arrows between them,
//! and in how many files a type's methods stand.
//!
//! An arrow leads from the folder whose code names something to the folder that has it. Tests make
//! no arrows: they may look at everything.

mod arrows;
pub mod determinism;
mod lines;
mod manifest;
mod promise;
mod source;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

pub use lines::Lines;
use source::Source;

/// The crates of a workspace.
#[derive(Debug)]
pub struct Structure {
    /// In the order of their folders.
    pub crates: Vec<Package>,
}

/// A crate of a workspace.
#[derive(Debug)]
pub struct Package {
    /// Its name in manifests.
    pub name: String,
    /// The folder of its manifest.
    pub folder: PathBuf,
    /// The crates of the workspace that it is built with, tests aside.
    pub needs: BTreeSet<String>,
    /// The length.
    pub lines: Lines,
    sources: Vec<Source>,
}

/// The folders that each folder uses: those next to each other within one folder.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The reason why the structure of a workspace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StructureError {
    /// A file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file, or a folder.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A file is no Rust.
    #[error("{path} is no Rust: {error}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error.
        error: syn::Error,
    },
}

impl Structure {
    /// Reads every crate below a folder.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is no Rust.
    pub fn read(root: &Path) -> Result<Self, StructureError> {
        let mut manifests = Vec::new();
        find(root, &mut |path| {
            if path.file_name().is_some_and(|name| name == "Cargo.toml") {
                manifests.push(path.to_owned());
            }
        })?;
        manifests.sort();
        let folders: Vec<PathBuf> =
            manifests.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
        let mut crates = Vec::new();
        for (manifest, folder) in manifests.iter().zip(&folders) {
            let text = fs::read_to_string(manifest).map_err(at(manifest))?;
            let Some(name) = manifest::name(&text) else { continue };
            let needs = manifest::needs(&text);
            crates.push(Package::read(name, folder, needs, &folders)?);
        }
        let names: BTreeSet<String> = crates.iter().map(|package| package.name.clone()).collect();
        for package in &mut crates {
            package.needs.retain(|needed| names.contains(needed));
        }
        Ok(Self { crates })
    }

    /// Returns the crate of that name.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.crates.iter().find(|package| package.name == name)
    }

    /// Returns which crate is built with which others, tests aside.
    pub fn arrows(&self) -> Arrows {
        self.crates.iter().map(|package| (package.name.clone(), package.needs.clone())).collect()
    }
}

impl Package {
    fn read(
        name: String,
        folder: &Path,
        needs: BTreeSet<String>,
        folders: &[PathBuf],
    ) -> Result<Self, StructureError> {
        let mut paths = Vec::new();
        find(folder, &mut |path| {
            // A crate within the folder counts for itself.
            let is_own = folders
                .iter()
                .filter(|other| path.starts_with(other))
                .all(|other| folder.starts_with(other));
            if is_own && path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path.to_owned());
            }
        })?;
        paths.sort();
        let (mut lines, mut sources) = (Lines::default(), Vec::new());
        for path in paths {
            let text = fs::read_to_string(&path).map_err(at(&path))?;
            let within = path.strip_prefix(folder).unwrap_or(&path);
            lines.add(within, &text);
            if within.starts_with("src") && !lines::is_test(within) {
                sources.push(Source::read(&path, within, &text)?);
            }
        }
        Ok(Self { name, folder: folder.to_owned(), needs, lines, sources })
    }

    /// Returns the arrows between the folders and files at the top of the crate.
    pub fn arrows(&self) -> Arrows {
        arrows::at_the_top(&self.sources)
    }

    /// Returns, for each folder of the crate that has several, the arrows between those.
    pub fn arrows_between_folders(&self) -> BTreeMap<String, Arrows> {
        arrows::between_folders(&self.sources)
    }

    /// Returns the public types whose fields or variants other crates may list as if there would
    /// never be more.
    pub fn exhaustive_types(&self) -> BTreeSet<String> {
        self.in_files(|source| &source.exhaustive)
    }

    /// Returns the public fields and variants that are there with a feature only.
    pub fn conditional_parts(&self) -> BTreeSet<String> {
        self.in_files(|source| &source.conditional)
    }

    fn in_files(&self, of: impl Fn(&Source) -> &BTreeSet<String>) -> BTreeSet<String> {
        let named = |source| of(source).iter().map(|name| format!("{name} of {}", source.file));
        self.sources.iter().flat_map(named).collect()
    }

    /// Returns the types whose inherent impls stand in more files than that, with these files.
    pub fn spread_types(&self, most: usize) -> BTreeMap<String, BTreeSet<String>> {
        let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for source in &self.sources {
            for named in &source.impls {
                let definition = arrows::definition(&self.sources, source, named);
                let key = format!("{named} of {definition}");
                files.entry(key).or_default().insert(source.file.clone());
            }
        }
        files.retain(|_, files| files.len() > most);
        files
    }
}

/// Returns the circles among arrows: each a set of names that lead to one another.
pub fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|from| (from, reachable(arrows, from))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (from, reached) in &reach {
        let is_back = |to: &&&String| reach.get(**to).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<String> =
            reached.iter().filter(is_back).map(|to| (*to).clone()).collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reachable<'a>(arrows: &'a Arrows, from: &String) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(name) = next.pop() {
        for to in arrows.get(name).into_iter().flatten() {
            if reached.insert(to) {
                next.push(to);
            }
        }
    }
    reached
}

/// Shows every file below a folder, but for what is hidden or built.
fn find(folder: &Path, show: &mut dyn FnMut(&Path)) -> Result<(), StructureError> {
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        match path.is_dir() {
            true => find(&path, show)?,
            false => show(&path),
        }
    }
    Ok(())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StructureError {
    move |error| StructureError::Io { path: path.to_owned(), error }
}

/// Shows crates, folders, arrows and lines as tables.
impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24}{:>8}{:>8}{:>10}  needs", "crate", "code", "tests", "comments")?;
        let mut all = Lines::default();
        for Package { name, lines, needs, .. } in &self.crates {
            let Lines { code, tests, comments } = lines;
            let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
            writeln!(f, "{name:<24}{code:>8}{tests:>8}{comments:>10}  {}", needs.join(" "))?;
            all += *lines;
        }
        writeln!(f, "{:<24}{:>8}{:>8}{:>10}", "all", all.code, all.tests, all.comments)?;
        circles_are_found(f, "crates", &self.arrows())?;
        for package in &self.crates {
            for (folder, arrows) in package.arrows_between_folders() {
                circles_are_found(f, &format!("{} {folder}", package.name), &arrows)?;
            }
            for (name, files) in package.spread_types(2) {
                let files: Vec<String> = files.into_iter().collect();
                writeln!(f, "{}: {name} in {}", package.name, files.join(" "))?;
            }
        }
        let Some(core) = self.package("sdam-core") else { return Ok(()) };
        let arrows = core.arrows();
        let count: usize = arrows.values().map(BTreeSet::len).sum();
        writeln!(f, "\nsdam-core: {} folders and files, {count} arrows", arrows.len())?;
        for (from, to) in &arrows {
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            writeln!(f, "{from:<14} -> {}", to.join(" "))?;
        }
        circles_are_found(f, "sdam-core", &arrows)
    }
}

fn circles_are_found(f: &mut fmt::Formatter<'_>, place: &str, arrows: &Arrows) -> fmt::Result {
    for circle in circles(arrows) {
        let names: Vec<String> = circle.into_iter().collect();
        writeln!(f, "{place}: a circle of {}: {}", names.len(), names.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Arrows, circles};

    fn arrows(list: &[(&str, &[&str])]) -> Arrows {
        let names = |to: &[&str]| to.iter().map(|&name| name.to_owned()).collect();
        list.iter().map(|(from, to)| ((*from).to_owned(), names(to))).collect()
    }

    #[test]
    fn circles_are_found_however_long_they_are() {
        assert!(circles(&arrows(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
        let found = circles(&arrows(&[
            ("a", &["b"]),
            ("b", &["c"]),
            ("c", &["a", "d"]),
            ("d", &["e"]),
            ("e", &["d"]),
            ("f", &["a"]),
        ]));
        let found: Vec<Vec<&str>> =
            found.iter().map(|circle| circle.iter().map(String::as_str).collect()).collect();
        assert_eq!(found, [vec!["a", "b", "c"], vec!["d", "e"]]);
    }
}
