//! Transactions and their convenient API: the prose tests, and those of other specifications that
//! run transactions.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Document, doc};
use sdam::error::Error;
use sdam::generic::{Client, ClientSession, Collection};
use sdam::options::SessionOptions;
use sdam::results::CommitOutcome;
use sdam_core::config::{Acknowledgment, Options, ServerAddress, WriteConcern};
use sdam_core::operation::{TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT};
use sdam_core::pool::PoolEvent;
use sdam_core::session::TransactionState;
use sdam_core::topology::EventKind;
use sdam_simulation::sim::{ListenBacklog, WhenFull};
use sdam_simulation::virtual_time::Runtime;

use super::{Fixture, address};

/// The time for which a transaction is tried again if it has no limit of its own.
const LIMIT: Duration = Duration::from_secs(120);

/// Lets time pass, and hears what happens when it does.
fn pass(fixture: &mut Fixture, time: Duration) {
    const STEP: Duration = Duration::from_millis(1);
    for _ in 0..time.as_millis() {
        fixture.simulation.run_for(STEP);
        fixture.hear(&mut |_, _| {});
    }
}

fn start(fixture: &Fixture) -> ClientSession<Runtime> {
    fixture.client.start_session().run().unwrap()
}

/// Two mongos, which are equally near; a transaction of the session was committed at one of them.
fn pinned() -> (Fixture, ClientSession<Runtime>) {
    let mut fixture = Fixture::sharded(2, "localThresholdMS=1000", 7);
    let (things, session) = (fixture.things(), start(&fixture));
    let pinned = session.clone();
    let (done, _) = fixture.run(async move {
        things.insert_one(&doc! {}).await?;
        pinned.start_transaction().await?;
        things.insert_one(&doc! {}).session(&pinned).await?;
        pinned.commit_transaction().await
    });
    done.unwrap();
    fixture.heard.clear();
    (fixture, session)
}

fn addresses(fixture: &Fixture) -> BTreeSet<ServerAddress> {
    fixture.ended("find").into_iter().map(|ended| ended.address).collect()
}

/// TXN-P1, "Test that starting a new transaction on a pinned ClientSession unpins the session and
/// normal server selection is performed for the next operation".
#[test]
fn txn_p1_the_next_transaction_selects_a_mongos_again() {
    let (mut fixture, session) = pinned();
    let things = fixture.things();
    let (done, _) = fixture.run(async move {
        for _ in 0..50 {
            session.start_transaction().await?;
            assert!(things.find_one(doc! {}).session(&session).await?.is_some());
            session.commit_transaction().await?;
        }
        Ok::<_, Error>(())
    });
    done.unwrap();
    assert_eq!(addresses(&fixture), (0..2).map(address).collect());
}

/// TXN-P2, "Test non-transaction operations using a pinned ClientSession unpins the session and
/// normal server selection is performed".
#[test]
fn txn_p2_what_is_in_no_transaction_selects_a_mongos_again() {
    let (mut fixture, session) = pinned();
    let things = fixture.things();
    let (done, _) = fixture.run(async move {
        for _ in 0..50 {
            assert!(things.find_one(doc! {}).session(&session).await?.is_some());
        }
        Ok::<_, Error>(())
    });
    done.unwrap();
    assert_eq!(addresses(&fixture), (0..2).map(address).collect());
}

/// Refuses every new connection, as an overloaded mongos does.
fn overload(fixture: &mut Fixture) {
    let backlog = ListenBacklog::new(1000, 1).with_waiting_logins(0, WhenFull::RefuseConnections);
    fixture.simulation.set_listen_backlog(Some(backlog));
}

/// Ends the overload when a check-out has failed by it.
fn relieve(fixture: &mut Fixture, kind: &EventKind) {
    if matches!(kind, EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { .. }, .. }) {
        fixture.simulation.set_listen_backlog(None);
    }
}

/// Transactions, "Mongos Pinning": "Drivers MUST send all commands for a single transaction to the
/// same mongos", also if the first of them meets an overload before it is sent.
#[test]
fn a_transaction_stays_at_one_mongos_whose_first_command_met_an_overload() {
    for seed in 0..10 {
        let mut fixture = Fixture::sharded(2, "localThresholdMS=1000", seed);
        let (things, session) = (fixture.things(), start(&fixture));
        overload(&mut fixture);
        let within = async move {
            session.start_transaction().await?;
            for _ in 0..10 {
                things.find_one(doc! {}).session(&session).await?;
            }
            session.commit_transaction().await
        };
        let (done, _) = fixture.run_with(within, relieve);
        done.unwrap();
        assert_eq!(fixture.check_outs()[0], "connectionCheckOutFailed");
        assert_eq!(addresses(&fixture).len(), 1, "seed {seed}");
    }
}

