//! The tasks without a server.

use std::hint::black_box;

use bson::{Document, RawDocument};
use sdam::host::driver::documents::read_as;
use sdam_bench::Failure;

use crate::setting::{Material, Setting};
use crate::steps::serve;
use crate::task::{Group, Task};

/// Does the task if it is one without a server, and returns whether it was.
pub(super) fn serve_if_bson(
    setting: &Setting,
    material: &Material,
    decode: fn(&[u8]) -> Result<Document, Failure>,
) -> Result<bool, Failure> {
    if setting.task.group() != Group::Bson {
        return Ok(false);
    }
    let documents = &material.documents;
    let bytes = documents[0].to_vec()?;
    let decodes = matches!(
        setting.task,
        Task::FlatBsonDecoding | Task::DeepBsonDecoding | Task::FullBsonDecoding
    );
    let run = |()| {
        for document in documents {
            match decodes {
                true => drop(black_box(decode(black_box(&bytes))?)),
                false => drop(black_box(black_box(document).to_vec()?)),
            }
        }
        Ok(())
    };
    serve(|| Ok(()), run)?;
    Ok(true)
}

/// Decodes as collections of this library do.
pub(super) fn decode(bytes: &[u8]) -> Result<Document, Failure> {
    Ok(read_as(RawDocument::from_bytes(bytes)?)?)
}

/// Decodes as the crate of both drivers does.
pub(super) fn decode_by_bson(bytes: &[u8]) -> Result<Document, Failure> {
    Ok(Document::from_reader(bytes)?)
}
