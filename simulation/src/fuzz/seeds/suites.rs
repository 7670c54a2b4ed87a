//! The contents of the official suites: connection strings, and replies to hello.

use std::fs;
use std::io;
use std::path::Path;

use bson::RawDocumentBuf;
use serde_json::Value;

use super::super::MAX_INPUT_LEN;
use super::Seed;

/// The maximum depth of folders, in case links make them a circle.
const MAX_DEPTH: usize = 16;

/// Reads inputs for the target of this name from a copy of the folder `source` of the MongoDB
/// specifications: `uri` and `hello` have some.
///
/// # Errors
///
/// The folder cannot be read.
pub fn from_suites(target: &str, folder: &Path) -> io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    let find: fn(&Value, &mut Vec<Vec<u8>>) = match target {
        "uri" => find_uris,
        "hello" => find_replies,
        _ => return Ok(seeds),
    };
    walk(folder, 0, &mut |path| {
        // A file that is no JSON is the business of those who run the suites.
        let value = serde_json::from_slice::<Value>(&fs::read(path)?).unwrap_or_default();
        let mut found = Vec::new();
        find(&value, &mut found);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let short = found.into_iter().filter(|bytes| bytes.len() <= MAX_INPUT_LEN).enumerate();
        seeds.extend(short.map(|(number, bytes)| Seed::new(format!("{stem}-{number}"), bytes)));
        Ok(())
    })?;
    Ok(seeds)
}

fn walk(
    folder: &Path,
    depth: usize,
    visit: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() && depth < MAX_DEPTH {
            walk(&path, depth + 1, visit)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            visit(&path)?;
        }
    }
    Ok(())
}

/// All texts under the key `uri`.
fn find_uris(value: &Value, found: &mut Vec<Vec<u8>>) {
    each_field(value, &mut |name, value| {
        if let ("uri", Value::String(uri)) = (name, value) {
            found.push(uri.clone().into_bytes());
        }
    });
}

/// All replies in `responses`, which are pairs of an address and a document.
fn find_replies(value: &Value, found: &mut Vec<Vec<u8>>) {
    each_field(value, &mut |name, value| {
        let (true, Value::Array(responses)) = (name == "responses", value) else { return };
        for reply in responses.iter().filter_map(|response| response.get(1)) {
            // Extended JSON, of which only what can be written down again is of use.
            let document = bson::Bson::try_from(reply.clone()).ok();
            let document = document.as_ref().and_then(bson::Bson::as_document);
            let bytes = document.and_then(|document| RawDocumentBuf::try_from(document).ok());
            found.extend(bytes.map(RawDocumentBuf::into_bytes));
        }
    });
}

fn each_field(value: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                visit(name, value);
                each_field(value, visit);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| each_field(value, visit)),
        _ => {}
    }
}
