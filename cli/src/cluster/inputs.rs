//! The input of the person who runs the deployment: keys on a terminal, else lines.

use std::io::{self, BufRead, IsTerminal, Read};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use tokio::sync::mpsc;

use super::step::{Step, StepError};

/// The help on keys, printed at the beginning.
pub(super) const HELP: &str = "keys: s step down; with the letter of a member: k kill, r start, \
                               d shut down, f freeze, t thaw, c cut from the rest, h heal; a add, \
                               l list, q quit";

/// The maximum length of a line, in bytes without its end.
pub(super) const MAX_LINE: u64 = 1024;

/// The number of inputs that may wait.
const WAITING: usize = 16;

/// The interval at which the thread that reads keys checks that it is still needed.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Step(Step),
    /// It was not understood.
    Wrong(StepError),
    Help,
}

/// The source of inputs; dropping it restores the terminal.
#[derive(Debug)]
pub(super) struct Inputs {
    received: mpsc::Receiver<Input>,
    is_raw: bool,
}

impl Inputs {
    /// Reads keys if standard input is a terminal, and else lines.
    ///
    /// # Errors
    ///
    /// Fails if the terminal does not give single keys.
    pub(super) fn listen() -> io::Result<Self> {
        let is_raw = io::stdin().is_terminal() && io::stdout().is_terminal();
        let (sender, received) = mpsc::channel(WAITING);
        if is_raw {
            restore_on_panic();
            terminal::enable_raw_mode()?;
            thread::spawn(move || read_keys(&sender));
        } else {
            thread::spawn(move || read_lines(io::stdin().lock(), &sender));
        }
        Ok(Self { received, is_raw })
    }

    /// Returns whether keys are read, so that lines must be ended with a carriage return too.
    pub(super) const fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// Waits for the next input; for ever if there are no more.
    pub(super) async fn next(&mut self) -> Input {
        match self.received.recv().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        if self.is_raw {
            // There is no better terminal to complain to.
            let _ = terminal::disable_raw_mode();
        }
    }
}

/// Has a panic, on whatever thread, give the terminal back before it says anything.
fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // There is no better terminal to complain to.
        let _ = terminal::disable_raw_mode();
        before(panic);
    }));
}

/// Reads steps, one in a line, to the end or until the receiver is gone.
pub(super) fn read_lines(mut input: impl BufRead, sender: &mpsc::Sender<Input>) {
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_too_long = line.len() as u64 > MAX_LINE && !line.ends_with(b"\n");
        // What follows in the same line is no step of its own.
        if is_too_long && input.skip_until(b'\n').is_err() {
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let input = match line.trim() {
            _ if is_too_long => Input::Wrong(StepError::Length(MAX_LINE)),
            "" => continue,
            line if line.starts_with('#') => continue,
            "help" => Input::Help,
            line => Step::parse(line).map_or_else(Input::Wrong, Input::Step),
        };
        if sender.blocking_send(input).is_err() {
            return;
        }
    }
}

fn read_keys(sender: &mpsc::Sender<Input>) {
    let mut keys = Keys::default();
    while !sender.is_closed() {
        let input = match event::poll(KEY_TIMEOUT) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        // Without keys, signals still end it.
        let Ok(input) = input else { return };
        if let Event::Key(key) = input
            && let Some(input) = keys.press(&key)
            && sender.blocking_send(input).is_err()
        {
            return;
        }
    }
}

/// The keys that were pressed and await the letter of a member.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The beginning and the end of the step.
    begun: Option<(&'static str, &'static str)>,
}

impl Keys {
    /// Takes a key, and returns what is wanted if it makes an input complete.
    pub(super) fn press(&mut self, key: &KeyEvent) -> Option<Input> {
        if key.kind != KeyEventKind::Press {
            return None;
        }
        let KeyCode::Char(letter) = key.code else {
            self.begun = None;
            return None;
        };
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (letter == 'c').then_some(Input::Step(Step::Quit));
        }
        if let Some((begin, end)) = self.begun.take() {
            let step = Step::parse(&format!("{begin} {letter}{end}"));
            return Some(step.map_or_else(Input::Wrong, Input::Step));
        }
        self.begun = match letter {
            'k' => Some(("kill", "")),
            'r' => Some(("start", "")),
            'd' => Some(("shutdown", "")),
            'f' => Some(("freeze", "")),
            't' => Some(("thaw", "")),
            'c' => Some(("cut", " from the rest")),
            'h' => Some(("heal", "")),
            _ => None,
        };
        match letter {
            's' => Some(Input::Step(Step::Resign)),
            'a' => Some(Input::Step(Step::Add(None))),
            'l' => Some(Input::Step(Step::List)),
            'q' => Some(Input::Step(Step::Quit)),
            _ if self.begun.is_some() => None,
            _ => Some(Input::Help),
        }
    }
}
