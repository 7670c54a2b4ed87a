//! The status of a deployment: its exit code, its table, and its JSON, which `STATUS.md` describes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription};
use sdam_core::diagnosis::{SelectionError, Verdict};
use serde_json::{Value, json};

use super::token::Reach;
use crate::duration::precise;
use crate::printer::Printer;
use crate::text::{escaped, of_server};

/// The finding of one look.
#[derive(Debug)]
pub(super) struct Status {
    /// The deployment.
    pub(super) view: Arc<TopologyDescription>,
    /// True if each server has answered or failed.
    pub(super) is_settled: bool,
    /// The time that it was looked at.
    pub(super) elapsed: Duration,
    /// The time when that was over.
    pub(super) time: String,
    /// The reason why writes find no server, if they find none.
    pub(super) write: Option<WhyNot>,
    /// The reason why reads that take any server find none, if they find none.
    pub(super) read: Option<WhyNot>,
    /// The time for which a token is of use, if one was asked about.
    pub(super) token: Option<Reach>,
}

/// The reason why operations fail.
#[derive(Debug)]
pub(super) enum WhyNot {
    /// No server was found.
    Selection(Box<SelectionError>),
    /// A server was found, and is known not to do what it is asked for.
    Verdict(Verdict),
    /// A server was found, and does not do what it is asked for: the likely cause, and its words.
    Operation(Verdict, String),
}

impl WhyNot {
    /// Returns the likely cause.
    const fn verdict(&self) -> &Verdict {
        match self {
            Self::Selection(error) => &error.verdict,
            Self::Verdict(verdict) | Self::Operation(verdict, _) => verdict,
        }
    }

    /// Returns the likely cause in words, and those of a server that is not listed above.
    fn cause(&self) -> String {
        match self {
            Self::Selection(_) | Self::Verdict(_) => self.verdict().to_string(),
            Self::Operation(verdict, text) => format!("{verdict}: {text}"),
        }
    }

    fn json(&self) -> Value {
        let text = match self {
            Self::Selection(error) => error.to_string(),
            Self::Verdict(verdict) => verdict.sentence(),
            Self::Operation(_, text) => text.clone(),
        };
        let finding = serde_json::to_value(self.verdict().finding());
        let mut fields = finding.expect("it has the form of JSON");
        fields["text"] = text.into();
        fields
    }
}

impl Status {
    /// Returns 0 if writes find a server, 1 if only reads do, and 2 if neither does; or that of the
    /// token, if it is worse.
    pub(super) fn exit_code(&self) -> u8 {
        let of_servers = match (&self.write, &self.read) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(_), Some(_)) => super::NEITHER,
        };
        match (of_servers, self.token.as_ref().map_or(0, Reach::exit_code)) {
            (0, of_token) | (_, of_token @ super::NEITHER) => of_token,
            (of_servers, _) => of_servers,
        }
    }

    /// Prints one object.
    pub(super) fn print_json(&self, out: &mut Printer<'_>) -> io::Result<()> {
        out.json(&json!({
            "time": self.time,
            "elapsedMs": self.elapsed.as_nanos() as f64 / 1e6,
            "settled": self.is_settled,
            "writable": self.write.is_none(),
            "readable": self.read.is_none(),
            "whyNotWritable": self.write.as_ref().map(WhyNot::json),
            "whyNotReadable": self.read.as_ref().map(WhyNot::json),
            "token": self.token.as_ref().map(Reach::json),
            "description": &*self.view,
        }))
    }

    /// Prints the deployment, a row for each server, and whether writes and reads find one.
    pub(super) fn print(&self, out: &mut Printer<'_>) -> io::Result<()> {
        let servers = self.view.servers();
        let mut headline = vec![self.view.topology_type.to_string()];
        headline.extend(self.view.set_name.as_deref().map(|name| format!("set {name}")));
        headline.push(format!("{} server{}", servers.len(), plural(servers.len())));
        out.line(format_args!("{}", escaped(&headline.join(", "))))?;
        let rows: Vec<[String; 4]> = servers.iter().map(|server| row(server)).collect();
        let header = ["ADDRESS", "TYPE", "RTT", "TAGS"].map(str::to_owned);
        let widths: [usize; 4] = std::array::from_fn(|column| {
            let cells = rows.iter().chain([&header]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        });
        let header = padded(&header, &widths, &[Style::new().dimmed(); 4], out);
        out.line(format_args!("{header}"))?;
        for (server, row) in servers.iter().zip(&rows) {
            let styles = [Style::new(), style(server), Style::new(), Style::new()];
            let row = padded(row, &widths, &styles, out);
            out.line(format_args!("{row}"))?;
            if let Some(error) = &server.error {
                let (red, error) = (AnsiColor::Red.on_default(), error.to_string());
                let error = out.paint(red, &escaped(of_server(&error, &server.address)));
                out.line(format_args!("    {error}"))?;
            }
        }
        for (what, why_not) in [("writes", &self.write), ("reads ", &self.read)] {
            let said = match why_not {
                None => out.paint(AnsiColor::Green.on_default(), "yes"),
                Some(why_not) => {
                    let red = AnsiColor::Red.on_default().bold();
                    format!("{}, {}", out.paint(red, "no"), escaped(&why_not.cause()))
                }
            };
            out.line(format_args!("{what}  {said}"))?;
        }
        if let Some(token) = &self.token {
            let (word, style) = token.word();
            let word = out.paint(style, word);
            out.line(format_args!("token   {word}, {}", escaped(&token.cause())))?;
        }
        let why_not = [&self.write, &self.read].into_iter().flatten().map(WhyNot::verdict);
        let troubles = why_not.chain(self.token.as_ref().and_then(Reach::trouble));
        let mut advice: Vec<String> = troubles.map(|it| it.advice().to_string()).collect();
        advice.dedup();
        for text in advice {
            out.line(format_args!("advice  {}", escaped(&text)))?;
        }
        match self.is_settled {
            true => Ok(()),
            false => out.line(format_args!(
                "After {}, not every server has answered or failed; --for waits longer.",
                precise(self.elapsed)
            )),
        }
    }
}

fn row(server: &ServerDescription) -> [String; 4] {
    let tags: Vec<String> =
        server.tags.iter().map(|(name, value)| format!("{name}:{value}")).collect();
    [
        escaped(&server.address.to_string()).into_owned(),
        server.server_type.to_string(),
        server.round_trip_time.map_or_else(|| "–".to_owned(), precise),
        escaped(&tags.join(",")).into_owned(),
    ]
}

/// Writes the cells of a row in columns, without spaces at its end.
fn padded(
    cells: &[String; 4],
    widths: &[usize; 4],
    styles: &[Style; 4],
    out: &Printer<'_>,
) -> String {
    let last = cells.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
    let mut line = String::new();
    for column in 0..=last {
        line += &out.paint(styles[column], &cells[column]);
        if column < last {
            line += &" ".repeat(widths[column] - cells[column].chars().count() + 2);
        }
    }
    line
}

fn style(server: &ServerDescription) -> Style {
    match server.server_type {
        ServerType::Unknown => AnsiColor::Red.on_default(),
        ServerType::RsSecondary => AnsiColor::Cyan.on_default(),
        server_type if server_type.is_data_bearing() => AnsiColor::Green.on_default(),
        _ => AnsiColor::Yellow.on_default(),
    }
}

const fn plural(count: usize) -> &'static str {
    match count {
        1 => "",
        _ => "s",
    }
}
