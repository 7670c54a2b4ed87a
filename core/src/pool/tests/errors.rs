//! The texts of errors ("Connection Pool Errors").

use std::time::Duration;

use super::{CheckOutError, Command, Fixture, Input};
use crate::operation::RETRYABLE;
use crate::pool::Obstacle;

#[test]
fn errors_say_what_the_specification_demands() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.clear(false);
    fixture.check_out(1);
    fixture.input(Input::Close);
    fixture.check_out(2);
    let texts: Vec<String> = fixture.errors.iter().map(ToString::to_string).collect();
    let expected = [
        "Connection pool for h:27017 was cleared because another operation failed with: the \
         server closed the connection",
        "Attempted to check out a connection from closed connection pool of h:27017",
    ];
    assert_eq!(texts, expected);
}

/// Two that were turned away for the same reason say so in the same words, so that equal lines can
/// be counted.
#[test]
fn the_place_in_the_queue_is_a_field_and_not_in_the_text() {
    let texts = [1, 30].map(|behind| {
        let obstacle = Obstacle::Queued { behind, in_use: 2, pending: 1 };
        let (address, waited) = ("h".parse().unwrap(), Duration::from_millis(300));
        CheckOutError::Timeout { address, waited, obstacle, in_use: None, verdict: None }
            .to_string()
    });
    assert_eq!(texts[0], texts[1]);
    let end = "after 300 ms: it was queued, with 2 connections in use and 1 being established";
    assert!(texts[0].ends_with(end), "{}", texts[0]);
}

/// "MUST be considered a retryable error": what a pool says before it has tried the server.
#[test]
fn being_turned_away_by_a_paused_pool_is_retryable_and_a_time_out_is_not() {
    let mut fixture = Fixture::new(|_| {});
    fixture.check_out(1);
    fixture.input(Input::Command(Command::Ready));
    fixture.clear(false);
    fixture.check_out(2);
    fixture.input(Input::Close);
    fixture.check_out(3);
    let labels: Vec<bool> =
        fixture.errors.iter().map(|error| error.labels().contains(&RETRYABLE)).collect();
    assert_eq!(labels, [true, true, false]);
    assert!(matches!(fixture.errors[0], CheckOutError::NotReady { .. }));
}

/// Sixty operations at once, and connections that take 2 s each: it is not the size of the pool.
#[test]
fn a_time_out_while_connections_are_being_established_says_so() {
    let mut fixture = Fixture::ready(|options| {
        options.wait_queue_timeout = Some(Duration::from_millis(1500));
    });
    (1..=60).for_each(|waiter| fixture.check_out(waiter));
    fixture.at(1500);
    assert_eq!(fixture.errors.len(), 60);
    for error in &fixture.errors {
        let CheckOutError::Timeout { verdict: Some(verdict), .. } = error else {
            panic!("{error}")
        };
        assert_eq!(verdict.name(), "establishmentSlow");
        let text = error.to_string();
        let cause = "connections to h:27017 take 1.5 s to establish, and only 2 are established at \
                     a time, while 0 of 100 are in use";
        assert!(text.contains(cause) && text.contains("not maxPoolSize"), "{text}");
    }
}

#[test]
fn a_time_out_of_a_pool_that_is_full_is_about_its_size() {
    let mut fixture = Fixture::lending(2, |options| {
        options.max_pool_size = 2;
        options.wait_queue_timeout = Some(Duration::from_millis(300));
    });
    fixture.check_out(3);
    fixture.at(300);
    let [CheckOutError::Timeout { verdict: None, .. }] = &fixture.errors[..] else {
        panic!("{:?}", fixture.errors)
    };
}