/// The same, if that is a later command: it comes again at the mongos that knows the transaction.
#[test]
fn a_command_that_met_an_overload_comes_again_at_the_mongos_of_its_transaction() {
    for seed in 0..10 {
        let options = "localThresholdMS=1000&maxIdleTimeMS=1000";
        let mut fixture = Fixture::sharded(2, options, seed);
        let (things, session) = (fixture.things(), start(&fixture));
        let (first, of_first) = (things.clone(), session.clone());
        let (begun, _) = fixture.run(async move {
            of_first.start_transaction().await?;
            first.find_one(doc! {}).session(&of_first).await
        });
        begun.unwrap();
        pass(&mut fixture, Duration::from_secs(2));
        overload(&mut fixture);
        let later = async move {
            things.insert_one(&doc! {}).session(&session).await?;
            things.find_one(doc! {}).session(&session).await?;
            session.commit_transaction().await
        };
        let (done, _) = fixture.run_with(later, relieve);
        done.unwrap();
        assert!(fixture.check_outs().contains(&"connectionCheckOutFailed"));
        assert_eq!(addresses(&fixture).len(), 1, "seed {seed}");
    }
}

/// TXN-P3, "Test that `PoolClearedError` has `TransientTransactionError` label", which is CMAP-P6:
/// nothing is sent, and no other server is selected, as the transaction runs again as a whole.
#[test]
fn txn_p3_a_cleared_pool_is_a_transient_error() {
    let mut fixture = Fixture::new("maxPoolSize=1&serverSelectionTimeoutMS=2000");
    let lost = doc! { "failCommands": ["insert"], "closeConnection": true, "blockConnection": true,
    "blockTimeMS": 100 };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, lost);
    let (things, session) = (fixture.things(), start(&fixture));
    // It holds the only connection, and its failure clears the pool while another one waits.
    let first = things.clone();
    let holder = fixture.begin(async move { first.insert_one(&doc! {}).await.map(drop) });
    fixture.simulation.run_for(Duration::from_millis(50));
    let (outcome, _) = fixture.run(async move {
        session.start_transaction().await?;
        things.insert_one(&doc! {}).session(&session).await.map(drop)
    });
    let error: Error = outcome.unwrap_err();
    assert!(error.to_string().contains("clear"), "{error}");
    assert!(error.labels().contains(&TRANSIENT_TRANSACTION), "{error:?}");
    assert!(holder.lock().unwrap().take().is_some_and(|held| held.is_ok()), "it was retried");
}

/// TXN-P4, "Write concern not inherited from collection object inside transaction".
#[test]
fn txn_p4_the_write_concern_of_a_collection_does_not_count() {
    let mut fixture = Fixture::new("");
    let (things, session) = (fixture.things(), start(&fixture));
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let unacknowledged = things.with_write_concern(none);
    let (outcome, _) = fixture.run(async move {
        session.start_transaction().await?;
        let inserted = unacknowledged.insert_one(&doc! { "n": 1 }).session(&session).await?;
        session.commit_transaction().await?;
        session.end();
        Ok::<_, Error>((inserted, things.count_documents(doc! { "n": 1 }).await?))
    });
    let (inserted, count) = outcome.unwrap();
    assert!(inserted.acknowledged);
    assert_eq!(count, 1);
}

async fn insert(things: Collection<Runtime>, session: ClientSession<Runtime>) -> Result<(), Error> {
    let insert = async |session: ClientSession<Runtime>| {
        things.insert_one(&doc! {}).session(&session).await.map(drop)
    };
    session.with_transaction(insert).await
}

/// CTX-P3, "Retry Timeout is Enforced", with the three cases: "the timeout error propagated has the
/// same labels as the error it wraps".
#[test]
fn ctx_p3_nothing_is_tried_again_after_two_minutes() {
    let cases = [
        ("insert", TRANSIENT_TRANSACTION, 24),
        ("commitTransaction", UNKNOWN_COMMIT_RESULT, 64),
        ("commitTransaction", TRANSIENT_TRANSACTION, 251),
    ];
    for (command, label, code) in cases {
        let mut fixture = Fixture::new("");
        let data = doc! { "failCommands": [command], "errorCode": code, "errorLabels": [label],
        "blockConnection": true, "blockTimeMS": 700 };
        fixture.fail(fixture.primary(), "alwaysOn", data);
        let run = insert(fixture.things(), start(&fixture));
        let outcome = fixture.begin_timed(run);
        fixture.simulation.run_for(LIMIT + Duration::from_secs(5));
        let (outcome, took) = outcome.lock().unwrap().take().expect("it has ended");
        let error = outcome.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(error.labels().contains(&label), "{error:?}");
        assert_eq!(error.code(), Some(code), "the error that it wraps: {error:?}");
        assert!(took >= LIMIT - Duration::from_secs(1) && took < LIMIT + Duration::from_secs(1));
    }
}

