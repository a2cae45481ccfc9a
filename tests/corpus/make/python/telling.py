"""For each program of the corpus: which cases it runs, and the list of what it sent."""

import json
import os
import uuid

from cases import CASES, chance

RELEASE = int(os.environ["RELEASE"])
URL = os.environ["AMQP_URL"]
chance.seed(os.environ["FRAMEWORK"] + str(RELEASE))
_list = open(os.environ["SENT"], "a")


def sent(key, expect, why, arguable=""):
    """Say that the letter in which `key` occurs belongs to the group `expect`."""
    _list.write(json.dumps({"key": str(key), "expect": expect, "why": why, "release": RELEASE, "arguable": arguable}) + "\n")
    _list.flush()


def instances(names, queue, first=2, second=1, telling=True):
    """(key, case, data) of each case: so many in the first release, so many in the second. Already told, unless the framework makes its keys itself."""
    for name in names:
        case = CASES[name]
        for _ in range(first if RELEASE == 1 else second):
            key = str(uuid.uuid4())
            if telling:
                sent(key, f"{queue}/{name}", case.why, case.arguable)
            yield key, case, case.make()
