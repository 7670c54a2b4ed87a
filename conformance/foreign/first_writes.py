"""The time from an election to the first acknowledged write, of several drivers in one run.

    first_writes.py --mongod PATH --times N NAME=COMMAND...

Starts a replica set of three, and each command as a client of it: SDAM_URI names the set, and each
prints the time of every acknowledged write until its standard input ends. Then the primary steps
down, again and again. The election is over when the new primary says that it accepts writes:
`newTermStartDate` of `replSetGetStatus`.
"""

import argparse
import collections
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import pymongo
from pymongo.errors import PyMongoError

# The time in which a set elects a primary, and a client writes, on a machine that is busy.
LIMIT = 120
# The time for which a primary that has stepped down is no candidate.
STEP_DOWN_SECONDS = 10


def until(what, attempt):
    """Waits for something, and returns it."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            if (found := attempt()) is not None:
                return found
        except PyMongoError:
            pass
        time.sleep(0.02)
    sys.exit(f"{what}: nothing in {LIMIT} s")


class Set:
    """A replica set of three on this machine."""

    def __init__(self, mongod):
        self.folder = tempfile.mkdtemp()
        ports, self.processes = [], []
        for _ in range(3):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                ports.append(free.getsockname()[1])
        for port in ports:
            data = os.path.join(self.folder, str(port))
            os.mkdir(data)
            command = [mongod, "--replSet", "rs", "--port", str(port), "--dbpath", data]
            command += ["--bind_ip", "127.0.0.1", "--unixSocketPrefix", self.folder]
            command += ["--wiredTigerCacheSizeGB", "0.25"]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        self.hosts = [f"127.0.0.1:{port}" for port in ports]
        direct = lambda host: pymongo.MongoClient(host, directConnection=True)
        self.members = [direct(host) for host in self.hosts]
        members = [{"_id": index, "host": host} for index, host in enumerate(self.hosts)]
        begin = {"replSetInitiate": {"_id": "rs", "members": members}}
        until("a set", lambda: self.members[0].admin.command(begin))
        until("a primary", self.primary)
        until("secondaries", lambda: True if self.is_whole() else None)

    def primary(self):
        """Returns the member that accepts writes."""
        for member in self.members:
            if member.admin.command("hello").get("isWritablePrimary"):
                return member
        return None

    def is_whole(self):
        replies = [member.admin.command("hello") for member in self.members]
        return sum(bool(reply.get("secondary")) for reply in replies) == 2

    def step_down(self):
        """Has the primary step down; returns when the next one has accepted writes."""
        old = until("a primary", self.primary)
        term = old.admin.command("replSetGetStatus")["term"]
        command = {"replSetStepDown": STEP_DOWN_SECONDS, "secondaryCatchUpPeriodSecs": 5}
        until("a step-down", lambda: old.admin.command(command))

        def elected():
            new = self.primary()
            status = new.admin.command("replSetGetStatus") if new else {"term": term}
            return status["electionCandidateMetrics"] if status["term"] > term else None

        return until("an election", elected)["newTermStartDate"].timestamp()

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder)


class Client:
    """A client under test, and when its writes were acknowledged."""

    def __init__(self, name, command, uri):
        environment = {**os.environ, "SDAM_URI": uri}
        self.name, self.times = name, collections.deque()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.times.append(float(line))

    def first_after(self, moment):
        return next((at for at in list(self.times) if at > moment), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mongod", required=True)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("clients", nargs="+", metavar="NAME=COMMAND")
    arguments = parser.parse_args()
    # The dates of servers are those of UTC, without saying so.
    os.environ["TZ"] = "UTC"
    time.tzset()
    servers = Set(arguments.mongod)
    uri = f"mongodb://{','.join(servers.hosts)}/?replicaSet=rs"
    commands = dict(client.split("=", 1) for client in arguments.clients)
    clients = [Client(name, shlex.split(command), uri) for name, command in commands.items()]
    delays = {client.name: [] for client in clients}
    try:
        for client in clients:
            until(f"a write of {client.name}", lambda: client.first_after(0))
        for number in range(arguments.times):
            time.sleep(STEP_DOWN_SECONDS + 2)
            election = servers.step_down()
            row = []
            for client in clients:
                first = until(f"a write of {client.name}", lambda: client.first_after(election))
                delays[client.name].append((first - election) * 1000)
                row.append(f"{client.name} {delays[client.name][-1]:.0f}")
            print(f"# election {number + 1}, ms: {', '.join(row)}", flush=True)
    finally:
        for client in clients:
            client.process.stdin.close()
            client.process.kill()
        servers.end()
    # What an election takes is the same for all; what tells them apart is how much later each is.
    soonest = [min(times) for times in zip(*delays.values())]
    print(f"{'client':14} {'median ms':>10} {'min..max':>12} {'behind the first, median ms':>28}")
    for name, found in delays.items():
        spread = f"{min(found):.0f}..{max(found):.0f}"
        behind = statistics.median(time - first for time, first in zip(found, soonest))
        print(f"{name:14} {statistics.median(found):10.0f} {spread:>12} {behind:28.1f}")


if __name__ == "__main__":
    main()
