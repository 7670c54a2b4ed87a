//! Server Selection, "Checking an Idle Socket After socketCheckIntervalMS".

use std::time::Duration;

use bson::doc;
use sdam::generic::Client;
use sdam_cluster::MemberId;
use sdam_core::config::Options;
use sdam_core::pool::CheckOutError;

use super::Fixture;

/// Two mongos, to each of which a client without threads has an idle connection, for six seconds.
fn idle(seed: u64) -> Fixture {
    let mut fixture = Fixture::sharded(2, "", seed);
    let uri = format!("{}?retryReads=false", fixture.simulation.uri());
    let options = Options::builder().uri(&uri).unwrap().single_threaded(true);
    let client = fixture.simulation.topology(options.build().unwrap()).unwrap();
    fixture.client = Client::from(client);
    let things = fixture.things();
    fixture.run(async move {
        for _ in 0..20 {
            things.find_one(doc! {}).await.unwrap();
        }
    });
    fixture.simulation.run_for(Duration::from_secs(6));
    fixture
}

/// "If not, set the server's type to Unknown [...] and attempt once more to select a server.": if
/// the second server has a dead connection, too, the operation ends with that.
#[test]
fn a_server_is_selected_once_more_if_an_idle_connection_is_dead() {
    let mut outcomes = [0, 0];
    for seed in 0..16 {
        let mut fixture = idle(seed);
        for member in [0, 1].map(MemberId) {
            let dead = doc! { "failCommands": ["ping"], "closeConnection": true };
            fixture.fail(member, doc! { "times": 1 }, dead);
        }
        let things = fixture.things();
        match fixture.run(async move { things.find_one(doc! {}).await }).0 {
            // The first server was selected again, over a new connection.
            Ok(_) => outcomes[0] += 1,
            Err(error) => {
                let cause = error.as_check_out();
                let is_dead = matches!(cause, Some(CheckOutError::IdleConnection { .. }));
                assert!(is_dead, "{error}");
                outcomes[1] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
