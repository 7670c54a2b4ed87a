//! The official driver for Rust.

use std::hint::black_box;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use futures_util::io::{AsyncReadExt as _, AsyncWriteExt as _};
use mongodb::gridfs::GridFsBucket;
use mongodb::options::{DeleteOneModel, InsertOneModel, ReplaceOneModel, WriteModel};
use mongodb::{Client, Collection, Database, Namespace};
use sdam_bench::{Failure, THREADS, runtime};

use super::codec;
use crate::data;
use crate::json::{Line, lines, to_line};
use crate::setting::{
    COMMANDS, CORPUS, DATABASE, Material, STORED, Setting, check, collection, collections,
    filter_of_file,
};
use crate::steps::{on_tasks, serve as serve_steps, without};
use crate::task::Task;

/// The bytes that are written to a file at once: a chunk.
const PIECE: usize = 255 * 1024;

pub(super) fn serve(setting: Setting) -> Result<(), Failure> {
    let material = setting.material()?;
    if codec::serve_if_bson(&setting, &material, codec::decode_by_bson)? {
        return Ok(());
    }
    if matches!(
        setting.task,
        Task::SmallDocCollectionBulkWriteInsert
            | Task::LargeDocCollectionBulkWriteInsert
            | Task::SmallDocCollectionBulkWriteMixed
    ) {
        without("bulk writes of collections");
        return Ok(());
    }
    let runtime = runtime(THREADS)?;
    let official = Arc::new(runtime.block_on(Official::open(setting, material))?);
    serve_steps(
        || runtime.block_on(official.before()),
        |models| {
            let official = Arc::clone(&official);
            runtime.block_on(async { tokio::spawn(official.run(models)).await? })
        },
    )
}

/// Makes the writes of a bulk.
fn models(task: Task, documents: &[Document]) -> Vec<WriteModel> {
    let insert = |document: &Document, namespace: &Namespace| {
        let (document, namespace) = (document.clone(), namespace.clone());
        WriteModel::from(InsertOneModel::builder().namespace(namespace).document(document).build())
    };
    let mixed = |(number, document): (usize, &Document)| {
        let namespace = Namespace::new(DATABASE, collection(number));
        let replace = ReplaceOneModel::builder()
            .namespace(namespace.clone())
            .filter(doc! {})
            .replacement(document.clone())
            .build();
        let inserts = insert(document, &namespace);
        let delete = DeleteOneModel::builder().namespace(namespace).filter(doc! {}).build();
        [inserts, replace.into(), delete.into()]
    };
    let corpus = Namespace::new(DATABASE, CORPUS);
    match task {
        Task::SmallDocClientBulkWriteInsert | Task::LargeDocClientBulkWriteInsert => {
            documents.iter().map(|document| insert(document, &corpus)).collect()
        }
        Task::SmallDocClientBulkWriteMixed => {
            documents.iter().enumerate().flat_map(mixed).collect()
        }
        _ => Vec::new(),
    }
}

struct Official {
    client: Client,
    database: Database,
    corpus: Collection<Document>,
    bucket: GridFsBucket,
    models: Vec<WriteModel>,
    /// The `_id` of the file that is read.
    stored: Bson,
    setting: Setting,
    material: Material,
}

impl Official {
    async fn open(setting: Setting, material: Material) -> Result<Self, Failure> {
        let client = Client::with_uri_str(setting.uri()).await?;
        let database = client.database(DATABASE);
        let (corpus, bucket) = (database.collection(CORPUS), database.gridfs_bucket(None));
        let models = models(setting.task, &material.documents);
        let stored = match setting.task {
            Task::GridfsDownload => {
                let file = bucket.find_one(doc! { "filename": STORED }).await?;
                file.ok_or("there is no file to read")?.id
            }
            _ => Bson::Null,
        };
        Ok(Self { client, database, corpus, bucket, models, stored, setting, material })
    }

