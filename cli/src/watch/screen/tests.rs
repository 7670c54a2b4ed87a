//! The screen as a person sees it. `UPDATE_SNAPSHOTS=1` rewrites the snapshots.

use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::controls::{Controls, Focus, KEYS, Wish};
use super::draw::Moment;
use super::failover::{Failover, drawn, text};
use crate::fixture::{Fixture, member};
use crate::watch::feed::Arrival;
use crate::watch::model::{Model, State, Verdicts};
use crate::watch::story::Story;

const HOSTS: [&str; 2] = ["a:27017", "b:27017"];

/// Compares a screen with the one that is kept.
fn compare(name: &str, screen: &Buffer) {
    let name = format!("{name}-{}x{}.txt", screen.area.width, screen.area.height);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/watch/screen/snapshots").join(&name);
    let made = text(screen);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &made).expect("a snapshot can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("there is a snapshot");
    assert!(kept == made, "{name} was\n{kept}\nand is\n{made}");
}

fn moment(now: Instant) -> Moment<'static> {
    let clock = "2026-05-09T03:00:00.000Z".to_owned();
    Moment { title: "a:27017", now, clock, color: true }
}

/// Returns a model of what has happened so far.
fn model(fixture: &Fixture, dropped: u64) -> Model {
    let (mut story, mut model) =
        (Story::new(false, fixture.diagnose()), Model::new(fixture.view()));
    for (index, event) in fixture.events.iter().cloned().enumerate() {
        let lines = story.describe(&event);
        let dropped = if index == 0 { dropped } else { 0 };
        model.feed(&Arrival { event, dropped }, lines);
    }
    model.see(fixture.now(), fixture.view());
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let why_not = |criteria| fixture.error(criteria).map(|error| error.verdict.sentence());
    model.judge(Verdicts { write: why_not(&Criteria::write()), read: why_not(&any) });
    model
}

/// Draws what has happened so far, and returns the rows of the screen.
fn rows(fixture: &Fixture, dropped: u64, width: u16, height: u16) -> Vec<String> {
    let model = model(fixture, dropped);
    let moment = moment(fixture.now());
    lines(&drawn(&model, &Controls::default(), &moment, width, height))
}

fn lines(screen: &Buffer) -> Vec<String> {
    text(screen).lines().map(str::to_owned).collect()
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
    fixture.refuse("b:27017", "b:27017: connection refused").at(14_006);
    fixture
}

#[test]
fn a_failover_at_every_size_looks_as_it_did() {
    let usual = Controls::default();
    let over = Failover::until(54_000);
    for (width, height) in [(80, 24), (160, 50), (60, 24)] {
        compare("after", &over.draw(&usual, width, height));
    }
    let during = Failover::until(23_000);
    for (width, height) in [(80, 24), (160, 50)] {
        compare("during", &during.draw(&usual, width, height));
    }
    let helped = Controls { shows_help: true, ..Controls::default() };
    compare("help", &over.draw(&helped, 80, 24));
    let special = Controls {
        is_paused: true,
        filter: "db2".to_owned(),
        is_writing: true,
        ..Controls::default()
    };
    compare("filtered", &over.draw(&special, 80, 24));
}

#[test]
fn at_80_columns_nothing_that_matters_is_cut() {
    let rows = lines(&Failover::until(23_000).draw(&Controls::default(), 80, 24));
    for expected in [
        "no primary for 2s; the last one was db1.example:27017",
        "writes fail: the replica set has had no primary for 2.4 s; wait for the",
        "reads find a server",
        "  └ failing for 2s: Connection refused",
    ] {
        assert!(rows.iter().any(|row| row == expected), "{expected:?} is not in {rows:#?}");
    }
    // But for the seeds, which rows show again.
    let mut others = rows.iter().skip(1).filter(|row| !row.contains("→ ReplicaSetNoPrimary, se…"));
    assert!(!others.any(|row| row.contains('…')), "{rows:#?}");
    let after = lines(&Failover::until(54_000).draw(&Controls::default(), 80, 24));
    let elected = "primary db2.example:27017 for 29s, elected after 3.60 s without one";
    assert!(after.iter().any(|row| row == elected), "{after:#?}");
}

#[test]
fn no_event_says_what_goes_without_saying() {
    let over = Failover::until(54_000);
    let lines = over.model.lines("");
    // That a server goes on failing as it did is no event, either.
    assert!(lines.len() < 25, "{lines:#?}");
    for (_, line) in lines {
        let text = &line.text;
        assert!(!text.contains("topologyVersion") && !text.contains("none"), "{text}");
        assert!(!text.contains(&line.subject), "{}: {text}", line.subject);
    }
}

#[test]
fn states_are_distinct_without_colours() {
    let over = Failover::until(54_000);
    let now = moment(Instant::from_millis(54_000));
    let plain = Moment { color: false, ..now };
    let screen = drawn(&over.model, &Controls::default(), &plain, 80, 24);
    let is_plain = |cell: &Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
    assert!(screen.content.iter().all(is_plain));
    let rows = lines(&screen);
    let lane = rows.iter().find(|row| row.starts_with("db1.example")).expect("a row");
    for run in ["P━━", "x╌╌", "S──"] {
        assert!(lane.contains(run), "{lane}");
    }
    let mut letters: Vec<char> = State::ALL.map(State::letter).to_vec();
    letters.sort_unstable();
    letters.dedup();
    assert_eq!(letters.len(), State::ALL.len());
}

