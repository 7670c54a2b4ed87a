// The Node.js driver as a client of `sdam cluster`: it discovers, follows failovers, logs in and
// sees errors.
//
// SDAM names the binary; any failure ends with a stack.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";

import { MongoClient } from "mongodb";

const LIMIT = 60_000;

/** What the driver must follow: after each of these there is another primary. */
const FAILOVERS = [
  ["step down"],
  ["cut primary from the rest"], // for a while there are two of them
  ["heal", "kill primary"],
];

/** Waits until `condition` returns something true. */
async function waitFor(what, condition) {
  for (const end = Date.now() + LIMIT; Date.now() < end; await sleep(20)) {
    if (condition()) return;
  }
  throw new Error(`within ${LIMIT} ms there was no ${what}`);
}

/** A deployment that runs until it is stopped. */
class Cluster {
  static async start(...flags) {
    const cluster = new Cluster();
    const stdio = ["pipe", "pipe", "inherit"];
    const all = ["cluster", "--json", "--for", "5m", ...flags];
    cluster.process = spawn(process.env.SDAM, all, { stdio });
    cluster.events = [];
    createInterface(cluster.process.stdout).on("line", (line) => {
      cluster.events.push(JSON.parse(line));
    });
    await waitFor("deployment", () => cluster.events.length > 0);
    ({ uri: cluster.uri, members: cluster.members } = cluster.events[0]);
    return cluster;
  }

  /** The addresses of the members that were elected, in order. */
  elected() {
    const elections = this.events.filter((it) => it.event === "elected");
    return elections.map((it) => this.members[it.member]);
  }

  /** Has a step taken, and waits for that. */
  async tell(step) {
    const [verb] = step.split(" ");
    const isDone = (it) => it.event === "done" && it.step.startsWith(verb);
    const count = () => this.events.filter(isDone).length;
    const before = count();
    this.process.stdin.write(`${step}\n`);
    await waitFor(step, () => count() > before);
  }

  async stop() {
    const ended = once(this.process, "exit");
    this.process.kill();
    const [code] = await ended;
    assert.equal(code, 0);
  }
}

async function followsFailovers() {
  const cluster = await Cluster.start();
  const options = { heartbeatFrequencyMS: 500, appName: "foreign" };
  const client = new MongoClient(`mongodb://${cluster.members.a}/?replicaSet=demo`, options);
  const seen = [];
  let known = [];
  // A primary that steps down before a member has heard of it is elected again.
  let followed = false;
  client.on("topologyDescriptionChanged", ({ newDescription: { servers } }) => {
    known = [...servers.keys()];
    for (const [address, server] of servers) {
      if (server.type === "RSPrimary" && seen.at(-1) !== address) seen.push(address);
    }
    followed = [...servers.values()].every((it) => it.primary === seen.at(-1));
  });
  const admin = client.db("admin");
  assert.equal((await admin.command({ ping: 1 })).ok, 1);
  await waitFor("discovery of all", () => known.length === 3);
  console.log("discovered", known.toSorted());
  await waitFor("followers of the primary", () => followed);
  for (const steps of FAILOVERS) {
    const before = seen.length;
    for (const step of steps) await cluster.tell(step);
    await waitFor(`primary after ${steps}`, () => seen.length > before);
  }
  assert.equal((await admin.command({ ping: 1 })).ok, 1);
  console.log("followed", seen);
  // The cluster may tell of an election later than the driver.
  const elected = () => cluster.elected().slice(-seen.length);
  await waitFor("such elections", () => isDeepStrictEqual(elected(), seen));
  const things = client.db("app").collection("things");
  assert.ok((await things.insertOne({ a: 1 })).acknowledged);
  assert.deepEqual(await things.findOne(), { _id: 0 });
  await cluster.tell("fail ping with 50 1 times");
  await assert.rejects(admin.command({ ping: 1 }), { code: 50 });
  assert.equal((await admin.command({ ping: 1 })).ok, 1);
  await assert.rejects(admin.command({ nonsense: 1 }), { code: 59 });
  // It has the label by which the driver tries the write again, which then succeeds.
  await cluster.tell("fail insert with 189 1 times");
  assert.ok((await things.insertOne({ a: 2 })).acknowledged);
  const update = { updateOne: { filter: {}, update: { $set: { a: 3 } } } };
  const written = await things.bulkWrite([{ insertOne: { document: {} } }, update]);
  assert.deepEqual([written.insertedCount, written.modifiedCount], [1, 1]);
  assert.equal((await things.find().limit(5).batchSize(2).toArray()).length, 5);
  assert.equal(await things.countDocuments({ a: 1 }), 8);
  assert.equal(await things.estimatedDocumentCount(), 8);
  const { members } = await admin.command({ replSetGetStatus: 1 });
  const states = members.map((it) => it.stateStr).toSorted();
  // One of the three was killed.
  assert.deepEqual(states, ["(not reachable/healthy)", "PRIMARY", "SECONDARY"]);
  assert.ok((await admin.command({ serverStatus: 1 })).connections.current > 0);
  await client.close();
  const drivers = cluster.events.filter((it) => it.event === "greeted").map((it) => it.driver);
  assert.ok(drivers.some((it) => it.startsWith("nodejs")), drivers.join());
  await cluster.stop();
}

async function logsIn(folder) {
  const flags = ["--user", "app:secret", "--tls-self-signed", join(folder, "ca.pem")];
  const cluster = await Cluster.start(...flags);
  const find = async (uri, options) => {
    const client = new MongoClient(uri, options);
    try {
      return await client.db("app").collection("things").findOne();
    } finally {
      await client.close();
    }
  };
  const as = (password, authMechanism) =>
    find(cluster.uri, { auth: { username: "app", password }, authMechanism });
  await assert.rejects(find(cluster.uri), { code: 13 });
  for (const mechanism of ["SCRAM-SHA-256", "SCRAM-SHA-1", "DEFAULT"]) {
    assert.deepEqual(await as("secret", mechanism), { _id: 0 });
    await assert.rejects(as("guess", mechanism), { code: 18 });
  }
  await cluster.tell("password app=changed");
  assert.deepEqual(await as("changed"), { _id: 0 });
  await assert.rejects(as("secret"), { code: 18 });
  const plain = find(`mongodb://${cluster.members.a}/`, { serverSelectionTimeoutMS: 500 });
  await assert.rejects(plain, { name: "MongoServerSelectionError" });
  console.log("logged in, through TLS and not without");
  await cluster.stop();
}

const manifest = new URL("./node_modules/mongodb/package.json", import.meta.url);
console.log("the Node.js driver", JSON.parse(await readFile(manifest, "utf8")).version);
await followsFailovers();
const folder = await mkdtemp(join(tmpdir(), "sdam-"));
try {
  await logsIn(folder);
} finally {
  await rm(folder, { recursive: true });
}
