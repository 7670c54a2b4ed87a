//! The screen as a person sees it.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use sdam_core::time::Instant;

use super::draw::{self, Moment};
use super::{Wish, wish};
use crate::fixture::{Fixture, member};
use crate::watch::feed::Arrival;
use crate::watch::model::Model;
use crate::watch::story::Story;

const HOSTS: [&str; 2] = ["a:27017", "b:27017"];

/// Draws what has happened so far, and returns the rows of the screen.
fn rows(fixture: &Fixture, dropped: u64, width: u16, height: u16) -> Vec<String> {
    let mut model = Model::new(Story::new(false, fixture.diagnose()), fixture.view());
    for (index, event) in fixture.events.iter().cloned().enumerate() {
        let dropped = if index == 0 { dropped } else { 0 };
        model.feed(&Arrival { event, dropped });
    }
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    let moment = Moment {
        title: "a:27017",
        now: fixture.now(),
        clock: "2026-05-09T03:00:00.000Z".to_owned(),
        color: true,
    };
    let drawn = terminal.draw(|frame| draw::draw(frame, &model, &moment));
    let buffer = drawn.expect("drawing in memory").buffer;
    let row = |y| {
        let symbols = (0..width).map(|x| buffer[(x, y)].symbol());
        symbols.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(row).collect()
}

/// A set of two of which the secondary fails after 10 s.
fn failing_secondary() -> Fixture {
    let mut fixture = Fixture::new("mongodb://a");
    fixture
        .accept("a:27017")
        .at(5)
        .reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], Some(HOSTS[0])));
    fixture.at(6).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
    fixture.at(10_006).refuse("b:27017", "connection reset");
    fixture.refuse("b:27017", "connection refused").at(14_006);
    fixture
}

#[test]
fn the_screen_shows_the_topology_its_members_and_the_last_events() {
    let rows = rows(&failing_secondary(), 0, 90, 16);
    assert_eq!(rows[0], format!("{:64}{}", "sdam watch a:27017", " 2026-05-09 03:00:00Z  14s"));
    assert_eq!(rows[1], "ReplicaSetWithPrimary  set rs0  2 servers, 1 unknown");
    assert_eq!(rows[2], "ADDRESS  TYPE          RTT       CHECKED   TAGS      LAST ERROR");
    assert_eq!(rows[3], "a:27017  RSPrimary     5.00 ms   14s ago   dc:paris");
    assert_eq!(
        rows[4],
        "b:27017  Unknown       –         4s ago              for 4s: connection refused"
    );
    assert!(rows[5].starts_with(" events ─"), "{rows:#?}");
    assert_eq!(
        rows[6..15],
        [
            "  +0.000s  topology  servers +a:27017",
            "  +0.000s  a:27017   opening",
            "  +0.005s  a:27017   Unknown → RSPrimary, primary none → a:27017, tags none → dc:paris",
            "  +0.005s  b:27017   opening",
            "  +0.005s  topology  Unknown → ReplicaSetWithPrimary, setName none → rs0, servers +b:27017",
            "  +0.006s  b:27017   Unknown → RSSecondary, primary none → a:27017, tags none → dc:paris",
            " +10.006s  b:27017   heartbeat failed after 0.00 ms: connection reset",
            " +10.006s  b:27017   RSSecondary → Unknown",
            " +10.006s  b:27017   heartbeat failed after 0.00 ms: connection refused",
        ]
        .map(str::to_owned)
    );
    assert_eq!(rows[15], "q quits");
}

#[test]
fn what_is_cut_is_marked_and_the_last_error_stays_on_a_narrow_screen() {
    let mut fixture = failing_secondary();
    fixture.at(20_006).refuse("b:27017", "connection to the host of b refused, once more");
    let title = rows(&fixture, 0, 40, 20).swap_remove(0);
    assert!(title.starts_with("sdam watch a") && title.contains('…'), "{title}");
    let rows = rows(&fixture, 0, 60, 20);
    assert!(rows[2].ends_with("LAST ERROR") && !rows[2].contains("TAGS"), "{rows:#?}");
    assert!(rows[4].contains('…') && rows[4].ends_with("once more"), "{rows:#?}");
    let log = rows.iter().find(|row| row.contains("+20.006s")).expect("the failure");
    assert!(log.contains('…') && log.ends_with("once more"), "{rows:#?}");
}

