//! A bucket of GridFS: files that cannot be read, chunks without a file, indexes, and what was not
//! looked at.

use crate::doctor::evidence::{
    BucketEnd, BucketSeen, Count, DamagedFile, Evidence, FileFault, IndexFault, NotRemoved, Orphan,
};
use crate::doctor::finding::{BucketVerdict, Finding, Subject};
use crate::duration::rounded;
use crate::findings::Severity;

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let Some(bucket) = &evidence.bucket else { return };
    let is_unreachable = findings.iter().any(|it| it.severity == Severity::Error);
    let whole = [
        end(bucket, evidence, is_unreachable),
        more_damaged(bucket),
        more_orphans(bucket),
        not_removed(bucket),
    ];
    findings.extend(bucket.damaged.iter().map(|file| damaged(bucket, file)));
    findings.extend(bucket.indexes.iter().map(|fault| index(bucket, fault)));
    findings.extend(bucket.orphans.iter().map(|orphan| orphaned(bucket, orphan)));
    findings.extend(whole.into_iter().flatten());
    findings.extend(notes(bucket));
}

/// Describes a file that cannot be read.
fn damaged(bucket: &BucketSeen, file: &DamagedFile) -> Finding {
    let name = match &file.filename {
        Some(name) => format!("the file {name:?} with the _id {}", file.id),
        None => format!("the file with the _id {}, which has no name,", file.id),
    };
    let faults: Vec<String> = file.faults.iter().map(fault).collect();
    let cause = format!("{name} in the bucket {} {}", bucket.name, faults.join(", and "));
    let is_too_much =
        |it: &FileFault| matches!(it, FileFault::Extra { .. } | FileFault::Twice { .. });
    let advice = match file.faults.iter().all(is_too_much) {
        true => "remove the chunks that are too many, or store the file again",
        false => "store the file again, or delete it",
    };
    let subject = Subject { file: Some(file.id.clone()), filename: file.filename.clone() };
    finding(Severity::Error, "fileDamaged", bucket, subject).because(cause).advising(advice)
}

/// Says what is wrong with a file.
fn fault(fault: &FileFault) -> String {
    match *fault {
        FileFault::Field { field } => {
            format!("has no {field} in its document that a file can have")
        }
        FileFault::NoChunks => "has no chunk".to_owned(),
        FileFault::Missing { n, count: 1 } => format!("lacks its chunk {n}"),
        FileFault::Missing { n, count } => {
            format!("lacks {count} of its chunks, the first of which is {n}")
        }
        FileFault::Twice { n, count: 1 } => format!("has its chunk {n} twice"),
        FileFault::Twice { n, count } => {
            format!("has {count} chunks again that are there already, the first of which is {n}")
        }
        FileFault::Extra { n, count } => {
            format!("has {} behind its end, where chunk {n} would be", chunks(count))
        }
        FileFault::Length { n, actual, expected, count } => {
            let others = match count {
                1 => String::new(),
                count => format!(" (as {} more)", count - 1),
            };
            format!("has {actual} bytes in its chunk {n} and should have {expected}{others}")
        }
        FileFault::NoNumber { count } => format!("has {} without a number", chunks(count)),
        FileFault::NoData { n, count: 1 } => format!("has no data in its chunk {n}"),
        FileFault::NoData { n, count } => {
            format!("has no data in {count} of its chunks, the first of which is {n}")
        }
    }
}

fn more_damaged(bucket: &BucketSeen) -> Option<Finding> {
    let more = bucket.damaged_files.saturating_sub(bucket.damaged.len() as u64);
    (more > 0).then(|| {
        let cause = format!("{more} more files in the bucket {} cannot be read", bucket.name);
        finding(Severity::Error, "fileDamaged", bucket, Subject::default())
            .because(cause)
            .advising("repair those that are named, and look again")
    })
}

