//! The tool as a process, without real servers.

mod check_log;
mod cluster;
mod traces;
mod watch;
