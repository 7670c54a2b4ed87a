//! The operations of buckets, while they are described.

use std::fmt;

use bson::{Bson, Document};

use crate::command::action::Action;
use crate::files::UploadCheckpoint;

/// The number of batches, or of ranges of chunks, that are under way at once, unless an option
/// says otherwise.
const IN_FLIGHT: usize = 2;

/// The opening of a stream that stores a file.
#[derive(Clone)]
pub struct OpenUploadStream {
    pub(super) filename: String,
    pub(super) id: Option<Bson>,
    pub(super) chunk_size_bytes: Option<u32>,
    pub(super) metadata: Option<Document>,
    pub(super) in_flight: usize,
}

/// The opening of a stream that goes on with a file.
#[derive(Clone)]
pub struct ResumeUploadStream {
    pub(super) checkpoint: UploadCheckpoint,
    pub(super) in_flight: usize,
}

/// The upload of all that a reader has.
pub struct UploadFromReader<S> {
    pub(crate) upload: OpenUploadStream,
    pub(crate) reader: S,
}

/// The opening of a stream that reads a file.
#[derive(Clone)]
pub struct OpenDownloadStream {
    pub(super) file: Wanted,
    pub(super) start: Option<u64>,
    pub(super) end: Option<u64>,
    pub(super) in_flight: usize,
}

/// The file that is wanted.
#[derive(Clone)]
pub(super) enum Wanted {
    Id(Bson),
    Name { filename: String, revision: i32 },
}

/// The download of a file into a writer.
pub struct DownloadToWriter<D> {
    pub(crate) download: OpenDownloadStream,
    pub(crate) writer: D,
}

/// The deletion of a file.
#[derive(Clone)]
pub struct DeleteFile(pub(super) Bson);

/// The deletion of all files of a name.
#[derive(Clone)]
pub struct DeleteByName(pub(super) String);

/// The renaming of a file.
#[derive(Clone)]
pub struct RenameFile {
    pub(super) id: Bson,
    pub(super) to: String,
}

/// The renaming of all files of a name.
#[derive(Clone)]
pub struct RenameByName {
    pub(super) filename: String,
    pub(super) to: String,
}

/// The removal of a bucket.
#[derive(Clone, Debug)]
pub struct DropBucket;

impl OpenUploadStream {
    pub(crate) const fn new(filename: String) -> Self {
        let in_flight = IN_FLIGHT;
        Self { filename, id: None, chunk_size_bytes: None, metadata: None, in_flight }
    }
}

impl ResumeUploadStream {
    pub(crate) const fn new(checkpoint: UploadCheckpoint) -> Self {
        Self { checkpoint, in_flight: IN_FLIGHT }
    }
}

impl OpenDownloadStream {
    pub(crate) const fn of_id(id: Bson) -> Self {
        Self { file: Wanted::Id(id), start: None, end: None, in_flight: IN_FLIGHT }
    }

    pub(crate) const fn of_name(filename: String) -> Self {
        let file = Wanted::Name { filename, revision: -1 };
        Self { file, start: None, end: None, in_flight: IN_FLIGHT }
    }

    /// Says that all of it is read.
    pub(crate) fn sequential(self) -> Self {
        Self { start: self.start.or(Some(0)), ..self }
    }
}

/// Writes the options of uploads.
macro_rules! upload_options {
    ([$($parameter:ident)?] $operation:ty, $options:ident => $place:expr) => {
        impl<H $(, $parameter)?> Action<$operation, H> {
            /// Sets the `_id`, of any type; an `ObjectId` is made unless it is set.
            pub fn id(self, id: impl Into<Bson>) -> Self {
                self.with(|mut $options| {
                    $place.id = Some(id.into());
                    $options
                })
            }

            /// Sets the length of each chunk but the last, in bytes.
            pub fn chunk_size_bytes(self, size: u32) -> Self {
                self.with(|mut $options| {
                    $place.chunk_size_bytes = Some(size);
                    $options
                })
            }

            /// Sets the `metadata` of the file, for the application's use.
            pub fn metadata(self, metadata: impl Into<Option<Document>>) -> Self {
                self.with(|mut $options| {
                    $place.metadata = metadata.into();
                    $options
                })
            }
        }
    };
}

