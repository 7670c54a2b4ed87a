//! Commands about traces: `record`, `replay`, `report`, `shrink` and `export`.

mod gaps;
mod replay;
mod report;
mod shrink;
mod support;