/// Describes chunks of which there is no file.
fn orphaned(bucket: &BucketSeen, orphan: &Orphan) -> Finding {
    let Orphan { id, chunks: count, newest } = orphan;
    let newest_words = match newest {
        Some(time) => format!("the newest of which was made at {time}"),
        None => "which do not say when they were made".to_owned(),
    };
    let cause = format!(
        "the bucket {} has {} of a file with the _id {id} and no document of it, {newest_words}: \
         an upload or a deletion has not come to its end",
        bucket.name,
        chunks(*count)
    );
    let subject = Subject { file: Some(id.clone()), filename: None };
    let finding = finding(Severity::Warning, "chunksOrphaned", bucket, subject).because(cause);
    match newest {
        // Why they were not removed is another finding's.
        Some(_) if bucket.not_removed.is_some() => finding,
        Some(_) => finding
            .advising("remove them, unless an upload is to go on with them")
            .with_line("--remove-orphans"),
        None => finding
            .advising("delete the chunks with that files_id, if no upload is under way with them"),
    }
}

fn more_orphans(bucket: &BucketSeen) -> Option<Finding> {
    let more = bucket.orphaned.files.saturating_sub(bucket.orphans.len() as u64);
    (more > 0).then(|| {
        let cause = format!(
            "the bucket {} has chunks of {more} more files without a document",
            bucket.name
        );
        finding(Severity::Warning, "chunksOrphaned", bucket, Subject::default())
            .because(cause)
            .advising("remove them, unless uploads are to go on with them")
            .with_line("--remove-orphans")
    })
}

/// Describes an index that is missing, or of another kind.
fn index(bucket: &BucketSeen, fault: &IndexFault) -> Finding {
    let IndexFault { collection, keys, unique, is_there } = fault;
    let (cause, advice) = match (is_there, unique) {
        (true, _) => (
            format!(
                "the index {keys} of {collection} is not unique, so that chunks may be there twice"
            ),
            "drop it, and make a unique one, after chunks that are there twice are removed",
        ),
        (false, true) => (
            format!(
                "{collection} has no index {keys}: each download searches all chunks, and some may \
                 be there twice"
            ),
            "make it",
        ),
        (false, false) => (
            format!("{collection} has no index {keys}: downloads by name search all files"),
            "make it",
        ),
    };
    let options = if *unique { ", { unique: true }" } else { "" };
    finding(Severity::Warning, "indexMissing", bucket, Subject::default())
        .because(cause)
        .advising(advice)
        .with_line(format!("db.getCollection({collection:?}).createIndex({keys}{options})"))
}

/// Says why the bucket was not looked at to its end.
fn end(bucket: &BucketSeen, evidence: &Evidence, is_unreachable: bool) -> Option<Finding> {
    let end = bucket.end.as_ref()?;
    // A deployment that cannot be reached has other findings.
    if is_unreachable && bucket.server.is_none() {
        return None;
    }
    let name = &bucket.name;
    let whose = |severity, verdict| finding(severity, verdict, bucket, Subject::default());
    Some(match end {
        BucketEnd::Missing => whose(Severity::Error, "bucketMissing")
            .because(format!("there is no bucket {name}: neither its files nor its chunks"))
            .advising("check the names of the database (--database) and of the bucket"),
        BucketEnd::NoServer => whose(Severity::Error, "bucketNotChecked")
            .because(format!(
                "the bucket {name} was not looked at, as there is no primary, standalone or mongos"
            ))
            .advising("look again once there is one, or connect to it"),
        BucketEnd::Late => {
            let more = evidence.limit.as_secs().saturating_mul(10).max(60);
            whose(Severity::Warning, "bucketNotChecked")
                .because(format!(
                    "time was over before all of the bucket {name} was looked at: {} were",
                    chunks(bucket.chunks)
                ))
                .advising("allow more of it")
                .with_line(format!("--for {more}s"))
        }
        BucketEnd::Failed { command, is_forbidden: true, text } => {
            whose(Severity::Error, "bucketNotChecked")
                .because(format!("the user may not run {command} on the bucket {name}: {text}"))
                .advising("grant it the role read on that database; removing takes readWrite")
        }
        BucketEnd::Failed { command, text, .. } => whose(Severity::Error, "bucketNotChecked")
            .because(format!("{command} has failed at the bucket {name}: {text}"))
            .advising("look again, and if it stays so, at the log of the server"),
    })
}

