//! Buckets of GridFS in which each thing is wrong that can be, and what the doctor says of them and
//! does about it.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use sdam_conformance::mongod::{Config, Connection, Server, User};
use sdam_core::config::ServerAddress;

use crate::support::{Embedded, Failure, Fixture, Report, doctor};

/// The time of chunks that are old, in seconds since 1970.
const LONG_AGO: u32 = 1_700_000_000;

/// A bucket that a test writes to.
struct Bucket(Connection);

impl Bucket {
    fn open(address: &ServerAddress) -> Result<Self, Failure> {
        Ok(Self(Connection::open(address, crate::GENEROUS)?))
    }

    fn run(&mut self, command: &Document) -> Result<Document, Failure> {
        Ok(self.0.command("app", command, crate::GENEROUS)?)
    }

    /// Stores the document of a file of ten bytes, four a chunk.
    fn file(&mut self, id: impl Into<Bson>) -> Result<(), Failure> {
        let file = doc! { "_id": id.into(), "filename": "a.txt", "length": 10, "chunkSize": 4 };
        self.run(&doc! { "insert": "fs.files", "documents": [file] }).map(drop)
    }

    /// Stores chunks, given by their numbers and lengths, of a time in seconds since 1970.
    fn chunks(
        &mut self,
        file: impl Into<Bson>,
        (time, subtype): (u32, BinarySubtype),
        chunks: &[(i32, usize)],
    ) -> Result<(), Failure> {
        let file = file.into();
        let chunk = |(n, length): &(i32, usize)| {
            let mut id = ObjectId::new().bytes();
            id[..4].copy_from_slice(&time.to_be_bytes());
            let data = Binary { subtype, bytes: vec![7; *length] };
            let id = ObjectId::from_bytes(id);
            doc! { "_id": id, "files_id": file.clone(), "n": *n, "data": data }
        };
        let chunks: Vec<Document> = chunks.iter().map(chunk).collect();
        self.run(&doc! { "insert": "fs.chunks", "documents": chunks }).map(drop)
    }

    /// Stores a file of ten bytes with these chunks.
    fn store(&mut self, id: impl Into<Bson>, chunks: &[(i32, usize)]) -> Result<(), Failure> {
        let id = id.into();
        self.file(id.clone())?;
        self.chunks(id, (LONG_AGO, BinarySubtype::Generic), chunks)
    }

    /// Makes the indexes as drivers do; those of chunks may be such that chunks can come twice.
    fn index(&mut self, unique: bool) -> Result<(), Failure> {
        let by_name = doc! { "key": { "filename": 1, "uploadDate": 1 }, "name": "by name" };
        self.run(&doc! { "createIndexes": "fs.files", "indexes": [by_name] })?;
        let keys = doc! { "files_id": 1, "n": 1 };
        let by_number = doc! { "key": keys, "name": "by number", "unique": unique };
        self.run(&doc! { "createIndexes": "fs.chunks", "indexes": [by_number] }).map(drop)
    }

    fn count(&mut self) -> Result<i32, Failure> {
        Ok(self.run(&doc! { "count": "fs.chunks", "query": {} })?.get_i32("n")?)
    }
}

/// Expects these findings, each a kind and a part of its words, in any order; notes among them.
fn expect(report: &Report, code: i32, wanted: &[(&str, &str)]) -> Result<(), Failure> {
    let kinds = ["fileDamaged", "chunks", "indexMissing", "bucket", "lengths", "filesNot"];
    let found = report.all_findings().into_iter();
    let mut found: Vec<_> =
        found.filter(|it| kinds.iter().any(|kind| it.verdict.starts_with(kind))).collect();
    for (verdict, words) in wanted {
        let is_it = |it: &crate::support::Said| it.verdict == *verdict && it.cause.contains(words);
        let at = found.iter().position(is_it);
        let at = at.ok_or_else(|| format!("{verdict} ({words}) is not said: {}", report.json))?;
        found.remove(at);
    }
    match (found.as_slice(), report.code == Some(code)) {
        ([], true) => Ok(()),
        (rest, _) => Err(format!("{:?} and {rest:?}: {}", report.code, report.json).into()),
    }
}

