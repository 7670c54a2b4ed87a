//! The runner of the official suites, what is exported to it, and recordings that replay.

mod export;
mod spec_command;
mod transcripts;