fn not_removed(bucket: &BucketSeen) -> Option<Finding> {
    let (reason, advice) = match bucket.not_removed.as_ref()? {
        NotRemoved::NoDocuments => (
            "it has no document of a file, so that all would go".to_owned(),
            "look again once the documents of files are there; if none is to come, and no upload \
             is under way, drop the bucket",
        ),
        NotRemoved::Forbidden(text) => {
            (text.clone(), "grant the user the role readWrite on that database")
        }
        NotRemoved::Failed(text) => {
            (text.clone(), "look again, and if it stays so, at the log of the server")
        }
        NotRemoved::NotReplicated(text) => (
            format!("the primary has removed some, which may come back: {text}"),
            "look again once enough members of the replica set are there",
        ),
    };
    let cause = format!("chunks without a file stay in the bucket {}: {reason}", bucket.name);
    let finding = finding(Severity::Error, "chunksNotRemoved", bucket, Subject::default());
    Some(finding.because(cause).advising(advice))
}

/// Says what was removed, what may be an upload, and what was not looked at.
fn notes(bucket: &BucketSeen) -> impl Iterator<Item = Finding> {
    let BucketSeen { name, removed, recent, .. } = bucket;
    let grace = rounded(bucket.grace);
    let was_read = bucket.server.is_some() && bucket.end != Some(BucketEnd::Missing);
    let texts = [
        ("chunksRemoved", (removed.files > 0).then(|| {
            format!("{} without a document were removed from the bucket {name}", counted(*removed))
        })),
        ("chunksRecent", (recent.files > 0).then(|| {
            format!(
                "{} in the bucket {name} have no document and are younger than {grace}: uploads \
                 may be under way",
                counted(*recent)
            )
        })),
        ("lengthsNotChecked", (was_read && !bucket.has_lengths).then(|| {
            "the lengths of chunks were not looked at: servers before 4.4 do not compute them"
                .to_owned()
        })),
        ("filesNotChecked", (!bucket.has_empty_files).then(|| {
            "files without chunks were not looked for: that takes the index of the chunks"
                .to_owned()
        })),
    ];
    texts.into_iter().filter_map(|(verdict, cause)| {
        let note = finding(Severity::Note, verdict, bucket, Subject::default());
        Some(note.because(cause?))
    })
}

fn finding(
    severity: Severity,
    verdict: &'static str,
    bucket: &BucketSeen,
    subject: Subject,
) -> Finding {
    Finding::of_bucket(severity, BucketVerdict { verdict, bucket: bucket.name.clone(), subject })
}

fn chunks(count: u64) -> String {
    match count {
        1 => "1 chunk".to_owned(),
        count => format!("{count} chunks"),
    }
}

