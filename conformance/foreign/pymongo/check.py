"""PyMongo as a client of `sdam cluster`: it discovers, follows failovers, logs in and sees errors.

SDAM names the binary; any failure ends with a traceback.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import pymongo
from pymongo import InsertOne, UpdateOne, WriteConcern, monitoring
from pymongo.errors import ConnectionFailure, ExecutionTimeout, OperationFailure, WTimeoutError

LIMIT = 60

# What the driver must follow: after each of these there is another primary.
FAILOVERS = [
    ["step down"],
    ["cut primary from the rest"],  # for a while there are two of them
    ["heal", "kill primary"],
]


def wait_for(what, condition):
    """Waits until `condition` returns something true, and returns that."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        outcome = condition()
        if outcome:
            return outcome
        time.sleep(0.02)
    sys.exit(f"within {LIMIT} s there was no {what}")


def raised(kind, code, action):
    """Checks that an action fails so."""
    try:
        action()
    except kind as error:
        assert error.code == code, error
    else:
        sys.exit(f"nothing failed with {code}")


class Cluster:
    """A deployment that runs until the end of a `with`."""

    def __init__(self, *flags):
        command = [os.environ["SDAM"], "cluster", "--json", "--for", "5m", *flags]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.ready = json.loads(self.process.stdout.readline())
        self.uri, self.members = self.ready["uri"], self.ready["members"]
        self.events = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def elected(self):
        """The members that were elected, in order."""
        return [it["member"] for it in list(self.events) if it["event"] == "elected"]

    def tell(self, step):
        """Has a step taken, and waits for that."""
        verb = step.split()[0]
        done = lambda it: it["event"] == "done" and it["step"].startswith(verb)
        count = lambda: sum(done(it) for it in list(self.events))
        before = count()
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()
        wait_for(step, lambda: count() > before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(LIMIT) == 0


class Primaries(monitoring.TopologyListener):
    """What the driver's own events say of primaries."""

    def __init__(self):
        self.seen, self.known = [], 0

    def opened(self, event):
        pass

    def closed(self, event):
        pass

    def description_changed(self, event):
        servers = event.new_description.server_descriptions()
        self.known = len(servers)
        for address, server in servers.items():
            name = f"{address[0]}:{address[1]}"
            if server.server_type_name == "RSPrimary" and self.seen[-1:] != [name]:
                self.seen.append(name)


def tells_how_it_is(client, cluster):
    """Asks what exporters and shells ask."""
    status = client.admin.command("replSetGetStatus")
    states = {it["name"]: it["stateStr"] for it in status["members"]}
    primary = cluster.members[cluster.elected()[-1]]
    # One of the three was killed.
    expected = ["(not reachable/healthy)", "PRIMARY", "SECONDARY"]
    assert states[primary] == "PRIMARY" and sorted(states.values()) == expected, status
    config = client.admin.command("replSetGetConfig")["config"]
    assert [it["host"] for it in config["members"]] == list(cluster.members.values()), config
    server = client.admin.command("serverStatus")
    assert server["repl"]["primary"] == primary and server["connections"]["current"] > 0, server
    assert server["version"] == client.server_info()["version"], server
    with client.admin.aggregate([{"$currentOp": {}}]) as operations:
        assert any(it.get("appName") == "foreign" for it in operations)


def follows_failovers():
    with Cluster() as cluster:
        primaries = Primaries()
        seed = cluster.members["a"]
        client = pymongo.MongoClient(
            f"mongodb://{seed}/?replicaSet=demo",
            heartbeatFrequencyMS=500,
            event_listeners=[primaries],
            appname="foreign",
        )
        with client:
            assert client.admin.command("ping")["ok"] == 1
            wait_for("discovery of all", lambda: primaries.known == 3)
            print("discovered", sorted(f"{host}:{port}" for host, port in client.nodes))
            for steps in FAILOVERS:
                before = len(primaries.seen)
                for step in steps:
                    cluster.tell(step)
                wait_for(f"primary after {steps}", lambda: len(primaries.seen) > before)
            assert client.admin.command("ping")["ok"] == 1
            print("followed", primaries.seen)
            # The cluster may tell of an election later than the driver.
            elected = lambda: [cluster.members[member] for member in cluster.elected()]
            seen = primaries.seen
            wait_for("such elections", lambda: elected()[-len(seen) :] == seen)
            assert client.app.things.insert_one({"a": 1}).acknowledged
            assert client.app.things.find_one() == {"_id": 0}
            cluster.tell("fail ping with 50 1 times")
            raised(ExecutionTimeout, 50, lambda: client.admin.command("ping"))
            assert client.admin.command("ping")["ok"] == 1
            raised(OperationFailure, 59, lambda: client.admin.command("nonsense"))
            # It has the label by which the driver tries the write again, which then succeeds.
            cluster.tell("fail insert with 189 1 times")
            things = client.app.things
            assert things.insert_one({"a": 2}).acknowledged
            update = UpdateOne({}, {"$set": {"a": 3}})
            written = things.bulk_write([InsertOne({}), InsertOne({}), update])
            assert (written.inserted_count, written.modified_count) == (2, 1), written
            assert len(list(things.find(batch_size=2).limit(5))) == 5
            assert things.count_documents({"a": 1}) == things.estimated_document_count() == 8
            assert client.list_database_names() == []
            tells_how_it_is(client, cluster)
        greeted = [it for it in cluster.events if it["event"] == "greeted"]
        assert any(it["driver"].startswith("PyMongo") for it in greeted), greeted


def misses_a_majority():
    # A primary that is cut off steps down after some time.
    with Cluster("--election-timeout", "20s") as cluster, pymongo.MongoClient(cluster.uri) as client:
        things = client.app.things
        lost = things.with_options(write_concern=WriteConcern("majority", wtimeout=100))
        assert things.insert_one({}).acknowledged
        cluster.tell("cut primary from the rest")
        raised(WTimeoutError, 64, lambda: lost.insert_one({}))
        # Its default is the same.
        raised(WTimeoutError, 64, lambda: things.insert_one({}))
        content = things.with_options(write_concern=WriteConcern(1))
        assert content.insert_one({}).acknowledged


def logs_in(folder):
    ca_file = os.path.join(folder, "ca.pem")
    with Cluster("--user", "app:secret", "--tls-self-signed", ca_file) as cluster:

        def find(**options):
            with pymongo.MongoClient(cluster.uri, **options) as client:
                return client.app.things.find_one()

        raised(OperationFailure, 13, find)
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1", None]:
            named = {"authMechanism": mechanism} if mechanism else {}
            assert find(username="app", password="secret", **named) == {"_id": 0}
            wrong = lambda: find(username="app", password="guess", **named)
            raised(OperationFailure, 18, wrong)
        cluster.tell("password app=changed")
        assert find(username="app", password="changed") == {"_id": 0}
        raised(OperationFailure, 18, lambda: find(username="app", password="secret"))
        seed = cluster.members["a"]
        try:
            with pymongo.MongoClient(f"mongodb://{seed}/", serverSelectionTimeoutMS=500) as client:
                client.admin.command("ping")
        except ConnectionFailure:
            print("logged in, through TLS and not without")
        else:
            sys.exit("a member with TLS has answered without")


if __name__ == "__main__":
    print("PyMongo", pymongo.version)
    follows_failovers()
    misses_a_majority()
    with tempfile.TemporaryDirectory() as folder:
        logs_in(folder)