upload_options!([] OpenUploadStream, it => it);
upload_options!([S] UploadFromReader<S>, it => it.upload);

/// Writes the option that bounds the memory of uploads.
macro_rules! in_flight_option {
    ([$($parameter:ident)?] $operation:ty, $options:ident => $place:expr) => {
        impl<H $(, $parameter)?> Action<$operation, H> {
            /// Sets how many batches of chunks are sent at once, 2 unless it is set, beside the one
            /// that is being filled; each has 2 MiB at most, or one chunk. In a session, it is one.
            pub fn in_flight(self, batches: usize) -> Self {
                self.with(|mut $options| {
                    $place.in_flight = batches.max(1);
                    $options
                })
            }
        }
    };
}

in_flight_option!([] OpenUploadStream, it => it);
in_flight_option!([] ResumeUploadStream, it => it);
in_flight_option!([S] UploadFromReader<S>, it => it.upload);

/// Writes the options of downloads.
macro_rules! download_options {
    ([$($parameter:ident)?] $operation:ty, $options:ident => $place:expr) => {
        impl<H $(, $parameter)?> Action<$operation, H> {
            /// Begins at this byte.
            pub fn start(self, start: u64) -> Self {
                self.with(|mut $options| {
                    $place.start = Some(start);
                    $options
                })
            }

            /// Ends before this byte.
            pub fn end(self, end: u64) -> Self {
                self.with(|mut $options| {
                    $place.end = Some(end);
                    $options
                })
            }

            /// Sets which of the files of a name is meant, by their dates: 0 for the oldest, 1 for
            /// the next; -1, which it is unless it is set, for the newest, -2 for the one before.
            /// It does not count for a file that is named by its `_id`.
            pub fn revision(self, number: i32) -> Self {
                self.with(|mut $options| {
                    if let Wanted::Name { revision, .. } = &mut $place.file {
                        *revision = number;
                    }
                    $options
                })
            }

            /// Sets how many ranges of chunks are asked for at once, 2 unless it is set, beside the
            /// one that is read; each has 4 MiB at most, or one chunk. In a session, it is one.
            pub fn in_flight(self, ranges: usize) -> Self {
                self.with(|mut $options| {
                    $place.in_flight = ranges.max(1);
                    $options
                })
            }
        }
    };
}

download_options!([] OpenDownloadStream, it => it);
download_options!([D] DownloadToWriter<D>, it => it.download);