#[test]
fn what_is_cut_is_marked() {
    let mut fixture = failing_secondary();
    let failure = "connection to the host of b refused, for a reason as long as this, once more";
    fixture.at(20_006).refuse("b:27017", failure);
    let title = rows(&fixture, 0, 40, 20).swap_remove(0);
    assert!(title.starts_with("sdam watch a") && title.contains('…'), "{title}");
    let rows = rows(&fixture, 0, 60, 20);
    let line = rows.iter().filter(|row| row.contains('…') && row.ends_with("once more"));
    assert_eq!(line.count(), 2, "{rows:#?}");
}

#[test]
fn the_reason_of_a_failure_is_left_when_there_is_no_room_for_all_of_it() {
    let mut fixture = failing_secondary();
    fixture.at(20_006).refuse("b:27017", "the server closed the connection");
    let last = |width| rows(&fixture, 0, width, 20).iter().rfind(|row| row.contains("+2")).cloned();
    let whole =
        " +20.006s  b:27017   heartbeat failed after 0.00 ms: the server closed the connection";
    assert_eq!(last(90).as_deref(), Some(whole));
    let brief = " +20.006s  b:27017   the server closed the connection";
    assert_eq!(last(60).as_deref(), Some(brief));
}

#[test]
fn an_error_that_is_over_is_still_shown_for_a_minute() {
    let mut fixture = failing_secondary();
    fixture.at(20_006).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
    fixture.at(23_006);
    let line = "  └ back for 3s, failed for 10s: connection refused";
    assert!(rows(&fixture, 0, 110, 16).iter().any(|row| row == line));
    fixture.reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0]))).at(80_006);
    assert!(!rows(&fixture, 0, 110, 16).iter().any(|row| row.contains("back for")));
}

#[test]
fn that_no_server_is_left_stays_in_sight_and_is_said_once() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=wrong");
    fixture.at(1).reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], None));
    fixture.at(5_000);
    let before = rows(&fixture, 0, 100, 16);
    assert_eq!(before[1], "ReplicaSetNoPrimary  set wrong  0 servers");
    // The topology has begun again with its seeds by then.
    fixture.at(60_000);
    let later = rows(&fixture, 0, 100, 16);
    for rows in [before, later] {
        let notice = "the servers are in replica set \"rs0\", not in \"wrong\"";
        let above = rows.iter().take_while(|row| !row.starts_with("ADDRESS"));
        assert_eq!(above.filter(|row| row.contains(notice)).count(), 1, "{rows:#?}");
    }
}

#[test]
fn an_incompatible_server_is_an_alert() {
    let mut fixture = Fixture::new("mongodb://a");
    let old = bson::rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 6 };
    fixture.at(1).reply("a:27017", &old);
    let rows = rows(&fixture, 0, 100, 16);
    let alert = "writes and reads fail: Server at a:27017 reports wire version 6";
    assert!(rows[2].starts_with(alert), "{rows:#?}");
}

#[test]
fn dropped_events_are_counted() {
    let rows = rows(&failing_secondary(), 7, 100, 16);
    assert!(rows[15].ends_with(" · 7 events were dropped"), "{rows:#?}");
}

#[test]
fn members_that_do_not_fit_are_counted_and_can_be_scrolled_to() {
    let hosts: Vec<String> = (0..40).map(|index| format!("h{index:02}")).collect();
    let fixture = Fixture::new(&format!("mongodb://{}", hosts.join(",")));
    let model = model(&fixture, 0);
    let screen =
        |controls: &Controls| lines(&drawn(&model, controls, &moment(fixture.now()), 80, 20));
    let mut controls = Controls::default();
    assert!(screen(&controls).iter().any(|row| row == "… 32 more (Tab, ↑↓)"));
    press(&mut controls, &model, &[KeyCode::Tab, KeyCode::End]);
    let rows = screen(&controls);
    assert!(rows.iter().any(|row| row.starts_with("h39:27017")), "{rows:#?}");
    assert!(rows.iter().any(|row| row == "… 39 above (Tab, ↑↓)"), "{rows:#?}");
    press(&mut controls, &model, &[KeyCode::Home, KeyCode::Down]);
    assert!(screen(&controls).iter().any(|row| row == "… 1 above, 31 more (Tab, ↑↓)"));
}

#[test]
fn no_size_does_harm() {
    let over = Failover::until(24_000);
    let mut controls = Controls::default();
    for (width, height) in [(1, 1), (3, 2), (20, 5), (400, 3), (20, 50), (79, 1), (33, 9)] {
        assert_eq!(over.draw(&controls, width, height).area.width, width);
        controls.shows_help = !controls.shows_help;
        controls.is_writing = controls.shows_help;
    }
    for width in 0..130 {
        over.draw(&controls, width.max(1), 12);
    }
}

