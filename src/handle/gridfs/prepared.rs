//! Files whose chunks are stored, and whose documents are stored in transactions.

use std::sync::atomic::{AtomicBool, Ordering};

use bson::Bson;
use sdam_host::{ClientSession, Runtime};

use super::bucket::GridFsBucket;
use super::remains::Remains;
use crate::error::{Error, GridFsErrorKind};
use crate::files::Upload;

/// A file without its document: its chunks are stored, and no reader sees them until a transaction
/// has [stored](Self::store_in) it.
///
/// Dropping it leaves the chunks, as the outcome of a transaction may be unknown.
pub struct GridFsPreparedFile<R: Runtime> {
    bucket: GridFsBucket<R>,
    upload: Upload,
    remains: Remains,
    /// True once its chunks may be gone.
    is_aborted: AtomicBool,
}

impl<R: Runtime> GridFsPreparedFile<R> {
    pub(super) const fn new(bucket: GridFsBucket<R>, upload: Upload, remains: Remains) -> Self {
        Self { bucket, upload, remains, is_aborted: AtomicBool::new(false) }
    }

    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        self.upload.id()
    }

    /// Returns the length of the file in bytes.
    pub const fn length(&self) -> u64 {
        self.upload.length()
    }

    /// Stores the document of the file in the transaction of a session: the file is there once that
    /// is committed. A transaction that is run again calls it again.
    ///
    /// # Errors
    ///
    /// Fails if it was aborted; if no server answers in time, or with an error. `timeoutMS` of the
    /// upload counts on, unless the transaction has a limit of its own.
    pub async fn store_in(&self, session: &ClientSession<R>) -> Result<(), Error> {
        if self.is_aborted.load(Ordering::Acquire) {
            return Err(self.bucket.error_of(self.id(), GridFsErrorKind::UploadEnded));
        }
        let handle = self.bucket.handle.with_session(session);
        self.bucket.over(handle).insert_file(&self.upload).await
    }

    /// Gives the file up, and removes its chunks: for a transaction of which it is certain that it
    /// was not committed.
    ///
    /// # Errors
    ///
    /// Fails if the file is stored already, or another one with the same `_id` that has content is,
    /// or is being stored; and if its chunks cannot be removed.
    pub async fn abort(&self) -> Result<(), Error> {
        self.is_aborted.store(true, Ordering::Release);
        let removed = self.remains.remove(&self.bucket).await;
        if removed.as_ref().is_err_and(|error| error.as_grid_fs().is_some()) {
            self.is_aborted.store(false, Ordering::Release);
        }
        removed
    }
}

impl<R: Runtime> std::fmt::Debug for GridFsPreparedFile<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GridFsPreparedFile").field("length", &self.length()).finish_non_exhaustive()
    }
}
