"""Inside a submission's container, once a node: is the program there, and are its data whole?

    mlperf_check.py PHASE_DIR PATH=BYTES...      BYTES may be empty: it must be there, and not be empty

Every fault is printed; the first ones are the event of how this ended. A folder must hold something.
"""

import json
import os
import sys

MOST_NAMED = 3


def fault_of(path, size):
    try:
        if os.path.isdir(path):
            return None if os.listdir(path) else "%s is empty" % path
        there = os.stat(path).st_size
    except OSError as error:
        return "%s: %s" % (path, error.strerror)
    if there == 0:
        return "%s is empty" % path
    if size and there != int(size):
        return "%s has %s bytes, %s are expected" % (path, format(there, ","), format(int(size), ","))
    return None


def main(arguments):
    phase_dir, wanted = arguments[0], [text.rpartition("=") for text in arguments[1:]]
    faults = [fault for path, _, size in wanted if (fault := fault_of(path, size))]
    for fault in faults:
        print("stepmark: %s" % fault, flush=True)
    end = {"event": "end", "status": "done"}
    if faults:
        more = ", and %d more" % (len(faults) - MOST_NAMED) if len(faults) > MOST_NAMED else ""
        end = {"event": "end", "status": "error", "message": "mounts: " + "; ".join(faults[:MOST_NAMED]) + more}
    rank = os.environ.get("STEPMARK_RANK", "0")
    with open(os.path.join(phase_dir, "events-rank%s.jsonl" % rank), "a", encoding="utf-8") as stream:
        stream.write(json.dumps(end) + "\n")
    print("%d of %d files are as they should be" % (len(wanted) - len(faults), len(wanted)), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
