//! The tool as a process, without real servers.

mod arguments;
mod check_log;
mod cluster;
mod exporter;
mod footprint;
mod last_night;
mod lint;
mod status;
mod traces;
mod tunnel;
mod watch;
