//! This library without a runtime.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write as _;

use bson::{Bson, Document, doc};
use sdam::blocking::{Client, Collection, GridFsBucket};
use sdam::operation::WriteModel;
use sdam_bench::Failure;

use super::codec;
use super::own::models;
use crate::data;
use crate::json::{Line, lines, to_line};
use crate::setting::{
    COMMANDS, CORPUS, DATABASE, Material, STORED, Setting, check, collections, filter_of_file,
};
use crate::steps::{on_threads, serve as serve_steps};
use crate::task::Task;

pub(super) fn serve(setting: Setting) -> Result<(), Failure> {
    let material = setting.material()?;
    if codec::serve_if_bson(&setting, &material, codec::decode)? {
        return Ok(());
    }
    let sdam = Sdam::open(setting, material)?;
    serve_steps(|| sdam.before(), |models| sdam.run(models))
}

struct Sdam {
    client: Client,
    corpus: Collection<Document>,
    bucket: GridFsBucket,
    models: Vec<(String, WriteModel)>,
    /// The `_id` of the file that is read.
    stored: Bson,
    setting: Setting,
    material: Material,
}

impl Sdam {
    fn open(setting: Setting, material: Material) -> Result<Self, Failure> {
        let client = Client::connect(setting.uri())?;
        let database = client.database(DATABASE);
        let (corpus, bucket) = (database.collection(CORPUS), database.gridfs_bucket());
        let models = models(setting.task, &material.documents);
        let stored = match setting.task {
            Task::GridfsDownload => {
                let file = bucket.find_one(doc! { "filename": STORED }).run()?;
                file.ok_or("there is no file to read")?.id
            }
            _ => Bson::Null,
        };
        Ok(Self { client, corpus, bucket, models, stored, setting, material })
    }

    /// Does what is to be done before each iteration, and returns the writes of a bulk.
    fn before(&self) -> Result<Vec<(String, WriteModel)>, Failure> {
        let database = self.client.database(DATABASE);
        match self.setting.task {
            Task::RunCommand | Task::FindOneById | Task::FindMany | Task::GridfsDownload => {}
            Task::LdjsonMultiExport | Task::GridfsMultiDownload => {
                data::empty(&self.setting.scratch)?;
            }
            Task::GridfsUpload | Task::GridfsMultiUpload => {
                self.bucket.drop().run()?;
                self.upload("one byte", b"1")?;
            }
            Task::SmallDocClientBulkWriteMixed => {
                database.drop().run()?;
                for name in collections() {
                    database.create_collection(name).run()?;
                }
            }
            _ => {
                self.corpus.drop().run()?;
                database.create_collection(CORPUS).run()?;
            }
        }
        Ok(self.models.clone())
    }

    fn run(&self, models: Vec<(String, WriteModel)>) -> Result<(), Failure> {
        let documents = &self.material.documents;
        match self.setting.task {
            Task::RunCommand => self.run_commands()?,
            Task::FindOneById => {
                for id in (1..).take(documents.len()) {
                    let found = self.corpus.find_one(doc! { "_id": id }).run()?;
                    black_box(found.ok_or("no document has come")?);
                }
            }
            Task::SmallDocInsertOne | Task::LargeDocInsertOne => {
                for document in documents {
                    black_box(self.corpus.insert_one(document).run()?);
                }
            }
            Task::FindMany => {
                let mut count = 0;
                for document in self.corpus.find(doc! {}).run()? {
                    black_box(document?);
                    count += 1;
                }
                check(count, documents.len())?;
            }
            Task::SmallDocBulkInsert | Task::LargeDocBulkInsert => {
                let inserted = self.corpus.insert_many(documents).run()?;
                check(inserted.inserted_ids.len(), documents.len())?;
            }
            Task::SmallDocCollectionBulkWriteInsert
            | Task::LargeDocCollectionBulkWriteInsert
            | Task::SmallDocCollectionBulkWriteMixed => {
                let models = models.into_iter().map(|(_, model)| model);
                let done = self.corpus.bulk_write(models).run()?;
                check(usize::try_from(done.inserted_count)?, documents.len())?;
            }
            Task::SmallDocClientBulkWriteInsert
            | Task::LargeDocClientBulkWriteInsert
            | Task::SmallDocClientBulkWriteMixed => {
                let done = self.client.bulk_write(models).run()?;
                check(usize::try_from(done.inserted_count)?, documents.len())?;
            }
            Task::GridfsUpload => self.upload(STORED, &self.material.bytes)?,
            Task::GridfsDownload => {
                let mut content = Vec::with_capacity(self.material.bytes.len());
                self.bucket.download_to_writer(self.stored.clone(), &mut content).run()?;
                self.material.check(content.len())?;
            }
            _ => self.run_parallel()?,
        }
        Ok(())
    }

    fn run_commands(&self) -> Result<(), Failure> {
        let database = self.client.database(DATABASE);
        for _ in 0..COMMANDS {
            black_box(database.run_command(doc! { "hello": true }).run()?);
        }
        Ok(())
    }

    fn run_parallel(&self) -> Result<(), Failure> {
        let (task, files) = (self.setting.task, &self.material.files);
        on_threads(self.setting.workers, files.len(), |file| match task {
            Task::LdjsonMultiImport => self.import(file),
            Task::LdjsonMultiExport => self.export(file),
            Task::GridfsMultiUpload => {
                let source = File::open(&files[file])?;
                self.bucket.upload_from_reader(data::name(&files[file])?, source).run()?;
                Ok(())
            }
            _ => {
                let name = data::name(&files[file])?;
                let target = File::create(self.setting.scratch.join(name))?;
                self.bucket.download_to_writer_by_name(name, target).run()?;
                Ok(())
            }
        })
    }

    fn import(&self, file: usize) -> Result<(), Failure> {
        let documents = lines::<Line>(&fs::read_to_string(&self.material.files[file])?)?;
        let corpus = self.corpus.clone_with_type::<Line>();
        let inserted = corpus.insert_many(&documents).ordered(false).run()?;
        check(inserted.inserted_ids.len(), documents.len())
    }

    fn export(&self, file: usize) -> Result<(), Failure> {
        let (mut text, mut count) = (Vec::new(), 0);
        let mut cursor = self.corpus.find(filter_of_file(file)).run()?;
        while cursor.advance()? {
            to_line(cursor.current().ok_or("no document has come")?, &mut text)?;
            count += 1;
        }
        fs::write(self.setting.scratch.join(format!("{file}.txt")), text)?;
        check(count, data::LINES)
    }

    fn upload(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let mut upload = self.bucket.open_upload_stream(name).run()?;
        upload.write_all(content)?;
        Ok(upload.close()?)
    }
}
