"""Inside a submission's container, once a node: is the program there, and are its data whole?

    mlperf_check.py PHASE_DIR PATH=BYTES...      BYTES may be empty: it must be there, and not be empty

Every fault is printed; the first ones are the event of how this ended. A folder must hold something.
"""

import json
import os
import sys
from pathlib import Path

MOST_NAMED = 3


def fault_of(path: Path, size: str) -> str:
    """What is wrong with a file; empty where nothing is."""
    try:
        if path.is_dir():
            return "" if any(path.iterdir()) else f"{path} is empty"
        there = path.stat().st_size
    except OSError as error:
        return f"{path}: {error.strerror}"
    if there == 0:
        return f"{path} is empty"
    return f"{path} has {there:,} bytes, {int(size):,} are expected" if size and there != int(size) else ""


def main(phase_dir: Path, files: list[str]) -> int:
    wanted = [text.rpartition("=") for text in files]
    faults = [fault for path, _, size in wanted if (fault := fault_of(Path(path), size))]
    for fault in faults:
        print(f"stepmark: {fault}", flush=True)
    end = {"event": "end", "status": "done"}
    if faults:
        more = f", and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        end = {"event": "end", "status": "error", "message": f"mounts: {'; '.join(faults[:MOST_NAMED])}{more}"}
    rank = os.environ.get("STEPMARK_RANK", "0")
    with (phase_dir / f"events-rank{rank}.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({**end, "rank": int(rank)}) + "\n")
    print(f"{len(wanted) - len(faults)} of {len(wanted)} files are as they should be", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
