//! This library under tokio.

use std::hint::black_box;
use std::time::Duration;

use bson::doc;
use sdam::generic::{ChangeStream, Client, ClientSession, Collection};
use sdam::results::ChangeStreamEvent;
use sdam::tokio::Tokio;
use sdam_bench::Failure;
use sdam_bench::load::{Work, on_tokio};
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
    let open = async {
        let client = Client::connect(uri).await?;
        let (database, session) = (client.database(DATABASE), client.start_session().await?);
        let (read, written) = (database.collection(READ), database.collection(WRITTEN));
        let changed = Changed { collection: database.collection(CHANGED), events, stream: None };
        Ok(vec![Sdam { session, read, written, changed, operation, documents, turn: 0 }])
    };
    on_tokio(open, window)
}

struct Sdam<T: Shaped> {
    session: ClientSession<Tokio>,
    read: Collection<Tokio, T>,
    written: Collection<Tokio, T>,
    changed: Changed,
    operation: Operation,
    documents: Vec<T>,
    turn: i32,
}

struct Changed {
    collection: Collection<Tokio, Small>,
    events: Events,
    stream: Option<ChangeStream<Tokio, ChangeStreamEvent<Small>>>,
}

impl Changed {
    async fn read_one(&mut self) -> Result<(), Failure> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let watch = self.collection.watch().start_at_operation_time(self.events.begun);
                self.stream.insert(watch.await?)
            }
        };
        black_box(stream.next().await.ok_or("the stream has ended")??);
        if self.events.count()? {
            self.stream = None;
        }
        Ok(())
    }
}

impl<T: Shaped> Work for Sdam<T> {
    async fn once(&mut self) -> Result<(), Failure> {
        match self.operation {
            Operation::FindOne => {
                let found = self.read.find_one(filter(&mut self.turn)).await?;
                black_box(found.ok_or("no document has come")?);
            }
            Operation::InsertOne => {
                black_box(self.written.insert_one(&self.documents[0]).await?);
            }
            Operation::InsertMany => {
                black_box(self.written.insert_many(&self.documents).await?);
            }
            Operation::Find => {
                let (mut cursor, mut count) = (self.read.find(doc! {}).await?, 0);
                while let Some(document) = cursor.next().await {
                    black_box(document?);
                    count += 1;
                }
                check(count)?;
            }
            Operation::Transaction => {
                let (session, read) = (&self.session, &self.read);
                session.start_transaction().await?;
                for update in [lend(), take_back()] {
                    let one = read.update_one(filter(&mut self.turn), update);
                    check_update(one.session(session).await?.modified_count)?;
                }
                session.commit_transaction().await?;
            }
            Operation::ChangeStream => self.changed.read_one().await?,
        }
        Ok(())
    }
}
