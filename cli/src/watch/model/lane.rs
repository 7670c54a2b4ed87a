//! The states of a server over the last minutes, as cells of a line.

use std::collections::VecDeque;
use std::time::Duration;

use sdam_core::description::{ServerDescription, ServerType};
use sdam_core::time::Instant;

/// The longest time that a lane shows.
const LONGEST: Duration = Duration::from_secs(600);

/// The times that a cell may stand for, in milliseconds, from the least.
const CELLS: [u64; 13] =
    [500, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 8000, 10_000, 15_000, 30_000, 60_000];

/// The number of changes that are kept; older ones would only be shown of a server that does little
/// else.
const MAX_CHANGES: usize = 2000;

/// The state of a server, as far as operations care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Primary,
    Secondary,
    Standalone,
    Mongos,
    LoadBalancer,
    Arbiter,
    Other,
    Ghost,
    /// It was not checked yet.
    Unchecked,
    /// Its last check has failed.
    Failing,
}

impl State {
    /// All states, each once.
    pub(crate) const ALL: [Self; 10] = [
        Self::Primary,
        Self::Secondary,
        Self::Standalone,
        Self::Mongos,
        Self::LoadBalancer,
        Self::Arbiter,
        Self::Other,
        Self::Ghost,
        Self::Unchecked,
        Self::Failing,
    ];

    /// Returns the state that a description shows.
    pub(crate) fn of(server: &ServerDescription) -> Self {
        Self::of_type(server.server_type, server.error.is_some())
    }

    /// Returns the state of a server of this type, whose last check may have failed.
    pub(crate) const fn of_type(server_type: ServerType, has_failed: bool) -> Self {
        match server_type {
            ServerType::RsPrimary => Self::Primary,
            ServerType::RsSecondary => Self::Secondary,
            ServerType::Standalone => Self::Standalone,
            ServerType::Mongos => Self::Mongos,
            ServerType::LoadBalancer => Self::LoadBalancer,
            ServerType::RsArbiter => Self::Arbiter,
            ServerType::RsGhost => Self::Ghost,
            ServerType::Unknown if has_failed => Self::Failing,
            ServerType::Unknown => Self::Unchecked,
            _ => Self::Other,
        }
    }

    /// Returns the letter that a run of the state begins with.
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Primary => 'P',
            Self::Secondary => 'S',
            Self::Standalone => '1',
            Self::Mongos => 'M',
            Self::LoadBalancer => 'L',
            Self::Arbiter => 'A',
            Self::Other => 'O',
            Self::Ghost => 'G',
            Self::Unchecked => '?',
            Self::Failing => 'x',
        }
    }

    /// Returns what a run of the state goes on with.
    pub(crate) const fn stroke(self) -> char {
        match self {
            Self::Primary => '━',
            Self::Failing => '╌',
            Self::Unchecked => '·',
            _ => '─',
        }
    }

    /// Returns what the letter stands for.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Standalone => "standalone",
            Self::Mongos => "mongos",
            Self::LoadBalancer => "load balancer",
            Self::Arbiter => "arbiter",
            Self::Other => "other member",
            Self::Ghost => "in no set yet",
            Self::Unchecked => "not checked yet",
            Self::Failing => "failing",
        }
    }
}

/// The states of one server, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane(VecDeque<(Instant, State)>);

impl Lane {
    /// Takes notice of the state from `at` on, or from the last change on if that is later.
    pub(super) fn note(&mut self, at: Instant, state: State) {
        let last = self.0.back().copied();
        if last.is_some_and(|(_, known)| known == state) {
            return;
        }
        self.0.push_back((last.map_or(at, |(before, _)| at.max(before)), state));
        let is_old = |change: &(Instant, State)| at - change.0 > LONGEST;
        while self.0.len() > MAX_CHANGES || self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    /// Returns whether no state was ever noted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the state in each cell of a scale: the worst in its time, else the last one; `None`
    /// before the server was there.
    pub(crate) fn cells(&self, scale: Scale) -> Vec<Option<State>> {
        (0..scale.width).map(|cell| self.within(scale.begin_of(cell), scale.end_of(cell))).collect()
    }

    fn within(&self, begin: Option<Instant>, end: Instant) -> Option<State> {
        worst_within(self.0.iter().copied(), begin?, end)
    }
}

/// Returns the state that a cell shows: the worst in its time, else the last one; `None` before the
/// first change.
pub(crate) fn worst_within(
    changes: impl IntoIterator<Item = (Instant, State)>,
    begin: Instant,
    end: Instant,
) -> Option<State> {
    let mut state = None;
    for (at, new) in changes.into_iter().take_while(|(at, _)| *at < end) {
        // A failure is over only if its end is not in this cell.
        state = match state {
            Some(State::Failing) if at > begin => state,
            _ => Some(new),
        };
    }
    state
}

/// The time that each cell of a lane stands for; the last one contains now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    width: usize,
    cell: u64,
    /// The number of the last cell since the start.
    last: u64,
}

