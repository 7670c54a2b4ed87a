//! The live view on a terminal: the alternate screen, and when it is drawn again. `controls` are
//! the keys, and `draw` makes of the model what is seen.

mod controls;
mod draw;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod picture;
#[cfg(test)]
mod tests;

use std::io;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input};
use ratatui::crossterm::terminal;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_host::EVENT_LIMIT;
use sdam_tokio::Topology;
use tokio::sync::mpsc;

use self::controls::{Controls, Wish};
use self::draw::Moment;
use super::feed::Feed;
use super::model::{Model, Verdicts};
use super::story::Story;
use crate::duration::rfc_3339;
use crate::shutdown::Shutdown;

/// The interval at which ages are drawn again.
const TICK: Duration = Duration::from_secs(1);

/// The shortest time between two drawings.
const REST: Duration = Duration::from_millis(30);

/// The interval at which the thread that reads keys checks that it is still needed.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

/// Shows the deployment until the user or `shutdown` ends it; returns the story so far.
///
/// The terminal is restored in any case, panics included.
///
/// # Errors
///
/// Fails if the terminal cannot be drawn on.
pub(super) async fn show(
    client: &Topology,
    feed: &mut Feed,
    shutdown: &mut Shutdown,
    mut story: Story,
    (title, color): (&str, bool),
) -> io::Result<Story> {
    // A moment after the client's own clock has started, so that no age comes out too high.
    let started = StdInstant::now();
    shutdown.on_end(restore);
    let mut screen = Screen::enter()?;
    let mut inputs = read_inputs();
    let mut model = Model::new(client.view());
    let mut controls = Controls::default();
    // What is shown while it is paused.
    let mut frozen: Option<(Model, Instant)> = None;
    let mut tick = tokio::time::interval(TICK);
    loop {
        for _ in 0..EVENT_LIMIT {
            let Some(arrival) = feed.try_next() else {
                break;
            };
            model.feed(&arrival, story.describe(&arrival.event));
        }
        let now = Instant::ZERO + started.elapsed();
        model.see(now, client.view());
        model.judge(verdicts(client));
        if !controls.is_paused {
            frozen = None;
        } else if frozen.is_none() {
            frozen = Some((model.clone(), now));
        }
        let (shown, at) = frozen.as_ref().map_or((&model, now), |(model, at)| (model, *at));
        let clock = rfc_3339(client.wall_clock(at));
        let moment = Moment { title, now: at, clock, color };
        screen.0.draw(|frame| draw::draw(frame, shown, &controls, &moment))?;
        tokio::time::sleep(REST).await;
        tokio::select! {
            arrival = feed.next() => match arrival {
                Some(arrival) => model.feed(&arrival, story.describe(&arrival.event)),
                None => break,
            },
            Some(input) = inputs.recv() => match controls.take(&input, shown) {
                Wish::Redraw | Wish::Nothing => {}
                Wish::Quit => break,
            },
            _ = tick.tick() => {}
            () = shutdown.reached() => break,
        }
    }
    Ok(story)
}

/// Asks why operations would find no server now.
fn verdicts(client: &Topology) -> Verdicts {
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let why_not = |criteria| client.diagnose(criteria).map(|error| error.verdict.sentence());
    Verdicts { write: why_not(&Criteria::write()), read: why_not(&any) }
}

/// Leaves the alternate screen, if it was entered.
fn restore() {
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
fn read_inputs() -> mpsc::Receiver<Input> {
    let (sender, receiver) = mpsc::channel(16);
    thread::spawn(move || {
        while !sender.is_closed() {
            let input = match event::poll(KEY_TIMEOUT) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            // Without keys, signals still end the watch.
            let Ok(input) = input else { return };
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    });
    receiver
}
