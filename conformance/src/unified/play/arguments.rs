//! Arguments of operations, read as strictly as files are.

use bson::{Bson, Document};

use super::wrong;
use crate::spec::Difference;
use crate::unified::format::{FormatError, Node, Object};

/// Reads all arguments of an operation; one that is left unread is an argument that the operation
/// does not have.
pub(super) fn read<T>(
    place: &str,
    arguments: &Document,
    read: impl FnOnce(&mut Object) -> Result<T, FormatError>,
) -> Result<T, Difference> {
    let node = Node::at(format!("{place}.arguments"), Bson::Document(arguments.clone()));
    let read = || {
        let mut object = node.object()?;
        let value = read(&mut object)?;
        object.finish()?;
        Ok(value)
    };
    read().map_err(|error: FormatError| wrong(place, "arguments that the operation has", error))
}
