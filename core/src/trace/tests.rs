//! Tests of traces: what is written is read again, and replayed as it was.

mod bounds;
mod exactness;
mod forms;
mod redaction;
mod world;
