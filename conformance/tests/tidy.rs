//! The house rules that a program can check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, io};

use sdam_conformance::structure::{Arrows, Structure, circles, determinism, words};

/// In how many files the inherent impls of a type may stand.
const MAX_FILES: usize = 2;

/// Types that are still spread over more files, to be gathered; with a type that is gathered, its
/// line goes.
const SPREAD: &[&str] = &[
    "sdam-cluster: Cluster of src/model/mod.rs",
    "sdam-core: Topology of src/topology/mod.rs",
    "sdam-simulation: Checks of src/sim/checks/mod.rs",
    "sdam-simulation: Client of src/sim/client/mod.rs",
    "sdam-simulation: World of src/sim/world.rs",
];

/// Circles between folders that are still there, to be cut; with a circle that is cut, its line
/// goes.
const CIRCLES: &[&str] = &[];

/// The crates whose folders stand on storeys, each with its diagram in ARCHITECTURE.md.
const WITH_STOREYS: [(&str, &str); 3] = [
    ("sdam-core", "storeys of core"),
    ("sdam-host", "storeys of the host"),
    ("sdam-cluster", "storeys of the cluster"),
];

/// Crates that are no library for others.
const NO_LIBRARIES: &[&str] =
    &["rust-driver-log", "sdam-bench", "sdam-budget", "sdam-cli", "sdam-conformance", "sdam-fuzz"];

/// Public types that will never have other fields or variants, and why.
const EXHAUSTIVE: &[(&str, &str)] = &[
    ("sdam: Hint of src/value.rs", "a name or keys, as in BSON"),
    (
        "sdam: IndexOptionDefaults of src/command/collection_values.rs",
        "applications write it as a literal, and servers know no other option",
    ),
    ("sdam-cluster: ConnectionId of src/model/mod.rs", "an identity that its caller chooses"),
    ("sdam-cluster: Input of src/model/mod.rs", "its caller chooses among all"),
    ("sdam-cluster: MemberId of src/options/mod.rs", "an identity is a number"),
    ("sdam-core: Acknowledgment of src/config/concern.rs", "a number or a name, as in BSON"),
    ("sdam-core: Action of src/dns/lookup.rs", "its caller performs each of them"),
    ("sdam-core: Ending of src/session/transaction.rs", "its caller performs each of them"),
    ("sdam-core: AttemptFailure of src/session/transaction.rs", "its caller says all of it"),
    ("sdam-core: CommitFault of src/session/commit_token.rs", "its caller says all of it"),
    (
        "sdam-core: ChangeStreamErrorFacts of src/diagnosis/change_stream.rs",
        "its caller says all of it",
    ),
    (
        "sdam-core: TransactionErrorFacts of src/diagnosis/transaction.rs",
        "its caller says all of it",
    ),
    ("sdam-core: TransactionFault of src/session/convenient.rs", "its caller says all of it"),
    ("sdam-core: TransactionStep of src/session/convenient.rs", "its caller performs each of them"),
    ("sdam-core: Action of src/operation/machine.rs", "its caller performs each of them"),
    ("sdam-core: Action of src/pool/mod.rs", "its caller performs each of them"),
    ("sdam-core: Action of src/topology/action.rs", "its caller performs each of them"),
    ("sdam-core: Authorization of src/auth/aws/sources/container.rs", "it must be read, whichever"),
    ("sdam-core: AwsSource of src/auth/aws/sources.rs", "its caller fetches from each of them"),
    ("sdam-core: AwsStep of src/auth/aws/sources.rs", "its caller performs each of them"),
    ("sdam-core: ConnectionFacts of src/operation/machine.rs", "its caller states each of them"),
    ("sdam-core: Fault of src/operation/retry.rs", "its caller chooses among all"),
    ("sdam-core: Input of src/dns/lookup.rs", "its caller chooses among all"),
    ("sdam-core: Input of src/operation/machine.rs", "its caller chooses among all"),
    ("sdam-core: Input of src/pool/mod.rs", "its caller chooses among all"),
    ("sdam-core: Input of src/topology/mod.rs", "its caller chooses among all"),
    (
        "sdam-core: NotCompiledIn of src/wire/compression.rs",
        "the compressor is all there is to say",
    ),
    ("sdam-core: Overlay of src/operation/overlay.rs", "its caller sends each of them"),
    ("sdam-core: HandshakeProgress of src/handshake/mod.rs", "its caller performs each of them"),
    (
        "sdam-core: CredentialRequest of src/auth/credential_request.rs",
        "its caller answers each of them",
    ),
    ("sdam-core: GssapiRequest of src/auth/gssapi_request.rs", "its caller answers each of them"),
    ("sdam-core: ReadMode of src/config/read_preference.rs", "the five modes of the specification"),
    ("sdam-core: Retry of src/operation/retry.rs", "its caller performs each of them"),
    ("sdam-core: SelectedFacts of src/operation/machine.rs", "its caller states each of them"),
    ("sdam-core: Sending of src/operation/machine.rs", "its caller performs each of them"),
    ("sdam-core: Time of src/time.rs", "every input of every machine has one"),
    ("sdam-core: Transport of src/dns/mod.rs", "UDP and TCP"),
    ("sdam-core: WaiterId of src/id.rs", "an identity that its caller chooses"),
    ("sdam-host: PoolStep of src/machines/steps.rs", "its caller checks each of them"),
    ("sdam-host: TopologyStep of src/machines/steps.rs", "its caller checks each of them"),
    ("sdam-simulation: Act of src/histories/mod.rs", "its caller notes each of them"),
    ("sdam-simulation: CycleKind of src/histories/mod.rs", "the cycles that isolation forbids"),
    ("sdam-simulation: Dependency of src/histories/mod.rs", "ww, wr and rw"),
    ("sdam-simulation: Outcome of src/histories/mod.rs", "its caller chooses among all"),
];

