//! The official driver's API for threads.

use std::hint::black_box;
use std::time::Duration;

use bson::doc;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::sync::{ChangeStream, Client, ClientSession, Collection};
use sdam_bench::Failure;
use sdam_bench::load::on_threads;
use sdam_bench::sample::Sample;

use super::Shaped;
use crate::events::{CHANGED, Events, Small};
use crate::{DATABASE, Operation, READ, WRITTEN, check, check_update, filter, lend, take_back};

pub(super) fn measure<T: Shaped>(
    uri: &str,
    (operation, events): (Operation, Events),
    documents: Vec<T>,
    window: Duration,
) -> Result<Sample, Failure> {
    let client = Client::with_uri_str(uri)?;
    let (database, mut session) = (client.database(DATABASE), client.start_session().run()?);
    let (read, written) = (database.collection(READ), database.collection(WRITTEN));
    let mut changed = Changed { collection: database.collection(CHANGED), events, stream: None };
    let mut turn = 0;
    let once = move || {
        let collections = (&read, &written, &mut changed);
        once(operation, &mut session, collections, &documents, &mut turn)
    };
    on_threads(vec![once], window)
}

struct Changed {
    collection: Collection<Small>,
    events: Events,
    stream: Option<ChangeStream<ChangeStreamEvent<Small>>>,
}

impl Changed {
    fn read_one(&mut self) -> Result<(), Failure> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let watch = self.collection.watch().start_at_operation_time(self.events.begun);
                self.stream.insert(watch.run()?)
            }
        };
        black_box(stream.next().ok_or("the stream has ended")??);
        if self.events.count()? {
            self.stream = None;
        }
        Ok(())
    }
}

fn once<T: Shaped>(
    operation: Operation,
    session: &mut ClientSession,
    (read, written, changed): (&Collection<T>, &Collection<T>, &mut Changed),
    documents: &[T],
    turn: &mut i32,
) -> Result<(), Failure> {
    match operation {
        Operation::FindOne => {
            let found = read.find_one(filter(turn)).run()?;
            black_box(found.ok_or("no document has come")?);
        }
        Operation::InsertOne => {
            black_box(written.insert_one(&documents[0]).run()?);
        }
        Operation::InsertMany => {
            black_box(written.insert_many(documents).run()?);
        }
        Operation::Find => {
            let (mut cursor, mut count) = (read.find(doc! {}).run()?, 0);
            while cursor.advance()? {
                black_box(cursor.deserialize_current()?);
                count += 1;
            }
            check(count)?;
        }
        Operation::Transaction => {
            session.start_transaction().run()?;
            for update in [lend(), take_back()] {
                let one = read.update_one(filter(turn), update).session(&mut *session);
                check_update(one.run()?.modified_count)?;
            }
            session.commit_transaction().run()?;
        }
        Operation::ChangeStream => changed.read_one()?,
    }
    Ok(())
}