/// CTX-P4, "Retry Backoff is Enforced"; that the pauses are 2.3 s with a jitter of 1, and none with
/// one of 0, a test of core says.
#[test]
fn ctx_p4_retries_are_not_made_at_once() {
    let mut fixture = Fixture::new("");
    let data = doc! { "failCommands": ["commitTransaction"], "errorCode": 251 };
    fixture.fail(fixture.primary(), doc! { "times": 13 }, data);
    let (outcome, took) = fixture.run(insert(fixture.things(), start(&fixture)));
    outcome.unwrap();
    assert_eq!(fixture.started("commitTransaction").len(), 14);
    let (least, most) = (Duration::from_millis(300), Duration::from_millis(2800));
    assert!(took > least && took < most, "{took:?}");
}

/// CSOT-P9, "endSession", with the two options that there are: the session ends at once, and its
/// transaction is aborted in the background, within that time.
#[test]
fn csot_p9_the_abort_at_the_end_of_a_session_is_limited() {
    let own = SessionOptions::default().with_default_timeout(Duration::from_millis(150));
    for (uri, options) in [("timeoutMS=150", None), ("", Some(own))] {
        let mut fixture = Fixture::new(uri);
        let data = doc! { "failCommands": ["abortTransaction"], "blockConnection": true,
        "blockTimeMS": 200 };
        fixture.fail(fixture.primary(), doc! { "times": 1 }, data);
        let session = fixture.client.start_session().with_options(options).run().unwrap();
        let things = fixture.things();
        let (outcome, _) = fixture.run(async move {
            session.start_transaction().await?;
            things.insert_one(&doc! { "x": 1 }).session(&session).await?;
            session.end();
            Ok::<_, Error>(())
        });
        outcome.unwrap();
        pass(&mut fixture, Duration::from_millis(300));
        let (begun, ended) =
            (fixture.started("abortTransaction"), fixture.ended("abortTransaction"));
        assert!(!ended[0].succeeded, "{ended:?}");
        let took = ended[0].at - begun[0];
        assert!(took <= Duration::from_millis(152), "{took:?}");
    }
}

/// CSOT-P10, "timeoutMS is refreshed for abortTransaction if the callback fails".
#[test]
fn csot_p10_the_abort_after_the_callback_has_the_whole_time() {
    let mut fixture = Fixture::new("timeoutMS=150");
    let data = doc! { "failCommands": ["insert", "abortTransaction"], "blockConnection": true,
    "blockTimeMS": 200 };
    fixture.fail(fixture.primary(), doc! { "times": 2 }, data);
    let (outcome, _) = fixture.run(insert(fixture.things(), start(&fixture)));
    let error = outcome.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    for name in ["insert", "abortTransaction"] {
        let ended = fixture.ended(name);
        assert_eq!(fixture.started(name).len(), ended.len());
        assert!(ended.len() == 1 && !ended[0].succeeded, "{name}: {ended:?}");
    }
}

/// Transactions, "endSession changes": "Drivers MUST abort any open transaction", and it is the
/// mongos that aborts which has it.
#[test]
fn a_session_that_ends_aborts_its_transaction_where_it_is() {
    let mut fixture = Fixture::sharded(2, "localThresholdMS=1000", 7);
    let (things, session) = (fixture.things(), start(&fixture));
    let (outcome, _) = fixture.run(async move {
        session.start_transaction().await?;
        things.insert_one(&doc! {}).session(&session).await?;
        drop(session);
        Ok::<_, Error>(())
    });
    outcome.unwrap();
    pass(&mut fixture, Duration::from_millis(300));
    let (insert, abort) = (fixture.ended("insert"), fixture.ended("abortTransaction"));
    assert!(abort[0].succeeded);
    assert_eq!(insert[0].address, abort[0].address);
}

