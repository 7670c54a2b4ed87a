//! Raw sockets: messages that were prepared, and replies of which only the counts are looked at.

use std::cell::RefCell;
use std::net::TcpStream;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_bench::Failure;
use sdam_bench::raw;
use sdam_core::wire::{Flags, MAX_MESSAGE_LEN, write_op_msg_with_sequences};

use crate::setting::{COMMANDS, CORPUS, DATABASE, Setting, check, collection, collections};
use crate::steps::{serve as serve_steps, without};
use crate::task::Task;

pub(super) fn serve(setting: &Setting) -> Result<(), Failure> {
    let documents = setting.material()?.documents;
    let documents = documents.iter().map(RawDocumentBuf::try_from);
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let Some(messages) = messages(setting.task, &documents) else {
        without("program for it");
        return Ok(());
    };
    let stream = TcpStream::connect(setting.address)?;
    stream.set_nodelay(true)?;
    let floor = RefCell::new(Floor { stream, buffer: vec![0; MAX_MESSAGE_LEN] });
    let task = setting.task;
    serve_steps(
        || floor.borrow_mut().before(task),
        |()| floor.borrow_mut().run(task, &messages, documents.len()),
    )
}

/// Returns the messages of an iteration.
fn messages(task: Task, documents: &[RawDocumentBuf]) -> Option<Vec<Vec<u8>>> {
    let insert = |documents: &[&RawDocument]| {
        let body = rawdoc! { "insert": CORPUS, "ordered": true, "$db": DATABASE };
        with_sequences(&body, &[("documents", documents)])
    };
    let all: Vec<&RawDocument> = documents.iter().map(|document| &**document).collect();
    Some(match task {
        Task::RunCommand => vec![command(&rawdoc! { "hello": true, "$db": DATABASE }); COMMANDS],
        Task::FindOneById => {
            let find = |id| {
                let filter = rawdoc! { "_id": id };
                command(&rawdoc! {
                    "find": CORPUS, "filter": filter, "limit": 1, "singleBatch": true,
                    "$db": DATABASE,
                })
            };
            (1_i32..).map(find).take(documents.len()).collect()
        }
        Task::FindMany => {
            vec![command(&rawdoc! { "find": CORPUS, "filter": {}, "$db": DATABASE })]
        }
        Task::SmallDocInsertOne | Task::LargeDocInsertOne => {
            all.iter().map(|document| insert(&[document])).collect()
        }
        Task::SmallDocBulkInsert
        | Task::LargeDocBulkInsert
        | Task::SmallDocCollectionBulkWriteInsert
        | Task::LargeDocCollectionBulkWriteInsert => vec![insert(&all)],
        Task::SmallDocCollectionBulkWriteMixed => {
            let delete = rawdoc! { "q": {}, "limit": 1 };
            let body = rawdoc! { "delete": CORPUS, "ordered": true, "$db": DATABASE };
            let delete = with_sequences(&body, &[("deletes", &[&delete])]);
            let mixed = |document: &&RawDocument| {
                let update = rawdoc! { "q": {}, "u": (**document).to_owned() };
                let body = rawdoc! { "update": CORPUS, "ordered": true, "$db": DATABASE };
                let update = with_sequences(&body, &[("updates", &[&update])]);
                [insert(&[document]), update, delete.clone()]
            };
            all.iter().flat_map(mixed).collect()
        }
        Task::SmallDocClientBulkWriteInsert
        | Task::LargeDocClientBulkWriteInsert
        | Task::SmallDocClientBulkWriteMixed => vec![client_bulk_write(task, &all)],
        _ => return None,
    })
}

