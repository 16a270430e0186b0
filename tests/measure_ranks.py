"""Measures what a run of very many ranks and nodes costs the launcher. Not a test.

    python tests/measure_ranks.py --ranks=2048 --steps=1000 --nodes=256 --samples=3600

The events of each rank are generated. Separate processes then follow, finish and verify the run. The output: the
files that a look opens, peak memory and seconds of each part, and the size and reading time of steps.jsonl. A
second run has generated telemetry, one sample a second of 8 GPUs on each node, and its TensorBoard events and page.
Everything is in a temporary folder (--dir=DIR: below DIR).
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # run by its path, it is next to the packages and not one of them

import msgspec  # noqa: E402
import pytest  # noqa: E402

from benchmarks.dashboard.events import write_ended  # noqa: E402
from benchmarks.pages.html_pages import write_html  # noqa: E402
from benchmarks.runs.runfolder import STEPS, RunFolder  # noqa: E402
from jax_backend import BACKEND  # noqa: E402
from launch.checks.verifying import check_run  # noqa: E402
from launch.running.execute import finish  # noqa: E402
from tests.benchmarks.conftest import FACTS, events_of, write_exits  # noqa: E402
from tests.failing_reads import FailingReads  # noqa: E402
from tests.launch.dashboards.made_runs import BEGIN, begun, benchmark, train  # noqa: E402

MEGABYTE = 1e6
GPUS = 8  # of a node


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--samples", type=int, default=3600)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepmark-ranks-", dir=options.dir) as place:
        folder = write_run(Path(place), options.ranks, options.steps)
        print(f"{options.ranks} ranks x {options.steps} steps")
        run_as_one_process("follow", lambda: follow(folder))
        run_as_one_process("finish", lambda: finish(folder, BACKEND))
        run_as_one_process("verify", lambda: check_run(folder.path, folder.path.parent))
        size = (folder.path / STEPS).stat().st_size / MEGABYTE
        run_as_one_process(f"read {size:.1f} MB of {STEPS}", lambda: sum(1 for _ in folder.each_stored_step()))
        sampled = write_sampled_run(Path(place), options.nodes, options.samples)
        print(f"{options.nodes} nodes x {options.samples} samples")
        run_as_one_process("finish", lambda: finish(sampled, BACKEND))
        run_as_one_process("verify", lambda: check_run(sampled.path, sampled.path.parent))
        run_as_one_process("TensorBoard", lambda: write_ended(sampled))
        run_as_one_process("page", lambda: write_html([str(sampled.path)], Path(place) / "page.html"))


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


def write_sampled_run(place: Path, nodes: int, samples: int) -> RunFolder:
    """A run with a step and a sample every second; the nodes' counters and clocks differ, and their times."""
    plain = benchmark()
    folder = begun(
        place,
        "run-2",
        steps=samples,
        hardware=msgspec.structs.replace(plain.hardware, kind="gpu"),
        gpus=nodes * GPUS,
        nodes=nodes,
        site=msgspec.structs.replace(plain.site, kind="slurm"),
    )
    train(folder, [1.0 + (step % 7) * 1e-4 for step in range(samples)])
    folder.telemetry_dir(1).mkdir()
    facts = {"interval": 1.0, "cpus": 8, "memory_bytes": 10**12, "no_gpus_because": None, "driver": "580.65",
             "nvml": None, "cuda": "13.0"}  # fmt: skip
    own = {"name": "GPU", "uuid": None, "bus_id": None, "power_limit_w": 700.0, "max_sm_clock_mhz": 1980,
           "max_memory_clock_mhz": 2619, "remapped_rows": 0}  # fmt: skip
    for node in range(nodes):
        chance = random.Random(node)
        head = {"event": "facts", "time": BEGIN, "host": f"node{node}", **facts}
        lines = [msgspec.json.encode({**head, "gpus": [{"index": gpu, **own} for gpu in range(GPUS)]})]
        for second in range(-2, samples + 4):
            rows = [
                [2**40 + 600_000 * second + gpu, chance.randrange(500_000, 700_000) / 1000,
                 1755 + 15 * (gpu - node % 3), 2619, 60 + gpu, 99, 2**36 + second, 4 * (chance.random() < 0.1), 0, 0]
                for gpu in range(GPUS)
            ]  # fmt: skip
            lines.append(
                msgspec.json.encode({"event": "sample", "time": BEGIN + second + node / 1000,
                 "cpu_utilisation": chance.randrange(10_000) / 10_000, "memory_used_bytes": 2**38 + second,
                 "memory_available_bytes": 2**38, "load": 1.0, "gpus": rows})
            )  # fmt: skip
        end = {"event": "end", "time": BEGIN + samples + 4, "reason": "SIGTERM", "samples": samples + 6,
               "cpu_seconds": 9.0, "remapped_rows": [0] * GPUS}  # fmt: skip
        lines.append(msgspec.json.encode(end))
        (folder.telemetry_dir(1) / f"node-node{node:03}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return folder


def run_as_one_process(what: str, work: Callable[[], object]) -> None:
    """Print its cost in a separate process."""

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