/// The part of the facade that depends on its arguments alone: what is sent, and what replies say.
const DETERMINISTIC: [&str; 4] = ["src/command", "src/cursor", "src/reply", "src/value.rs"];

/// The places there that draw nevertheless.
const DRAWS: &[&str] = &["src/command/documents.rs: new_id: ObjectId::new"];

/// Parts of texts that have a refused word, and why.
const QUOTED: &[(&str, &str)] = &[("User nobody", "a user in a configuration of ssh")];

/// The number of columns that a line may have.
const MAX_COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Every file of ours with one of these extensions, and its text.
fn files(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    fn walk(
        folder: &Path,
        extensions: &[&str],
        found: &mut Vec<(PathBuf, String)>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() {
                walk(&path, extensions, found)?;
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
            {
                let text = fs::read_to_string(&path)?;
                found.push((path, text));
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(&root(), extensions, &mut found).expect("the checkout can be read");
    assert!(found.len() > 3, "the checkout is not where it should be: {found:?}");
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
}

/// Asserts that no rule is broken; each text is a place, and what is wrong there.
fn none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

fn structure() -> &'static Structure {
    static READ: LazyLock<Structure> =
        LazyLock::new(|| Structure::read(&root()).expect("the checkout can be read"));
    &READ
}

/// Returns the names in a diagram of ARCHITECTURE.md, storey by storey, from the lowest upwards: a
/// line each, with what the storey is for after at least two spaces.
fn storeys(diagram: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it can be read");
    let fence = format!("```text {diagram}");
    let mut storeys: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| *line != fence)
        .skip(1)
        .take_while(|line| *line != "```")
        .map(|line| {
            let names = line.split("  ").next().unwrap_or_default();
            names.split(", ").map(str::to_owned).collect()
        })
        .collect();
    assert!(storeys.len() > 3, "there is no diagram `{diagram}` in ARCHITECTURE.md");
    storeys.reverse();
    storeys
}

/// Says which arrows lead up or stay on their storey, which names have no storey, and which storeys
/// name what is not there.
fn against(storeys: &[Vec<String>], arrows: &Arrows) -> Vec<String> {
    let storey = |name: &str| storeys.iter().position(|names| names.iter().any(|n| n == name));
    let mut broken = Vec::new();
    for (from, to) in arrows {
        let Some(own) = storey(from) else {
            broken.push(format!("{from} is on no storey: say in ARCHITECTURE.md where it belongs"));
            continue;
        };
        for to in to.iter().filter(|to| storey(to).is_none_or(|below| below >= own)) {
            broken.push(format!("{from} uses {to}, which is not below it"));
        }
    }
    for name in storeys.iter().flatten().filter(|name| !arrows.contains_key(*name)) {
        broken.push(format!("{name} is in a diagram of ARCHITECTURE.md, and nowhere else"));
    }
    broken
}

/// Returns the rows of the map of ARCHITECTURE.md: the paths that each names, in its order.
fn map() -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it can be read");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let is_path = |name: &&str| name.ends_with('/') || name.ends_with(".rs");
    rows.map(|row| row.split('`').skip(1).step_by(2).filter(is_path).map(str::to_owned).collect())
        .collect()
}

