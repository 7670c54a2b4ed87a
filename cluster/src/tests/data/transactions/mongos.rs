//! Transactions by mongos: each knows those that it has begun, and others are recovered.

use super::*;

/// Two mongos, and a connection to each.
fn mongos(deployment: Deployment) -> (World, [ConnectionId; 2]) {
    let options = ClusterOptions { keeps_data: true, deployment, ..options(ServerVersion::V8_0) };
    let mut world = World::new(options);
    world.advance(SECOND);
    let connections = [0, 1].map(|member| world.connect(MemberId(member)));
    (world, connections)
}

fn token(reply: &Document) -> Document {
    reply.get_document("recoveryToken").unwrap().clone()
}

/// Transactions, "recoveryToken field": there is none to recover as long as nothing is written.
#[test]
fn every_reply_has_a_recovery_token() {
    for deployment in [Deployment::Sharded, Deployment::LoadBalanced] {
        let (mut world, [connection, _]) = mongos(deployment);
        assert!(!must(&mut world, connection, put(1)).contains_key("recoveryToken"));
        let reply = must(&mut world, connection, first(find(), 1, 1));
        assert!(token(&reply).is_empty());
        for command in [put(2), find(), commit(), commit()] {
            let reply = must(&mut world, connection, within(command, 1, 1));
            assert!(token(&reply).contains_key("recoveryShardId"), "{reply}");
        }
        let other = world.connect(MemberId(1));
        assert_eq!(all(&mut world, other).len(), 2, "mongos have one store");
    }
}

#[test]
fn a_mongos_does_not_know_what_another_has_begun() {
    let (mut world, [begun, other]) = mongos(Deployment::Sharded);
    must(&mut world, begun, first(put(1), 1, 1));
    for command in [find(), put(2), abort()] {
        fails(&mut world, other, within(command, 1, 1), 251, &[TRANSIENT]);
    }
    fails(&mut world, other, within(commit(), 1, 1), 50940, &[]);
    must(&mut world, begun, within(commit(), 1, 1));
    fails(&mut world, begun, first(find(), 1, 1), 117, &[]);
    fails(&mut world, begun, within(find(), 1, 0), 225, &[]);
}

/// Transactions, "recoveryToken field": another mongos learns the outcome, and aborts what is open.
#[test]
fn another_mongos_recovers_the_outcome_by_the_token() {
    let (mut world, [begun, other]) = mongos(Deployment::Sharded);
    let recovering = |token: &Document, number| {
        let mut commit = within(commit(), 1, number);
        commit.insert("recoveryToken", token.clone());
        commit
    };
    let given = token(&must(&mut world, begun, first(put(1), 1, 1)));
    must(&mut world, begun, within(commit(), 1, 1));
    for _ in 0..2 {
        let reply = must(&mut world, other, recovering(&given, 1));
        assert_eq!(token(&reply), given);
    }
    must(&mut world, begun, first(put(2), 1, 2));
    fails(&mut world, other, recovering(&given, 2), 251, &[TRANSIENT]);
    fails(&mut world, begun, within(commit(), 1, 2), 251, &[TRANSIENT]);
    fails(&mut world, other, recovering(&doc! {}, 2), 251, &[TRANSIENT]);
    assert_eq!(all(&mut world, begun), [doc! { "_id": 1 }]);
}

#[test]
fn a_mongos_that_ends_leaves_its_transactions_to_the_shards() {
    let (mut world, [begun, other]) = mongos(Deployment::Sharded);
    insert(&mut world, other, vec![doc! { "_id": 1 }]);
    let given = token(&must(&mut world, begun, first(set(1, 1), 1, 1)));
    world.handle(Input::Kill { member: MemberId(0) });
    send(&mut world, other, &set(1, 2));
    let third = world.connect(MemberId(2));
    let mut commit = within(commit(), 1, 1);
    commit.insert("recoveryToken", given);
    fails(&mut world, third, commit, 251, &[TRANSIENT]);
    assert_eq!(answer(&mut world, other).get_i32("nModified").unwrap(), 1);
}

/// Members that keep nothing answer as if it worked.
#[test]
fn members_without_data_commit_and_abort() {
    for (deployment, has_token) in [(Deployment::Sharded, true), (Deployment::ReplicaSet, false)] {
        let mut world = World::new(ClusterOptions { deployment, ..options(ServerVersion::V8_0) });
        world.advance(SECOND);
        let member = world.primary().unwrap_or(MemberId(0));
        let connection = world.connect(member);
        for command in [first(put(1), 1, 1), within(commit(), 1, 1), within(abort(), 1, 1)] {
            let reply = must(&mut world, connection, command);
            assert_eq!(reply.contains_key("recoveryToken"), has_token);
        }
    }
}
