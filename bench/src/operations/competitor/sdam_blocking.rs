//! This library without a runtime.

use std::hint::black_box;
use std::time::Duration;

use bson::doc;
use sdam::blocking::{Client, Collection};
use sdam_bench::Failure;
use sdam_bench::load::on_threads;
use sdam_bench::sample::Sample;

use super::Shaped;
use crate::{DATABASE, Operation, READ, WRITTEN, check, filter};

pub(super) fn measure<T: Shaped>(
    uri: &str,
    operation: Operation,
    documents: Vec<T>,
    window: Duration,
) -> Result<Sample, Failure> {
    let database = Client::connect(uri)?.database(DATABASE);
    let (read, written) = (database.collection(READ), database.collection(WRITTEN));
    let mut turn = 0;
    on_threads(vec![move || once(operation, &read, &written, &documents, &mut turn)], window)
}

fn once<T: Shaped>(
    operation: Operation,
    read: &Collection<T>,
    written: &Collection<T>,
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
            let mut count = 0;
            for document in read.find(doc! {}).run()? {
                black_box(document?);
                count += 1;
            }
            check(count)?;
        }
    }
    Ok(())
}
