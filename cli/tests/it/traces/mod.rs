//! Commands about traces: `record`, `replay`, `shrink` and `export`.

mod gaps;
mod replay;
mod shrink;
mod support;
