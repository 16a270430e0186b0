"""Makes mlperf_v51_runs.csv: one row for each run of MLPerf Training v5.1's language and image generation results.

.venv/bin/python tests/public_runs/make_mlperf_v51_runs.py CLONE   (of github.com/mlcommons/training_results_v5.1)

A result set is one submitter's, one system's and one benchmark's; sets of fewer than 5 runs are left out, and so are
benchmarks whose logs time neither steps nor blocks. A run's seconds/step is the median of the times that its log
gives (`median_of`): of steps as they were printed; where it prints none, of steps by the log's own clock; or of the
throughputs that were printed for each block, the first block left out.
"""

import csv
import io
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.records import read_records
from benchmarks.mlperf.run_log import LoggedRun, read_runs

BENCHMARKS = ("llama2_70b_lora", "llama31_8b", "llama31_405b", "flux1")
FEWEST_RUNS, FEWEST_TIMES = 5, 10
HEAD = ("submitter", "system", "benchmark", "run", "started", "seconds_per_step", "times", "median_of")
TARGET = Path(__file__).with_name("mlperf_v51_runs.csv")


def main() -> None:
    rows = [row for path, log in _logs(sys.argv[1]) if (row := _row(path, log))]
    sets = Counter(row[:3] for row in rows)
    kept = sorted(row for row in rows if sets[row[:3]] >= FEWEST_RUNS)
    with TARGET.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([HEAD, *kept])
    print(f"{len(kept)} runs of {len({row[:3] for row in kept})} sets")


def _logs(clone: str) -> Iterator[tuple[str, bytes]]:
    git = ["git", "-C", clone]
    names = subprocess.run([*git, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        parts = name.split("/")
        if parts[1:2] == ["results"] and parts[3:4] and parts[3] in BENCHMARKS and parts[-1].startswith("result_"):
            shown = subprocess.run([*git, "show", f"HEAD:{name}"], check=False, capture_output=True)
            if shown.returncode == 0:
                yield name, shown.stdout
            else:  # a clone may lack its largest files
                print(f"left out, the clone lacks it: {name}")


def _row(path: str, log: bytes) -> tuple[str, str, str, int, str, str, int, str] | None:
    submitter, _, system, benchmark, name = path.split("/")
    run = next((one for one in read_runs(read_records(io.BytesIO(log))) if one.start_ms and one.stop_ms), None)
    found = run and _seconds_per_step(run, log)
    if run is None or not found:
        print(f"left out, it has no times: {path}")
        return None
    times, of = found
    started = datetime.fromtimestamp((run.start_ms or 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    number = int(name.removeprefix("result_").removesuffix(".txt"))
    return submitter, system, benchmark, number, started, f"{statistics.median(times):.6g}", len(times), of


def _seconds_per_step(run: LoggedRun, log: bytes) -> tuple[list[float], str] | None:
    steps = [event.step for event in MLLOG.read(io.BytesIO(log)) if event.step is not None]
    printed = [step.framework_seconds for step in steps if step.framework_seconds]
    timed = [step.seconds for step in steps if step.seconds]
    for times, of in ((printed, "steps printed"), (timed, "steps by clock")):
        if len(times) >= FEWEST_TIMES:
            return times, of
    blocks = [run.batch / rate for rate in run.throughputs[1:] if rate > 0] if run.batch else []
    return (blocks, "throughput of blocks") if blocks else None


if __name__ == "__main__":
    main()
