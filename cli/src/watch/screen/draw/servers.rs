//! The servers: a row for each, with its round trips and its lane, and a line for its error.

use std::time::Duration;

use ratatui::style::{Color, Style};
use ratatui::text::{Line as TextLine, Span};
use sdam_core::description::ServerDescription;
use sdam_core::time::Instant;

use super::{quiet, style};
use crate::duration::{precise, rounded};
use crate::text::{abridged, escaped, of_server, shortened};
use crate::watch::model::{Member, Model, Scale, State};
use crate::watch::screen::controls::{Controls, Focus};

/// The greatest widths of addresses and tags, in characters.
const MAX_ADDRESS_LEN: usize = 40;
const MAX_TAGS_LEN: usize = 24;

/// The widths of the other columns.
const TYPE_LEN: usize = 12;
const TIME_LEN: usize = 8;
const SPARKLINE_LEN: usize = 8;
const LONG_SPARKLINE_LEN: usize = 16;

/// The least and the greatest width of a lane.
const MIN_LANE_LEN: usize = 8;
const MAX_LANE_LEN: usize = 120;

/// The least widths of a screen with sparklines, and with tags.
const WITH_SPARKLINES: usize = 72;
const WITH_TAGS: usize = 110;

/// The time for which an error that is over is shown.
const RECENT: Duration = Duration::from_secs(60);

/// All rows, whether there is room for them or not.
pub(super) struct Table {
    header: [Span<'static>; 2],
    /// The lines of each server.
    rows: Vec<Vec<TextLine<'static>>>,
}

/// The width of each column; there is none where it is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    address: usize,
    server_type: usize,
    time: usize,
    sparkline: usize,
    lane: usize,
    tags: usize,
}

impl Table {
    /// Makes the rows for a screen of this width.
    pub(super) fn new(model: &Model, now: Instant, width: usize) -> Self {
        let columns = Columns::fitting(model, width);
        let scale = Scale::fitting(columns.lane, now);
        let unknown = Member::default();
        let servers = model.view().servers().iter();
        let rows = servers.map(|server| {
            let member = model.member(&server.address).unwrap_or(&unknown);
            let mut lines = vec![row(server, member, &columns, scale)];
            lines.extend(trouble(server, member, now, width));
            lines
        });
        Self { header: header(&columns, scale), rows: rows.collect() }
    }

    /// Returns how many lines there are, with the header.
    pub(super) fn height(&self) -> u16 {
        let lines = 1 + self.rows.iter().map(Vec::len).sum::<usize>();
        u16::try_from(lines).unwrap_or(u16::MAX)
    }

    /// Returns as many lines as there is room for; the last one says how many servers are left out.
    pub(super) fn lines(self, controls: &Controls, height: usize) -> Vec<TextLine<'static>> {
        let (count, all) = (self.rows.len(), usize::from(self.height()));
        let [mut first, rest] = self.header;
        if controls.focus == Focus::Servers {
            first.style = Style::new().bold().reversed();
        }
        let mut lines = vec![TextLine::from(vec![first, rest])];
        if all <= height {
            lines.extend(self.rows.into_iter().flatten());
            return lines;
        }
        let above = controls.servers_above.min(count.saturating_sub(1));
        let (mut room, mut shown) = (height.saturating_sub(2), 0);
        for row in self.rows.into_iter().skip(above) {
            if row.len() > room {
                break;
            }
            (room, shown) = (room - row.len(), shown + 1);
            lines.extend(row);
        }
        let mut left_out = Vec::new();
        if above > 0 {
            left_out.push(format!("{above} above"));
        }
        if above + shown < count {
            left_out.push(format!("{} more", count - above - shown));
        }
        lines.push(TextLine::styled(format!("… {} (Tab, ↑↓)", left_out.join(", ")), quiet()));
        lines
    }
}

impl Columns {
    fn fitting(model: &Model, width: usize) -> Self {
        let servers = model.view().servers();
        let widest = |text: &dyn Fn(&ServerDescription) -> String, least: usize, most: usize| {
            let widths = servers.iter().map(|server| text(server).chars().count());
            widths.max().unwrap_or(0).max(least).min(most)
        };
        let most = MAX_ADDRESS_LEN.min(if width < 60 { width / 2 } else { width / 3 });
        let mut columns = Self {
            address: widest(&address, "ADDRESS".len(), most.max("ADDRESS".len())),
            server_type: TYPE_LEN,
            ..Self::default()
        };
        let with_time = columns.taken() + TIME_LEN <= width;
        columns.time = if with_time { TIME_LEN } else { 0 };
        columns.sparkline = match width {
            ..WITH_SPARKLINES => 0,
            WITH_SPARKLINES..WITH_TAGS => SPARKLINE_LEN,
            WITH_TAGS.. => LONG_SPARKLINE_LEN,
        };
        let has_tags = servers.iter().any(|server| !server.tags.is_empty());
        if width >= WITH_TAGS && has_tags {
            columns.tags = widest(&tags, "TAGS".len(), MAX_TAGS_LEN);
        }
        let lane = width.saturating_sub(columns.taken()).min(MAX_LANE_LEN);
        columns.lane = if lane < MIN_LANE_LEN { 0 } else { lane };
        columns
    }