#[test]
fn an_error_that_is_over_is_still_shown_with_its_age() {
    let mut fixture = failing_secondary();
    fixture.at(20_006).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
    fixture.at(23_006);
    let rows = rows(&fixture, 0, 110, 16);
    assert!(rows[4].ends_with("dc:paris  for 10s until 3s ago: connection refused"), "{rows:#?}");
}

#[test]
fn that_no_server_is_left_stays_in_sight() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=wrong");
    fixture.at(1).reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], None));
    fixture.at(5_000);
    let before = rows(&fixture, 0, 100, 16);
    assert_eq!(before[1], "ReplicaSetNoPrimary  set wrong  0 servers");
    // The topology has begun again with its seeds by then.
    fixture.at(60_000);
    let later = rows(&fixture, 0, 100, 16);
    for rows in [before, later] {
        let notice = "the servers are in replica set \"rs0\", not in \"wrong\" as asked for;";
        assert!(rows[2].starts_with(notice), "{rows:#?}");
    }
}

#[test]
fn an_incompatible_server_is_an_alert() {
    let mut fixture = Fixture::new("mongodb://a");
    let old = bson::rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 6 };
    fixture.at(1).reply("a:27017", &old);
    let rows = rows(&fixture, 0, 100, 16);
    assert!(rows[2].starts_with("Server at a:27017 reports wire version 6"), "{rows:#?}");
}

#[test]
fn dropped_events_are_counted() {
    let rows = rows(&failing_secondary(), 7, 100, 16);
    assert_eq!(rows[15], "q quits · 7 events were dropped");
}

#[test]
fn members_that_do_not_fit_are_counted_and_tiny_screens_do_no_harm() {
    let hosts: Vec<String> = (0..40).map(|index| format!("h{index:02}")).collect();
    let fixture = Fixture::new(&format!("mongodb://{}", hosts.join(",")));
    let shown = rows(&fixture, 0, 80, 20);
    assert_eq!(shown[11], "… 32 more", "{shown:#?}");
    for (width, height) in [(1, 1), (3, 2), (20, 5), (400, 3)] {
        assert_eq!(rows(&fixture, 0, width, height).len(), usize::from(height));
    }
}

#[test]
fn q_escape_and_control_c_quit_and_a_new_size_redraws() {
    let key = |code, modifiers| Input::Key(KeyEvent::new(code, modifiers));
    let none = KeyModifiers::NONE;
    assert_eq!(wish(&key(KeyCode::Char('q'), none)), Some(Wish::Quit));
    assert_eq!(wish(&key(KeyCode::Esc, none)), Some(Wish::Quit));
    let control_c = key(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(wish(&control_c), Some(Wish::Quit));
    assert_eq!(wish(&key(KeyCode::Char('c'), none)), None);
    assert_eq!(wish(&Input::Resize(80, 24)), Some(Wish::Redraw));
}

#[test]
fn ages_never_go_below_zero() {
    let mut model =
        Model::new(Story::new(false, failing_secondary().diagnose()), failing_secondary().view());
    model.see(failing_secondary().view());
    let mut terminal = Terminal::new(TestBackend::new(80, 12)).expect("a test terminal");
    let moment = Moment { title: "", now: Instant::ZERO, clock: String::new(), color: false };
    let drawn = terminal.draw(|frame| draw::draw(frame, &model, &moment));
    let buffer = drawn.expect("drawing in memory").buffer.clone();
    let text: String = buffer.content().iter().map(Cell::symbol).collect();
    assert!(text.contains("0s ago"), "{text}");
}
