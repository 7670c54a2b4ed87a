//! The live view on a terminal: the alternate screen, its keys, and when it is drawn anew.

mod draw;
#[cfg(test)]
mod tests;

use std::io;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use sdam_core::time::Instant;
use sdam_host::EVENT_LIMIT;
use sdam_tokio::Client;
use tokio::sync::mpsc;

use self::draw::Moment;
use super::feed::Feed;
use super::json::rfc_3339;
use super::model::Model;
use super::story::Story;
use crate::shutdown::Shutdown;

/// The interval at which ages are drawn anew.
const TICK: Duration = Duration::from_secs(1);

/// The shortest time between two drawings.
const REST: Duration = Duration::from_millis(30);

/// The interval at which the thread that reads keys checks that it is still needed.
const KEY_PATIENCE: Duration = Duration::from_millis(200);

/// A request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Redraw,
}

/// Shows the deployment until the user or `shutdown` ends it; returns the story so far.
///
/// The terminal is restored in any case, panics included.
///
/// # Errors
///
/// Fails if the terminal cannot be drawn on.
pub(super) async fn show(
    client: &Client,
    feed: &mut Feed,
    shutdown: &mut Shutdown,
    story: Story,
    (title, color): (&str, bool),
) -> io::Result<Story> {
    // A moment after the client's own clock has started, so that no age comes out too high.
    let started = StdInstant::now();
    let mut screen = Screen::enter()?;
    let mut wishes = read_keys();
    let mut model = Model::new(story, client.view());
    let mut tick = tokio::time::interval(TICK);
    loop {
        for _ in 0..EVENT_LIMIT {
            let Some(arrival) = feed.try_next() else {
                break;
            };
            model.feed(&arrival);
        }
        model.see(client.view());
        let now = Instant::ZERO + started.elapsed();
        let clock = rfc_3339(client.wall_clock(now));
        let moment = Moment { title, now, clock, color };
        screen.0.draw(|frame| draw::draw(frame, &model, &moment))?;
        tokio::time::sleep(REST).await;
        tokio::select! {
            arrival = feed.next() => match arrival {
                Some(arrival) => model.feed(&arrival),
                None => break,
            },
            Some(wish) = wishes.recv() => match wish {
                Wish::Redraw => {}
                Wish::Quit => break,
            },
            _ = tick.tick() => {}
            () = shutdown.reached() => break,
        }
    }
    Ok(model.into_story())
}

/// Leaves the alternate screen, if it was entered.
pub(crate) fn restore() {
    if terminal::is_raw_mode_enabled().unwrap_or(false) {
        // There is no better terminal to complain to.
        let _ = ratatui::try_restore();
    }
}

/// The alternate screen; dropping it restores the terminal, and a panic does too.
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        let entered = ratatui::try_init().map(Self);
        if entered.is_err() {
            restore();
        }
        entered
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Reads keys and resizes on a thread of their own, which ends after the receiver.
fn read_keys() -> mpsc::Receiver<Wish> {
    let (sender, receiver) = mpsc::channel(16);
    thread::spawn(move || {
        while !sender.is_closed() {
            let input = match event::poll(KEY_PATIENCE) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            // Without keys, signals still end the watch.
            let Ok(input) = input else { return };
            if let Some(wish) = wish(&input)
                && sender.blocking_send(wish).is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn wish(input: &Input) -> Option<Wish> {
    match input {
        Input::Resize(..) => Some(Wish::Redraw),
        Input::Key(key) if key.kind == KeyEventKind::Press => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            let quits = match key.code {
                KeyCode::Esc | KeyCode::Char('q' | 'Q') => true,
                KeyCode::Char('c') => control,
                _ => false,
            };
            quits.then_some(Wish::Quit)
        }
        _ => None,
    }
}
