// The Node.js driver writing one document after another, until standard input ends.
//
// Prints the time of each acknowledged write, in seconds since 1970, as `first_writes.py` reads it.

import { setTimeout as sleep } from "node:timers/promises";

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.SDAM_URI);
let ended = false;
process.stdin.on("end", () => (ended = true)).resume();
const things = client.db("app").collection("node");
for (; !ended; await sleep(2)) {
  try {
    await things.insertOne({ at: 1 });
    console.log(((performance.timeOrigin + performance.now()) / 1000).toFixed(6));
  } catch (error) {
    console.error(error.name, error.message);
  }
}
await client.close();
