//! The work that is measured.

mod driver;
mod host;
mod machines;
mod scale;

pub(crate) use scale::{GROWTHS, Growth, Most};

/// A bench, by the name under which it has a budget.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// Prepares the work, does it to get warm, and then has it counted; returns how often.
    pub(crate) run: fn() -> u64,
}

pub(crate) const BENCHES: &[Bench] = &[
    Bench { name: "selection", run: machines::selection },
    Bench { name: "hello_to_view", run: machines::hello_to_view },
    Bench { name: "selection_by_a_client", run: host::selection },
    Bench { name: "check_out_and_in", run: host::check_out_and_in },
    Bench { name: "ping", run: host::ping },
    Bench { name: "ping_with_metrics", run: host::ping_with_metrics },
    Bench { name: "ping_with_tls", run: host::ping_with_tls },
    Bench { name: "unchanged_heartbeat", run: host::unchanged_heartbeat },
    Bench { name: "establishing", run: host::establishing },
    Bench { name: "establishing_with_tls", run: host::establishing_with_tls },
    Bench { name: "establishing_with_scram_sha_256", run: host::establishing_with_scram_sha_256 },
    Bench { name: "establishing_with_known_keys", run: host::establishing_with_known_keys },
    Bench { name: "cold_start_to_first_ping", run: host::cold_start_to_first_ping },
    Bench { name: "find_one", run: driver::find_one },
    Bench { name: "insert_one", run: driver::insert_one },
    Bench { name: "insert_many_1000", run: driver::insert_many_1000 },
    Bench { name: "find_10000", run: driver::find_10000 },
];

/// Work that has no budget: what matters is how the counts compare.
pub(crate) const COMPARED: &[Bench] = &[
    Bench { name: "heartbeat_of_3", run: scale::heartbeat::<3> },
    Bench { name: "heartbeat_of_3000", run: scale::heartbeat::<3000> },
    Bench { name: "get_more_of_3", run: driver::get_more::<3> },
    Bench { name: "get_more_of_3000", run: driver::get_more::<3000> },
    Bench { name: "finding_300", run: scale::finding::<300> },
    Bench { name: "finding_3000", run: scale::finding::<3000> },
    Bench { name: "joining_300", run: scale::joining::<300> },
    Bench { name: "joining_3000", run: scale::joining::<3000> },
    Bench { name: "leaving_300", run: scale::leaving::<300> },
    Bench { name: "leaving_3000", run: scale::leaving::<3000> },
];

/// Has `work` counted so many times, after doing it a few times to get warm.
fn repeat(times: u64, mut work: impl FnMut()) -> u64 {
    (0..3).for_each(|_| work());
    crate::measured::counted(&mut || (0..times).for_each(|_| work()));
    times
}
