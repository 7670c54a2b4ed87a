//! `sdam check-log` on logs of real drivers, as they are and with faults planted in them.

mod descriptions;
mod drivers;
mod fields;
mod heartbeats;
mod own_log;
mod reading;
mod real_logs;
mod support;
