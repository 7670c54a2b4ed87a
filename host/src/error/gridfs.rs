//! The errors of files in GridFS, which no server reports: a file that is not there, and one whose
//! chunks are not what its document says.
//!
//! Implements the errors of "File Download", "File Deletion" and "Renaming stored files" of GridFS.

use std::fmt;

use bson::Bson;
use bson::oid::ObjectId;

/// A file of GridFS that cannot be read, written, renamed or deleted, for a reason that no server
/// has reported.
///
/// ```
/// # use sdam_host as sdam;
/// use sdam::{Error, GridFsErrorKind};
///
/// fn is_missing(error: &Error) -> bool {
///     error.as_grid_fs().is_some_and(|error| error.kind == GridFsErrorKind::FileNotFound)
/// }
/// # let _ = is_missing;
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file} in the bucket {bucket} {kind}{}", self.hint())]
#[non_exhaustive]
pub struct GridFsError {
    /// The bucket, as `database.name`.
    pub bucket: String,
    /// The file.
    pub file: GridFsFileIdentifier,
    /// The reason.
    pub kind: GridFsErrorKind,
}

/// A file of GridFS, as a call names it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GridFsFileIdentifier {
    /// By its name, which several files may have.
    Filename(String),
    /// By its `_id`.
    Id(Bson),
}

/// The reason why a file of GridFS cannot be read, written, renamed or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridFsErrorKind {
    /// There is no document of the file (GridFS, "File Download", "File Deletion").
    #[error(
        "is not there: it was never stored as a whole, or is deleted; `find` lists those that are"
    )]
    FileNotFound,
    /// There are files of this name, and fewer than the revision asks for (GridFS, "File Download
    /// by Filename").
    #[error("has no revision {revision}; `find` lists those that it has")]
    RevisionNotFound {
        /// The revision.
        revision: i32,
    },
    /// The document of the file has a field that cannot be true.
    #[error(
        "cannot be read, as the {field} in its document is no number that a file can have; store \
         it again"
    )]
    InvalidFile {
        /// The name of the field.
        field: &'static str,
    },
    /// A chunk is missing.
    #[error("lacks its chunk {n}: it is being deleted, or is damaged and to be stored again")]
    MissingChunk {
        /// The number of the chunk.
        n: i64,
    },
    /// There are more chunks than the length of the file has.
    #[error("has a chunk {n} behind its last one: its length is wrong, or the chunk is left over")]
    ExtraChunk {
        /// The number of the chunk.
        n: i64,
    },
    /// A chunk comes twice, or in the wrong order.
    #[error(
        "has its chunk {found} again where {expected} should be; its chunks need the unique index \
         on files_id and n"
    )]
    UnexpectedChunk {
        /// The number of the chunk that comes next.
        expected: i64,
        /// The number that there was.
        found: i64,
    },
    /// A chunk is shorter or longer than the document of the file says.
    #[error(
        "has {actual} bytes in its chunk {n}, and should have {expected}: it is damaged, and to be \
         stored again"
    )]
    WrongSizeChunk {
        /// The number of the chunk.
        n: i64,
        /// The length that it has.
        actual: u64,
        /// The length that it should have.
        expected: u64,
    },
    /// A chunk has a field of another type, or none.
    #[error("has no {field} that can be read in its chunk {n}: it is to be stored again")]
    InvalidChunk {
        /// The number of the chunk that comes next.
        n: i64,
        /// The name of the field.
        field: &'static str,
    },
    /// A part is asked for that the file does not have (GridFS, "Partial File Retrieval").
    #[error("has {length} bytes, so that it has no part from {start} to {end}")]
    InvalidRange {
        /// The place of the first byte.
        start: u64,
        /// The place behind the last byte.
        end: u64,
        /// The length of the file.
        length: u64,
    },
    /// The size of chunks is one that no file can have.
    #[error("cannot have chunks of {0} bytes: they have 1 to 16,760,832")]
    ChunkSize(u32),
    /// The file has more chunks than there are numbers for.
    #[error("has too many chunks: store it with longer ones")]
    TooManyChunks,
    /// The chunks of a checkpoint are gone, or are another upload's.
    #[error("cannot be gone on with: its upload was aborted or dropped; upload it again")]
    NotResumable,
    /// The upload that a checkpoint is of has stored its file.
    #[error("is stored already: nothing is left of its upload")]
    AlreadyStored,
    /// The chunks of an upload that is aborted are those of a file that is stored, or of another
    /// upload that has the same `_id`.
    #[error("keeps its chunks: a file with this _id is stored, or another upload has it")]
    ChunksInUse,
    /// A stream is written to that was closed or aborted, or has failed.
    #[error("takes no more bytes: its stream was closed or aborted, or has failed")]
    UploadEnded,
}

