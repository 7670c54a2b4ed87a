"""The tasks of DriverBench for PyMongo: see `process.rs`."""

import argparse
import json
import multiprocessing
import pathlib
import sys
import time

import bson
import gridfs
import pymongo
from bson import json_util
from pymongo import DeleteOne, InsertOne, ReplaceOne

DATABASE = "perftest"
STORED = "gridfstest"
COMMANDS = 10_000
LINES = 5_000
COLLECTIONS = [f"corpus_{number}" for number in range(1, 11)]

FILES = {
    "flat-bson": "extended_bson/flat_bson.json",
    "deep-bson": "extended_bson/deep_bson.json",
    "full-bson": "extended_bson/full_bson.json",
    "find": "single_and_multi_document/tweet.json",
    "small-doc": "single_and_multi_document/small_doc.json",
    "large-doc": "single_and_multi_document/large_doc.json",
}


def mixed(document, **options):
    """Makes the writes that insert a document, replace it, and delete it."""
    return [
        InsertOne(document.copy(), **options),
        ReplaceOne({}, document.copy(), **options),
        DeleteOne({}, **options),
    ]


class Task:
    """A task, and what it holds in memory."""

    def __init__(self, told):
        self.name, self.data, self.workers = told.task, told.data, told.workers
        self.uri = f"mongodb://{told.address}/?directConnection=true&w=1"
        self.scratch = told.scratch
        self.client = pymongo.MongoClient(self.uri)
        self.database = self.client[DATABASE]
        self.corpus = self.database.corpus
        method = self.name.replace("-", "_").replace("large_doc", "small_doc")
        self.run = getattr(self, method, None)
        self.document, self.count, self.pool = None, 10 if "large" in self.name else 10_000, None
        for prefix, file in FILES.items():
            if self.name.startswith(prefix):
                text = (self.data / file).read_text()
                is_extended = self.name.endswith("coding")
                self.document = json_util.loads(text) if is_extended else json.loads(text)
        if self.name.endswith("coding"):
            self.encoded = bson.encode(self.document)
            self.run = self.encode if self.name.endswith("encoding") else self.decode
        if self.name == "gridfs-upload":
            self.bytes = (self.data / "single_and_multi_document/gridfs_large.bin").read_bytes()
        if self.name == "gridfs-download":
            self.stored = self.database.fs.files.find_one({"filename": STORED})["_id"]
        if "-multi-" in self.name:
            # Processes that were forked, each with a client of its own.
            arguments = (self.uri, self.data, self.scratch)
            self.pool = multiprocessing.Pool(self.workers, initializer=begin, initargs=arguments)

    def before(self):
        """Does what is to be done before each iteration."""
        name = self.name
        if name in ("gridfs-upload", "gridfs-multi-upload"):
            self.database.fs.files.drop()
            self.database.fs.chunks.drop()
            gridfs.GridFSBucket(self.database).upload_from_stream("one byte", b"1")
            self.bucket = gridfs.GridFSBucket(self.database)
        elif name in ("ldjson-multi-export", "gridfs-multi-download"):
            for file in self.scratch.iterdir():
                file.unlink()
        elif name == "small-doc-client-bulk-write-mixed":
            self.client.drop_database(DATABASE)
            for collection in COLLECTIONS:
                self.database.create_collection(collection)
        elif not name.endswith("coding") and name not in (
            "run-command",
            "find-one-by-id",
            "find-many",
            "gridfs-download",
        ):
            self.corpus.drop()
            self.database.create_collection("corpus")
        self.prepare()

    def prepare(self):
        """Makes the documents and the writes of an iteration: PyMongo adds an `_id` to them."""
        copies = lambda: (self.document.copy() for _ in range(self.count))
        match self.name.split("-", 2)[-1]:
            case "insert-one" | "bulk-insert":
                self.documents = list(copies())
            case "collection-bulk-write-insert":
                self.models = [InsertOne(document) for document in copies()]
            case "collection-bulk-write-mixed":
                self.models = [model for document in copies() for model in mixed(document)]
            case "client-bulk-write-insert":
                self.models = [InsertOne(one, namespace="perftest.corpus") for one in copies()]
            case "client-bulk-write-mixed":
                self.models = []
                for number, document in enumerate(copies()):
                    namespace = f"{DATABASE}.{COLLECTIONS[number % len(COLLECTIONS)]}"
                    self.models += mixed(document, namespace=namespace)

    def encode(self):
        for _ in range(self.count):
            bson.encode(self.document)

    def decode(self):
        for _ in range(self.count):
            bson.decode(self.encoded)

    def run_command(self):
        for _ in range(COMMANDS):
            self.database.command("hello", True)

    def find_one_by_id(self):
        for number in range(1, self.count + 1):
            assert self.corpus.find_one({"_id": number})

    def small_doc_insert_one(self):
        for document in self.documents:
            self.corpus.insert_one(document)

    def find_many(self):
        assert sum(1 for _ in self.corpus.find({})) == self.count

    def small_doc_bulk_insert(self):
        self.corpus.insert_many(self.documents)

    def small_doc_collection_bulk_write_insert(self):
        assert self.corpus.bulk_write(self.models).inserted_count == self.count

    small_doc_collection_bulk_write_mixed = small_doc_collection_bulk_write_insert

    def small_doc_client_bulk_write_insert(self):
        assert self.client.bulk_write(self.models).inserted_count == self.count

    small_doc_client_bulk_write_mixed = small_doc_client_bulk_write_insert

    def gridfs_upload(self):
        self.bucket.upload_from_stream(STORED, self.bytes)

    def gridfs_download(self):
        gridfs.GridFSBucket(self.database).open_download_stream(self.stored).read()

    def in_processes(self, work, folder):
        """Does work for each file, and returns the CPU time of the processes."""
        files = sorted((self.data / "parallel" / folder).iterdir())
        return sum(self.pool.imap_unordered(measured, [(work, *each) for each in enumerate(files)]))

    def ldjson_multi_import(self):
        return self.in_processes(import_file, "ldjson_multi")

    def ldjson_multi_export(self):
        return self.in_processes(export_file, "ldjson_multi")

    def gridfs_multi_upload(self):
        return self.in_processes(upload_file, "gridfs_multi")

    def gridfs_multi_download(self):
        return self.in_processes(download_file, "gridfs_multi")


