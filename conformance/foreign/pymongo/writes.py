"""PyMongo writing one document after another, until standard input ends.

Prints the time of each acknowledged write, in seconds since 1970, as `first_writes.py` reads it.
"""

import os
import sys
import threading
import time

import pymongo
from pymongo.errors import PyMongoError


def main():
    client = pymongo.MongoClient(os.environ["SDAM_URI"])
    things = client.app.pymongo
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(0.002):
        try:
            things.insert_one({"at": 1})
            print(f"{time.time():.6f}", flush=True)
        except PyMongoError as error:
            print(type(error).__name__, error, file=sys.stderr)
    client.close()


if __name__ == "__main__":
    main()
