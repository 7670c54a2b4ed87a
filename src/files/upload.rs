//! An upload as a value: bytes in, batches of chunks out, and the document of the file at the end.
//!
//! Implements "File Upload" of GridFS.

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, RawBson, RawDocumentBuf};

use super::checkpoint::UploadCheckpoint;
use super::file::MAX_CHUNK_SIZE;
use crate::command::documents::{Documents, new_id};
use crate::error::{Error, GridFsErrorKind};
use crate::value::{IntoDocument as _, Value};

/// The length of a batch, in bytes, unless one chunk is longer.
const BATCH_LEN: usize = 2 * 1024 * 1024;

/// The bytes that a batch may have besides, for the heads of its chunks.
const HEADS_LEN: usize = 4 * 1024;

/// The number of chunks in a batch.
const BATCH_COUNT: usize = 10_000;

/// A file that is written.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    id: Bson,
    raw_id: RawBson,
    filename: String,
    metadata: Option<Document>,
    raw_metadata: Option<RawDocumentBuf>,
    chunk_size: usize,
    /// The number of bytes that were taken.
    length: u64,
    /// The number of the next chunk.
    next: i32,
    /// The `_id` of the first chunk, once there is one.
    first_chunk: Option<ObjectId>,
    /// The number of bytes in the chunk that is being filled; 0 if there is none.
    filled: usize,
    batch: Batch,
}

/// Chunks that are inserted together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) documents: Documents,
    /// The number of bytes of the file in it.
    pub(crate) bytes: u64,
}

impl Upload {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Fails if chunks cannot be of this size, and if the metadata or the `_id` are no BSON.
    pub(crate) fn new(
        id: Bson,
        filename: String,
        metadata: Option<Document>,
    ) -> Result<Self, Error> {
        let raw_id = Value::of(id.clone()).0.map_err(Error::serialize)?;
        let raw_metadata = metadata.as_ref().map(|it| it.into_document().map_err(Error::serialize));
        Ok(Self {
            id,
            raw_id,
            filename,
            metadata,
            raw_metadata: raw_metadata.transpose()?,
            chunk_size: 255 * 1024,
            length: 0,
            next: 0,
            first_chunk: None,
            filled: 0,
            batch: Batch::default(),
        })
    }

    /// Sets the length of each chunk but the last.
    ///
    /// # Errors
    ///
    /// Fails if chunks cannot be of this size.
    pub(crate) fn with_chunk_size(mut self, size: u32) -> Result<Self, GridFsErrorKind> {
        if !(1..=MAX_CHUNK_SIZE).contains(&size) {
            return Err(GridFsErrorKind::ChunkSize(size));
        }
        self.chunk_size = usize::try_from(size).expect("it has 32 bits at least");
        Ok(self)
    }

    /// Goes on with a file.
    ///
    /// # Errors
    ///
    /// Fails as [`new`](Self::new) and [`with_chunk_size`](Self::with_chunk_size) do.
    pub(crate) fn resume(
        checkpoint: UploadCheckpoint,
    ) -> Result<Result<Self, GridFsErrorKind>, Error> {
        let length = checkpoint.bytes();
        let UploadCheckpoint { id, filename, chunk_size_bytes, metadata, chunks, first_chunk } =
            checkpoint;
        let upload = Self::new(id, filename, metadata)?.with_chunk_size(chunk_size_bytes);
        let next = i32::try_from(chunks).map_err(|_| GridFsErrorKind::TooManyChunks);
        Ok(upload.and_then(|upload| Ok(Self { length, next: next?, first_chunk, ..upload })))
    }

    /// Returns the place of the file from which another one goes on, if so many bytes are stored,
    /// all from the beginning.
    pub(crate) fn checkpoint(&self, stored: u64) -> UploadCheckpoint {
        let chunk_size_bytes = u32::try_from(self.chunk_size).unwrap_or(u32::MAX);
        UploadCheckpoint {
            id: self.id.clone(),
            filename: self.filename.clone(),
            chunk_size_bytes,
            metadata: self.metadata.clone(),
            chunks: u32::try_from(stored / u64::from(chunk_size_bytes)).unwrap_or(u32::MAX),
            first_chunk: self.first_chunk,
        }
    }

    pub(crate) const fn id(&self) -> &Bson {
        &self.id
    }

    /// Returns the `_id` of the first chunk, once there is one: no other upload has it.
    pub(crate) const fn first_chunk(&self) -> Option<ObjectId> {
        self.first_chunk
    }

    /// Returns the number of bytes that were taken.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns whether the batch is to be sent before more bytes are taken.
    pub(crate) fn is_full(&self) -> bool {
        let (count, length) = (self.batch.documents.len(), self.batch.documents.total_length());
        let is_full = count == BATCH_COUNT || length.saturating_add(self.chunk_size) > BATCH_LEN;
        self.filled == 0 && count > 0 && is_full
    }

