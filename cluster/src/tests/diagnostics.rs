//! The first commands of shells, exporters and other tools.

use bson::raw::{CStr, cstr};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{
    Change, ClusterOptions, Input, MemberId, SECOND, ServerVersion, World, arbiter, awaitable,
    hidden, member, options,
};
use crate::{ConnectionId, Deployment};

fn code(reply: &RawDocument) -> i32 {
    reply.get_i32("code").unwrap_or_default()
}

/// A command of one word.
fn command(name: &str, database: &str) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(<&CStr>::try_from(name).unwrap(), 1);
    command.append(cstr!("$db"), database);
    command
}

fn ask(world: &mut World, member: MemberId, name: &str) -> RawDocumentBuf {
    let connection = world.connect(member);
    world.ask(connection, &command(name, "admin"))
}

/// Returns each member's state in a status, whether it is well, and whether it is itself.
fn states(status: &RawDocument) -> Vec<(String, bool, bool)> {
    let members = status.get_array("members").unwrap().into_iter();
    let members = members.map(|it| it.unwrap().as_document().unwrap());
    let state = |it: &RawDocument| {
        let name = it.get_str("stateStr").unwrap().to_owned();
        (name, it.get_f64("health").unwrap() > 0.5, it.get_bool("self").unwrap_or(false))
    };
    members.map(state).collect()
}

#[test]
fn the_status_of_a_set_says_what_each_member_is_and_follows_what_happens() {
    let members = [member("a:1"), member("b:2"), arbiter("c:3"), hidden("d:4"), member("e:5")];
    let mut world = World::of(ServerVersion::V6_0, &members);
    let primary = world.primary().unwrap();
    for observer in (0..5).map(MemberId) {
        let status = ask(&mut world, observer, "replSetGetStatus");
        assert_eq!(status.get_str("set").unwrap(), "rs");
        assert_eq!(status.get_i64("term").unwrap(), 1);
        assert_eq!(status.get_i32("majorityVoteCount").unwrap(), 3);
        assert_eq!(status.get_i32("writableVotingMembersCount").unwrap(), 4);
        for (index, (state, is_well, is_self)) in states(&status).into_iter().enumerate() {
            let expected = match index {
                2 => "ARBITER",
                index if MemberId(index) == primary => "PRIMARY",
                _ => "SECONDARY",
            };
            assert_eq!((state.as_str(), is_well), (expected, true));
            assert_eq!(is_self, index == observer.0);
        }
    }
    world.handle(Input::Kill { member: MemberId(3) });
    let status = ask(&mut world, primary, "replSetGetStatus");
    assert_eq!(states(&status)[3], ("(not reachable/healthy)".to_owned(), false, false));
    world.handle(Input::StepDown { member: primary });
    let status = ask(&mut world, primary, "replSetGetStatus");
    assert_eq!(status.get_i32("myState").unwrap(), 2);
    world.advance(10 * SECOND);
    let status = ask(&mut world, MemberId(2), "replSetGetStatus");
    assert_eq!((status.get_i64("term").unwrap(), status.get_i32("myState").unwrap()), (2, 7));
}

#[test]
fn a_primary_that_is_cut_off_says_that_it_reaches_nobody_and_keeps_its_term() {
    let mut world = World::settled(ServerVersion::V6_0);
    let old = world.primary().unwrap();
    world.handle(Input::Cut { member: old });
    world.advance(5 * SECOND / 2);
    assert!(world.primary().is_some_and(|new| new != old));
    let status = ask(&mut world, old, "replSetGetStatus");
    let well = states(&status).into_iter().filter(|(_, is_well, _)| *is_well);
    assert_eq!(well.collect::<Vec<_>>(), [("PRIMARY".to_owned(), true, true)]);
    assert_eq!(status.get_i64("term").unwrap(), 1);
    let other = world.primary().unwrap();
    let status = ask(&mut world, other, "replSetGetStatus");
    assert_eq!(states(&status)[old.0].0, "(not reachable/healthy)");
    assert_eq!(status.get_i64("term").unwrap(), 2);
}

#[test]
fn the_configuration_is_told_as_the_member_knows_it() {
    let members = [member("a:1"), arbiter("b:2"), hidden("c:3")];
    let mut world = World::of(ServerVersion::V6_0, &members);
    let primary = world.primary().unwrap();
    let config = |world: &mut World, member| {
        let reply = ask(world, member, "replSetGetConfig");
        reply.get_document("config").unwrap().to_owned()
    };
    let known = config(&mut world, primary);
    assert_eq!((known.get_str("_id").unwrap(), known.get_i32("version").unwrap()), ("rs", 1));
    let described = known.get_array("members").unwrap().into_iter();
    let described: Vec<_> = described.map(|it| it.unwrap().as_document().unwrap()).collect();
    let of = |it: &RawDocument| {
        let flags = (it.get_bool("arbiterOnly").unwrap(), it.get_bool("hidden").unwrap());
        (it.get_str("host").unwrap().to_owned(), flags, it.get_f64("priority").unwrap())
    };
    let expected = [("a:1", (false, false), 1.0), ("b:2", (true, false), 0.0)];
    for (described, (host, flags, priority)) in described.iter().zip(expected) {
        assert_eq!(of(described), (host.to_owned(), flags, priority));
    }
    assert_eq!(of(described[2]), ("c:3".to_owned(), (false, true), 0.0));
    world.reconfig(&[Change::Remove(MemberId(2))]);
    world.advance(SECOND);
    assert_eq!(config(&mut world, MemberId(2)).get_i32("version").unwrap(), 2);
    let status = self::ask(&mut world, MemberId(2), "replSetGetStatus");
    assert_eq!(
        (code(&status), status.get_str("codeName").unwrap()),
        (93, "InvalidReplicaSetConfig")
    );
}