fn counted(count: Count) -> String {
    match count.files {
        1 => format!("{} of 1 file", chunks(count.chunks)),
        files => format!("{} of {files} files", chunks(count.chunks)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::doctor::evidence::{
        BucketEnd, BucketSeen, Count, DamagedFile, Evidence, FileFault, IndexFault, NotRemoved,
        Orphan,
    };
    use crate::doctor::rules::judge;
    use crate::doctor::tests::{set, verdicts};

    /// A bucket that is well.
    fn bucket() -> BucketSeen {
        BucketSeen {
            name: "app.fs".to_owned(),
            server: Some("a:27017".parse().unwrap()),
            has_lengths: true,
            has_empty_files: true,
            grace: Duration::from_secs(24 * 3600),
            ..BucketSeen::default()
        }
    }

    fn with(bucket: BucketSeen) -> Evidence {
        Evidence { bucket: Some(bucket), limit: Duration::from_secs(10), ..set() }
    }

    fn first(bucket: BucketSeen) -> (String, String) {
        let finding = judge(&with(bucket)).into_iter().next().unwrap();
        (finding.cause, finding.advice)
    }

    #[test]
    fn a_bucket_that_is_well_is_not_mentioned() {
        assert_eq!(verdicts(&with(bucket())), [""; 0]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_faults() {
        let faults = vec![
            FileFault::Missing { n: 3, count: 1 },
            FileFault::Length { n: 7, actual: 3, expected: 4, count: 2 },
        ];
        let filename = Some("a.txt".to_owned());
        let file = DamagedFile { id: "7".to_owned(), filename, faults };
        let bucket = BucketSeen { damaged: vec![file], damaged_files: 3, ..bucket() };
        let cause = "the file \"a.txt\" with the _id 7 in the bucket app.fs lacks its chunk 3, and \
                     has 3 bytes in its chunk 7 and should have 4 (as 1 more)";
        let advice = "store the file again, or delete it";
        assert_eq!(first(bucket.clone()), (cause.to_owned(), advice.to_owned()));
        assert_eq!(verdicts(&with(bucket.clone())), ["fileDamaged!", "fileDamaged!"]);
        let json = serde_json::to_value(&judge(&with(bucket))[0]).unwrap();
        assert_eq!((&json["verdict"], &json["file"]), (&"fileDamaged".into(), &"7".into()));
        assert_eq!((&json["bucket"], &json["filename"]), (&"app.fs".into(), &"a.txt".into()));
    }

    #[test]
    fn chunks_without_a_file_are_a_warning_and_those_of_uploads_a_note() {
        let newest = Some("2026-11-28T00:00:00.000Z".to_owned());
        let orphan = Orphan { id: "7".to_owned(), chunks: 2, newest };
        let count = Count { files: 1, chunks: 2 };
        let orphans =
            BucketSeen { orphans: vec![orphan], orphaned: count, recent: count, ..bucket() };
        assert_eq!(verdicts(&with(orphans.clone())), ["chunksOrphaned", "chunksRecent?"]);
        assert_eq!(judge(&with(orphans))[0].lines, ["--remove-orphans"]);
        let removed = BucketSeen { removed: count, ..bucket() };
        assert_eq!(verdicts(&with(removed.clone())), ["chunksRemoved?"]);
        let cause = "2 chunks of 1 file without a document were removed from the bucket app.fs";
        assert_eq!(first(removed).0, cause);
        for (reason, cause) in [
            (NotRemoved::Forbidden("not authorized".to_owned()), "app.fs: not authorized"),
            (NotRemoved::Failed("not primary".to_owned()), "app.fs: not primary"),
            (NotRemoved::NoDocuments, "app.fs: it has no document of a file"),
            (NotRemoved::NotReplicated("late".to_owned()), "which may come back: late"),
        ] {
            let seen = BucketSeen { not_removed: Some(reason), ..bucket() };
            assert_eq!(verdicts(&with(seen.clone())), ["chunksNotRemoved!"]);
            assert!(first(seen).0.contains(cause));
        }
    }

    #[test]
    fn indexes_are_given_as_lines_to_copy() {
        let fault = IndexFault {
            collection: "fs.chunks".to_owned(),
            keys: "{ files_id: 1, n: 1 }",
            unique: true,
            is_there: true,
        };
        let found = judge(&with(BucketSeen { indexes: vec![fault], ..bucket() }));
        let line =
            "db.getCollection(\"fs.chunks\").createIndex({ files_id: 1, n: 1 }, { unique: true })";
        assert_eq!(found[0].lines, [line]);
        assert!(found[0].cause.contains("is not unique"), "{}", found[0].cause);
    }

    #[test]
    fn a_bucket_that_was_not_looked_at_is_said_to_be_so() {
        let said = |end| verdicts(&with(BucketSeen { end: Some(end), ..bucket() }));
        assert_eq!(said(BucketEnd::Missing), ["bucketMissing!"]);
        assert_eq!(said(BucketEnd::NoServer), ["bucketNotChecked!"]);
        assert_eq!(said(BucketEnd::Late), ["bucketNotChecked"]);
        let text = "not authorized".to_owned();
        let failed = |is_forbidden| BucketEnd::Failed {
            command: "listIndexes",
            is_forbidden,
            text: text.clone(),
        };
        assert_eq!(said(failed(true)), ["bucketNotChecked!"]);
        assert_eq!(said(failed(false)), ["bucketNotChecked!"]);
        let old = BucketSeen { has_lengths: false, has_empty_files: false, ..bucket() };
        assert_eq!(verdicts(&with(old)), ["lengthsNotChecked?", "filesNotChecked?"]);
    }
}