def begin(uri, data, scratch):
    """Begins a process that reads and writes files."""
    global DRIVER, SCRATCH
    DRIVER, SCRATCH = pymongo.MongoClient(uri)[DATABASE], scratch


def measured(job):
    work, number, file = job
    before = time.process_time_ns()
    work(number, file)
    return time.process_time_ns() - before


def import_file(_, file):
    with file.open() as lines:
        DRIVER.corpus.insert_many([json.loads(line) for line in lines], ordered=False)


def export_file(number, _):
    documents = DRIVER.corpus.find({"_id": {"$gte": number * LINES, "$lt": (number + 1) * LINES}})
    with (SCRATCH / f"{number}.txt").open("w") as out:
        count = 0
        for count, document in enumerate(documents, 1):
            out.write(json_util.dumps(document) + "\n")
    assert count == LINES


def upload_file(_, file):
    with file.open("rb") as source:
        gridfs.GridFSBucket(DRIVER).upload_from_stream(file.name, source)


def download_file(_, file):
    with (SCRATCH / file.name).open("wb") as out:
        gridfs.GridFSBucket(DRIVER).download_to_stream_by_name(file.name, out)


def main():
    if sys.argv[1:] == ["--version"]:
        extension = "with" if bson.has_c() and pymongo.has_c() else "without"
        python = sys.version.split()[0]
        print(f"PyMongo {pymongo.version} {extension} its extension, Python {python}")
        return
    parser = argparse.ArgumentParser()
    for option in ("--task", "--address"):
        parser.add_argument(option)
    for option in ("--data", "--scratch"):
        parser.add_argument(option, type=pathlib.Path)
    parser.add_argument("--workers", type=int)
    task = Task(parser.parse_args())
    print("ready", flush=True)
    for _ in sys.stdin:
        task.before()
        start, cpu = time.perf_counter_ns(), time.process_time_ns()
        of_processes = task.run()
        wall, cpu = time.perf_counter_ns() - start, time.process_time_ns() - cpu
        print(wall, cpu + (of_processes or 0), flush=True)
    if task.pool:
        task.pool.terminate()


if __name__ == "__main__":
    main()
