// The Node.js driver through `sdam tunnel`: it sees a whole set, and follows failovers without a
// lost write.
//
// SDAM_URI names the set; what is printed and read is what `sdam-conformance tunnel` expects.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";

import { MongoClient } from "mongodb";

const LIMIT = 60_000;
const OPTIONS = {
  heartbeatFrequencyMS: 500,
  compressors: ["zlib"],
  w: "majority",
  serverSelectionTimeoutMS: 5000,
};

/** Tries until it returns something true, and returns that. */
async function waitFor(what, attempt) {
  let last;
  for (const end = Date.now() + LIMIT; Date.now() < end; await sleep(20)) {
    try {
      const outcome = await attempt();
      if (outcome) return outcome;
    } catch (error) {
      last = error;
    }
  }
  throw new Error(`within ${LIMIT} ms there was no ${what}`, { cause: last });
}

const client = new MongoClient(process.env.SDAM_URI, OPTIONS);
let [primary, secondaries] = [undefined, []];
client.on("topologyDescriptionChanged", ({ newDescription: { servers } }) => {
  const named = (type) => [...servers.values()].filter((it) => it.type === type);
  primary = named("RSPrimary")[0]?.address;
  secondaries = named("RSSecondary").map((it) => it.address);
});
await client.connect();
const things = client.db("app").collection("node");
const written = [];

/** Writes a document; one that may have been written is not counted. */
async function write() {
  const _id = written.length;
  await things.replaceOne({ _id }, {}, { upsert: true });
  written.push(_id);
  return true;
}

await waitFor("whole set", () => primary && secondaries.length === 2);
await waitFor("write", write);
const members = [primary, ...secondaries];
assert.ok(members.every((it) => it.startsWith("127.0.0.1:")), members.join());
const read = () => things.findOne({}, { readPreference: "secondary" });
assert.deepEqual(await waitFor("read from a secondary", read), { _id: 0 });
await client.withSession((session) =>
  session.withTransaction(() => things.insertOne({ _id: "in a transaction" }, { session })),
);
await waitFor("hello of the primary", async () => {
  const { me, hosts } = await client.db("admin").command({ hello: 1 });
  return isDeepStrictEqual([me, hosts.toSorted()], [primary, members.toSorted()]);
});
console.log("ready");
let before = primary;
for await (const _ of createInterface({ input: process.stdin })) {
  await waitFor("other primary", () => primary && primary !== before);
  await waitFor("write to it", write);
  before = primary;
  console.log("followed to", before);
}
const found = (await things.find().toArray()).map((it) => it._id);
for (const _id of [...written, "in a transaction"]) assert.ok(found.includes(_id), `${_id}`);
await client.close();