    /// Does what is to be done before each iteration, and returns the writes of a bulk.
    async fn before(&self) -> Result<Vec<WriteModel>, Failure> {
        match self.setting.task {
            Task::RunCommand | Task::FindOneById | Task::FindMany | Task::GridfsDownload => {}
            Task::LdjsonMultiExport | Task::GridfsMultiDownload => {
                data::empty(&self.setting.scratch)?;
            }
            Task::GridfsUpload | Task::GridfsMultiUpload => {
                self.bucket.drop().await?;
                // One that was used does not make the indexes of a bucket that was dropped again.
                upload(&self.database.gridfs_bucket(None), "one byte", b"1").await?;
            }
            Task::SmallDocClientBulkWriteMixed => {
                self.database.drop().await?;
                for name in collections() {
                    self.database.create_collection(name).await?;
                }
            }
            _ => {
                self.corpus.drop().await?;
                self.database.create_collection(CORPUS).await?;
            }
        }
        Ok(self.models.clone())
    }

    async fn run(self: Arc<Self>, models: Vec<WriteModel>) -> Result<(), Failure> {
        let documents = &self.material.documents;
        match self.setting.task {
            Task::RunCommand => {
                for _ in 0..COMMANDS {
                    black_box(self.database.run_command(doc! { "hello": true }).await?);
                }
            }
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
                while cursor.advance().await? {
                    black_box(cursor.deserialize_current()?);
                    count += 1;
                }
                check(count, documents.len())?;
            }
            Task::SmallDocBulkInsert | Task::LargeDocBulkInsert => {
                let inserted = self.corpus.insert_many(documents).await?;
                check(inserted.inserted_ids.len(), documents.len())?;
            }
            Task::SmallDocClientBulkWriteInsert
            | Task::LargeDocClientBulkWriteInsert
            | Task::SmallDocClientBulkWriteMixed => {
                let done = self.client.bulk_write(models).await?;
                check(usize::try_from(done.inserted_count)?, documents.len())?;
            }
            Task::GridfsUpload => upload(&self.bucket, STORED, &self.material.bytes).await?,
            Task::GridfsDownload => {
                let mut content = Vec::with_capacity(self.material.bytes.len());
                let mut file = self.bucket.open_download_stream(self.stored.clone()).await?;
                file.read_to_end(&mut content).await?;
                self.material.check(content.len())?;
            }
            _ => self.run_parallel().await?,
        }
        Ok(())
    }

    async fn run_parallel(self: &Arc<Self>) -> Result<(), Failure> {
        let (official, task) = (Arc::clone(self), self.setting.task);
        on_tasks(self.setting.workers, self.material.files.len(), move |file| {
            let official = Arc::clone(&official);
            async move {
                match task {
                    Task::LdjsonMultiImport => official.import(file).await,
                    Task::LdjsonMultiExport => official.export(file).await,
                    Task::GridfsMultiUpload => {
                        let path = &official.material.files[file];
                        let content = tokio::fs::read(path).await?;
                        upload(&official.bucket, data::name(path)?, &content).await
                    }
                    _ => official.download(file).await,
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
            to_line(cursor.current(), &mut text)?;
            count += 1;
        }
        tokio::fs::write(self.setting.scratch.join(format!("{file}.txt")), text).await?;
        check(count, data::LINES)
    }

    async fn download(&self, file: usize) -> Result<(), Failure> {
        let name = data::name(&self.material.files[file])?;
        let mut target = tokio::fs::File::create(self.setting.scratch.join(name)).await?;
        let mut download = self.bucket.open_download_stream_by_name(name).await?;
        let mut piece = vec![0; PIECE];
        loop {
            match download.read(&mut piece).await? {
                0 => return Ok(tokio::io::AsyncWriteExt::flush(&mut target).await?),
                count => {
                    tokio::io::AsyncWriteExt::write_all(&mut target, &piece[..count]).await?;
                }
            }
        }
    }
}

async fn upload(bucket: &GridFsBucket, name: &str, content: &[u8]) -> Result<(), Failure> {
    let mut upload = bucket.open_upload_stream(name).await?;
    upload.write_all(content).await?;
    Ok(upload.close().await?)
}
