"""Measures what a run of very many ranks costs the launcher. Not a test.

    python tests/measure_ranks.py --ranks=2048 --steps=1000

The events of each rank are generated. Processes of their own then follow, finish and verify the run. Printed: what a
look opens, peak memory and seconds of each part, and the size and reading time of steps.jsonl. Everything is in a
temporary folder (--dir=DIR: below DIR).
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # run by its path, it is beside the packages and not among them

import pytest  # noqa: E402

from benchmarks.runs.runfolder import STEPS, RunFolder  # noqa: E402
from jax_backend import BACKEND  # noqa: E402
from launch.checks.verifying import check_run  # noqa: E402
from launch.running.execute import finish  # noqa: E402
from tests.benchmarks.conftest import FACTS, events_of, write_exits  # noqa: E402
from tests.failing_reads import FailingReads  # noqa: E402
from tests.launch.dashboards.made_runs import begun  # noqa: E402

MEGABYTE = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepmark-ranks-", dir=options.dir) as place:
        folder = write_run(Path(place), options.ranks, options.steps)
        print(f"{options.ranks} ranks x {options.steps} steps")
        alone("follow", lambda: follow(folder))
        alone("finish", lambda: finish(folder, BACKEND))
        alone("verify", lambda: check_run(folder.path))
        size = (folder.path / STEPS).stat().st_size / MEGABYTE
        alone(f"read {size:.1f} MB of {STEPS}", lambda: sum(1 for _ in folder.each_stored_step()))


def write_run(place: Path, ranks: int, steps: int) -> RunFolder:
    folder = begun(place, "run-1", steps=steps)
    phase_dir = folder.phase_dir("perf")
    lines = [json.dumps(event) + "\n" for event in events_of(steps=steps)[1:-1]]
    for rank in range(ranks):
        first = json.dumps({**FACTS, "rank": rank}) + "\n"
        started = json.dumps({"event": "started", "unix_seconds": 1e9, "host": f"node{rank // 8}"}) + "\n"
        end = json.dumps({"event": "end", "rank": rank, "status": "done"}) + "\n"
        (phase_dir / f"events-rank{rank}.jsonl").write_text("".join([first, started, *lines, end]))
    write_exits(phase_dir, *[0] * ranks)
    return folder


def alone(what: str, work: Callable[[], object]) -> None:
    """Print what it costs in a process that does nothing else."""

    def measured() -> None:
        before, started = peak_megabytes(), time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        sys.stdout.flush()
        print(f"{what}: {seconds:.2f} s, peak {peak_megabytes():.1f} MB ({before:.1f} MB before)", flush=True)

    process = multiprocessing.get_context("fork").Process(target=measured)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{what} failed")


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


def follow(folder: RunFolder) -> None:
    look = BACKEND.follow(folder.benchmark(), folder.phase_dir("perf"), 1)
    with pytest.MonkeyPatch.context() as now:
        reads = FailingReads(folder.path, at=0)
        reads.patch(now)
        look()
        steps = reads.count
        look()
    print(f"a look opens and reads {steps} times with new steps, {reads.count - steps} times without")


if __name__ == "__main__":
    os.environ.setdefault("STEPMARK_HOME", tempfile.gettempdir())
    main()
