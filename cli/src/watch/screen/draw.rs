//! Draws a model: the topology, a row for each member, and what has happened last.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, Wrap};
use sdam_core::description::{ServerDescription, ServerType, TopologyType};
use sdam_core::time::Instant;

use crate::duration::{precise, rounded};
use crate::text::{abridged, escaped, shortened};
use crate::watch::model::Model;
use crate::watch::story::{Line, Tone};

/// The maximum width of addresses and tags, in characters.
const MAX_ADDRESS_LEN: usize = 40;
const MAX_TAGS_LEN: usize = 24;

/// The minimum width of errors and events, in characters.
const MIN_TEXT_LEN: usize = 24;

/// The space between two columns.
const SPACING: u16 = 2;

/// The number of lines of an incompatibility or a notice that are shown.
const ALERT_HEIGHT: u16 = 3;

/// The inputs of a drawing besides the model.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    /// The title: the deployment that is watched.
    pub(super) title: &'a str,
    /// Now, by the machine's clock.
    pub(super) now: Instant,
    /// Now, by the wall clock.
    pub(super) clock: String,
    /// True if to use colours.
    pub(super) color: bool,
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, moment: &Moment<'_>) {
    let alert = alert(model);
    let members = u16::try_from(model.view().servers().len()).unwrap_or(u16::MAX);
    // The events keep at least half of the screen.
    let most = (frame.area().height / 2).max(3);
    let [title, topology, alert_area, table, log, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(if alert.is_some() { ALERT_HEIGHT } else { 0 }),
        Constraint::Length(members.saturating_add(1).min(most)),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, moment);
    frame.render_widget(topology_line(model), topology);
    if let Some(alert) = alert {
        let alert = Paragraph::new(alert).wrap(Wrap { trim: true });
        frame.render_widget(alert.red().bold(), alert_area);
    }
    draw_members(frame, table, model, moment.now);
    draw_log(frame, log, model);
    frame.render_widget(footer_line(model), footer);
    if !moment.color {
        for cell in &mut frame.buffer_mut().content {
            cell.set_fg(Color::Reset).set_bg(Color::Reset);
        }
    }
}

/// Returns the condition that prevents all operations, if there is one.
fn alert(model: &Model) -> Option<String> {
    let incompatibility = model.view().incompatibility.as_ref();
    incompatibility
        .map(|incompatibility| escaped(&incompatibility.to_string()).into_owned())
        .or_else(|| model.notice().map(ToOwned::to_owned))
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, moment: &Moment<'_>) {
    let elapsed = rounded(moment.now.since_origin());
    // Milliseconds would only flicker.
    let clock = moment.clock.split('.').next().unwrap_or_default();
    let clock = format!(" {}Z  {elapsed}", clock.replace('T', " "));
    let width = u16::try_from(clock.len()).unwrap_or(u16::MAX);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(area);
    let command = "sdam watch ";
    let title = escaped(moment.title);
    let title = abridged(&title, usize::from(left.width).saturating_sub(command.len()));
    let title = TextLine::from(vec![command.bold(), Span::raw(title)]);
    frame.render_widget(title, left);
    frame.render_widget(TextLine::from(clock).dark_gray(), right);
}

fn topology_line(model: &Model) -> TextLine<'static> {
    let view = model.view();
    let color = match view.topology_type {
        TopologyType::Unknown => Color::DarkGray,
        TopologyType::ReplicaSetNoPrimary => Color::Yellow,
        _ => Color::Green,
    };
    let mut spans = vec![Span::from(view.topology_type.name()).fg(color).bold()];
    if let Some(name) = &view.set_name {
        spans.push("  set ".dark_gray());
        spans.push(escaped(name).into_owned().bold());
    }
    let count = view.servers().len();
    let unknown = view.servers().iter().filter(|server| is_unknown(server));
    let unknown = unknown.count();
    spans.push(format!("  {count} server{}", if count == 1 { "" } else { "s" }).into());
    if unknown > 0 {
        spans.push(format!(", {unknown} unknown").red());
    }
    spans.into()
}

fn is_unknown(server: &ServerDescription) -> bool {
    server.server_type == ServerType::Unknown
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, model: &Model, now: Instant) {
    let servers = model.view().servers();
    let space = usize::from(area.height.saturating_sub(1));
    let mut more = None;
    let shown = match servers.len() > space {
        true => space.saturating_sub(1),
        false => servers.len(),
    };
    let mut address_len = "ADDRESS".len();
    if shown < servers.len() {
        let rest = format!("… {} more", servers.len() - shown);
        address_len = address_len.max(rest.chars().count());
        more = Some(rest);
    }
    let widest = |text: &dyn Fn(&ServerDescription) -> String, least: usize| {
        let widths = servers.iter().map(|server| text(server).chars().count());
        widths.max().unwrap_or(0).max(least)
    };
    let widths = [widest(&address, address_len), 12, 8, 8, widest(&tags, "TAGS".len())];
    let columns = columns(&widths, usize::from(area.width));
    let spacing = usize::from(SPACING);
    let taken: usize = columns.iter().map(|column| widths[*column] + spacing).sum();
    let error_len = usize::from(area.width).saturating_sub(taken);
    let mut rows: Vec<Row<'_>> = servers
        .iter()
        .take(shown)
        .map(|server| member(model, server, now, &columns, error_len))
        .collect();
    rows.extend(more.map(|rest| Row::new([rest.dark_gray()])));
    let header = ["ADDRESS", "TYPE", "RTT", "CHECKED", "TAGS"];
    let header = columns.iter().map(|column| header[*column]).chain(["LAST ERROR"]);
    let header = Row::new(header).style(Style::new().dark_gray());
    let lengths = columns
        .iter()
        .map(|column| Constraint::Length(u16::try_from(widths[*column]).unwrap_or(u16::MAX)));
    let widths: Vec<Constraint> = lengths.chain([Constraint::Fill(1)]).collect();
    let table = Table::new(rows, widths).header(header).column_spacing(SPACING);
    frame.render_widget(table, area);
}