#[test]
fn a_server_that_has_no_configuration_says_so() {
    let mut world = World::settled(ServerVersion::V6_0);
    world.reconfig(&[Change::Add(member("d:4"))]);
    for name in ["replSetGetStatus", "replSetGetConfig"] {
        let reply = ask(&mut world, MemberId(3), name);
        assert_eq!((code(&reply), reply.get_str("codeName").unwrap()), (94, "NotYetInitialized"));
    }
    world.advance(SECOND / 2);
    let primary = world.primary().unwrap();
    let status = ask(&mut world, primary, "replSetGetStatus");
    assert_eq!(states(&status)[3].0, "STARTUP2", "it gets its data");
    let deployment = Deployment::Sharded;
    let mut world = World::new(ClusterOptions { deployment, ..options(ServerVersion::V6_0) });
    for name in ["replSetGetStatus", "replSetGetConfig"] {
        let reply = ask(&mut world, MemberId(0), name);
        let code_name = reply.get_str("codeName").unwrap();
        assert_eq!((code(&reply), code_name), (76, "NoReplicationEnabled"));
    }
    assert_eq!(ask(&mut world, MemberId(0), "isdbgrid").get_i32("isdbgrid").unwrap(), 1);
    let status = ask(&mut world, MemberId(0), "serverStatus");
    assert_eq!(status.get_str("process").unwrap(), "mongos");
    assert!(status.get_document("repl").is_err());
}

#[test]
fn some_commands_belong_on_admin() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(world.primary().unwrap());
    for name in ["replSetGetStatus", "replSetGetConfig", "listDatabases", "getLog"] {
        assert_eq!(code(&world.ask(connection, &command(name, "test"))), 13, "{name}");
    }
    assert_eq!(code(&world.ask(connection, &command("nonsense", "test"))), 59);
}

fn connections(world: &mut World, asking: ConnectionId) -> RawDocumentBuf {
    let status = world.ask(asking, &command("serverStatus", "admin"));
    status.get_document("connections").unwrap().to_owned()
}

#[test]
fn the_status_of_a_server_counts_its_connections_and_what_it_was_asked() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let asking = world.connect(primary);
    let seen = world.ask(asking, &rawdoc! { "hello": 1, "$db": "admin" });
    let stream = world.connect(primary);
    world.request(stream, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 600 * SECOND));
    let idle = world.connect(primary);
    world.connect(world.secondary());
    let counts = connections(&mut world, asking);
    let count = |field| counts.get_i32(field).unwrap();
    assert_eq!(["current", "active", "exhaustHello", "totalCreated"].map(count), [3, 2, 1, 3]);
    assert_eq!(count("current") + count("available"), 4096);
    world.handle(Input::Disconnected { connection: idle });
    let counts = connections(&mut world, asking);
    let count = |field| counts.get_i32(field).unwrap();
    assert_eq!(["current", "totalCreated"].map(count), [2, 3]);

    let insert = rawdoc! { "insert": "x", "documents": [{}, {}], "$db": "test" };
    world.ask(asking, &insert);
    world.advance(100 * SECOND);
    let mut query = command("serverStatus", "admin");
    query.append(cstr!("network"), 0);
    let status = world.ask(asking, &query);
    assert!(status.get_document("network").is_err(), "it was switched off");
    assert_eq!(status.get_document("opcounters").unwrap().get_i64("insert").unwrap(), 2);
    let up = status.get_i64("uptimeMillis").unwrap();
    assert_eq!(up, i64::try_from(world.now.since_origin().as_millis()).unwrap());
    let repl = status.get_document("repl").unwrap();
    assert!(repl.get_bool("isWritablePrimary").unwrap());
    assert_eq!(repl.get_str("setName").unwrap(), "rs");
}

#[test]
fn a_client_is_told_where_it_is_and_who_it_is() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MemberId(0));
    let address = "127.0.0.1:50000".parse().unwrap();
    world.handle(Input::Peer { connection, address });
    let reply = world.ask(connection, &command("whatsmyuri", "admin"));
    assert_eq!(reply.get_str("you").unwrap(), "127.0.0.1:50000");
    let status = world.ask(connection, &command("connectionStatus", "admin"));
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    assert_eq!(users.into_iter().count(), 0);
    let parameter = rawdoc! { "getParameter": 1, "featureCompatibilityVersion": 1, "$db": "admin" };
    let version = world.ask(connection, &parameter);
    let version = version.get_document("featureCompatibilityVersion").unwrap();
    assert_eq!(version.get_str("version").unwrap(), "6.0");
}

#[test]
fn each_member_has_places_of_its_own() {
    let max_connections = 3;
    let mut world = World::new(ClusterOptions { max_connections, ..options(Default::default()) });
    let [flooded, other] = [MemberId(0), MemberId(1)];
    let taken: Vec<_> = (0..3).map(|_| world.connect(flooded)).collect();
    let refused = world.connect(flooded);
    assert!(world.is_closed(refused) && taken.iter().all(|it| !world.is_closed(*it)));
    let elsewhere = world.connect(other);
    assert!(!world.is_closed(elsewhere));
    world.handle(Input::Disconnected { connection: taken[0] });
    let next = world.connect(flooded);
    assert!(!world.is_closed(next));
    world.handle(Input::Kill { member: flooded });
    world.handle(Input::Start { member: flooded });
    let fresh = world.connect(flooded);
    assert!(!world.is_closed(fresh), "the places of the process before are free");
}
