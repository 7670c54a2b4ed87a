//! The picture of the live view in the README, as SVG: the cells of the screen with their colours.
//!
//! `UPDATE_SNAPSHOTS=1` writes it, and `scripts/picture` does that.

use std::fmt::Write as _;
use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::controls::Controls;
use super::failover::Failover;

/// The size of a cell, and of the margin, in pixels.
const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: usize = 18;
const MARGIN: usize = 16;

/// The distance of the letters' feet from the top of their cell.
const BASELINE: usize = 13;

/// Each colour: its class, and how it looks by day and by night.
const COLORS: [(Color, &str, &str, &str); 7] = [
    (Color::Reset, "n", "#24292f", "#e6edf3"),
    (Color::DarkGray, "q", "#656d76", "#8b949e"),
    (Color::Green, "g", "#116329", "#3fb950"),
    (Color::Cyan, "c", "#0b6e83", "#39c5cf"),
    (Color::Red, "r", "#cf222e", "#ff7b72"),
    (Color::Yellow, "y", "#7d4e00", "#d29922"),
    (Color::Blue, "b", "#0550ae", "#79c0ff"),
];

/// Draws what a terminal would show.
fn svg(screen: &Buffer, title: &str) -> String {
    let (columns, rows) = (usize::from(screen.area.width), usize::from(screen.area.height));
    let width = (columns as f64 * CELL_WIDTH).ceil() as usize + 2 * MARGIN;
    let height = rows * CELL_HEIGHT + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" xml:space=\"preserve\" role=\"img\">\n\
         <title>{}</title>\n{}\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n",
        escaped(title),
        style(),
    );
    for (row, cells) in screen.content.chunks(columns).enumerate() {
        let y = MARGIN + row * CELL_HEIGHT + BASELINE;
        let mut column = 0;
        for run in cells.chunk_by(|one, next| class(one) == class(next)) {
            let text: String = run.iter().map(Cell::symbol).collect();
            if !text.trim().is_empty() {
                let start = text.chars().take_while(|c| *c == ' ').count();
                let text = text.trim();
                let (x, length) = (x_of(column + start), text.chars().count() as f64 * CELL_WIDTH);
                // Whatever font it is, letters stand in their cells.
                let place = format!("x=\"{x:.1}\" y=\"{y}\" textLength=\"{length:.1}\"");
                let (class, text) = (class(&run[0]), escaped(text));
                writeln!(svg, "<text {place} class=\"{class}\">{text}</text>")
                    .expect("writing to memory");
            }
            column += run.len();
        }
    }
    svg + "</svg>\n"
}

fn x_of(column: usize) -> f64 {
    MARGIN as f64 + column as f64 * CELL_WIDTH
}

fn style() -> String {
    let by_day = COLORS.map(|(_, class, day, _)| format!(".{class}{{fill:{day}}}"));
    let by_night = COLORS.map(|(_, class, _, night)| format!(".{class}{{fill:{night}}}"));
    format!(
        "<style>\ntext{{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}\n\
         .s{{font-weight:bold}}\nrect{{fill:#fff;stroke:#d0d7de}}\n{}\n\
         @media(prefers-color-scheme:dark){{\nrect{{fill:#0d1117;stroke:#30363d}}\n{}\n}}\n\
         </style>\n",
        by_day.concat(),
        by_night.concat(),
    )
}

/// Returns the classes of a cell, by which it gets its colour.
fn class(cell: &Cell) -> String {
    let known = COLORS.iter().find(|(color, ..)| *color == cell.fg);
    let (_, class, ..) = known.unwrap_or_else(|| panic!("there is no class for {:?}", cell.fg));
    match cell.modifier.contains(Modifier::BOLD) {
        true => format!("{class} s"),
        false => (*class).to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn the_picture_in_the_readme_is_what_the_screen_shows() {
    let screen = Failover::until(54_000).draw(&Controls::default(), 100, 24);
    let title = "sdam watch: a replica set of three whose primary died and came back";
    let made = svg(&screen, title);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/watch.svg");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &made).expect("the picture can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("there is a picture");
    assert!(kept == made, "docs/watch.svg is not what the screen shows: run scripts/picture");
}

#[test]
fn what_the_screen_shows_is_text_and_no_markup() {
    let mut screen = Buffer::with_lines(["a <b> & \"c\"", "  plain"]);
    screen.cell_mut((0, 0)).expect("a cell").set_fg(Color::Red);
    let made = svg(&screen, "<&>");
    assert!(made.contains("<title>&lt;&amp;&gt;</title>"), "{made}");
    assert!(made.contains(">&lt;b&gt; &amp; \"c\"</text>"), "{made}");
    assert!(made.contains("class=\"r\">a</text>"), "{made}");
    let opened = made.matches("<text ").count();
    assert_eq!((opened, made.matches("</text>").count()), (3, 3), "{made}");
}
