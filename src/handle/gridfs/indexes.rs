//! The indexes of a bucket, which are made before its first write.
//!
//! Implements "Indexes" of GridFS.

use bson::{Bson, Document, doc};
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::session::TransactionState;
use sdam_host::{ClientSession, Runtime};

use super::bucket::GridFsBucket;
use crate::command::indexes::IndexModel;
use crate::error::Error;
use crate::handle::collection::Collection;

impl<R: Runtime> GridFsBucket<R> {
    /// Makes the indexes of a bucket that has no files, "immediately before the first write
    /// operation [..] (and not earlier)", unless they are there.
    pub(super) async fn prepare(&self) -> Result<(), Error> {
        if self.parts.is_prepared() {
            return Ok(());
        }
        let bucket = self.outside_of_transactions();
        let primary = ReadPreference::new(ReadMode::Primary);
        let files = bucket.files();
        let any = files.find_one(doc! {}).projection(doc! { "_id": 1 });
        if any.read_preference(primary).await?.is_none() {
            let by_name = IndexModel::new(doc! { "filename": 1, "uploadDate": 1 });
            ensure(&bucket.files(), by_name).await?;
            let by_number = IndexModel::new(doc! { "files_id": 1, "n": 1 }).unique(true);
            ensure(&bucket.chunks(), by_number).await?;
        }
        self.parts.set_prepared(true);
        Ok(())
    }

    /// Returns a bucket whose operations are in no transaction: no server lists indexes in one.
    fn outside_of_transactions(&self) -> Self {
        let is_outside = |session: &ClientSession<R>| {
            let ended = |state| {
                use TransactionState::{Aborted, Committed, None};
                matches!(state, None | Committed | Aborted)
            };
            session.transaction_state().is_ok_and(ended)
        };
        let mut handle = self.handle.clone();
        handle.session = handle.session.filter(is_outside);
        self.over(handle)
    }
}

/// Creates an index unless there is one with the same keys.
async fn ensure<R: Runtime>(
    collection: &Collection<R, Document>,
    index: IndexModel,
) -> Result<(), Error> {
    let mut indexes = collection.list_indexes().await?;
    while let Some(known) = indexes.try_next().await? {
        if same_keys(&known.keys(), &index.keys()) {
            return Ok(());
        }
    }
    collection.create_index(index).await.map(drop)
}

/// Returns whether two indexes have the same keys: "drivers MUST compare numeric values by value
/// even when they are of different types".
fn same_keys(known: &Document, wanted: &Document) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    };
    let key = |(name, value): (&String, &Bson)| (name.clone(), number(value));
    known.iter().map(key).eq(wanted.iter().map(key))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::same_keys;

    /// GridFS, "Before write operations": "the following index specifications should all be treated
    /// as equivalent".
    #[test]
    fn numbers_of_all_types_are_equal() {
        let wanted = doc! { "filename": 1, "uploadDate": 1 };
        for same in [
            wanted.clone(),
            doc! { "filename": 1.0, "uploadDate": 1 },
            doc! { "filename": 1_i64, "uploadDate": 1.0 },
        ] {
            assert!(same_keys(&same, &wanted), "{same}");
        }
        for other in [
            doc! { "uploadDate": 1, "filename": 1 },
            doc! { "filename": 1 },
            doc! { "filename": 1, "uploadDate": -1 },
            doc! { "filename": 1, "uploadDate": "text" },
            doc! { "filename": 1, "uploadDate": 1, "x": 1 },
        ] {
            assert!(!same_keys(&other, &wanted), "{other}");
        }
    }
}
