//! The prose tests of Transactions and of their convenient API, and outcomes that are not known; those
//! about time, and about several mongos, are played in virtual time.

use std::sync::atomic::{AtomicU32, Ordering};

use bson::{Bson, Document, doc};
use sdam::error::{CallbackError, Error};
use sdam::generic::{Client, ClientSession};
use sdam::results::CommitOutcome;
use sdam_core::config::{Acknowledgment, Options, WriteConcern};
use sdam_core::session::TransactionState;
use sdam_host::Runtime;

use super::{Fixture, Outcome, names};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    write_concerns_of_collections_do_not_count(fixture).await?;
    own_errors_are_returned_at_once(fixture).await?;
    values_are_returned(fixture).await?;
    write_conflicts_run_the_whole_again(fixture).await?;
    others_learn_what_became_of_a_commit(fixture).await
}

/// TXN-P4: "Write concern not inherited from collection object inside transaction".
async fn write_concerns_of_collections_do_not_count<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "unacknowledged").await?;
    // A transaction makes no collection before 4.4.
    things.insert_one(&doc! { "n": 0 }).await?;
    let session = client.start_session().run()?;
    session.start_transaction().await?;
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let within = things.with_write_concern(none);
    assert!(within.insert_one(&doc! { "n": 1 }).session(&session).await?.acknowledged);
    session.commit_transaction().await?;
    session.end();
    assert_eq!(things.count_documents(doc! { "n": 1 }).await?, 1);
    Ok(())
}

/// An error of an application's own.
#[derive(Debug)]
enum Own {
    Overdrawn,
    Database(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl CallbackError for Own {
    fn database_error(&self) -> Option<&Error> {
        match self {
            Self::Overdrawn => None,
            Self::Database(error) => Some(error),
        }
    }
}

/// CTX-P1: "Callback Raises a Custom Error".
async fn own_errors_are_returned_at_once<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "overdrawn").await?;
    things.insert_one(&doc! { "_id": 0 }).await?;
    let session = client.start_session().run()?;
    log.all();
    let insert = async |session: ClientSession<R>| {
        things.insert_one(&doc! { "_id": 1 }).session(&session).await?;
        Err::<(), _>(Own::Overdrawn)
    };
    let outcome = session.with_transaction(insert).await;
    assert!(matches!(outcome, Err(Own::Overdrawn)), "{outcome:?}");
    assert_eq!(names(&log.sent()), ["insert", "abortTransaction"]);
    assert_eq!(session.transaction_state()?, TransactionState::Aborted);
    assert_eq!(things.count_documents(doc! {}).await?, 1);
    Ok(())
}

/// CTX-P2: "Callback Returns a Value".
async fn values_are_returned<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "values").await?;
    things.insert_one(&doc! { "_id": 0 }).await?;
    let session = client.start_session().run()?;
    log.all();
    let insert = async |session: ClientSession<R>| {
        things.insert_one(&doc! { "_id": 7 }).session(&session).await
    };
    let inserted = session.with_transaction::<_, Error, _>(insert).await?;
    assert_eq!(inserted.inserted_id, Bson::Int32(7));
    assert_eq!(names(&log.sent()), ["insert", "commitTransaction"]);
    assert_eq!(things.count_documents(doc! {}).await?, 2);
    Ok(())
}

/// Convenient API for Transactions, "Sequence of Actions", step 7: what has the label
/// `TransientTransactionError` is run again, here because of another transaction's write.
async fn write_conflicts_run_the_whole_again<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "conflicts").await?;
    things.insert_one(&doc! { "_id": 0, "n": 0 }).await?;
    let (session, other) = (client.start_session().run()?, client.start_session().run()?);
    other.start_transaction().await?;
    let increment = || doc! { "$inc": { "n": 1 } };
    things.update_one(doc! { "_id": 0 }, increment()).session(&other).await?;
    log.all();
    let calls = AtomicU32::new(0);
    let update = async |session: ClientSession<R>| {
        calls.fetch_add(1, Ordering::Relaxed);
        let outcome = things.update_one(doc! { "_id": 0 }, increment()).session(&session).await;
        if outcome.is_err() {
            other.commit_transaction().await?;
        }
        outcome
    };
    session.with_transaction::<_, Error, _>(update).await?;
    assert_eq!(calls.into_inner(), 2);
    let sent = log.sent();
    let expected =
        ["update", "commitTransaction", "abortTransaction", "update", "commitTransaction"];
    assert_eq!(names(&sent), expected);
    let found = things.find_one(doc! { "_id": 0 }).await?;
    assert_eq!(found.and_then(|it| it.get_i32("n").ok()), Some(2));
    Ok(())
}

/// UnknownTransactionCommitResult: a commit that is lost twice, and what another client learns of it
/// by the text of its token: the transaction is still in progress, or was aborted meanwhile.
async fn others_learn_what_became_of_a_commit<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let options = Options::parse(&format!("mongodb://{}/?{}", fixture.seed, fixture.options))?;
    let other = Client::from((fixture.runtime.connect)(options)?);
    let things = fixture.empty(&client, "outcomes").await?;
    things.insert_one(&doc! { "_id": 0 }).await?;
    for (id, is_killed) in [(1, false), (2, true)] {
        let session = client.start_session().run()?;
        session.start_transaction().await?;
        things.insert_one(&doc! { "_id": id }).session(&session).await?;
        let lost = doc! { "failCommands": ["commitTransaction"], "closeConnection": true };
        fixture.fail(doc! { "times": 2 }, lost).await?;
        let outcome = session.commit_transaction().outcome().await?;
        let CommitOutcome::Unknown(token) = outcome else { panic!("{outcome:?}") };
        let id = Document::try_from(session.id().expect("it has a name"))?;
        drop(session);
        let expected = match is_killed {
            false => CommitOutcome::Committed,
            true => {
                let kill = doc! { "killSessions": [id] };
                client.database("admin").run_command(kill).await?;
                CommitOutcome::Aborted
            }
        };
        let token = token.to_string().parse()?;
        assert_eq!(other.recover_commit(token).await?, expected);
    }
    other.close().await;
    fixture.fail_no_more().await?;
    let found: Vec<_> = things.find(doc! {}).sort(doc! { "_id": 1 }).await?.try_collect().await?;
    assert_eq!(found, [doc! { "_id": 0 }, doc! { "_id": 1 }]);
    Ok(())
}
