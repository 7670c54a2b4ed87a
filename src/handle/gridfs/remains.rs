//! The removal of what an upload has stored that is given up.

use bson::Bson;
use bson::oid::ObjectId;
use sdam_host::Runtime;

use super::bucket::GridFsBucket;
use crate::error::{Error, GridFsErrorKind};

/// The chunks of an upload that is given up, none of whose batches is under way any more.
///
/// The first chunk says whose they are, as no other upload can store one of the same number. Those
/// of another upload that has the same `_id` are left, and so are those of a file that is stored
/// after all. An empty file has none.
#[derive(Clone)]
pub(super) struct Remains {
    pub(super) id: Bson,
    /// The `_id` of the first chunk; `None` if none was made.
    pub(super) first_chunk: Option<ObjectId>,
    /// True if another upload may have this `_id`, which the application has chosen.
    pub(super) may_be_shared: bool,
    /// True if a file of this `_id` may be there: another one may, or the document was sent.
    pub(super) may_be_stored: bool,
    /// True if another upload has chunks of the same numbers.
    pub(super) is_contested: bool,
}

impl Remains {
    /// Removes them.
    ///
    /// # Errors
    ///
    /// Fails with [`ChunksInUse`](GridFsErrorKind::ChunksInUse) if they are another upload's, or
    /// those of a file that is stored; if no server answers in time, or with an error.
    pub(super) async fn remove<R: Runtime>(&self, bucket: &GridFsBucket<R>) -> Result<(), Error> {
        let in_use = || Err(bucket.error_of(&self.id, GridFsErrorKind::ChunksInUse));
        if self.is_contested {
            return in_use();
        }
        let Some(own) = self.first_chunk else {
            let is_stored = self.may_be_stored && bucket.has_file(&self.id).await?;
            return if is_stored { in_use() } else { Ok(()) };
        };
        if self.may_be_stored && bucket.has_file_with_chunks(&self.id).await? {
            return in_use();
        }
        if self.may_be_shared {
            match bucket.first_chunk(&self.id).await? {
                None => return Ok(()),
                Some(first) if first == Bson::ObjectId(own) => {}
                Some(_) => return in_use(),
            }
        }
        bucket.delete_chunks(&self.id).await
    }
}
