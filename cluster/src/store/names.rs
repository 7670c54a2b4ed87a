//! The names of databases and collections.

use super::error::StoreError;

/// The collections of the server's own that clients may write to.
const WRITABLE: [&str; 2] = ["system.js", "system.users"];

/// The longest name of a database, in bytes.
const MAX_DATABASE_LEN: usize = 63;

/// The longest namespace, in bytes.
const MAX_NAMESPACE_LEN: usize = 255;

/// Checks that a namespace is one.
///
/// # Errors
///
/// Fails with code 73 if the name of the database or of the collection is none.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), StoreError> {
    let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    let is_wrong = database.is_empty()
        || collection.is_empty()
        || collection.starts_with('.')
        || collection.contains('\0')
        || database.contains('$')
        || !is_database(database)
        || namespace.len() > MAX_NAMESPACE_LEN;
    match is_wrong {
        true => Err(StoreError::new(73, format!("Invalid namespace specified '{namespace}'"))),
        false => Ok(()),
    }
}

/// Returns whether a database may have this name.
pub(crate) fn is_database(name: &str) -> bool {
    let length = 1..=MAX_DATABASE_LEN;
    length.contains(&name.len()) && !name.contains(['.', '/', '\\', ' ', '"', '\0'])
}

/// Checks that a collection may be written to: that it is none of the server's own.
///
/// # Errors
///
/// Fails with code 73, or 2 where servers do.
pub(crate) fn check_writable(namespace: &str) -> Result<(), StoreError> {
    let (_, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    if collection.contains('$') {
        return Err(StoreError::new(73, format!("Invalid collection name: {collection}")));
    }
    if collection.contains(".system.") {
        return Err(StoreError::bad_value(format!("Invalid namespace: {namespace}")));
    }
    let is_own = collection.starts_with("system.")
        && !WRITABLE.contains(&collection)
        && !collection.starts_with("system.buckets.");
    match is_own {
        true => Err(StoreError::new(73, format!("Invalid system namespace: {namespace}"))),
        false => Ok(()),
    }
}
