//! The single-threaded mode: selections ask the machine first, and connections that were idle are
//! checked (Server Selection, "Checking an Idle Socket After socketCheckIntervalMS").

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task};
use super::puppet::take_link;
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::error::Error;
use crate::sync::lock;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::operation::Timeout;
use sdam_core::pool::CheckOutError;
use sdam_core::selection::Criteria;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// Runs a command, in any time it takes.
async fn find(fixture: &Fixture) -> Result<(), Error> {
    let (criteria, find) = (Arc::new(Criteria::write()), rawdoc! { "find": "x" });
    fixture.host.run_command("test", &find, criteria, Timeout::Unset).await.map(drop)
}

/// A client that has used its only connection, and the time is five seconds later.
fn idle(options: &str) -> Fixture {
    let fixture = Fixture::single_threaded(options);
    fixture.run(find(&fixture)).unwrap();
    fixture.pass(FIVE_SECONDS);
    lock(&fixture.server.commands).clear();
    fixture
}

/// Returns the names of the commands that the server has received since.
fn commands(fixture: &Fixture) -> Vec<String> {
    let commands = lock(&fixture.server.commands);
    let name =
        |command: &bson::RawDocumentBuf| command.iter().next().unwrap().unwrap().0.to_string();
    commands.iter().map(name).collect()
}

fn server_type(fixture: &Fixture) -> ServerType {
    fixture.host.view().servers()[0].server_type
}

#[test]
fn a_connection_that_was_idle_for_5_s_is_checked_with_ping_before_it_is_used() {
    let fixture = idle("");
    fixture.run(find(&fixture)).unwrap();
    assert_eq!(commands(&fixture), ["ping", "find"]);
    fixture.pass(FIVE_SECONDS - Duration::from_millis(1));
    fixture.run(find(&fixture)).unwrap();
    assert_eq!(commands(&fixture), ["ping", "find", "find"], "not idle for long enough");
}

#[test]
fn clients_that_monitor_in_the_background_check_no_connection() {
    let fixture = Fixture::new("");
    fixture.run(find(&fixture)).unwrap();
    fixture.pass(FIVE_SECONDS);
    fixture.run(find(&fixture)).unwrap();
    assert_eq!(commands(&fixture), ["isMaster", "find", "find"]);
}

/// "If not, set the server's type to Unknown […] and attempt once more to select a server."
#[test]
fn a_dead_connection_makes_its_server_unknown_and_a_server_is_selected_once_more() {
    let fixture = idle("");
    fixture.server.resets.store(true, Ordering::Relaxed);
    let mut task = Task::new(find(&fixture));
    assert!(task.poll().is_pending(), "it waits for a scan");
    assert_eq!(server_type(&fixture), ServerType::Unknown);
    fixture.server.resets.store(false, Ordering::Relaxed);
    let link = take_link(&fixture.host);
    link.opened();
    Fixture::answer(&link);
    while task.poll().is_pending() {
        assert!(task.was_woken() || fixture.establish(), "it hangs");
    }
    assert_eq!(commands(&fixture), ["isMaster", "find"], "over a new connection");
    assert_eq!(server_type(&fixture), ServerType::Standalone);
}

#[test]
fn the_second_selection_may_fail() {
    let fixture = idle("");
    fixture.server.resets.store(true, Ordering::Relaxed);
    let mut task = Task::new(find(&fixture));
    assert!(task.poll().is_pending());
    take_link(&fixture.host).closed(Failure::new(Step::Connect, Cause::Refused, "refused"));
    let Poll::Ready(Err(error)) = task.poll() else { panic!("an answer") };
    assert!(error.as_selection().is_some(), "{error}");
}