fn client_bulk_write(task: Task, documents: &[&RawDocument]) -> Vec<u8> {
    let is_mixed = task == Task::SmallDocClientBulkWriteMixed;
    let (mut ops, mut names) = (Vec::new(), vec![CORPUS.to_owned()]);
    if is_mixed {
        names = collections().collect();
    }
    for (number, document) in documents.iter().enumerate() {
        let name = names.iter().position(|name| !is_mixed || *name == collection(number));
        let name = name.and_then(|name| i32::try_from(name).ok()).unwrap_or_default();
        let document = (**document).to_owned();
        ops.push(rawdoc! { "insert": name, "document": document.clone() });
        if is_mixed {
            let multi = false;
            ops.push(rawdoc! {
                "update": name, "filter": {}, "updateMods": document, "multi": multi,
            });
            ops.push(rawdoc! { "delete": name, "filter": {}, "multi": multi });
        }
    }
    let name = |name| rawdoc! { "ns": format!("{DATABASE}.{name}") };
    let names: Vec<RawDocumentBuf> = names.into_iter().map(name).collect();
    let [ops, names] = [&ops, &names].map(|all| all.iter().map(|one| &**one).collect::<Vec<_>>());
    let body = rawdoc! { "bulkWrite": 1, "errorsOnly": true, "ordered": true, "$db": "admin" };
    with_sequences(&body, &[("ops", &ops), ("nsInfo", &names)])
}

fn command(body: &RawDocument) -> Vec<u8> {
    raw::message(Flags::NONE, body)
}

fn with_sequences(body: &RawDocument, sequences: &[(&str, &[&RawDocument])]) -> Vec<u8> {
    let mut message = Vec::new();
    write_op_msg_with_sequences(&mut message, 1, 0, Flags::NONE, body, sequences);
    message
}

struct Floor {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Floor {
    fn exchange(&mut self, message: &[u8]) -> Result<&RawDocument, Failure> {
        let reply = raw::exchange(&mut self.stream, message, &mut self.buffer)?;
        Ok(RawDocument::from_bytes(reply)?)
    }

    /// Does what is to be done before each iteration.
    fn before(&mut self, task: Task) -> Result<(), Failure> {
        let mut names = vec![CORPUS.to_owned()];
        match task {
            Task::RunCommand | Task::FindOneById | Task::FindMany => return Ok(()),
            Task::SmallDocClientBulkWriteMixed => names = collections().collect(),
            _ => {}
        }
        for name in names {
            // An error if there is none.
            self.exchange(&command(&rawdoc! { "drop": name.as_str(), "$db": DATABASE }))?;
            let create = command(&rawdoc! { "create": name, "$db": DATABASE });
            succeeded(self.exchange(&create)?)?;
        }
        Ok(())
    }

    /// Sends the messages of an iteration, one after another.
    fn run(&mut self, task: Task, messages: &[Vec<u8>], documents: usize) -> Result<(), Failure> {
        if task == Task::FindMany {
            return self.find(&messages[0], documents);
        }
        let counts_all = documents / messages.len();
        for message in messages {
            let reply = self.exchange(message)?;
            succeeded(reply)?;
            match task {
                Task::RunCommand | Task::FindOneById => {}
                _ => {
                    let count = reply.get("nInserted")?.or(reply.get("n")?);
                    let count = count.and_then(|count| count.as_i32()).unwrap_or_default();
                    check(usize::try_from(count)?, counts_all.max(1))?;
                }
            }
        }
        Ok(())
    }

    /// Reads a cursor to its end.
    fn find(&mut self, message: &[u8], documents: usize) -> Result<(), Failure> {
        let (mut id, mut count) = read_batch(self.exchange(message)?, "firstBatch")?;
        while id != 0 {
            let next = rawdoc! { "getMore": id, "collection": CORPUS, "$db": DATABASE };
            let more;
            (id, more) = read_batch(self.exchange(&command(&next))?, "nextBatch")?;
            count += more;
        }
        check(count, documents)
    }
}

/// Returns the `_id` of a cursor, and the number of documents in its batch.
fn read_batch(reply: &RawDocument, name: &str) -> Result<(i64, usize), Failure> {
    succeeded(reply)?;
    let cursor = reply.get_document("cursor")?;
    Ok((cursor.get_i64("id")?, cursor.get_array(name)?.into_iter().count()))
}

fn succeeded(reply: &RawDocument) -> Result<(), Failure> {
    match reply.get_f64("ok")? {
        1.0 => Ok(()),
        _ => Err(format!("the server has refused it: {reply:?}").into()),
    }
}
