//! The tool as a process, without real servers.

mod arguments;
mod check_log;
mod cluster;
mod status;
mod traces;
mod watch;