#[test]
fn whoever_checks_out_without_selecting_is_told_so() {
    let fixture = idle("");
    fixture.server.resets.store(true, Ordering::Relaxed);
    let error = fixture.run(fixture.pool().check_out()).unwrap_err();
    assert!(matches!(error.as_check_out(), Some(CheckOutError::IdleConnection { .. })), "{error}");
    assert_eq!(server_type(&fixture), ServerType::Unknown);
    assert_eq!(fixture.pool().counts().total(), 0, "the pool is cleared");
}

#[test]
fn ping_is_waited_for_no_longer_than_a_check_and_silence_counts_against_the_server() {
    let fixture = idle("&connectTimeoutMS=700");
    fixture.server.mute.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let mut task = Task::new(pool.check_out());
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_millis(700));
    let Poll::Ready(Err(error)) = task.poll() else { panic!("an answer") };
    assert!(matches!(error.as_check_out(), Some(CheckOutError::IdleConnection { .. })), "{error}");
    assert_eq!(server_type(&fixture), ServerType::Unknown);
}

#[test]
fn an_operation_that_has_no_more_time_says_nothing_of_the_server() {
    let fixture = idle("");
    fixture.server.mute.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let pool = pool.with_deadline(Some(fixture.now() + Duration::from_millis(300)));
    let mut task = Task::new(pool.check_out());
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_millis(300));
    let Poll::Ready(Err(_)) = task.poll() else { panic!("an answer") };
    assert_eq!(server_type(&fixture), ServerType::Standalone);
}

#[test]
fn a_server_that_answers_ping_with_an_error_has_answered() {
    let fixture = idle("");
    *lock(&fixture.server.reply) = Some(rawdoc! { "ok": 0, "code": 1, "errmsg": "no" });
    assert!(fixture.run(fixture.pool().check_out()).is_ok());
    assert_eq!(commands(&fixture), ["ping"]);
}

/// Server Monitoring, "Scanning": it is the host that lets every operation ask the machine.
#[test]
fn a_selection_asks_the_machine_first_even_if_the_view_has_a_server() {
    let fixture = Fixture::single_threaded("");
    let criteria = Arc::new(Criteria::write());
    assert!(fixture.run(fixture.host.select(&criteria, None)).is_ok());
    fixture.pass(Duration::from_secs(60));
    let mut task = Task::new(fixture.host.select(&criteria, None));
    assert!(task.poll().is_pending());
    fixture.heartbeat();
    assert!(matches!(task.poll(), Poll::Ready(Ok(_))));
}

/// Server Selection, "Single-threaded server selection": "When serverSelectionTryOnce is true,
/// server selection timeouts have no effect"; the limit of the operation itself holds.
#[test]
fn the_time_out_of_selections_has_no_effect_with_try_once() {
    let short = "&serverSelectionTimeoutMS=700";
    let patient = format!("{short}&serverSelectionTryOnce=false");
    let limited = format!("{short}&timeoutMS=900");
    for (options, most) in [(short, None), (&patient, Some(700)), (&limited, Some(900))] {
        let fixture = Fixture::single_threaded(options);
        fixture.pass(Duration::from_secs(60));
        let client = Topology::from_host(Arc::clone(&fixture.host));
        let mut task = Task::new(client.select(Criteria::write()));
        assert!(task.poll().is_pending());
        fixture.pass(Duration::from_millis(most.unwrap_or(9000) - 1));
        assert!(task.poll().is_pending(), "{options}");
        fixture.pass(Duration::from_millis(1));
        // What is known already is of use when there is no time for more.
        assert_eq!(task.poll().is_ready(), most.is_some(), "{options}");
    }
}

/// The operation has more time than a check: that the time for the check has passed says something
/// of the server.
#[test]
fn silence_counts_against_the_server_while_the_operation_has_time() {
    let fixture = idle("&connectTimeoutMS=700");
    fixture.server.mute.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let pool = pool.with_deadline(Some(fixture.now() + Duration::from_secs(5)));
    let mut task = Task::new(pool.check_out());
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_millis(700));
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    assert_eq!(server_type(&fixture), ServerType::Unknown);
}
