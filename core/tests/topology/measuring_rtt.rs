//! Server Monitoring, "Measuring RTT", in virtual time.

use bson::rawdoc;
use sdam_core::topology::Input;

use super::fixture::{fresh, ms, standalone};
use super::monitoring::streaming;

#[test]
fn measuring_rtt_uses_handshakes_and_the_second_connection_but_not_streamed_replies() {
    let mut fixture = streaming();
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(5)));
    assert_eq!(fixture.server("a").min_round_trip_time, ms(0), "one sample is too few");
    fixture.at(100).opened("a.1").at(130).quiet().reply("a.1", &standalone());
    assert_eq!(fixture.log(), [""; 0], "an RTT command publishes nothing");
    fixture.at(4000).stream("a.0", &fresh(standalone(), 2));
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(10)), "(30 + 4 * 5) / 5");
    assert_eq!(fixture.server("a").min_round_trip_time, ms(5));
    fixture.quiet().at(10_129);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(10_130);
    assert_eq!(fixture.log(), ["send a.1 hello"], "a heartbeat frequency after the last one");
}

#[test]
fn measuring_rtt_errors_change_nothing_and_the_next_measurement_reconnects() {
    let mut fixture = streaming();
    fixture.greet("a.1", &standalone()).at(10_006).quiet().reply("a.1", &rawdoc! { "ok": 0 });
    assert_eq!(fixture.log(), ["close a.1"]);
    assert_eq!(fixture.summary(), "Single a=Standalone");
    fixture.at(15_000).stream("a.0", &fresh(standalone(), 1)).quiet().at(20_006);
    assert_eq!(fixture.log(), ["open a.2"]);
    fixture.at(30_006);
    assert!(fixture.log().contains(&"close a.2".into()), "it has a time-out of its own");
}

#[test]
fn measuring_rtt_a_failed_check_forgets_what_was_measured() {
    let mut fixture = streaming();
    fixture.at(100).opened("a.1").at(130).reply("a.1", &standalone());
    fixture.closed("a.0");
    assert_eq!(fixture.server("a").round_trip_time, None);
    assert_eq!(fixture.links(), ["a.2"], "the second connection is gone with the first");
    fixture.at(200).opened("a.2").at(207).reply("a.2", &standalone());
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(7)));
}

#[test]
fn measuring_rtt_whole_or_torn_replies_are_the_same() {
    let run = |torn: bool| {
        let mut fixture = streaming();
        fixture.opened("a.1").at(30);
        let flags = sdam_core::wire::Flags::NONE;
        let (mut one, two) = (
            fixture.answer("a.1", &standalone(), flags),
            fixture.answer("a.1", &standalone(), flags),
        );
        let link = fixture.link("a.1");
        if !torn {
            one.extend(&two);
        }
        fixture.quiet().input(Input::Received { link, bytes: &one });
        if torn {
            fixture.input(Input::Received { link, bytes: &two });
        }
        fixture.log()
    };
    assert_eq!(run(true), ["close a.1"], "nothing asked for a second reply");
    assert_eq!(run(false), run(true));
}

#[test]
fn measuring_rtt_a_connection_that_is_lost_puts_the_next_measurement_off_only_while_it_measures() {
    let mut fixture = streaming();
    fixture.at(100).opened("a.1").at(130).reply("a.1", &standalone());
    fixture.at(5000).stream("a.0", &fresh(standalone(), 2)).quiet().closed("a.1");
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(10_130);
    assert_eq!(fixture.log(), ["open a.2"], "as if it was not lost");
    fixture.opened("a.2").at(10_140).quiet().closed("a.2");
    fixture.at(15_000).stream("a.0", &fresh(standalone(), 3)).quiet().at(20_139);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(20_140);
    assert_eq!(fixture.log(), ["open a.3"]);
}

#[test]
fn measuring_rtt_begins_no_check_and_a_check_that_times_out_measures_nothing() {
    let mut fixture = streaming();
    fixture.at(100).greet("a.1", &standalone()).at(4000).reply("a.0", &standalone());
    fixture.quiet().at(10_100);
    assert_eq!(fixture.log(), ["send a.1 hello"], "the next check is due at 14 s");
    let mut fixture = streaming();
    fixture.at(100).greet("a.1", &standalone()).at(15_000).reply("a.1", &standalone());
    fixture.quiet().at(20_006);
    let log = fixture.log();
    assert!(log.contains(&"close a.0".into()) && log.contains(&"close a.1".into()), "{log:?}");
    assert!(!log.contains(&"send a.1 hello".into()), "{log:?}");
}