/// Looks at the bucket `fs` of the database `app`.
fn look(uri: &str, more: &[&str]) -> Result<Report, Failure> {
    let arguments = ["--gridfs", "fs", "--database", "app", "--for", "60s", uri];
    doctor(&[&arguments[..], more].concat())
}

/// Everything is wrong in turn, and what is old and has no file is removed when that is asked for.
fn each_wrong_is_found(address: &ServerAddress, uri: &str) -> Result<(), Failure> {
    let mut bucket = Bucket::open(address)?;
    expect(&look(uri, &[])?, 1, &[("bucketMissing", "there is no bucket app.fs")])?;
    bucket.index(false)?;
    bucket.store(1, &[(0, 4), (1, 4), (2, 2)])?;
    bucket.file(doc! { "a": 1 })?;
    bucket.chunks(
        doc! { "a": 1 },
        (LONG_AGO, BinarySubtype::BinaryOld),
        &[(0, 4), (1, 4), (2, 2)],
    )?;
    let not_unique = ("indexMissing", "is not unique");
    expect(&look(uri, &[])?, 1, &[not_unique])?;

    bucket.store(2, &[(0, 4), (2, 2)])?;
    bucket.store(3.0, &[(0, 4), (1, 4), (1, 4), (2, 2)])?;
    bucket.store("four", &[(0, 4), (1, 3), (2, 2)])?;
    bucket.store(5_i64, &[(0, 4), (1, 4), (2, 2), (3, 1)])?;
    bucket.store(6, &[(0, 8), (1, 4), (2, 2)])?;
    bucket.file(7)?;
    let wrong = doc! { "_id": 8, "length": "ten", "chunkSize": 4 };
    bucket.run(&doc! { "insert": "fs.files", "documents": [wrong] })?;
    let chunk = doc! { "_id": 1, "files_id": 9, "n": 0 };
    bucket.run(&doc! { "insert": "fs.chunks", "documents": [chunk] })?;
    let old = (LONG_AGO, BinarySubtype::Generic);
    bucket.chunks(ObjectId::from_bytes([7; 12]), old, &[(0, 4), (1, 4)])?;
    // A minute ago: within the usual grace, and before any moment of this test.
    let new = ObjectId::new().timestamp().timestamp_millis() / 1000 - 60;
    bucket.chunks(10, (u32::try_from(new)?, BinarySubtype::Generic), &[(0, 4)])?;

    let damaged = |words| ("fileDamaged", words);
    let all = [
        not_unique,
        damaged("the file \"a.txt\" with the _id 2 in the bucket app.fs lacks its chunk 1"),
        damaged("has its chunk 1 twice"),
        damaged("has 3 bytes in its chunk 1 and should have 4"),
        damaged("has 1 chunk behind its end, where chunk 3 would be"),
        damaged("has 8 bytes in its chunk 0 and should have 4"),
        damaged("with the _id 7 in the bucket app.fs has no chunk"),
        damaged("has no length in its document that a file can have"),
        ("chunksOrphaned", "with the _id 9 and no document of it, which do not say when"),
        ("chunksRecent", "1 chunk of 1 file in the bucket app.fs have no document"),
    ];
    let orphan = ("chunksOrphaned", "2 chunks of a file with the _id ObjectId(\"0707");
    expect(&look(uri, &[])?, 1, &[&all[..], &[orphan]].concat())?;
    let before = bucket.count()?;
    let removed = ("chunksRemoved", "2 chunks of 1 file without a document were removed");
    expect(&look(uri, &["--remove-orphans"])?, 1, &[&all[..], &[removed]].concat())?;
    if bucket.count()? != before - 2 {
        return Err("others were removed, too".into());
    }
    expect(&look(uri, &[])?, 1, &all)?;
    let too = ("chunksRemoved", "1 chunk of 1 file without a document were removed");
    let report = look(uri, &["--remove-orphans", "--grace", "0s"])?;
    expect(&report, 1, &[&all[..all.len() - 1], &[too]].concat())
}

