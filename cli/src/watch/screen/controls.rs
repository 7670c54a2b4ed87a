//! The keys of the live view: what they change of what is shown.

use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::watch::model::Model;
use crate::watch::story::Line;

/// The lines of a page.
const PAGE: usize = 10;

/// The greatest length of a filter, in characters.
const MAX_FILTER_LEN: usize = 60;

/// Every key, and what it does.
pub(super) const KEYS: [(&str, &str); 9] = [
    ("q  Ctrl-C", "quit"),
    ("?", "this help"),
    ("space  p", "pause, and go on"),
    ("/", "show only events that contain a text"),
    ("Esc", "drop the filter, go on, go to the last event; else quit"),
    ("↑ ↓  k j", "scroll the events, or the servers"),
    ("PgUp PgDn", "scroll ten lines"),
    ("Home End", "the first line, the last line"),
    ("Tab", "scroll the servers, or the events again"),
];

/// A request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Redraw,
    Nothing,
}

/// The part that keys scroll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    Events,
    Servers,
}

/// The user's choice of what to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Controls {
    /// `true` if the screen stays as it is.
    pub(super) is_paused: bool,
    /// `true` if the keys are explained.
    pub(super) shows_help: bool,
    /// The part that keys scroll.
    pub(super) focus: Focus,
    /// The number of the last event that is shown; `None` if that is always the newest one.
    pub(super) bottom: Option<u64>,
    /// The number of servers that are scrolled past.
    pub(super) servers_above: usize,
    /// The text that events have to contain.
    pub(super) filter: String,
    /// `true` while the filter is being written.
    pub(super) is_writing: bool,
}

impl Controls {
    /// Does what a key, or a new size of the terminal, asks for.
    pub(super) fn take(&mut self, input: &Input, model: &Model) -> Wish {
        match input {
            Input::Resize(..) => Wish::Redraw,
            Input::Key(key) if key.kind != KeyEventKind::Release => self.press(key, model),
            _ => Wish::Nothing,
        }
    }

    fn press(&mut self, key: &KeyEvent, model: &Model) -> Wish {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control {
            return match key.code {
                KeyCode::Char('c') => Wish::Quit,
                _ => Wish::Nothing,
            };
        }
        if self.is_writing {
            return self.write(key.code);
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return Wish::Quit,
            KeyCode::Esc => return self.leave(),
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => (self.is_writing, self.shows_help) = (true, false),
            KeyCode::Tab => {
                self.focus = match self.focus {
                    Focus::Events => Focus::Servers,
                    Focus::Servers => Focus::Events,
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll(model, 1, true),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(model, 1, false),
            KeyCode::PageUp => self.scroll(model, PAGE, true),
            KeyCode::PageDown => self.scroll(model, PAGE, false),
            KeyCode::Home => self.scroll(model, usize::MAX, true),
            KeyCode::End => self.scroll(model, usize::MAX, false),
            _ => return Wish::Nothing,
        }
        Wish::Redraw
    }

    fn write(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Enter => self.is_writing = false,
            KeyCode::Esc => {
                self.is_writing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(c) if self.filter.chars().count() < MAX_FILTER_LEN => self.filter.push(c),
            _ => return Wish::Nothing,
        }
        self.bottom = None;
        Wish::Redraw
    }

    /// Leaves what is special about what is shown, or the view if nothing is.
    fn leave(&mut self) -> Wish {
        let usual = Self::default();
        let is_usual = *self == usual;
        if self.shows_help {
            self.shows_help = false;
        } else {
            *self = usual;
        }
        match is_usual {
            true => Wish::Quit,
            false => Wish::Redraw,
        }
    }

    fn scroll(&mut self, model: &Model, by: usize, is_up: bool) {
        let moved = |from: usize| match is_up {
            true => from.saturating_sub(by),
            false => from.saturating_add(by),
        };
        match self.focus {
            Focus::Servers => {
                let last = model.view().servers().len().saturating_sub(1);
                self.servers_above = moved(self.servers_above).min(last);
            }
            Focus::Events => {
                let lines = model.lines(&self.filter);
                let Some(last) = lines.len().checked_sub(1) else { return };
                let to = moved(self.last_shown(&lines)).clamp(PAGE.min(last), last);
                self.bottom = Some(lines[to].0).filter(|_| to < last);
            }
        }
    }

    /// Returns the index of the last line that is shown, of those that may be.
    pub(super) fn last_shown(&self, lines: &[(u64, &Line)]) -> usize {
        let last = lines.len().saturating_sub(1);
        let Some(bottom) = self.bottom else { return last };
        lines.partition_point(|(number, _)| *number <= bottom).saturating_sub(1).min(last)
    }
}
