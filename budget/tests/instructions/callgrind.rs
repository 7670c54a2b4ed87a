//! Counts of instructions, by callgrind.

use std::collections::BTreeMap;
use std::process::Command;
use std::{env, fs};

use crate::measured::TOGGLE;

/// Instructions by their place: a module of ours, or a crate of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) total: u64,
    pub(crate) parts: BTreeMap<String, u64>,
}

/// Says why nothing can be counted on this machine, if so.
pub(crate) fn missing() -> Option<String> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(version) if version.status.success() => None,
        Ok(version) => Some(format!("valgrind --version has failed: {}", version.status)),
        Err(error) => Some(format!("valgrind cannot be run ({error}): apt-get install valgrind")),
    }
}

/// Counts what one bench takes each time, in a process of its own.
pub(crate) fn count(bench: &str) -> Result<Count, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("callgrind.out");
    let this = env::current_exe().map_err(|error| error.to_string())?;
    let valgrind = Command::new("valgrind")
        .args(["--tool=callgrind", "--dump-line=no", "--compress-strings=no"])
        .args([format!("--toggle-collect={TOGGLE}")])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(this)
        .args(["measure", bench])
        // Nothing that is measured looks at the environment, which lies on the stack.
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}"))?;
    if !valgrind.status.success() {
        let said = String::from_utf8_lossy(&valgrind.stderr);
        return Err(format!("valgrind ended with {}:\n{said}", valgrind.status));
    }
    let said = String::from_utf8_lossy(&valgrind.stdout);
    let times = said.trim().parse().map_err(|_| format!("no count of repetitions: {said:?}"))?;
    let profile = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    read(&profile, times)
}

/// Reads what callgrind has written of work that was done so many times.
fn read(profile: &str, times: u64) -> Result<Count, String> {
    let (mut own, mut function, mut is_of_call) = (BTreeMap::new(), "", false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            is_of_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && let Some(instructions) = line.split(' ').nth(1)
            // What a callee took follows its line, and counts there.
            && !std::mem::take(&mut is_of_call)
        {
            let instructions: u64 =
                instructions.parse().map_err(|_| format!("this is no count: {line:?}"))?;
            *own.entry(place(function)).or_default() += instructions;
        }
    }
    let total: u64 = own.values().sum();
    if total == 0 || times == 0 {
        return Err(format!("nothing was counted: {TOGGLE} is the name of no function"));
    }
    let parts = own.into_iter().map(|(place, instructions)| (place, instructions / times));
    Ok(Count { total: total / times, parts: parts.filter(|(_, count)| *count > 0).collect() })
}

/// Returns the place of a function: the module at the top of one of our crates, another crate, or
/// C.
fn place(function: &str) -> String {
    let path = function.trim_start_matches(['<', '&', '*', '(', '[']);
    let path = path.strip_prefix("mut ").or(path.strip_prefix("dyn ")).unwrap_or(path);
    let path = path.split(|end: char| !end.is_alphanumeric() && end != '_' && end != ':').next();
    let mut segments = path.unwrap_or_default().split("::");
    match (segments.next(), segments.next()) {
        (Some(ours), Some(module)) if ours.starts_with("sdam_") => format!("{ours}::{module}"),
        (Some("instructions"), _) => "(streams in memory)".to_owned(),
        (Some(theirs), Some(_)) => theirs.to_owned(),
        (Some(name), None) if ["malloc", "free", "alloc"].iter().any(|it| name.contains(it)) => {
            "(malloc and free)".to_owned()
        }
        _ => "(C)".to_owned(),
    }
}
