//! The topology machine, driven through its public interface in virtual time.

mod eager;
mod extremes;
mod findings;
mod fixture;
mod following;
mod handshake;
mod hostile;
mod idle;
mod left_alone;
mod many;
mod measuring_rtt;
mod monitoring;
mod operations;
mod polling;
mod random_scans;
mod reseeding;
mod scanning_order;
mod single_threaded;
mod single_threaded_errors;
mod storms;
mod updating;
mod verdicts;
mod waiting;
