//! Operations on buckets (GridFS), as calls of the driver's interface.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document};
use sdam::generic::{Database, GridFsBucket, GridFsDownloadStream};
use sdam::options::{FindOptions, GridFsBucketOptions};
use sdam_host::Runtime;

use super::operate::{Own, Reason, all, milliseconds};
use crate::unified::format::{FormatError, Node, Object, concerns};
use crate::unified::matching;

/// Makes the bucket that an entity describes (Unified Test Format, "bucketOptions").
pub(super) fn bucket<R: Runtime>(
    database: &Database<R>,
    options: Document,
) -> Result<GridFsBucket<R>, Reason> {
    let mut of = Node::at("bucketOptions", options).object()?;
    let mut options = GridFsBucketOptions::default();
    options.bucket_name = of.optional("bucketName", Node::string)?;
    options.chunk_size_bytes = of.optional("chunkSizeBytes", size)?;
    options.read_concern = of.optional("readConcern", concerns::read_concern)?;
    options.write_concern = of.optional("writeConcern", concerns::write_concern)?;
    options.read_preference = of.optional("readPreference", concerns::read_preference)?;
    let limit = of.optional("timeoutMS", Node::integer)?.map(milliseconds).transpose();
    options.timeout = limit.map_err(|failed| Reason::Malformed(failed.message))?;
    of.finish()?;
    Ok(database.gridfs_bucket_with_options(options))
}

/// Runs an operation on a bucket.
pub(super) async fn run<R: Runtime>(
    bucket: &GridFsBucket<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    match name {
        "upload" => return upload(bucket, own, of).await.map(Some),
        "download" => {
            let download = own.of(bucket.open_download_stream(of.required("id", Node::any)?));
            of.finish()?;
            return read(download.await?).await.map(Some);
        }
        "downloadByName" => {
            let filename = of.required("filename", Node::string)?;
            let revision = of.optional("revision", revision)?;
            let mut download = own.of(bucket.open_download_stream_by_name(filename));
            if let Some(revision) = revision {
                download = download.revision(revision);
            }
            of.finish()?;
            return read(download.await?).await.map(Some);
        }
        "find" => {
            let filter = of.required("filter", Node::document)?;
            let find = own.of(bucket.find(filter)).with_type::<Document>();
            let options = FindOptions::from_document(of.rest())?;
            return all(find.with_options(options).await?).await.map(Some);
        }
        "delete" => own.of(bucket.delete(of.required("id", Node::any)?)).await?,
        "deleteByName" => {
            own.of(bucket.delete_by_name(of.required("filename", Node::string)?)).await?;
        }
        "rename" => {
            let (id, to) = (of.required("id", Node::any)?, new_name(&mut of)?);
            own.of(bucket.rename(id, to)).await?;
        }
        "renameByName" => {
            let (from, to) = (of.required("filename", Node::string)?, new_name(&mut of)?);
            own.of(bucket.rename_by_name(from, to)).await?;
        }
        "drop" => own.of(bucket.drop()).await?,
        _ => return Err(of.broken("is of no operation on buckets").into()),
    }
    of.finish()?;
    Ok(None)
}

async fn upload<R: Runtime>(
    bucket: &GridFsBucket<R>,
    own: Own,
    mut of: Object,
) -> Result<Bson, Reason> {
    let filename = of.required("filename", Node::string)?;
    let source = of.required("source", |node| {
        let mut source = node.object()?;
        let refused = source.broken("must have an even number of hexadecimal digits");
        let hex = source.required("$$hexBytes", Node::string)?;
        source.finish()?;
        matching::bytes(&hex).ok_or(refused)
    })?;
    let size = of.optional("chunkSizeBytes", size)?;
    let metadata = of.optional("metadata", Node::document)?;
    of.finish()?;
    let mut upload = own.of(bucket.upload_from_reader(filename, &source[..]));
    if let Some(size) = size {
        upload = upload.chunk_size_bytes(size);
    }
    Ok(upload.metadata(metadata).await?)
}

async fn read<R: Runtime>(mut stream: GridFsDownloadStream<R>) -> Result<Bson, Reason> {
    let mut bytes = Vec::new();
    while let Some(piece) = stream.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes }))
}

fn new_name(of: &mut Object) -> Result<String, FormatError> {
    of.required("newFilename", Node::string)
}

fn size(node: Node) -> Result<u32, FormatError> {
    let too_large = node.refuse("must be a number of 32 bits");
    u32::try_from(node.count()?).map_err(|_| too_large)
}

fn revision(node: Node) -> Result<i32, FormatError> {
    let too_large = node.refuse("must be a number of 32 bits");
    i32::try_from(node.integer()?).map_err(|_| too_large)
}
