"""PyMongo through `sdam tunnel`: it sees a whole set, and follows failovers without a lost write.

SDAM_URI names the set; what is printed and read is what `sdam-conformance tunnel` expects.
"""

import os
import sys
import time

import pymongo
from pymongo import ReadPreference
from pymongo.errors import PyMongoError

LIMIT = 60
OPTIONS = {"heartbeatFrequencyMS": 500, "compressors": "zlib", "w": "majority"}


def wait_for(what, attempt):
    """Tries until it returns something true, and returns that."""
    end, last = time.monotonic() + LIMIT, None
    while time.monotonic() < end:
        try:
            if outcome := attempt():
                return outcome
        except PyMongoError as error:
            last = error
        time.sleep(0.02)
    sys.exit(f"within {LIMIT} s there was no {what}: {last}")


def main():
    client = pymongo.MongoClient(os.environ["SDAM_URI"], **OPTIONS)
    things, written = client.app.pymongo, []

    def write():
        """Writes a document; one that may have been written is not counted."""
        number = len(written)
        things.replace_one({"_id": number}, {"_id": number}, upsert=True)
        written.append(number)
        return True

    wait_for("whole set", lambda: client.primary and len(client.secondaries) == 2)
    wait_for("write", write)
    members = [client.primary, *client.secondaries]
    assert all(host == "127.0.0.1" for host, _ in members), members
    secondary = things.with_options(read_preference=ReadPreference.SECONDARY)
    assert wait_for("read from a secondary", secondary.find_one) == {"_id": 0}
    with client.start_session() as session:
        # Members that miss each other on a busy machine elect another primary at any time.
        one = {"_id": "in a transaction"}
        session.with_transaction(lambda it: things.replace_one(one, one, upsert=True, session=it))

    def is_known():
        hello = client.admin.command("hello")
        return hello["me"] == "%s:%s" % client.primary and len(hello["hosts"]) == 3

    wait_for("hello of the primary", is_known)
    print("ready", pymongo.version, flush=True)
    before = client.primary
    for _ in sys.stdin:
        other = lambda: client.primary not in (None, before)
        wait_for("other primary", other)
        wait_for("write to it", write)
        before = client.primary
        print("followed to %s:%s" % before, flush=True)
    found = {it["_id"] for it in things.find()}
    assert found >= {*written, "in a transaction"}, (written, found)


if __name__ == "__main__":
    main()
