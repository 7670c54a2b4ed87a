// The tasks of DriverBench for the driver of Node.js: see `process.rs`.

import { createReadStream, createWriteStream } from "node:fs";
import { open, readFile, readdir, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream/promises";
import { parseArgs } from "node:util";

// Unlike `import`, this looks into NODE_PATH.
const load = createRequire(import.meta.url);
const { BSON, GridFSBucket, MongoClient } = load("mongodb");
const { EJSON } = BSON;

const DATABASE = "perftest";
const STORED = "gridfstest";
const COMMANDS = 10_000;
const LINES = 5_000;
const COLLECTIONS = Array.from({ length: 10 }, (_, number) => `corpus_${number + 1}`);

const FILES = {
  "flat-bson": "extended_bson/flat_bson.json",
  "deep-bson": "extended_bson/deep_bson.json",
  "full-bson": "extended_bson/full_bson.json",
  find: "single_and_multi_document/tweet.json",
  "small-doc": "single_and_multi_document/small_doc.json",
  "large-doc": "single_and_multi_document/large_doc.json",
};

if (process.argv[2] === "--version") {
  console.log(`mongodb ${load("mongodb/package.json").version} for Node.js ${process.version}`);
  process.exit();
}

const string = { type: "string" };
const { values: told } = parseArgs({
  options: { task: string, address: string, data: string, scratch: string, workers: string },
});
const name = told.task;
const count = name.includes("large") ? 10 : 10_000;
const client = new MongoClient(`mongodb://${told.address}/?directConnection=true&w=1`);
const database = client.db(DATABASE);
const corpus = database.collection("corpus");
const range = (length) => Array.from({ length }, (_, number) => number);
const content = (file) => path.join(told.data, file);

let document, encoded, bytes, stored, files, bucket, documents, models;

/** Sets up the task. */
async function setUp() {
  const file = Object.entries(FILES).find(([prefix]) => name.startsWith(prefix))?.[1];
  if (file) {
    const text = await readFile(content(file), "utf8");
    document = name.endsWith("coding") ? EJSON.parse(text, { relaxed: false }) : JSON.parse(text);
  }
  if (name.endsWith("coding")) {
    encoded = BSON.serialize(document);
    return;
  }
  await client.connect();
  if (name === "gridfs-upload") {
    bytes = await readFile(content("single_and_multi_document/gridfs_large.bin"));
  } else if (name === "gridfs-download") {
    stored = (await database.collection("fs.files").findOne({ filename: STORED }))._id;
  } else if (name.includes("-multi-")) {
    const folder = content(`parallel/${name.startsWith("ldjson") ? "ldjson" : "gridfs"}_multi`);
    files = (await readdir(folder)).sort().map((file) => path.join(folder, file));
  }
}

/** Does what is to be done before each iteration. */
async function before() {
  if (name === "gridfs-upload" || name === "gridfs-multi-upload") {
    await database.collection("fs.files").drop();
    await database.collection("fs.chunks").drop();
    await upload(new GridFSBucket(database), "one byte", Buffer.from("1"));
  } else if (name === "ldjson-multi-export" || name === "gridfs-multi-download") {
    for (const file of await readdir(told.scratch)) await rm(path.join(told.scratch, file));
  } else if (name === "small-doc-client-bulk-write-mixed") {
    await database.dropDatabase();
    for (const collection of COLLECTIONS) await database.createCollection(collection);
  } else if (/insert|import|mixed/.test(name)) {
    await corpus.drop();
    await database.createCollection("corpus");
  }
  bucket = new GridFSBucket(database);
  prepare();
}

/** Makes the documents and the writes of an iteration: the driver adds an `_id` to them. */
function prepare() {
  const copies = () => range(count).map(() => ({ ...document }));
  const ofClient = (name, namespace, rest) => ({ name, namespace, ...rest });
  if (name.endsWith("-insert-one") || name.endsWith("-bulk-insert")) {
    documents = copies();
  } else if (name.endsWith("-collection-bulk-write-insert")) {
    models = copies().map((document) => ({ insertOne: { document } }));
  } else if (name.endsWith("-collection-bulk-write-mixed")) {
    models = copies().flatMap((document) => [
      { insertOne: { document } },
      { replaceOne: { filter: {}, replacement: { ...document } } },
      { deleteOne: { filter: {} } },
    ]);
  } else if (name.endsWith("-client-bulk-write-insert")) {
    models = copies().map((document) => ofClient("insertOne", "perftest.corpus", { document }));
  } else if (name.endsWith("-client-bulk-write-mixed")) {
    models = copies().flatMap((document, number) => {
      const namespace = `${DATABASE}.${COLLECTIONS[number % COLLECTIONS.length]}`;
      return [
        ofClient("insertOne", namespace, { document }),
        ofClient("replaceOne", namespace, { filter: {}, replacement: { ...document } }),
        ofClient("deleteOne", namespace, { filter: {} }),
      ];
    });
  }
}

function check(came, expected = count) {
  if (came !== expected) throw new Error(`${came} instead of ${expected}`);
}

function upload(bucket, name, bytes) {
  const stream = bucket.openUploadStream(name);
  return new Promise((resolve, reject) => {
    stream.on("finish", resolve).on("error", reject).end(bytes);
  });
}

async function importFile(file) {
  const lines = (await readFile(file, "utf8")).split("\n").filter((line) => line);
  await corpus.insertMany(lines.map((line) => JSON.parse(line)), { ordered: false });
}

async function exportFile(_, number) {
  const filter = { _id: { $gte: number * LINES, $lt: (number + 1) * LINES } };
  const out = await open(path.join(told.scratch, `${number}.txt`), "w");
  const lines = [];
  for await (const document of corpus.find(filter)) lines.push(EJSON.stringify(document), "\n");
  await out.writeFile(lines.join(""));
  await out.close();
  check(lines.length, 2 * LINES);
}

function uploadFile(file) {
  return pipeline(createReadStream(file), bucket.openUploadStream(path.basename(file)));
}

function downloadFile(file) {
  const base = path.basename(file);
  return pipeline(
    bucket.openDownloadStreamByName(base),
    createWriteStream(path.join(told.scratch, base)),
  );
}

/** Does work for each file, so many at once. */
async function atOnce(work) {
  let next = 0;
  const worker = async () => {
    while (next < files.length) {
      const number = next++;
      await work(files[number], number);
    }
  };
  await Promise.all(range(Number(told.workers)).map(worker));
}

async function bulkWrite(target) {
  check((await target.bulkWrite(models)).insertedCount);
}

async function insertOnes() {
  for (const document of documents) await corpus.insertOne(document);
}

async function insertMany() {
  check((await corpus.insertMany(documents)).insertedCount);
}

const TASKS = {
  "run-command": async () => {
    for (let times = 0; times < COMMANDS; times++) await database.command({ hello: true });
  },
  "find-one-by-id": async () => {
    for (let id = 1; id <= count; id++) {
      if (!(await corpus.findOne({ _id: id }))) throw new Error("no document has come");
    }
  },
  "find-many": async () => {
    let came = 0;
    for await (const _ of corpus.find({})) came++;
    check(came);
  },
  "gridfs-upload": () => upload(bucket, STORED, bytes),
  "gridfs-download": async () => {
    const parts = [];
    for await (const part of bucket.openDownloadStream(stored)) parts.push(part);
    check(Buffer.concat(parts).length, 52_428_800);
  },
  "ldjson-multi-import": () => atOnce(importFile),
  "ldjson-multi-export": () => atOnce(exportFile),
  "gridfs-multi-upload": () => atOnce(uploadFile),
  "gridfs-multi-download": () => atOnce(downloadFile),
};
for (const size of ["small-doc", "large-doc"]) {
  TASKS[`${size}-insert-one`] = insertOnes;
  TASKS[`${size}-bulk-insert`] = insertMany;
  for (const kind of ["insert", "mixed"]) {
    TASKS[`${size}-collection-bulk-write-${kind}`] = () => bulkWrite(corpus);
    TASKS[`${size}-client-bulk-write-${kind}`] = () => bulkWrite(client);
  }
}
for (const kind of ["flat", "deep", "full"]) {
  TASKS[`${kind}-bson-encoding`] = () => {
    for (let times = 0; times < count; times++) BSON.serialize(document);
  };
  TASKS[`${kind}-bson-decoding`] = () => {
    for (let times = 0; times < count; times++) BSON.deserialize(encoded);
  };
}

await setUp();
console.log("ready");
for await (const _ of createInterface({ input: process.stdin })) {
  await before();
  const [start, cpu] = [process.hrtime.bigint(), process.cpuUsage()];
  await TASKS[name]();
  const [wall, used] = [process.hrtime.bigint() - start, process.cpuUsage(cpu)];
  console.log(`${wall} ${(used.user + used.system) * 1000}`);
}
await client.close();
