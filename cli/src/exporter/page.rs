//! The table of metrics in the page, which is made of their definitions.

use sdam_core::metrics::{DEFINITIONS, MetricKind};

use crate::pages;

fn table() -> String {
    let mut table =
        "| Prometheus | OpenTelemetry | Kind | Unit | Meaning |\n|---|---|---|---|---|\n"
            .to_owned();
    for definition in DEFINITIONS {
        let kind = match definition.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram { .. } => "histogram",
            _ => unreachable!("there are three kinds"),
        };
        table += &format!(
            "| `{}` | `{}` | {kind} | `{}` | {} |\n",
            definition.prometheus_name, definition.name, definition.unit, definition.help
        );
    }
    table
}

#[test]
fn the_page_has_every_family() {
    pages::check_table("EXPORTER.md", &table());
}
