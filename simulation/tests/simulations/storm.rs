//! Storms of restarts: how soon all clients are back, and what backpressure does to it (Client
//! Backpressure; Connection Monitoring and Pooling, "Backpressure-enabled"). The runner has them
//! with ten thousand clients: `sdam-simulation storm`.

use std::time::Duration;

use sdam_simulation::storm::{Report, Shedding, Storm};

const CLIENTS: u32 = 200;

/// Lets one happen, shows what came of it, and demands that all clients read again.
fn run(storm: &Storm) -> (Report, Duration) {
    let report = storm.run();
    println!("{}\n{report}", Report::headline());
    let after = report.after(1.0).expect("all are back");
    assert_eq!((report.while_down.accepted, report.while_down.lost), (0, 0), "it was down");
    (report, after)
}

/// The member can log in a tenth of the clients in a second, and each has connections for two tasks
/// established at a time: that takes 20 s.
#[test]
fn all_clients_are_back_as_soon_as_the_member_can_log_them_in_and_pools_are_not_cleared() {
    let (report, after) = run(&Storm::new(CLIENTS));
    assert!(after < Duration::from_secs(22), "{after:?}");
    assert!(report.after(0.5).is_some_and(|half| half < Duration::from_secs(11)));
    assert_eq!(report.pools_cleared, u64::from(CLIENTS), "each once, when the member was gone");
    let each = report.arrivals.attempts() / u64::from(CLIENTS);
    assert!(each <= 60, "{each} connections were wanted by each");
    let peak = report.arrivals.peak() / u64::from(CLIENTS);
    assert!(peak <= 10, "{peak} of them within a second");
}

#[test]
fn without_backpressure_pools_are_cleared_again_and_again_and_it_takes_longer() {
    let (_, known) = run(&Storm::new(CLIENTS));
    let (report, hidden) = run(&Storm::new(CLIENTS).with_overload_hidden());
    assert!(hidden > known * 3 / 2, "{hidden:?}, and {known:?} with backpressure");
    assert!(report.pools_cleared > 3 * u64::from(CLIENTS), "{}", report.pools_cleared);
}

#[test]
fn what_is_closed_at_hello_clears_no_pool_and_what_is_closed_at_login_does() {
    let (at_hello, _) = run(&Storm::new(CLIENTS).with_shedding(Shedding::AtHello));
    let (at_login, _) = run(&Storm::new(CLIENTS).with_shedding(Shedding::AtLogin));
    assert!(at_hello.arrivals.closed > u64::from(CLIENTS) && at_login.arrivals.refused_logins > 0);
    assert_eq!(at_hello.pools_cleared, u64::from(CLIENTS), "each once, when the member was gone");
    assert!(at_login.pools_cleared > 2 * u64::from(CLIENTS), "{}", at_login.pools_cleared);
}

#[test]
fn the_same_seed_shows_the_same_storm_and_another_seed_another_one() {
    let storm = |seed| Storm::new(20).with_tasks(1).with_seed(seed).run();
    assert_eq!(storm(1), storm(1), "something but the seed decides");
    assert_ne!(storm(1).recovered, storm(2).recovered, "the seed does not matter");
}
