//! The tasks of DriverBench, their sizes, and the composite scores that they belong to.

use clap::ValueEnum;

/// The documents of a task, as often as one operation or more of them have them.
const MANY: usize = 10_000;

/// The large documents of a task.
const FEW: usize = 10;

/// A task, by the name that the chapter has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Encodes a flat document 10,000 times.
    FlatBsonEncoding,
    /// Decodes a flat document 10,000 times.
    FlatBsonDecoding,
    /// Encodes a deep document 10,000 times.
    DeepBsonEncoding,
    /// Decodes a deep document 10,000 times.
    DeepBsonDecoding,
    /// Encodes a document with values of all types 10,000 times.
    FullBsonEncoding,
    /// Decodes a document with values of all types 10,000 times.
    FullBsonDecoding,
    /// Runs `hello` 10,000 times.
    RunCommand,
    /// Finds 10,000 documents, each by its `_id`.
    FindOneById,
    /// Inserts a small document 10,000 times.
    SmallDocInsertOne,
    /// Inserts a large document 10 times.
    LargeDocInsertOne,
    /// Finds 10,000 documents with one cursor.
    FindMany,
    /// Inserts 10,000 small documents with one call.
    SmallDocBulkInsert,
    /// Inserts 10 large documents with one call.
    LargeDocBulkInsert,
    /// Inserts 10,000 small documents with one bulk write of the collection.
    SmallDocCollectionBulkWriteInsert,
    /// Inserts 10 large documents with one bulk write of the collection.
    LargeDocCollectionBulkWriteInsert,
    /// Inserts 10,000 small documents with one bulk write of the client.
    SmallDocClientBulkWriteInsert,
    /// Inserts 10 large documents with one bulk write of the client.
    LargeDocClientBulkWriteInsert,
    /// Inserts, replaces and deletes 10,000 small documents with one bulk write of the client.
    SmallDocClientBulkWriteMixed,
    /// Inserts, replaces and deletes 10,000 small documents with one bulk write of the collection.
    SmallDocCollectionBulkWriteMixed,
    /// Stores a file of 50 MB.
    GridfsUpload,
    /// Reads a file of 50 MB.
    GridfsDownload,
    /// Inserts the documents of 100 files at once.
    LdjsonMultiImport,
    /// Writes documents to 100 files at once.
    LdjsonMultiExport,
    /// Stores 50 files of 5 MB at once.
    GridfsMultiUpload,
    /// Reads 50 files of 5 MB at once.
    GridfsMultiDownload,
}

/// The groups of the chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Bson,
    Single,
    Multi,
    Parallel,
}

/// A composite score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Composite {
    /// The tasks without a server.
    #[value(name = "BSONBench")]
    Bson,
    /// The tasks with one document at a time, without `hello`.
    #[value(name = "SingleBench")]
    Single,
    /// The tasks with many documents.
    #[value(name = "MultiBench")]
    Multi,
    /// The tasks that do several things at once.
    #[value(name = "ParallelBench")]
    Parallel,
    /// The tasks that read.
    #[value(name = "ReadBench")]
    Read,
    /// The tasks that write.
    #[value(name = "WriteBench")]
    Write,
    /// The mean of both.
    #[value(name = "DriverBench")]
    Driver,
}

impl Task {
    /// Returns the size in megabytes: what the chapter says, which is not always that of the file.
    pub(crate) const fn megabytes(self) -> f64 {
        match self {
            Self::FlatBsonEncoding | Self::FlatBsonDecoding => 75.31,
            Self::DeepBsonEncoding | Self::DeepBsonDecoding => 22.84,
            Self::FullBsonEncoding | Self::FullBsonDecoding => 57.34,
            Self::RunCommand => 0.13,
            Self::FindOneById | Self::FindMany => 16.22,
            Self::SmallDocInsertOne
            | Self::SmallDocBulkInsert
            | Self::SmallDocCollectionBulkWriteInsert
            | Self::SmallDocClientBulkWriteInsert => 2.75,
            Self::LargeDocInsertOne
            | Self::LargeDocBulkInsert
            | Self::LargeDocCollectionBulkWriteInsert
            | Self::LargeDocClientBulkWriteInsert => 27.310_89,
            Self::SmallDocClientBulkWriteMixed | Self::SmallDocCollectionBulkWriteMixed => 5.5,
            Self::GridfsUpload | Self::GridfsDownload => 52.428_8,
            Self::LdjsonMultiImport | Self::LdjsonMultiExport => 565.0,
            Self::GridfsMultiUpload | Self::GridfsMultiDownload => 262.144,
        }
    }