/// Compares what is found with what is known and tolerated: neither may have what the other lacks.
fn compare(found: &BTreeMap<String, String>, tolerated: &[&str]) -> Vec<String> {
    let new = found.iter().filter(|(key, _)| !tolerated.contains(&key.as_str()));
    let gone = tolerated.iter().filter(|key| !found.contains_key(**key));
    new.map(|(key, what)| format!("{key}{what}"))
        .chain(gone.map(|key| format!("{key}: is as it should be; take its line away")))
        .collect()
}

/// Packages have their licences, and say what they are for and where they come from.
#[test]
fn packages_have_licences_and_say_what_they_are() {
    const SAID: [&str; 7] = [
        "description = ",
        "repository.workspace = true",
        "readme.workspace = true",
        "keywords = ",
        "categories = ",
        "include = ",
        "[package.metadata.docs.rs]\nall-features = true\nrustdoc-args = [\"--cfg\", \"docsrs\"]",
    ];
    let manifests: Vec<_> = files(&["toml"])
        .into_iter()
        .filter(|(path, text)| path.ends_with("Cargo.toml") && text.contains("[package]"))
        .filter(|(_, text)| !text.contains("publish = false"))
        .collect();
    assert!(manifests.len() > 5, "there are packages");
    let mut broken = Vec::new();
    for (path, text) in manifests {
        for said in SAID.iter().filter(|said| !text.contains(**said)) {
            broken.push(format!("{}: lacks {said:?}", path.display()));
        }
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let [own, ours] =
                [path.with_file_name(name), root().join(name)].map(|path| fs::read(path).ok());
            if own.is_none() || own != ours {
                broken.push(format!("{}: copy {name} beside it", path.display()));
            }
        }
    }
    none(&broken);
}

#[test]
fn crates_need_only_what_is_below_them() {
    none(&against(&storeys("storeys"), &structure().arrows()));
}

/// A path is one from the root, or from the first one of its row, or from that one's folder.
#[test]
fn the_map_names_only_what_is_there() {
    let mut broken = Vec::new();
    let rows = map();
    assert!(rows.len() > 15, "there is no map in ARCHITECTURE.md");
    for row in rows.iter().filter(|row| !row[0].contains('*')) {
        let first = root().join(&row[0]);
        assert!(first.exists(), "{} is in the map of ARCHITECTURE.md only", row[0]);
        let beside = first.parent().expect("it is below the root").to_owned();
        for path in row {
            if ![&root(), &first, &beside].iter().any(|folder| folder.join(path).exists()) {
                broken.push(format!("{path} is in the map of ARCHITECTURE.md only"));
            }
        }
    }
    none(&broken);
}

