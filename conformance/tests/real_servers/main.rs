//! Real servers of every version there is: the harness that runs them, what they ask of clients,
//! and what the embedded deployment answers beside them.

mod change_replies;
mod data_replies;
mod mongod_harness;
mod mongod_replies;
mod mongod_security;
mod transaction_replies;
mod transaction_status;

use std::process::ExitCode;

use bson::Document;
use libtest_mimic::Arguments;
use sdam_cluster::ServerVersion;
use sdam_conformance::mongod::Availability;

/// Names the error of a real server as the newest one of its series does: older ones of 6.0 have no
/// names of their own for two numbers.
fn named_as_newest(version: ServerVersion, reply: &mut Document) {
    if version != ServerVersion::V6_0 {
        return;
    }
    let newest = match reply.get_str("codeName") {
        Ok("Location40414") => "IDLFailedToParse",
        Ok("Location40415") => "IDLUnknownField",
        _ => return,
    };
    reply.insert("codeName", newest);
}

fn main() -> ExitCode {
    let availability = Availability::look();
    let binaries = availability.binaries();
    if let Ok(version) = std::env::var(mongod_harness::WAIT_WITH_SERVER) {
        return mongod_harness::wait_with_server(binaries, &version);
    }
    let mut arguments = Arguments::from_args();
    // Two at a time: more servers than that get in each other's way, and in that of elections.
    arguments.test_threads.get_or_insert(2);
    let mut trials = mongod_harness::trials(binaries);
    trials.extend(data_replies::trials(binaries));
    trials.extend(transaction_status::trials(binaries));
    trials.extend(mongod_replies::trials(binaries));
    trials.extend(mongod_security::trials(binaries));
    let passed = !libtest_mimic::run(&arguments, trials).has_failed();
    availability.conclude(passed)
}
