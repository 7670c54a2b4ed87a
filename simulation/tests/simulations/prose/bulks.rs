//! CRUD, "bulkWrite", and Bulk Write: many writes of one operation, in as many commands as their
//! server needs.

use bson::doc;
use sdam::operation::{BulkWrite, ClientBulkWrite, InsertModel, UpdateModel, WriteModel};
use sdam_cluster::ClusterOptions;
use sdam_core::command::CommandEvent;
use sdam_core::topology::EventKind;

use super::{Fixture, address};

/// A set whose members take two writes a command.
fn small() -> Fixture {
    let cluster = ClusterOptions::new("rs", (0..3).map(address));
    Fixture::of(cluster.with_max_write_batch_size(2), "", 7)
}

fn insert(id: i32) -> WriteModel {
    WriteModel::InsertOne(InsertModel::new(doc! { "_id": id }))
}

/// The numbers of writes in the commands of that name, whose writes are called so.
fn sizes(fixture: &Fixture, name: &str, writes: &str) -> Vec<usize> {
    let size = |command: &bson::RawDocument| command.get_array(writes).unwrap().into_iter().count();
    let sizes = fixture.heard.iter().filter_map(|(_, kind)| match kind {
        EventKind::Command {
            event: CommandEvent::CommandStarted { command }, command: of, ..
        } => (of.command_name == name).then(|| size(command)),
        _ => None,
    });
    sizes.collect()
}

/// "drivers MUST adjust the index accordingly": it is that of the write in the whole bulk,
/// whichever command has it; and no command has more writes than its server takes.
#[test]
fn an_error_has_the_index_of_its_write_in_the_whole_bulk() {
    let mut fixture = small();
    let (things, client) = (fixture.things(), fixture.client.clone());
    let models = [1, 2, 3, 1, 4];
    let (outcomes, _) = fixture.run(async move {
        let bulk = BulkWrite::new(models.map(insert)).ordered(false);
        let one = things.bulk_write(bulk).await.unwrap_err();
        let others = models.map(|id| ("app.others", insert(id)));
        let bulk = ClientBulkWrite::new(others).ordered(false).verbose_results(true);
        (one, client.bulk_write(bulk).await.unwrap_err())
    });
    let one = outcomes.0.as_bulk_write().unwrap();
    let all = outcomes.1.as_client_bulk_write().unwrap();
    for errors in [&one.write_errors, &all.write_errors] {
        assert_eq!(errors.keys().collect::<Vec<_>>(), [&3]);
        assert_eq!(errors[&3].code, 11000);
    }
    assert_eq!(sizes(&fixture, "insert", "documents"), [2, 2, 1]);
    assert_eq!(sizes(&fixture, "bulkWrite", "ops"), [2, 2, 1]);
    let verbose = all.partial_result.as_ref().unwrap().verbose.as_ref().unwrap();
    assert_eq!(verbose.insert_results.keys().collect::<Vec<_>>(), [&0, &1, &2, &4]);
    assert_eq!(verbose.insert_results[&4].inserted_id, 4.into());
}

/// Retryable Writes, "Supported Write Operations": a command with a write to many documents is not
/// sent again.
#[test]
fn a_bulk_with_a_write_to_many_documents_is_not_sent_again() {
    let model = || UpdateModel::new(doc! {}, doc! { "$inc": { "n": 1 } });
    let one: fn(UpdateModel) -> WriteModel = WriteModel::UpdateOne;
    for (many, attempts) in [(one, 2), (WriteModel::UpdateMany, 1)] {
        let mut fixture = Fixture::new("");
        let lost = doc! { "failCommands": ["update"], "closeConnection": true };
        fixture.fail(fixture.primary(), doc! { "times": 1 }, lost);
        let things = fixture.things();
        let bulk = BulkWrite::new([one(model()), many(model())]);
        let (outcome, _) = fixture.run(async move { things.bulk_write(bulk).await });
        assert_eq!(outcome.is_ok(), attempts == 2, "{outcome:?}");
        assert_eq!(fixture.started("update").len(), attempts);
    }
}