#[test]
fn folders_use_only_what_is_below_them() {
    let mut broken = Vec::new();
    for (name, diagram) in WITH_STOREYS {
        let package = structure().package(name).expect("the table names a crate");
        broken.extend(against(&storeys(diagram), &package.arrows()));
    }
    none(&broken);
}

#[test]
fn folders_make_no_circles() {
    let mut found = BTreeMap::new();
    for package in &structure().crates {
        for (folder, arrows) in package.arrows_between_folders() {
            for circle in circles(&arrows) {
                let names: Vec<String> = circle.into_iter().collect();
                let key = format!("{} {folder}: {}", package.name, names.join(" "));
                found.insert(key, " use each other".to_owned());
            }
        }
    }
    none(&compare(&found, CIRCLES));
}

#[test]
fn the_methods_of_a_type_stand_in_two_files_at_most() {
    let mut found = BTreeMap::new();
    for package in &structure().crates {
        for (named, files) in package.spread_types(MAX_FILES) {
            let files: Vec<String> = files.into_iter().collect();
            let what = format!(" has methods in {}", files.join(", "));
            found.insert(format!("{}: {named}", package.name), what);
        }
    }
    none(&compare(&found, SPREAD));
}

/// Types that can grow say so, so that growing breaks no caller's code: structs with public fields
/// and enums are `#[non_exhaustive]`, unless they are in a short list.
#[test]
fn public_types_that_may_grow_say_so() {
    let mut found = BTreeMap::new();
    for package in &structure().crates {
        if !NO_LIBRARIES.contains(&package.name.as_str()) {
            for named in package.exhaustive_types() {
                let what = " is neither non_exhaustive nor among those that will never grow";
                found.insert(format!("{}: {named}", package.name), what.to_owned());
            }
        }
    }
    assert!(found.len() > 10, "there are the actions, at least: {found:?}");
    let tolerated: Vec<&str> = EXHAUSTIVE.iter().map(|(key, _)| *key).collect();
    none(&compare(&found, &tolerated));
}

/// A feature that somebody else turns on must not change a type: it adds types and methods.
#[test]
fn features_bring_no_fields_and_no_variants() {
    let mut broken = Vec::new();
    for package in &structure().crates {
        if !NO_LIBRARIES.contains(&package.name.as_str()) {
            let parts = package.conditional_parts();
            broken.extend(parts.into_iter().map(|part| format!("{}: {part}", package.name)));
        }
    }
    none(&broken);
}

/// Returns the features of a manifest: each with what the lines before it say, and whether it is
/// on by default.
fn features(manifest: &str) -> Vec<(&str, String, bool)> {
    let section = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let (mut found, mut said, mut defaults) = (Vec::new(), Vec::new(), "");
    for line in section.take_while(|line| !line.starts_with('[')) {
        if let Some(comment) = line.strip_prefix("## ") {
            said.push(comment);
        } else if let Some((name, brings)) = line.split_once(" = ") {
            match name {
                "default" => defaults = brings,
                _ => found.push((name, said.join(" "))),
            }
            said.clear();
        }
    }
    let is_default = |name: &str| defaults.contains(&format!("\"{name}\""));
    found.into_iter().map(|(name, said)| (name, said, is_default(name))).collect()
}

