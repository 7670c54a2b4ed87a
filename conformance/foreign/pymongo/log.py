"""PyMongo's log of the deployment that SDAM_URI names, until standard input ends.

Prints the messages of the logger `pymongo.topology` as lines of JSON for `sdam check-log`, of two
clients at once: one that listens to its servers and one that polls them. Both are used meanwhile.
"""

import json
import logging
import os
import sys
import threading
import time

# The driver cuts replies longer than this, and takes the number from a variable of this spelling.
os.environ["MONGOB_LOG_MAX_DOCUMENT_LENGTH"] = "100000"

import pymongo
from pymongo.errors import PyMongoError

OPTIONS = {"heartbeatFrequencyMS": 1000, "connectTimeoutMS": 2000}


class Lines(logging.Handler):
    """Writes each message as one line, with the time."""

    def emit(self, record):
        message = json.loads(record.getMessage())
        print(json.dumps({"time": record.created, **message}), flush=True)


def use(client, ended):
    """Reads and writes until the end; what fails, fails."""
    things = client.app.things
    while not ended.wait(0.1):
        try:
            things.insert_one({"at": time.time()})
            things.find_one()
        except PyMongoError as error:
            print(type(error).__name__, error, file=sys.stderr)


def main():
    print(json.dumps(OPTIONS), flush=True)
    logger = logging.getLogger("pymongo.topology")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Lines())
    ended, users = threading.Event(), []
    for mode in ["stream", "poll"]:
        options = {"serverMonitoringMode": mode, "serverSelectionTimeoutMS": 2000, **OPTIONS}
        client = pymongo.MongoClient(os.environ["SDAM_URI"], **options)
        users.append((client, threading.Thread(target=use, args=(client, ended))))
    for _, user in users:
        user.start()
    sys.stdin.read()
    ended.set()
    for client, user in users:
        user.join()
        client.close()


if __name__ == "__main__":
    main()
