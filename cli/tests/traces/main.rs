//! Commands about traces: `record`, `replay`, `shrink` and `export`.

mod replay;
mod shrink;
mod support;