/// The features of a library are on its front page, in the words of its manifest.
#[test]
fn features_are_on_the_front_pages_of_their_crates() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for (path, manifest) in files(&["toml"]) {
        if !path.ends_with("Cargo.toml") || !manifest.contains("[package.metadata.docs.rs]") {
            continue;
        }
        let sources = path.with_file_name("src");
        let pages = ["lib.rs", "main.rs", "front_page.md"];
        let texts = pages.map(|name| fs::read_to_string(sources.join(name)));
        let text: String = texts.into_iter().flatten().collect();
        let words = text.lines().flat_map(|line| line.trim_start_matches("//!").split_whitespace());
        let page = words.collect::<Vec<_>>().join(" ").to_lowercase();
        for (name, said, is_default) in features(&manifest) {
            let mark = if is_default { " (default)" } else { "" };
            let item = format!("- `{name}`{mark}: {said}");
            count += 1;
            if !page.contains(&item.to_lowercase()) {
                broken.push(format!("{}: lacks {item:?}", sources.display()));
            }
        }
    }
    assert!(count > 40, "there are features: {count}");
    none(&broken);
}

/// Clippy sees to core, as a crate; the commands of the facade are a part of one.
#[test]
fn commands_and_replies_depend_on_their_arguments_alone() {
    let (mut found, sources) = (BTreeMap::new(), files(&["rs"]));
    for part in DETERMINISTIC {
        let within = root().join(part);
        let of_part = sources.iter().filter(|(path, _)| path.starts_with(&within));
        let mut of_part = of_part.filter(|(path, _)| !is_test(path)).peekable();
        assert!(of_part.peek().is_some(), "there is no {part}");
        for (path, text) in of_part {
            let file = path.strip_prefix(root()).expect("it is below the root").display();
            for place in determinism::differing(text).expect("it is Rust") {
                found.insert(format!("{file}: {place}"), " differs from run to run".to_owned());
            }
        }
    }
    none(&compare(&found, DRAWS));
}

/// The names for labels are those of JSON: of the variants, with a small letter, and so each once.
/// The compiler sees to it that none is missing.
#[test]
fn labels_have_the_names_of_their_variants() {
    let (mut broken, mut enums) = (Vec::new(), 0);
    for (path, text) in files(&["rs"]).into_iter().filter(|(path, _)| !is_test(path)) {
        for method in text.split("/// Returns ").filter(|it| it.contains(": a label for metrics")) {
            let arms = method.lines().take_while(|line| !line.starts_with("    }"));
            let arms =
                arms.filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""));
            let arms: Vec<(&str, &str)> = arms.collect();
            assert!(arms.len() > 1, "{}: a name has no arms:\n{method}", path.display());
            enums += 1;
            for (pattern, name) in arms {
                let variant = pattern.split([' ', '(']).next().unwrap_or_default();
                let (first, rest) = variant.split_at(1);
                let expected = format!("{}{rest}\",", first.to_lowercase());
                if name != expected {
                    broken.push(format!("{}: {variant} is named {name}", path.display()));
                }
            }
        }
    }
    assert!(enums >= 10, "there are labels: {enums}");
    none(&broken);
}

