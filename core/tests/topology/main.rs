//! The topology machine, driven through its public interface in virtual time.

mod hostile;
mod idle;
mod monitoring;
mod stage;
mod updating;
