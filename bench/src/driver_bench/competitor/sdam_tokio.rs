//! This library under tokio.

use std::hint::black_box;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use sdam::operation::WriteModel;
use sdam::{Client, Collection, GridFsBucket};
use sdam_bench::{Failure, THREADS, runtime};
use tokio::io::AsyncWriteExt as _;

use super::codec;
use super::own::models;
use crate::data;
use crate::json::{Line, lines, to_line};
use crate::setting::{
    COMMANDS, CORPUS, DATABASE, Material, STORED, Setting, check, collections, filter_of_file,
};
use crate::steps::{on_tasks, serve as serve_steps};
use crate::task::Task;

pub(super) fn serve(setting: Setting) -> Result<(), Failure> {
    let material = setting.material()?;
    if codec::serve_if_bson(&setting, &material, codec::decode)? {
        return Ok(());
    }
    let runtime = runtime(THREADS)?;
    let sdam = Arc::new(runtime.block_on(Sdam::open(setting, material))?);
    serve_steps(
        || runtime.block_on(sdam.before()),
        |models| {
            let sdam = Arc::clone(&sdam);
            runtime.block_on(async { tokio::spawn(sdam.run(models)).await? })
        },
    )
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
    async fn open(setting: Setting, material: Material) -> Result<Self, Failure> {
        let client = Client::connect(setting.uri()).await?;
        let database = client.database(DATABASE);
        let (corpus, bucket) = (database.collection(CORPUS), database.gridfs_bucket());
        let models = models(setting.task, &material.documents);
        let stored = match setting.task {
            Task::GridfsDownload => {
                let file = bucket.find_one(doc! { "filename": STORED }).await?;
                file.ok_or("there is no file to read")?.id
            }
            _ => Bson::Null,
        };
        Ok(Self { client, corpus, bucket, models, stored, setting, material })
    }

    /// Does what is to be done before each iteration, and returns the writes of a bulk.
    async fn before(&self) -> Result<Vec<(String, WriteModel)>, Failure> {
        let database = self.client.database(DATABASE);
        match self.setting.task {
            Task::RunCommand | Task::FindOneById | Task::FindMany | Task::GridfsDownload => {}
            Task::LdjsonMultiExport | Task::GridfsMultiDownload => {
                data::empty(&self.setting.scratch)?;
            }
            Task::GridfsUpload | Task::GridfsMultiUpload => {
                self.bucket.drop().await?;
                self.upload("one byte", b"1").await?;
            }
            Task::SmallDocClientBulkWriteMixed => {
                database.drop().await?;
                for name in collections() {
                    database.create_collection(name).await?;
                }
            }
            _ => {
                self.corpus.drop().await?;
                database.create_collection(CORPUS).await?;
            }
        }
        Ok(self.models.clone())
    }

    async fn run(self: Arc<Self>, models: Vec<(String, WriteModel)>) -> Result<(), Failure> {
        let documents = &self.material.documents;
        match self.setting.task {
            Task::RunCommand => self.run_commands().await?,
            Task::FindOneById => {
                for id in (1..).take(documents.len()) {
                    let found = self.corpus.find_one(doc! { "_id": id }).await?;
                    black_box(found.ok_or("no document has come")?);
                }
            }
            Task::SmallDocInsertOne | Task::LargeDocInsertOne => {
                for document in documents {
                    black_box(self.corpus.insert_one(document).await?);
                }
            }
            Task::FindMany => {
                let (mut cursor, mut count) = (self.corpus.find(doc! {}).await?, 0);
                while let Some(document) = cursor.try_next().await? {
                    black_box(document);
                    count += 1;
                }
                check(count, documents.len())?;
            }
            Task::SmallDocBulkInsert | Task::LargeDocBulkInsert => {
                let inserted = self.corpus.insert_many(documents).await?;
                check(inserted.inserted_ids.len(), documents.len())?;
            }
            Task::SmallDocCollectionBulkWriteInsert
            | Task::LargeDocCollectionBulkWriteInsert
            | Task::SmallDocCollectionBulkWriteMixed => {
                let models = models.into_iter().map(|(_, model)| model);
                let done = self.corpus.bulk_write(models).await?;
                check(usize::try_from(done.inserted_count)?, documents.len())?;
            }
            Task::SmallDocClientBulkWriteInsert
            | Task::LargeDocClientBulkWriteInsert
            | Task::SmallDocClientBulkWriteMixed => {
                let done = self.client.bulk_write(models).await?;
                check(usize::try_from(done.inserted_count)?, documents.len())?;
            }
            Task::GridfsUpload => self.upload(STORED, &self.material.bytes).await?,
            Task::GridfsDownload => self.download().await?,
            _ => self.run_parallel().await?,
        }
        Ok(())
    }

    async fn run_commands(&self) -> Result<(), Failure> {
        let database = self.client.database(DATABASE);
        for _ in 0..COMMANDS {
            black_box(database.run_command(doc! { "hello": true }).await?);
        }
        Ok(())
    }

    async fn run_parallel(self: &Arc<Self>) -> Result<(), Failure> {
        let (sdam, task) = (Arc::clone(self), self.setting.task);
        on_tasks(self.setting.workers, self.material.files.len(), move |file| {
            let sdam = Arc::clone(&sdam);
            async move {
                match task {
                    Task::LdjsonMultiImport => sdam.import(file).await,
                    Task::LdjsonMultiExport => sdam.export(file).await,
                    Task::GridfsMultiUpload => {
                        let path = &sdam.material.files[file];
                        sdam.upload(data::name(path)?, &tokio::fs::read(path).await?).await
                    }
                    _ => sdam.download_file(file).await,
                }
            }
        })
        .await
    }

    async fn import(&self, file: usize) -> Result<(), Failure> {
        let text = tokio::fs::read_to_string(&self.material.files[file]).await?;
        let documents = lines::<Line>(&text)?;
        let corpus = self.corpus.clone_with_type::<Line>();
        let inserted = corpus.insert_many(&documents).ordered(false).await?;
        check(inserted.inserted_ids.len(), documents.len())
    }

    async fn export(&self, file: usize) -> Result<(), Failure> {
        let (mut text, mut count) = (Vec::new(), 0);
        let mut cursor = self.corpus.find(filter_of_file(file)).await?;
        while cursor.advance().await? {
            to_line(cursor.current().ok_or("no document has come")?, &mut text)?;
            count += 1;
        }
        tokio::fs::write(self.setting.scratch.join(format!("{file}.txt")), text).await?;
        check(count, data::LINES)
    }

    async fn upload(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let mut upload = self.bucket.open_upload_stream(name).await?;
        upload.write_all(content).await?;
        Ok(upload.close().await?)
    }

    async fn download(&self) -> Result<(), Failure> {
        let mut download = self.bucket.open_download_stream(self.stored.clone()).await?;
        let mut content = Vec::with_capacity(usize::try_from(download.length())?);
        while let Some(bytes) = download.try_next().await? {
            content.extend_from_slice(&bytes);
        }
        self.material.check(content.len())
    }

    async fn download_file(&self, file: usize) -> Result<(), Failure> {
        let name = data::name(&self.material.files[file])?;
        let mut target = tokio::fs::File::create(self.setting.scratch.join(name)).await?;
        let mut download = self.bucket.open_download_stream_by_name(name).await?;
        while let Some(bytes) = download.try_next().await? {
            target.write_all(&bytes).await?;
        }
        Ok(target.flush().await?)
    }
}