#[test]
fn lines_are_short() {
    let mut broken = Vec::new();
    // Tests compare with whole lines of output, which are as long as they are.
    for (path, text) in files(&["rs"]).into_iter().filter(|(path, _)| !is_test(path)) {
        for (number, line) in text.lines().enumerate() {
            // A link cannot be broken.
            if line.chars().count() > MAX_COLUMNS && !line.contains("https://") {
                broken.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

#[test]
fn every_file_says_what_it_is_for() {
    let mut broken = Vec::new();
    for (path, text) in files(&["rs"]) {
        if !text.starts_with("//! ") && !text.starts_with("#![doc") {
            broken.push(path.display().to_string());
        }
    }
    none(&broken);
}

/// The text of an error is whole: it says the cause, too, so that the chain of `source()` repeats
/// nothing. Only an error that is nothing but another one passes its sources on.
#[test]
fn errors_have_no_source_that_their_text_has_told() {
    let mut broken = Vec::new();
    let marks = ["from", "source"].map(|name| format!("#[{name}]"));
    for (path, text) in files(&["rs"]) {
        let mut transparent = false;
        for (number, line) in text.lines().enumerate() {
            if let Some(said) = line.trim_start().strip_prefix("#[error(") {
                transparent = said.starts_with("transparent");
            }
            if marks.iter().any(|mark| line.contains(mark)) && !transparent {
                broken.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

/// Returns the headlines of a file, each with the number of its line: the first line of each doc
/// comment, or the headings of a page.
fn headlines<'a>(path: &Path, text: &'a str) -> Vec<(usize, &'a str)> {
    let (mut found, mut is_open) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        if path.extension().is_some_and(|extension| extension == "md") {
            is_open ^= line.starts_with("```");
            if !is_open && line.starts_with('#') {
                found.push((number + 1, line.trim_start_matches('#').trim()));
            }
            continue;
        }
        let line = line.trim_start();
        let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        match comment {
            Some(first) if !is_open => found.push((number + 1, first)),
            _ => {}
        }
        is_open = line.starts_with("///") || line.starts_with("//!");
    }
    found
}

/// A headline says what a thing is, with a noun, or what it does, with a verb.
#[test]
fn headlines_are_no_relative_clauses() {
    let refused = [
        "How", "What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whoever", "Whom",
        "Whose", "Why",
    ];
    let mut broken = Vec::new();
    for (path, text) in files(&["rs", "md"]) {
        for (number, headline) in headlines(&path, &text) {
            let first = headline.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            if refused.contains(&first) {
                broken.push(format!("{}:{number}: {headline}", path.display()));
            }
        }
    }
    none(&broken);
}

/// Comments and pages say what the code does, with the words of the field.
#[test]
fn comments_and_pages_have_the_words_of_the_field() {
    let mut broken = Vec::new();
    for (path, text) in files(&["rs", "md"]) {
        let (is_page, mut is_code) = (path.extension().is_some_and(|it| it == "md"), false);
        for (number, line) in text.lines().enumerate() {
            is_code ^= is_page && line.trim_start().starts_with("```");
            let word = match is_page {
                true if is_code => None,
                true => words::in_prose(line),
                false => words::in_comment(line),
            };
            if let Some(word) = word {
                broken.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

/// Errors, assertions and all that a program prints have the same words.
#[test]
fn texts_have_the_words_of_the_field() {
    let mut broken = Vec::new();
    let own = Path::new(file!()).file_name();
    for (path, text) in files(&["rs"]) {
        let is_of_words = path.file_name() == own || path.ends_with("structure/words.rs");
        let refused = words::in_literals(&text).expect("it is Rust");
        for (text, word) in refused.into_iter().filter(|_| !is_of_words) {
            if !QUOTED.iter().any(|(quoted, _)| text.contains(quoted)) {
                broken.push(format!("{}: {word}: {text:?}", path.display()));
            }
        }
    }
    none(&broken);
}

#[test]
fn headlines_are_the_first_lines_of_comments_and_the_headings_of_pages() {
    let code = "//! A file.\n//! More.\n\n/// A type.\n///\n/// Why.\nstruct A;\n// How.\n";
    assert_eq!(headlines(Path::new("a.rs"), code), [(1, "A file."), (4, "A type.")]);
    let page = "# A page\n\n```sh\n# a comment\n```\n\n## A part\n";
    assert_eq!(headlines(Path::new("a.md"), page), [(1, "A page"), (7, "A part")]);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    let mut broken = Vec::new();
    for (path, text) in files(&["rs", "toml", "md"]) {
        for (number, line) in text.lines().enumerate() {
            let documented = path.ends_with("CONTRIBUTING.md");
            if marks.iter().any(|mark| line.contains(mark.as_str())) && !documented {
                broken.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

/// Returns the lines that a hunk of a patch replaces, with those around them.
fn replaced(hunk: &str) -> String {
    let lines = hunk.lines().skip(1).filter_map(|line| line.strip_prefix([' ', '-']));
    lines.map(|line| format!("{line}\n")).collect()
}

/// `scripts/planted-bugs` takes long and runs seldom; a change of what a patch replaces shows here.
#[test]
fn planted_bugs_can_be_planted() {
    let mut broken = Vec::new();
    for (path, patch) in files(&["patch"]) {
        let file = patch.lines().find_map(|line| line.strip_prefix("--- a/"));
        let file = file.expect("a patch names its file");
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        for hunk in patch.split("\n@@ ").skip(1) {
            let places = text.matches(&*format!("\n{}", replaced(hunk))).count();
            if places != 1 {
                broken.push(format!("{}: {places} places in {file}", path.display()));
            }
        }
    }
    none(&broken);
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let mut broken = Vec::new();
    for (path, text) in files(&["toml"]) {
        let (mut section, mut previous) = ("", "");
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section.ends_with("dependencies]")
                && section != "[workspace.dependencies]"
                && line.contains(" = ")
                && !previous.starts_with('#')
            {
                broken.push(format!("{}: {line}", path.display()));
            }
            previous = line;
        }
    }
    none(&broken);
}

/// The page for those who come from other drivers lists what is missing by the names that it has
/// there. What is public under one of these names is missing no more.
#[test]
fn what_the_guide_says_is_missing_is_missing() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let [front, host] = ["public-api/sdam.txt", "public-api/sdam-host.txt"].map(read);
    // Sessions are the one part of the front that stands there.
    let of_sessions = host.lines().filter(|line| line.contains("::ClientSession<"));
    let paths = front.lines().chain(of_sessions).filter_map(|line| line.split('(').next());
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let public: BTreeSet<&str> = paths.flat_map(|it| it.split(|c| !is_of_name(c))).collect();
    for name in ["start_session", "advance_cluster_time"] {
        assert!(public.contains(name), "the lists are not what they were");
    }
    let page = read("docs/coming-from.md");
    let (_, missing) = page.split_once("\n## Missing features\n").expect("the page has a list");
    let rows = missing.lines().filter(|line| line.starts_with("| ")).skip(2);
    let names = rows.filter_map(|row| row.split('|').nth(2)).flat_map(|it| it.split('`'));
    let names: Vec<&str> =
        names.filter(|it| !it.is_empty() && it.chars().all(is_of_name)).collect();
    assert!(names.len() > 3, "the list has names: {names:?}");
    let there = names.iter().filter(|name| public.contains(**name));
    none(&there.map(|name| format!("docs/coming-from.md: {name} is there")).collect::<Vec<_>>());
}

/// `scripts/public-api compare` compares all that is public; this, which needs no other toolchain,
/// the names that an application meets first.
#[test]
fn the_root_of_the_facade_is_as_it_is_listed() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let source = read("src/lib.rs");
    let used = source.split(';').filter_map(|item| item.split_once("pub use "));
    let used = used
        .flat_map(|(_, used)| used.rsplit("::{").next().unwrap_or(used).split(','))
        .filter_map(|used| used.rsplit([':', ' ']).find(|name| !name.is_empty()))
        .map(|name| name.trim_matches(['}', '\n', ' ']));
    let modules = source.lines().filter_map(|line| line.strip_prefix("pub mod "));
    let modules = modules.map(|module| module.trim_end_matches(';'));
    let names: BTreeSet<&str> = used.chain(modules).filter(|name| !name.is_empty()).collect();
    let listing = read("public-api/sdam.txt");
    let listed: BTreeSet<&str> = listing.lines().filter_map(root_name).collect();
    assert_eq!(names, listed, "run scripts/public-api, and commit what it writes");
}

/// Returns the name that a line lists at the root of the facade.
fn root_name(line: &str) -> Option<&str> {
    let item = line.trim_start_matches("#[non_exhaustive] ").strip_prefix("pub ")?;
    let (kind, path) = item.split_once(" sdam::")?;
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (!kind.contains(' ') && !rest.starts_with("::")).then_some(name)
}
