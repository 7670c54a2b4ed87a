//! Budgets of instructions: each bench is counted by callgrind, and fails if it takes over 3 % more
//! than its budget in `instructions-dev.txt`, or `instructions-release.txt`. Others are compared
//! with each other. See `README.md`.

mod benches;
mod budgets;
mod callgrind;
mod in_memory;
mod measured;
mod server;

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Trial};

use benches::{BENCHES, Bench, COMPARED, GROWTHS, Growth, Most};
use budgets::{Budgets, Verdict, compiler};
use callgrind::Count;

/// The file of budgets of this profile.
const FILE: &str =
    if cfg!(debug_assertions) { "instructions-dev.txt" } else { "instructions-release.txt" };

/// The variable that has the budgets written in place of being judged by.
const UPDATE: &str = "UPDATE_BUDGETS";

/// The counts of this run.
type Counted = Arc<Mutex<BTreeMap<&'static str, Count>>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [measure, name] = &arguments[..]
        && measure == "measure"
    {
        let bench = BENCHES.iter().chain(COMPARED).find(|bench| bench.name == name);
        let bench = bench.expect("a name of a bench");
        println!("{}", (bench.run)());
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let budgets = Arc::new(Budgets::read(&text).expect("a file of budgets"));
    let missing = callgrind::missing();
    let (counted, updates) = (Counted::default(), env::var_os(UPDATE).is_some());
    let trial = |bench: &'static Bench| {
        let (budgets, counted) = (Arc::clone(&budgets), Arc::clone(&counted));
        let trial = Trial::test(bench.name, move || {
            let count = callgrind::count(bench.name)?;
            let verdict = budgets.judge(bench.name, &count, &compiler());
            lock(&counted).insert(bench.name, count);
            match verdict {
                Verdict::Above(text) if !updates => Err(text.into()),
                Verdict::Below(text) => {
                    eprint!("\n{text}");
                    Ok(())
                }
                Verdict::Above(_) | Verdict::Within => Ok(()),
            }
        });
        trial.with_ignored_flag(missing.is_some())
    };
    let compared = |growth: &'static Growth| {
        let trial = Trial::test(growth.name, move || compare(growth).map_err(Into::into));
        trial.with_ignored_flag(missing.is_some())
    };
    let trials = BENCHES.iter().map(trial).chain(GROWTHS.iter().map(compared)).collect();
    let passed = !libtest_mimic::run(&arguments, trials).has_failed();
    if let Some(missing) = missing {
        eprintln!("left out: {missing}");
        let on_ci = env::var_os("CI").is_some_and(|value| value == "true");
        return if on_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    if updates {
        let mut new = Budgets::clone(&budgets);
        new.compiler = compiler();
        let counted = lock(&counted).clone();
        new.counts.extend(counted.into_iter().map(|(name, count)| (name.to_owned(), count)));
        let text = new.write(BENCHES.iter().map(|bench| bench.name));
        std::fs::write(&path, text).expect("the file of budgets can be written");
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts the same with few servers and with many, and fails if that of many is too high.
fn compare(growth: &Growth) -> Result<(), String> {
    let (Growth { few, many, .. }, most) = (growth, growth.most());
    let (of_few, of_many) = (callgrind::count(few)?.total, callgrind::count(many)?.total);
    let (times, more) = (of_many as f64 / of_few as f64, of_many.saturating_sub(of_few));
    let text = format!(
        "{many}: {of_many} instructions, {times:.2} times the {of_few} of {few}, or {more} more"
    );
    match most {
        Most::Times(most) if times > most => {
            return Err(format!("{text}; {most} times as many are allowed"));
        }
        Most::More(most) if more > most => {
            return Err(format!("{text}; {most} more are allowed"));
        }
        Most::Times(_) | Most::More(_) => {}
    }
    eprintln!("\n{text}");
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
