//! The topology machine, driven through its public interface in virtual time.

mod hostile;
mod idle;
mod left_alone;
mod monitoring;
mod operations;
mod polling;
mod reseeding;
mod scanning_order;
mod single_threaded;
mod stage;
mod updating;
mod waiting;