/// A session may outlive its client, which has its transaction aborted when it is closed.
#[test]
fn the_transaction_of_a_session_that_outlives_its_client_is_aborted() {
    let mut fixture = Fixture::new("");
    let (things, session, client) = (fixture.things(), start(&fixture), fixture.client.clone());
    let (outcome, _) = fixture.run(async move {
        session.start_transaction().await?;
        things.insert_one(&doc! {}).session(&session).await?;
        client.topology().close().await;
        session.end();
        Ok::<_, Error>(session.transaction_state())
    });
    assert_eq!(outcome.unwrap(), Ok(TransactionState::Aborted));
    assert_eq!(fixture.started("abortTransaction").len(), 1);
}

/// Runs a transaction that inserts a document with this `_id`, and has so many commits fail like
/// this; returns the outcome.
fn failing_commit(
    fixture: &mut Fixture,
    id: i32,
    (times, failure): (i32, Document),
) -> CommitOutcome {
    let (things, session) = (fixture.things(), start(fixture));
    let mut data = doc! { "failCommands": ["commitTransaction"] };
    data.extend(failure);
    fixture.fail(fixture.primary(), doc! { "times": times }, data);
    let (outcome, _) = fixture.run(async move {
        session.start_transaction().await?;
        things.insert_one(&doc! { "_id": id }).session(&session).await?;
        session.commit_transaction().outcome().await
    });
    outcome.unwrap()
}

/// Asks for an outcome by the text of its token, with a client that knows of nothing else.
fn ask(fixture: &mut Fixture, outcome: CommitOutcome) -> CommitOutcome {
    let CommitOutcome::Unknown(token) = outcome else { panic!("{outcome:?}") };
    let text = token.to_string();
    let options = Options::parse(fixture.simulation.uri()).unwrap();
    let other = Client::from(fixture.simulation.topology(options).unwrap());
    let (outcome, _) =
        fixture.run(async move { other.recover_commit(text.parse().unwrap()).await });
    outcome.unwrap()
}

fn count(fixture: &mut Fixture, id: i32) -> u64 {
    let things = fixture.things();
    let (count, _) = fixture.run(async move { things.count_documents(doc! { "_id": id }).await });
    count.unwrap()
}

/// A commit whose reply was lost, one of which the servers have heard nothing until they are asked,
/// and one that was over by then.
#[test]
fn another_client_learns_what_became_of_a_commit() {
    // The client sends it twice.
    let lost = (2, doc! { "closeConnection": true });
    let late = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    let unwritten = (1, doc! { "writeConcernError": late });
    for sharded in [false, true] {
        let mut fixture = match sharded {
            true => Fixture::sharded(1, "", 7),
            false => Fixture::new(""),
        };
        let outcome = failing_commit(&mut fixture, 1, unwritten.clone());
        assert_eq!(ask(&mut fixture, outcome), CommitOutcome::Committed);
        assert_eq!(count(&mut fixture, 1), 1);
        let outcome = failing_commit(&mut fixture, 2, lost.clone());
        assert_eq!(ask(&mut fixture, outcome.clone()), CommitOutcome::Committed);
        assert_eq!(count(&mut fixture, 2), 1, "it was still in progress");
        assert_eq!(ask(&mut fixture, outcome), CommitOutcome::Committed, "asked once more");
        let outcome = failing_commit(&mut fixture, 3, lost.clone());
        fixture.simulation.run_for(Duration::from_secs(100));
        assert_eq!(ask(&mut fixture, outcome.clone()), CommitOutcome::Aborted);
        assert_eq!(count(&mut fixture, 3), 0);
        fixture.simulation.run_for(Duration::from_secs(30 * 60));
        assert_eq!(ask(&mut fixture, outcome), CommitOutcome::Forgotten);
    }
}

/// The servers' session of a commit whose outcome is asked for later has no later transaction, also
/// if its client goes on.
#[test]
fn a_client_that_goes_on_leaves_the_outcome_of_a_commit_to_be_asked_for() {
    let mut fixture = Fixture::new("");
    let (things, client) = (fixture.things(), fixture.client.clone());
    // A transaction that makes the collection would conflict with those that do, too.
    let first = things.clone();
    let (inserted, _) = fixture.run(async move { first.insert_one(&doc! {}).await });
    inserted.unwrap();
    let outcome = failing_commit(&mut fixture, 1, (1, doc! { "errorCode": 50 }));
    let (done, _) = fixture.run(async move {
        for _ in 0..5 {
            things.insert_one(&doc! {}).await?;
            let session = client.start_session().run()?;
            insert(things.clone(), session).await?;
        }
        client.close().await;
        Ok::<_, Error>(())
    });
    done.unwrap();
    assert_eq!(ask(&mut fixture, outcome), CommitOutcome::Committed);
}
