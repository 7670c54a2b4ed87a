//! The pages of `sdam report` in a real browser: Debian's Chromium, without a screen.
//!
//! One browser serves all tests, each with a tab of its own; where there is none they are left out,
//! which is a failure on CI.

mod chromium;
mod hands;
mod looks;
mod pages;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use self::chromium::{Chromium, Outcome};

/// A test in a browser.
type Check = fn(&mut Chromium) -> Outcome<()>;

/// A test with what it is about.
type AnyCheck = Box<dyn FnOnce(&mut Chromium) -> Outcome<()> + Send>;

const CHECKS: [(&str, Check); 9] = [
    ("a_failover_is_seen_at_first_sight", looks::a_failover_is_seen_at_first_sight),
    ("it_is_readable_in_light_and_dark", looks::it_is_readable_in_light_and_dark),
    ("paper_shows_all_of_it", looks::paper_shows_all_of_it),
    ("without_a_script_it_can_be_read", looks::without_a_script_it_can_be_read),
    ("texts_of_others_are_no_markup", looks::texts_of_others_are_no_markup),
    ("the_pointer_shows_the_verdict", hands::the_pointer_shows_the_verdict),
    ("keys_move_and_zoom", hands::keys_move_and_zoom),
    ("the_wheel_and_dragging_zoom", hands::the_wheel_and_dragging_zoom),
    ("marks_lead_to_lines", hands::marks_lead_to_lines),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let Some(binary) = Chromium::find() else {
        eprintln!("left out: the tests in a browser, for want of chromium, as Debian has it");
        return match std::env::var_os("CI").is_some_and(|value| value == "true") {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        };
    };
    let browser = match Chromium::start(&binary) {
        Ok(browser) => Arc::new(Mutex::new(browser)),
        Err(error) => {
            eprintln!("{} does not start: {error}", binary.display());
            return ExitCode::FAILURE;
        }
    };
    let trial = |name: String, check: AnyCheck| {
        let browser = Arc::clone(&browser);
        Trial::test(name, move || {
            let mut browser = browser.lock().unwrap_or_else(PoisonError::into_inner);
            check(&mut browser).map_err(|error| Failed::from(error.to_string()))
        })
    };
    let mut trials: Vec<Trial> =
        CHECKS.iter().map(|(name, check)| trial((*name).to_owned(), Box::new(check))).collect();
    for source in pages::kept() {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let check = move |browser: &mut Chromium| looks::a_kept_incident(browser, &source);
        trials.push(trial(format!("a_kept_incident::{name}"), Box::new(check)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