impl Scale {
    /// Shows all the time since the start on so many cells, or the last minutes of it.
    ///
    /// Cells begin at multiples of their length, so that what they show moves on and does not
    /// flicker.
    pub(crate) fn fitting(width: usize, now: Instant) -> Self {
        let (millis, cells) = (now.since_origin().as_millis() as u64, width.max(1) as u64);
        let wanted = millis.min(LONGEST.as_millis() as u64);
        let longest = CELLS[CELLS.len() - 1];
        let cell = CELLS.into_iter().find(|cell| cell * cells > wanted).unwrap_or(longest);
        Self { width, cell, last: millis / cell }
    }

    /// Returns how much time all cells stand for.
    pub(crate) const fn span(self) -> Duration {
        Duration::from_millis(self.cell * self.width as u64)
    }

    /// Returns when a cell begins; `None` if that is before the start.
    fn begin_of(self, cell: usize) -> Option<Instant> {
        let number = (self.last + 1 + cell as u64).checked_sub(self.width as u64)?;
        Some(Instant::from_millis(number * self.cell))
    }

    fn end_of(self, cell: usize) -> Instant {
        let number = (self.last + 2 + cell as u64).saturating_sub(self.width as u64);
        Instant::from_millis(number * self.cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lane: &Lane, width: usize, now: u64) -> String {
        let cells = lane.cells(Scale::fitting(width, Instant::from_millis(now)));
        cells.into_iter().map(|cell| cell.map_or(' ', State::letter)).collect()
    }

    fn lane(changes: &[(u64, State)]) -> Lane {
        let mut lane = Lane::default();
        for (at, state) in changes {
            lane.note(Instant::from_millis(*at), *state);
        }
        lane
    }

    #[test]
    fn each_cell_shows_its_time_and_the_last_one_now() {
        let lane = lane(&[(0, State::Unchecked), (600, State::Secondary), (3000, State::Primary)]);
        assert_eq!(drawn(&lane, 8, 0), "       ?");
        assert_eq!(drawn(&lane, 8, 600), "      ?S");
        assert_eq!(drawn(&lane, 8, 3499), " ?SSSSSP");
        // Twice as much time in each.
        assert_eq!(drawn(&lane, 8, 4000), "   SSSPP");
    }

    #[test]
    fn a_failure_is_seen_however_short_it_was() {
        let failing = (10_100, State::Failing);
        let lane = lane(&[(0, State::Primary), failing, (10_150, State::Secondary)]);
        assert_eq!(drawn(&lane, 5, 24_000), "PPxSS");
        // Its cell alone, not the next one.
        assert_eq!(drawn(&lane, 5, 10_160), " PPPx");
    }

    #[test]
    fn a_failure_that_ends_in_the_next_cell_is_in_both() {
        let failing = (9_900, State::Failing);
        let lane = lane(&[(0, State::Primary), failing, (10_200, State::Secondary)]);
        assert_eq!(drawn(&lane, 5, 24_000), "PxxSS");
    }

    #[test]
    fn ten_minutes_are_shown_and_no_more_changes_kept_than_fit() {
        let mut long = Lane::default();
        for second in 0..10_000 {
            let state = if second % 2 == 0 { State::Primary } else { State::Secondary };
            long.note(Instant::from_millis(second * 1000), state);
        }
        assert!(long.0.len() <= 602, "{}", long.0.len());
        let scale = Scale::fitting(60, Instant::from_millis(9_999_000));
        assert_eq!(scale.span(), Duration::from_secs(900));
        assert_eq!(Scale::fitting(100, Instant::ZERO).span(), Duration::from_secs(50));
        assert!(long.cells(Scale::fitting(0, Instant::ZERO)).is_empty());
    }
}