/// Writes the methods of a bucket that begin an action: the same for those that are awaited, and
/// for those of threads. Each has a method `act` that makes one.
macro_rules! actions_of_buckets {
    ($on:ty) => {
        /// Opens a stream that stores a file. The file is there once the stream is closed.
        ///
        /// Several files may have this name.
        ///
        /// # Errors
        ///
        /// Fails if chunks cannot be of the size that is set, or if the metadata are no BSON.
        pub fn open_upload_stream(
            &self,
            filename: impl Into<String>,
        ) -> Action<$crate::handle::gridfs::OpenUploadStream, $on> {
            self.act($crate::handle::gridfs::OpenUploadStream::new(filename.into()))
        }

        /// Opens a stream that goes on with a file from a
        /// [checkpoint](crate::generic::GridFsUploadStream::checkpoint) of its upload, behind the
        /// bytes that it says to be stored. Chunks that were stored besides are removed first.
        ///
        /// # Errors
        ///
        /// Fails if chunks are gone, as after the upload was aborted, and if the file is there
        /// already; if no server answers in time, or with an error.
        pub fn resume_upload_stream(
            &self,
            checkpoint: $crate::gridfs::UploadCheckpoint,
        ) -> Action<$crate::handle::gridfs::ResumeUploadStream, $on> {
            self.act($crate::handle::gridfs::ResumeUploadStream::new(checkpoint))
        }

        /// Opens a stream that reads a file.
        ///
        /// # Errors
        ///
        /// Fails if there is no such file, if its document cannot be true, or if the file has no
        /// such part; if no server answers in time, or with an error.
        pub fn open_download_stream(
            &self,
            id: impl Into<bson::Bson>,
        ) -> Action<$crate::handle::gridfs::OpenDownloadStream, $on> {
            self.act($crate::handle::gridfs::OpenDownloadStream::of_id(id.into()))
        }

        /// As [`open_download_stream`](Self::open_download_stream), a file by its name: the newest
        /// of those that have it, unless `revision` says otherwise.
        ///
        /// # Errors
        ///
        /// Fails as [`open_download_stream`](Self::open_download_stream) does, and if the file has
        /// no such revision.
        pub fn open_download_stream_by_name(
            &self,
            filename: impl Into<String>,
        ) -> Action<$crate::handle::gridfs::OpenDownloadStream, $on> {
            self.act($crate::handle::gridfs::OpenDownloadStream::of_name(filename.into()))
        }

        /// Deletes a file: its document, then its chunks.
        ///
        /// # Errors
        ///
        /// Fails if there is no such file, whose chunks are deleted all the same; if no server
        /// answers in time, or with an error.
        pub fn delete(
            &self,
            id: impl Into<bson::Bson>,
        ) -> Action<$crate::handle::gridfs::DeleteFile, $on> {
            self.act($crate::handle::gridfs::DeleteFile::new(id.into()))
        }

        /// Deletes all files of a name.
        ///
        /// # Errors
        ///
        /// Fails if there is none, if no server answers in time, or with an error.
        pub fn delete_by_name(
            &self,
            filename: impl Into<String>,
        ) -> Action<$crate::handle::gridfs::DeleteByName, $on> {
            self.act($crate::handle::gridfs::DeleteByName::new(filename.into()))
        }

        /// Gives a file another name.
        ///
        /// # Errors
        ///
        /// Fails if there is no such file, if no server answers in time, or with an error.
        pub fn rename(
            &self,
            id: impl Into<bson::Bson>,
            new_filename: impl Into<String>,
        ) -> Action<$crate::handle::gridfs::RenameFile, $on> {
            self.act($crate::handle::gridfs::RenameFile::new(id.into(), new_filename.into()))
        }

        /// Gives all files of a name another one.
        ///
        /// # Errors
        ///
        /// Fails if there is none, if no server answers in time, or with an error.
        pub fn rename_by_name(
            &self,
            filename: impl Into<String>,
            new_filename: impl Into<String>,
        ) -> Action<$crate::handle::gridfs::RenameByName, $on> {
            let (from, to) = (filename.into(), new_filename.into());
            self.act($crate::handle::gridfs::RenameByName::new(from, to))
        }

        /// Drops the bucket with all its files.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn drop(&self) -> Action<$crate::handle::gridfs::DropBucket, $on> {
            self.act($crate::handle::gridfs::DropBucket)
        }
    };
}

pub(crate) use actions_of_buckets;

impl DeleteFile {
    pub(crate) const fn new(id: Bson) -> Self {
        Self(id)
    }
}

impl DeleteByName {
    pub(crate) const fn new(filename: String) -> Self {
        Self(filename)
    }
}

impl RenameFile {
    pub(crate) const fn new(id: Bson, to: String) -> Self {
        Self { id, to }
    }
}

impl RenameByName {
    pub(crate) const fn new(filename: String, to: String) -> Self {
        Self { filename, to }
    }
}

/// Prints an operation without the names and the values of the application's.
macro_rules! printed_without_values {
    ($($name:ident $(<$parameter:ident>)?)+) => {
        $(impl $(<$parameter>)? fmt::Debug for $name $(<$parameter>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })+
    };
}

printed_without_values! {
    OpenUploadStream ResumeUploadStream UploadFromReader<S> OpenDownloadStream DownloadToWriter<D>
    DeleteFile DeleteByName RenameFile RenameByName
}
