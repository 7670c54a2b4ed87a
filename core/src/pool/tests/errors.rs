//! What the errors say ("Connection Pool Errors").

use super::{CheckOutError, Command, Input, Scene};
use crate::operation::RETRYABLE;

#[test]
fn errors_say_what_the_specification_demands() {
    let mut scene = Scene::ready(|_| {});
    scene.clear(false);
    scene.check_out(1);
    scene.tell(Input::Close);
    scene.check_out(2);
    let texts: Vec<String> = scene.errors.iter().map(ToString::to_string).collect();
    let expected = [
        "Connection pool for h:27017 was cleared because another operation failed with: the \
         server closed the connection",
        "Attempted to check out a connection from closed connection pool of h:27017",
    ];
    assert_eq!(texts, expected);
}

/// "MUST be considered a retryable error": what a pool says before it has tried the server.
#[test]
fn being_turned_away_by_a_paused_pool_is_retryable_and_a_time_out_is_not() {
    let mut scene = Scene::new(|_| {});
    scene.check_out(1);
    scene.tell(Input::Command(Command::Ready));
    scene.clear(false);
    scene.check_out(2);
    scene.tell(Input::Close);
    scene.check_out(3);
    let labels: Vec<bool> =
        scene.errors.iter().map(|error| error.labels().contains(&RETRYABLE)).collect();
    assert_eq!(labels, [true, true, false]);
    assert!(matches!(scene.errors[0], CheckOutError::NotReady { .. }));
}
