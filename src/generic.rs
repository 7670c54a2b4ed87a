//! The types behind the names of each runtime, for every runtime `R`.

pub use crate::handle::gridfs::{
    GridFsBucket, GridFsDownloadStream, GridFsPreparedFile, GridFsUploadStream,
};
pub use crate::handle::{ChangeStream, Client, Collection, Cursor, Database};
pub use sdam_host::{ClientSession, Topology};