/// Returns which columns there is room for beside the last error, which matters more than some.
fn columns(widths: &[usize; 5], width: usize) -> Vec<usize> {
    let mut columns = vec![0, 1, 2, 3, 4];
    for expendable in [4, 3, 2] {
        let taken: usize =
            columns.iter().map(|column| widths[*column] + usize::from(SPACING)).sum();
        if taken + MIN_TEXT_LEN <= width {
            break;
        }
        columns.retain(|column| *column != expendable);
    }
    columns
}

fn address(server: &ServerDescription) -> String {
    let address = server.address.to_string();
    shortened(&escaped(&address), MAX_ADDRESS_LEN).into_owned()
}

fn tags(server: &ServerDescription) -> String {
    let tags: Vec<String> =
        server.tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    shortened(&escaped(&tags.join(" ")), MAX_TAGS_LEN).into_owned()
}

fn member<'a>(
    model: &Model,
    server: &ServerDescription,
    now: Instant,
    columns: &[usize],
    error_len: usize,
) -> Row<'a> {
    let color = match server.server_type {
        ServerType::Unknown if server.error.is_none() => Color::DarkGray,
        ServerType::Unknown => Color::Red,
        ServerType::RsPrimary
        | ServerType::Standalone
        | ServerType::Mongos
        | ServerType::LoadBalancer => Color::Green,
        ServerType::RsSecondary => Color::Cyan,
        _ => Color::Yellow,
    };
    let checked = server
        .last_update_time
        .map_or_else(|| "–".to_owned(), |at| format!("{} ago", rounded(now - at)));
    let round_trip = server.round_trip_time.map_or_else(|| "–".to_owned(), precise);
    let cells = [
        Cell::from(address(server)),
        Cell::from(server.server_type.name()).style(Style::new().fg(color).bold()),
        Cell::from(round_trip),
        Cell::from(checked),
        Cell::from(tags(server)),
    ];
    let cells = cells.into_iter().enumerate().filter(|(index, _)| columns.contains(index));
    let error = last_error(model, server, now);
    let error = Span::styled(abridged(&error.content, error_len).into_owned(), error.style);
    Row::new(cells.map(|(_, cell)| cell).chain([Cell::from(error)]))
}

/// Returns the current error and its age; or the last error, and how long ago it was.
fn last_error(model: &Model, server: &ServerDescription, now: Instant) -> Span<'static> {
    let trouble = model.trouble(&server.address);
    match (&server.error, trouble) {
        (Some(error), trouble) => {
            let since = trouble.filter(|trouble| trouble.until.is_none());
            let since = since.map_or(now, |trouble| trouble.since);
            let error = error.to_string();
            format!("for {}: {}", rounded(now - since), escaped(&error)).red()
        }
        (None, Some(trouble)) => {
            let until = trouble.until.unwrap_or(now);
            let lasted = rounded(until - trouble.since);
            let ago = rounded(now - until);
            format!("for {lasted} until {ago} ago: {}", trouble.what).dark_gray()
        }
        (None, None) => Span::raw(""),
    }
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let block = Block::new().borders(Borders::TOP).title(" events ").dark_gray();
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let lines: Vec<&Line> = model.last_lines(usize::from(inside.height)).collect();
    let padding = lines.iter().map(|line| line.padding()).max().unwrap_or(0);
    let width = usize::from(inside.width);
    let lines: Vec<TextLine<'_>> =
        lines.iter().map(|line| log_line(line, padding, width)).collect();
    frame.render_widget(Paragraph::new(lines), inside);
}

fn log_line(line: &Line, padding: usize, width: usize) -> TextLine<'_> {
    let style = match line.tone {
        Tone::Quiet => Style::new().dark_gray(),
        Tone::Neutral => Style::new(),
        Tone::Good => Style::new().green(),
        Tone::Bad => Style::new().red(),
        Tone::Notice => Style::new().red().bold(),
    };
    let time = format!("{:>9}  ", line.time());
    let subject = format!("{:padding$}  ", line.subject);
    let taken = time.chars().count() + subject.chars().count();
    let text = abridged(&line.text, width.saturating_sub(taken).max(MIN_TEXT_LEN));
    TextLine::from(vec![time.dark_gray(), Span::raw(subject), Span::styled(text, style)])
}

fn footer_line(model: &Model) -> TextLine<'static> {
    match model.dropped() {
        0 => TextLine::from("q quits").dark_gray(),
        dropped => TextLine::from(format!("q quits · {dropped} events were dropped")).red(),
    }
}