/// All that can be wrong, in the bucket of an embedded deployment.
pub(crate) fn buckets_of_the_embedded_deployment(_: &Fixture) -> Result<(), Failure> {
    let deployment = Embedded::start()?;
    each_wrong_is_found(&deployment.address, &deployment.uri)
}

/// The same on a real server.
pub(crate) fn buckets_of_a_real_server(fixture: &Fixture) -> Result<(), Failure> {
    let server = fixture.server(Config::default())?;
    each_wrong_is_found(&server.address(), &format!("mongodb://{}/", server.address()))
}

/// Buckets without an index and of each version, and many files.
pub(crate) fn buckets_that_are_well(fixture: &Fixture) -> Result<(), Failure> {
    for binary in &fixture.binaries {
        let server = Server::start(binary, Config::default())?;
        let uri = format!("mongodb://{}/app", server.address());
        let mut bucket = Bucket::open(&server.address())?;
        bucket.store(1, &[(0, 4), (1, 4), (2, 2)])?;
        let is_old = binary.version().major == 4 && binary.version().minor < 4;
        let lengths = ("lengthsNotChecked", "before 4.4");
        let unknown = if is_old { &[lengths][..] } else { &[] };
        let missing = [
            ("indexMissing", "fs.chunks has no index"),
            ("indexMissing", "fs.files has no index"),
            ("filesNotChecked", "that takes the index"),
        ];
        let report = doctor(&["--gridfs", "fs", "--for", "60s", &uri])?;
        expect(&report, 1, &[&missing[..], unknown].concat())?;
        bucket.index(true)?;
        for id in 2..1500 {
            bucket.store(id, &[(0, 4), (1, 4), (2, 2)])?;
        }
        let report = doctor(&["--gridfs", "fs", "--for", "60s", &uri])?;
        expect(&report, 0, unknown)?;
        let (chunks, files) = (
            &report.json["evidence"]["bucket"]["chunks"],
            &report.json["evidence"]["bucket"]["files"],
        );
        if (chunks.as_u64(), files.as_u64()) != (Some(1499 * 3), Some(1499)) {
            return Err(format!("not all was looked at: {}", report.json).into());
        }
    }
    Ok(())
}

/// Users who may not read the bucket, or not write to it.
pub(crate) fn a_user_who_may_not_remove(fixture: &Fixture) -> Result<(), Failure> {
    let mut server = fixture.server(Config::default())?;
    let mut bucket = Bucket::open(&server.address())?;
    bucket.index(true)?;
    bucket.chunks(1, (LONG_AGO, BinarySubtype::Generic), &[(0, 4)])?;
    let all_would_go = ("chunksNotRemoved", "it has no document of a file, so that all would go");
    let orphan = ("chunksOrphaned", "1 chunk of a file with the _id 1");
    let at = format!("mongodb://{}/", server.address());
    expect(&look(&at, &["--remove-orphans"])?, 1, &[orphan, all_would_go])?;
    bucket.store(2, &[(0, 4), (1, 4), (2, 2)])?;
    for (user, role, database) in [("reader", "read", "app"), ("other", "read", "shop")] {
        let roles = vec![doc! { "role": role, "db": database }];
        let create = doc! { "createUser": user, "pwd": "secret", "roles": roles };
        server.command(&create, crate::GENEROUS)?;
    }
    server.enable_auth(&[User::new("root", "secret")])?;
    let uri =
        |user: &str| format!("mongodb://{user}:secret@{}/?authSource=admin", server.address());
    let refused = ("chunksNotRemoved", "not authorized");
    expect(&look(&uri("reader"), &["--remove-orphans"])?, 1, &[orphan, refused])?;
    let forbidden = ("bucketNotChecked", "the user may not run listIndexes on the bucket app.fs");
    expect(&look(&uri("other"), &[])?, 1, &[forbidden])
}