    /// Returns how much room all columns take, with the spaces between them and behind.
    const fn taken(&self) -> usize {
        let mut taken = self.address + 2 + self.server_type + 2;
        taken += if self.time > 0 { self.time + 2 } else { 0 };
        taken += if self.sparkline > 0 { self.sparkline + 2 } else { 0 };
        taken + if self.tags > 0 { self.tags + 2 } else { 0 }
    }
}

/// Returns the first word of the header, and the rest of it.
fn header(columns: &Columns, scale: Scale) -> [Span<'static>; 2] {
    let Columns { address, server_type, time, sparkline, lane, tags } = *columns;
    let mut rest = format!("{:1$}  {2:server_type$}  ", "", address - "ADDRESS".len(), "TYPE");
    if time > 0 {
        rest += &format!("{:time$}  ", "RTT");
    }
    if sparkline > 0 {
        rest += &format!("{:sparkline$}  ", "");
    }
    if lane > 0 {
        let long = format!("STATE, LAST {}", rounded(scale.span()));
        let text = if long.chars().count() <= lane { long } else { "STATE".to_owned() };
        rest += &format!("{text:lane$}");
    }
    if tags > 0 {
        rest += "  TAGS";
    }
    [Span::styled("ADDRESS", quiet()), Span::styled(rest.trim_end().to_owned(), quiet())]
}

fn row(
    server: &ServerDescription,
    member: &Member,
    columns: &Columns,
    scale: Scale,
) -> TextLine<'static> {
    let Columns { address: width, server_type, time, sparkline, lane, tags: _ } = *columns;
    let address = address(server);
    let address = shortened(&address, width);
    let name = shortened(server.server_type.name(), server_type).into_owned();
    let mut spans = vec![
        Span::raw(format!("{address:width$}  ")),
        Span::styled(format!("{name:server_type$}  "), style(State::of(server))),
    ];
    if time > 0 {
        let text = server.round_trip_time.map_or_else(|| "–".to_owned(), precise);
        spans.push(Span::raw(format!("{text:time$}  ")));
    }
    if sparkline > 0 {
        let bars = member.round_trips.sparkline(sparkline);
        let text = format!("{bars:>sparkline$}  ");
        spans.push(Span::styled(text, Style::new().fg(Color::Blue)));
    }
    if lane > 0 {
        spans.extend(strokes(&member.lane.cells(scale)));
    }
    if columns.tags > 0 {
        spans.push(Span::styled(format!("  {}", tags(server)), quiet()));
    }
    TextLine::from(spans)
}

/// Draws a lane: each run of one state begins with its letter, and goes on with its stroke.
fn strokes(cells: &[Option<State>]) -> Vec<Span<'static>> {
    let runs = cells.chunk_by(|one, next| one == next);
    let drawn = runs.map(|run| match run[0] {
        None => Span::raw(" ".repeat(run.len())),
        Some(state) => {
            let strokes = std::iter::repeat_n(state.stroke(), run.len() - 1);
            let text: String = std::iter::once(state.letter()).chain(strokes).collect();
            Span::styled(text, style(state))
        }
    });
    drawn.collect()
}

/// Says what is wrong and since when; or, for a while, what was wrong and how long that is over.
fn trouble(
    server: &ServerDescription,
    member: &Member,
    now: Instant,
    width: usize,
) -> Option<TextLine<'static>> {
    let (text, style) = match (&server.error, &member.trouble) {
        (Some(error), trouble) => {
            let since = trouble.as_ref().filter(|trouble| trouble.until.is_none());
            let lasts = rounded(since.map_or(Duration::ZERO, |trouble| now - trouble.since));
            let error = error.to_string();
            let error = escaped(of_server(&error, &server.address)).into_owned();
            (format!("  └ failing for {lasts}: {error}"), Style::new().fg(Color::Red))
        }
        (None, Some(trouble)) => {
            let until = trouble.until.filter(|until| now - *until < RECENT)?;
            let (lasted, ago) = (rounded(until - trouble.since), rounded(now - until));
            (format!("  └ back for {ago}, failed for {lasted}: {}", trouble.what), quiet())
        }
        (None, None) => return None,
    };
    Some(TextLine::styled(abridged(&text, width).into_owned(), style))
}

fn address(server: &ServerDescription) -> String {
    escaped(&server.address.to_string()).into_owned()
}

fn tags(server: &ServerDescription) -> String {
    let tags: Vec<String> =
        server.tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    shortened(&escaped(&tags.join(" ")), MAX_TAGS_LEN).into_owned()
}