fn press(controls: &mut Controls, model: &Model, codes: &[KeyCode]) -> Vec<Wish> {
    let key = |code: &KeyCode| Input::Key(KeyEvent::new(*code, KeyModifiers::NONE));
    codes.iter().map(|code| controls.take(&key(code), model)).collect()
}

#[test]
fn q_and_control_c_quit_and_a_new_size_redraws() {
    let (model, mut controls) = (model(&failing_secondary(), 0), Controls::default());
    assert_eq!(press(&mut controls, &model, &[KeyCode::Char('q')]), [Wish::Quit]);
    assert_eq!(press(&mut controls, &model, &[KeyCode::Char('c')]), [Wish::Nothing]);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(controls.take(&Input::Key(control_c), &model), Wish::Quit);
    assert_eq!(controls.take(&Input::Resize(80, 24), &model), Wish::Redraw);
    assert_eq!(controls, Controls::default());
}

#[test]
fn escape_leaves_one_thing_after_the_other_and_then_the_view() {
    let (model, mut controls) = (model(&failing_secondary(), 0), Controls::default());
    press(&mut controls, &model, &[KeyCode::Char(' '), KeyCode::Char('?')]);
    assert!(controls.is_paused && controls.shows_help);
    assert_eq!(press(&mut controls, &model, &[KeyCode::Esc]), [Wish::Redraw]);
    assert!(controls.is_paused && !controls.shows_help);
    let wishes = press(&mut controls, &model, &[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(wishes, [Wish::Redraw, Wish::Quit]);
}

#[test]
fn a_filter_shows_only_what_contains_it() {
    let (model, mut controls) = (model(&failing_secondary(), 0), Controls::default());
    let typed = "/REFUsed!".chars().map(KeyCode::Char).collect::<Vec<_>>();
    press(&mut controls, &model, &typed);
    press(&mut controls, &model, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!((controls.filter.as_str(), controls.is_writing), ("REFUsed", false));
    let now = moment(Instant::from_millis(14_006));
    let rows = lines(&drawn(&model, &controls, &now, 80, 20));
    let title = rows.iter().position(|row| row.starts_with(" events ")).expect("a title");
    assert!(rows[title].starts_with(" events with \"REFUsed\", 1 of 10 "), "{rows:#?}");
    assert!(rows[title + 1].ends_with("connection refused"), "{rows:#?}");
    assert_eq!(rows[title + 2], "");
    // A q is a letter while it is written.
    assert_eq!(press(&mut controls, &model, &[KeyCode::Char('/'), KeyCode::Char('q')]).len(), 2);
    assert_eq!(controls.filter, "REFUsedq");
    press(&mut controls, &model, &[KeyCode::Esc]);
    assert_eq!(controls, Controls::default());
}

#[test]
fn events_can_be_scrolled_and_stay_where_they_are() {
    let mut over = Failover::until(54_000);
    let mut controls = Controls::default();
    press(&mut controls, &over.model, &[KeyCode::Up, KeyCode::Up]);
    let before = lines(&over.draw(&controls, 80, 24));
    assert!(before.iter().any(|row| row.starts_with(" events · 2 newer below ")), "{before:#?}");
    over.push_lines(3);
    let after = lines(&over.draw(&controls, 80, 24));
    assert!(after.iter().any(|row| row.starts_with(" events · 5 newer below ")), "{after:#?}");
    assert_eq!(before[22], after[22]);
    press(&mut controls, &over.model, &[KeyCode::Home]);
    let first = lines(&over.draw(&controls, 80, 24));
    assert!(first.iter().any(|row| row.contains("+0.000s  topology")), "{first:#?}");
    press(&mut controls, &over.model, &[KeyCode::PageDown, KeyCode::End]);
    assert_eq!(controls, Controls::default());
}

#[test]
fn every_key_in_the_help_does_something() {
    let over = Failover::until(24_000);
    for (keys, _) in KEYS {
        for name in keys.split_whitespace() {
            let code = match name {
                "Ctrl-C" => continue,
                "space" => KeyCode::Char(' '),
                "Esc" => KeyCode::Esc,
                "Tab" => KeyCode::Tab,
                "↑" => KeyCode::Up,
                "↓" => KeyCode::Down,
                "PgUp" => KeyCode::PageUp,
                "PgDn" => KeyCode::PageDown,
                "Home" => KeyCode::Home,
                "End" => KeyCode::End,
                letter => KeyCode::Char(letter.chars().next().expect("a letter")),
            };
            let mut controls = Controls { focus: Focus::Servers, ..Controls::default() };
            let wishes = press(&mut controls, &over.model, &[code]);
            assert_ne!(wishes, [Wish::Nothing], "{name}");
        }
    }
}

#[test]
fn ages_never_go_below_zero() {
    let model = model(&failing_secondary(), 0);
    let screen = drawn(&model, &Controls::default(), &moment(Instant::ZERO), 80, 20);
    assert!(text(&screen).contains("failing for 0s: connection refused"));
}