    /// Takes bytes, as many as the batch has room for; returns their number.
    ///
    /// # Errors
    ///
    /// Fails if there are more chunks than numbers for them.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<usize, GridFsErrorKind> {
        let given = bytes.len();
        while !bytes.is_empty() && !self.is_full() {
            if self.filled == 0 {
                self.begin_chunk()?;
            }
            let count = bytes.len().min(self.chunk_size - self.filled);
            let (taken, rest) = bytes.split_at(count);
            self.batch.documents.extend_binary(taken);
            self.filled += count;
            self.batch.bytes += count as u64;
            self.length += count as u64;
            bytes = rest;
            if self.filled == self.chunk_size {
                self.end_chunk();
            }
        }
        Ok(given - bytes.len())
    }

    /// Ends the last chunk, "only as large as necessary".
    pub(crate) fn finish(&mut self) {
        if self.filled > 0 {
            self.end_chunk();
        }
    }

    /// Returns the chunks that are to be sent; `None` if there are none, as "drivers MUST NOT
    /// create any empty chunks".
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        debug_assert_eq!(self.filled, 0, "a chunk that is not full is not sent");
        (self.batch.documents.len() > 0).then(|| std::mem::take(&mut self.batch))
    }

    /// Writes the document of the file, which was stored at this time.
    pub(crate) fn files_document(&self, date: DateTime) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), self.raw_id.as_raw_bson_ref());
        document.append(cstr!("length"), i64::try_from(self.length).unwrap_or(i64::MAX));
        document.append(cstr!("chunkSize"), i32::try_from(self.chunk_size).unwrap_or(i32::MAX));
        document.append(cstr!("uploadDate"), date);
        document.append(cstr!("filename"), self.filename.as_str());
        if let Some(metadata) = &self.raw_metadata {
            document.append(cstr!("metadata"), metadata.clone());
        }
        document
    }

    fn begin_chunk(&mut self) -> Result<(), GridFsErrorKind> {
        let n = self.next;
        self.next = n.checked_add(1).ok_or(GridFsErrorKind::TooManyChunks)?;
        let id = new_id();
        if n == 0 {
            self.first_chunk = Some(id);
        }
        let mut head = RawDocumentBuf::new();
        head.append(cstr!("_id"), id);
        head.append(cstr!("files_id"), self.raw_id.as_raw_bson_ref());
        head.append(cstr!("n"), n);
        self.batch.documents.begin_binary(&head, cstr!("data"));
        if self.batch.documents.total_length() >= BATCH_LEN / 4 {
            // It becomes a whole batch, which doubling would give up to twice its length.
            self.batch.documents.reserve_whole(BATCH_LEN + HEADS_LEN);
        }
        Ok(())
    }

    fn end_chunk(&mut self) {
        self.batch.documents.end_binary();
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, DateTime, Document, RawDocument, doc, rawdoc};

    use super::{BATCH_COUNT, BATCH_LEN, Batch, GridFsErrorKind, Upload, UploadCheckpoint};

    fn upload(chunk_size: u32) -> Upload {
        let upload = Upload::new(7.into(), "a.txt".to_owned(), None).unwrap();
        upload.with_chunk_size(chunk_size).unwrap()
    }

    /// Returns the chunks of a batch without their `_id`.
    fn chunks(batch: &Batch) -> Vec<Document> {
        let without_id = |chunk: &RawDocument| {
            let mut chunk = Document::try_from(chunk).unwrap();
            assert!(chunk.remove("_id").unwrap().as_object_id().is_some());
            chunk
        };
        batch.documents.all().into_iter().map(without_id).collect()
    }

    fn chunk(n: i32, bytes: &[u8]) -> Document {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
        doc! { "files_id": 7, "n": n, "data": data }
    }

    /// GridFS, "File Upload": "All chunks except the last one must be exactly 'chunkSizeBytes'
    /// long. The last chunk can be smaller".
    #[test]
    fn bytes_are_cut_into_chunks() {
        let bytes = b"0123456789";
        for pieces in [1, 3, 4, 10] {
            let mut upload = upload(4);
            for piece in bytes.chunks(pieces) {
                assert_eq!(upload.write(piece), Ok(piece.len()));
            }
            upload.finish();
            let batch = upload.take_batch().unwrap();
            let expected = [chunk(0, b"0123"), chunk(1, b"4567"), chunk(2, b"89")];
            assert_eq!((chunks(&batch), batch.bytes), (expected.to_vec(), 10));
            assert!(upload.take_batch().is_none());
            let file = rawdoc! {
                "_id": 7, "length": 10_i64, "chunkSize": 4, "uploadDate": DateTime::MIN,
                "filename": "a.txt",
            };
            assert_eq!(upload.files_document(DateTime::MIN), file);
        }
    }

    /// The same: "Drivers MUST NOT create any empty chunks for this file", and the document has
    /// metadata if there are some.
    #[test]
    fn an_empty_file_is_a_document_alone() {
        let metadata = Some(doc! { "x": 1 });
        let mut upload = Upload::new("own".into(), String::new(), metadata).unwrap();
        upload.finish();
        assert!(upload.take_batch().is_none());
        let file = rawdoc! {
            "_id": "own", "length": 0_i64, "chunkSize": 261_120, "uploadDate": DateTime::MIN,
            "filename": "", "metadata": { "x": 1 },
        };
        assert_eq!(upload.files_document(DateTime::MIN), file);
    }

    /// A chunk that is not full is written again.
    #[test]
    fn a_file_goes_on_behind_its_full_chunks() {
        let metadata = Some(doc! { "x": 1 });
        let upload = Upload::new(7.into(), "a.txt".to_owned(), metadata).unwrap();
        let upload = upload.with_chunk_size(4).unwrap();
        let checkpoint = upload.checkpoint(9);
        assert_eq!((checkpoint.bytes(), checkpoint.id()), (8, &7.into()));
        let kept = bson::serialize_to_document(&checkpoint).unwrap();
        assert_eq!(bson::deserialize_from_document::<UploadCheckpoint>(kept).unwrap(), checkpoint);
        let first = bson::oid::ObjectId::new();
        let checkpoint = UploadCheckpoint { first_chunk: Some(first), ..checkpoint };
        let mut resumed = Upload::resume(checkpoint).unwrap().unwrap();
        assert_eq!(resumed.write(b"89"), Ok(2));
        resumed.finish();
        assert_eq!(chunks(&resumed.take_batch().unwrap()), [chunk(2, b"89")]);
        assert_eq!(
            (resumed.first_chunk(), resumed.checkpoint(8).first_chunk),
            (Some(first), Some(first))
        );
        let file = resumed.files_document(DateTime::MIN);
        assert_eq!(file.get_i64("length").unwrap(), 10);
        assert_eq!(file.get_document("metadata").unwrap(), &*rawdoc! { "x": 1 });
        let lies = UploadCheckpoint { chunks: u32::MAX, ..upload.checkpoint(0) };
        assert_eq!(Upload::resume(lies).unwrap().unwrap_err(), GridFsErrorKind::TooManyChunks);
        let lies = UploadCheckpoint { chunk_size_bytes: 0, ..upload.checkpoint(0) };
        assert_eq!(Upload::resume(lies).unwrap().unwrap_err(), GridFsErrorKind::ChunkSize(0));
    }

    /// A command has as many chunks as fit into 2 MiB, so that a stream needs no more memory.
    #[test]
    fn a_batch_has_its_limits() {
        let mut upload = upload(255 * 1024);
        let bytes = vec![7; 2 * BATCH_LEN];
        let taken = upload.write(&bytes).unwrap();
        assert_eq!((taken, upload.is_full()), (8 * 255 * 1024, true));
        assert_eq!(upload.write(&bytes), Ok(0));
        let batch = upload.take_batch().unwrap();
        assert_eq!(batch.documents.len(), 8);
        assert!(batch.documents.total_length() <= BATCH_LEN);
        assert!(!upload.is_full());
        assert_eq!(upload.write(&bytes[..1]), Ok(1));

        let mut long = self::upload(super::MAX_CHUNK_SIZE);
        let bytes = vec![7; 20 * 1024 * 1024];
        assert_eq!(long.write(&bytes), Ok(super::MAX_CHUNK_SIZE as usize));
        assert_eq!(long.take_batch().unwrap().documents.len(), 1);

        let mut short = self::upload(1);
        assert_eq!(short.write(&bytes), Ok(BATCH_COUNT));
    }

    /// Server limits: a chunk with its document fits into 16 MiB.
    #[test]
    fn sizes_that_no_chunk_can_have_are_refused() {
        for size in [0, super::MAX_CHUNK_SIZE + 1, u32::MAX] {
            let upload = Upload::new(7.into(), String::new(), None).unwrap();
            assert_eq!(upload.with_chunk_size(size).unwrap_err(), GridFsErrorKind::ChunkSize(size));
        }
    }

    /// `n` is an Int32.
    #[test]
    fn a_file_with_too_many_chunks_is_refused() {
        let mut upload = upload(4);
        upload.next = i32::MAX - 1;
        assert_eq!(upload.write(b"0123"), Ok(4));
        assert_eq!(upload.write(b"4"), Err(GridFsErrorKind::TooManyChunks));
    }
}