    /// Returns the group.
    pub(crate) const fn group(self) -> Group {
        match self {
            Self::FlatBsonEncoding
            | Self::FlatBsonDecoding
            | Self::DeepBsonEncoding
            | Self::DeepBsonDecoding
            | Self::FullBsonEncoding
            | Self::FullBsonDecoding => Group::Bson,
            Self::RunCommand
            | Self::FindOneById
            | Self::SmallDocInsertOne
            | Self::LargeDocInsertOne => Group::Single,
            Self::LdjsonMultiImport
            | Self::LdjsonMultiExport
            | Self::GridfsMultiUpload
            | Self::GridfsMultiDownload => Group::Parallel,
            _ => Group::Multi,
        }
    }

    /// Returns the file that the task works with, in the folder of the data, and how often.
    pub(crate) fn material(self) -> Option<(&'static str, usize)> {
        Some(match self {
            Self::FlatBsonEncoding | Self::FlatBsonDecoding => {
                ("extended_bson/flat_bson.json", MANY)
            }
            Self::DeepBsonEncoding | Self::DeepBsonDecoding => {
                ("extended_bson/deep_bson.json", MANY)
            }
            Self::FullBsonEncoding | Self::FullBsonDecoding => {
                ("extended_bson/full_bson.json", MANY)
            }
            Self::FindOneById | Self::FindMany => ("single_and_multi_document/tweet.json", MANY),
            Self::SmallDocInsertOne
            | Self::SmallDocBulkInsert
            | Self::SmallDocCollectionBulkWriteInsert
            | Self::SmallDocClientBulkWriteInsert
            | Self::SmallDocClientBulkWriteMixed
            | Self::SmallDocCollectionBulkWriteMixed => {
                ("single_and_multi_document/small_doc.json", MANY)
            }
            Self::LargeDocInsertOne
            | Self::LargeDocBulkInsert
            | Self::LargeDocCollectionBulkWriteInsert
            | Self::LargeDocClientBulkWriteInsert => {
                ("single_and_multi_document/large_doc.json", FEW)
            }
            _ => return None,
        })
    }

    /// Returns whether it needs MongoDB 8.0.
    pub(crate) const fn needs_8_0(self) -> bool {
        matches!(
            self,
            Self::SmallDocClientBulkWriteInsert
                | Self::LargeDocClientBulkWriteInsert
                | Self::SmallDocClientBulkWriteMixed
        )
    }

    /// Returns whether `ReadBench` has it.
    const fn reads(self) -> bool {
        matches!(
            self,
            Self::FindOneById
                | Self::FindMany
                | Self::GridfsDownload
                | Self::LdjsonMultiExport
                | Self::GridfsMultiDownload
        )
    }

    /// Returns whether `WriteBench` has it.
    fn writes(self) -> bool {
        self.group() != Group::Bson && self != Self::RunCommand && !self.reads()
    }
}

impl Composite {
    /// Returns whether it is a mean of tasks of which this is one.
    fn has(self, task: Task) -> bool {
        match self {
            Self::Bson => task.group() == Group::Bson,
            Self::Single => task.group() == Group::Single && task != Task::RunCommand,
            Self::Multi => task.group() == Group::Multi,
            Self::Parallel => task.group() == Group::Parallel,
            Self::Read => task.reads(),
            Self::Write => task.writes(),
            Self::Driver => task.reads() || task.writes(),
        }
    }

    /// Returns the tasks that it is made of.
    pub(crate) fn tasks(self) -> impl Iterator<Item = Task> {
        Task::value_variants().iter().copied().filter(move |task| self.has(*task))
    }

    /// Returns the score, of the tasks that have one; none of those leaves none.
    pub(crate) fn score(self, of: impl Fn(Task) -> Option<f64> + Copy) -> Option<f64> {
        if self == Self::Driver {
            return Some(f64::midpoint(Self::Read.score(of)?, Self::Write.score(of)?));
        }
        let scores: Vec<f64> = self.tasks().filter_map(of).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Composite, Task};

    #[test]
    fn composites_have_as_many_tasks_as_the_chapter_lists() {
        let counts = [
            (Composite::Bson, 6),
            (Composite::Single, 3),
            (Composite::Multi, 11),
            (Composite::Parallel, 4),
            (Composite::Read, 5),
            (Composite::Write, 13),
            (Composite::Driver, 18),
        ];
        for (composite, count) in counts {
            assert_eq!(composite.tasks().count(), count, "{composite:?}");
        }
    }

    #[test]
    fn the_score_of_all_is_the_mean_of_reading_and_of_writing() {
        let of = |task: Task| Some(if task.reads() { 10.0 } else { 20.0 });
        assert_eq!(Composite::Read.score(of), Some(10.0));
        assert_eq!(Composite::Driver.score(of), Some(15.0));
    }

    #[test]
    fn a_score_is_the_mean_of_the_tasks_that_there_are() {
        let of = |task| (task == Task::LargeDocInsertOne).then_some(3.0);
        assert_eq!(Composite::Single.score(of), Some(3.0));
        assert_eq!(Composite::Read.score(of), None);
        assert_eq!(Composite::Driver.score(of), None);
    }
}