impl GridFsError {
    /// Says what is wrong with which file.
    pub fn new(
        bucket: impl Into<String>,
        file: GridFsFileIdentifier,
        kind: GridFsErrorKind,
    ) -> Self {
        Self { bucket: bucket.into(), file, kind }
    }

    /// Returns what may be wrong with the call: an `ObjectId` is looked for by its text.
    fn hint(&self) -> &'static str {
        match (&self.kind, &self.file) {
            (GridFsErrorKind::FileNotFound, GridFsFileIdentifier::Id(Bson::String(text)))
                if ObjectId::parse_str(text).is_ok() =>
            {
                "; this _id is a text: if an ObjectId is meant, use `ObjectId::parse_str`"
            }
            _ => "",
        }
    }
}

impl fmt::Display for GridFsFileIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filename(name) => write!(f, "the file {name:?}"),
            Self::Id(id) => write!(f, "the file with the _id {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GridFsError, GridFsErrorKind, GridFsFileIdentifier};
    use crate::{Error, ErrorKind};

    /// GridFS, "File Download by Filename": "a distinct message for each case".
    #[test]
    fn a_missing_file_and_a_missing_revision_are_told_apart() {
        let error = |kind| {
            let file = GridFsFileIdentifier::Filename("a.txt".to_owned());
            Error::from(GridFsError::new("app.fs", file, kind))
        };
        let missing = error(GridFsErrorKind::FileNotFound);
        let text = "the file \"a.txt\" in the bucket app.fs is not there: it was never stored as a \
                    whole, or is deleted; `find` lists those that are";
        assert_eq!(missing.to_string(), text);
        assert_eq!((missing.kind(), missing.reply()), (ErrorKind::GridFs, None));
        let revision = error(GridFsErrorKind::RevisionNotFound { revision: 7 });
        let text = "the file \"a.txt\" in the bucket app.fs has no revision 7; `find` lists those \
                    that it has";
        assert_eq!(revision.to_string(), text);
    }

    /// A string is never equal to an ObjectId, though their texts are.
    #[test]
    fn a_text_that_may_be_meant_as_an_object_id_is_pointed_out() {
        let text = |id: &str| {
            let file = GridFsFileIdentifier::Id(id.into());
            GridFsError::new("app.fs", file, GridFsErrorKind::FileNotFound).to_string()
        };
        let hint = "if an ObjectId is meant, use `ObjectId::parse_str`";
        assert!(text("65f1a2b3c4d5e6f708192a3b").ends_with(hint));
        assert!(!text("catalogue").contains(hint));
    }

    /// `?` makes of the error of a stream what it was before.
    #[test]
    fn an_error_survives_the_way_through_a_stream() {
        let file = GridFsFileIdentifier::Id(7.into());
        let error = Error::from(GridFsError::new("app.fs", file, GridFsErrorKind::FileNotFound));
        let of_stream = std::io::Error::from(error);
        assert_eq!(of_stream.kind(), std::io::ErrorKind::NotFound);
        let back = Error::from(of_stream);
        assert_eq!(back.as_grid_fs().unwrap().kind, GridFsErrorKind::FileNotFound);
    }
}
