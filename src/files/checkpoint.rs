//! The place of an upload, which another process goes on from.

use bson::oid::ObjectId;
use bson::{Bson, Document};
use serde::{Deserialize, Serialize};

/// The place of an upload, as far as servers have acknowledged it: it can be kept as BSON, and
/// [resumed](crate::gridfs::GridFsBucket::resume_upload_stream), also by another process. JSON does
/// not keep the types of numbers in its metadata.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadCheckpoint {
    #[serde(rename = "_id")]
    pub(super) id: Bson,
    pub(super) filename: String,
    pub(super) chunk_size_bytes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Document>,
    pub(super) chunks: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_chunk: Option<ObjectId>,
}

impl UploadCheckpoint {
    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        &self.id
    }

    /// Returns the place in the source from which it goes on.
    pub fn bytes(&self) -> u64 {
        u64::from(self.chunks) * u64::from(self.chunk_size_bytes)
    }

    /// Returns the number of chunks that are stored.
    pub(crate) const fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns the `_id` of the first chunk, if one was made.
    pub(crate) const fn first_chunk(&self) -> Option<ObjectId> {
        self.first_chunk
    }
}

/// Prints no name, and no metadata.
impl std::fmt::Debug for UploadCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UploadCheckpoint").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
