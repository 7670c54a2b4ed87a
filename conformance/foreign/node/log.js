// The Node.js driver's events of the deployment that SDAM_URI names, until standard input ends.
//
// Prints SDAM events as lines of JSON for `sdam check-log`, or, with the argument `messages`, the
// messages of the driver's own log. The client is used meanwhile.

import { setTimeout as sleep } from "node:timers/promises";

import { MongoClient } from "mongodb";

const OPTIONS = { heartbeatFrequencyMS: 1000, connectTimeoutMS: 2000 };
const EVENTS = [
  "topologyOpening", "topologyDescriptionChanged", "topologyClosed",
  "serverOpening", "serverDescriptionChanged", "serverClosed",
  "serverHeartbeatStarted", "serverHeartbeatSucceeded", "serverHeartbeatFailed",
];

/** Shows what JSON.stringify leaves empty: maps, and errors. */
function shown(_, value) {
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  return value;
}

const print = (object) => console.log(JSON.stringify(object, shown));

print(OPTIONS);
const settings = { serverSelectionTimeoutMS: 2000, ...OPTIONS };
if (process.argv[2] === "messages") {
  settings.mongodbLogPath = { write: async (message) => print(message) };
  settings.mongodbLogComponentSeverities = { topology: "debug" };
  settings.mongodbLogMaxDocumentLength = 100_000;
}
const client = new MongoClient(process.env.SDAM_URI, settings);
if (process.argv[2] !== "messages") {
  for (const name of EVENTS) {
    client.on(name, (event) => print({ time: Date.now(), event: name, ...event }));
  }
}
let ended = false;
process.stdin.on("end", () => (ended = true)).resume();
const things = client.db("app").collection("things");
for (; !ended; await sleep(100)) {
  try {
    await things.insertOne({ at: new Date() });
    await things.findOne();
  } catch (error) {
    console.error(error.name, error.message);
  }
}
await client.close();
