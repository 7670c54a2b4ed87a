//! The picture of the dashboard: what its queries have found, as lines over time.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Look;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const LANE: f64 = 46.0;
const HEIGHT: f64 = 30.0;

/// Those who prefer dark pages get one.
const STYLE: &str = "<style>\ntext{font:12px system-ui,sans-serif;fill:#1f2328}\n\
    .frame{fill:#fff;stroke:#d0d7de}\n.axis{stroke:#d0d7de}\n\
    .line{fill:none;stroke:#0969da;stroke-width:2}\n\
    @media(prefers-color-scheme:dark){\ntext{fill:#e6edf3}\n.frame{fill:#0d1117;stroke:#30363d}\n\
    .axis{stroke:#30363d}\n.line{stroke:#4493f8}\n}\n</style>\n";

/// A row of the picture: a name, and values over time.
struct Lane {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws the looks at the metrics, one below the other.
pub(super) fn draw(looks: &[Look]) -> String {
    let mut lanes = vec![
        lane(looks, "writable", "sdam.topology.writable"),
        lane(looks, "elections", "sdam.elections"),
        lane(looks, "seconds without a primary", "sdam.primary.absence"),
        lane(looks, "writes done", "db.client.operation.duration"),
    ];
    let mut up: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for look in looks {
        for (port, value) in look.values("sdam.server.up", "server.port") {
            up.entry(port).or_default().push((look.at, value));
        }
    }
    let of_server = |(port, points)| Lane { name: format!("server :{port} up"), points };
    lanes.splice(1..1, up.into_iter().map(of_server));
    let end = looks.last().map_or(1.0, |look| look.at);
    let height = TOP + lanes.len() as f64 * LANE + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <title>The dashboard of the shop: its primary dies, and another one is elected</title>\n\
         {STYLE}<rect class=\"frame\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\"/>\n\
         <text x=\"14\" y=\"22\">job=\"shop\", seconds since it has started</text>\n",
        WIDTH - 1.0,
        height - 1.0,
    );
    for (index, lane) in lanes.iter().enumerate() {
        svg += &lane.draw(TOP + index as f64 * LANE, end);
    }
    for second in (0..=end as u32).step_by(5) {
        let (x, y) = (x_of(f64::from(second), end), height - 10.0);
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{second}</text>").expect("text");
    }
    svg + "</svg>\n"
}

fn lane(looks: &[Look], name: &str, family: &str) -> Lane {
    let points = looks.iter().map(|look| (look.at, look.value(family))).collect();
    Lane { name: name.to_owned(), points }
}

fn x_of(at: f64, end: f64) -> f64 {
    LEFT + at / end * (WIDTH - LEFT - RIGHT)
}

impl Lane {
    fn draw(&self, top: f64, end: f64) -> String {
        let most = self.points.iter().map(|(_, value)| *value).fold(1.0, f64::max);
        let bottom = top + HEIGHT;
        let last = self.points.last().map_or(0.0, |(_, value)| *value);
        // Steps: a value is so until the next look.
        let (mut path, mut before) = (String::new(), None);
        for (at, value) in &self.points {
            let (x, y) = (x_of(*at, end), bottom - value / most * (HEIGHT - 4.0));
            match before {
                None => write!(path, "M{x:.1} {y:.1}"),
                Some(before) if before == y => Ok(()),
                Some(_) => write!(path, "H{x:.1}V{y:.1}"),
            }
            .expect("text");
            before = Some(y);
        }
        format!(
            "<text x=\"14\" y=\"{:.1}\">{}: {}</text>\n\
             <path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{:.1}\"/>\n\
             <path class=\"line\" d=\"{path}H{:.1}\"/>\n",
            bottom - 8.0,
            self.name,
            (last * 100.0).round() / 100.0,
            WIDTH - RIGHT,
            x_of(end, end),
        )
    }
}
