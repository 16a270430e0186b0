"""Measures the index over very many runs, a filtered report over it, and the dashboard. Not a test.

    python tests/measure_store.py --runs=100000

One run's files are written many times with another name, date, commit, tag, suite and speed. Some runs are damaged,
some folders are not runs. The script makes the reports in a separate process. Everything is in a temporary
folder (--dir=DIR: below DIR) and is removed in the end.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # run by its path, it is next to the packages and not one of them

from tests.benchmarks.history.made_runs import quick_run  # noqa: E402

KINDS = [
    *(("jax", "llama2_70b", dtype, gpus) for dtype in ("bf16", "fp8") for gpus in (64, 128, 256, 512)),
    ("nemo", "llama31_70b", "bf16", 64),
    *(("nemo", "llama31_8b", dtype, 8) for dtype in ("bf16", "fp8")),
]
FIRST_DAY = 1_735_689_600.0  # 2025-01-01
DAYS = 600
EVERY_DAMAGED, EVERY_FOREIGN = 997, 1999  # one of so many
QUESTIONS = (
    ["--where=model=llama2_70b", "--where=dtype=fp8", "--where=gpus>=256", "--where=tag=accept", "--newest=50"],
    ["--where=suite=weekly", "--where=date>=2026-06-01", "--where=status=valid", "--format=csv"],
    ["--where=commit=a1", "--where=backend=nemo", "--json"],
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepmark-store-", dir=options.dir) as place:
        os.environ["STEPMARK_HOME"] = f"{place}/home"
        measure(Path(place), options.runs, options.repeats)


def measure(place: Path, runs: int, repeats: int) -> None:
    results = place / "results"
    print(f"{os.cpu_count()} processors, {os.getloadavg()[0]:.1f} at work when it began (load average)")
    say(f"{runs} folders written", 1, lambda: write_runs(results, runs))
    say("index made, and one run shown", 1, lambda: report(results, "--newest=1"))
    size = sum(path.stat().st_size for path in (place / "home" / "index").iterdir())
    print(f"  the index takes {size / 1e6:.0f} MB")
    say("report of nothing new", repeats, lambda: report(results, "--newest=1"))
    for question in QUESTIONS:
        say(f"report {' '.join(question)}", repeats, lambda question=question: report(results, *question))
    write_run(results, 10_000_000, random.Random(8))
    say("report after one run has come", 1, lambda: report(results, *QUESTIONS[0]))
    say("all runs as JSON", 1, lambda: report(results, "--json"))
    for what in ("dashboard made", "dashboard with nothing new"):
        say(what, 1, lambda: launch("dashboard", f"--output_dir={results}"))


def say(what: str, times: int, work: Callable[[], object]) -> None:
    """Print the seconds that a user waits, and those that the processors worked: other programs add to the first."""
    waited, worked = [], []
    for _ in range(times):
        started, before = time.perf_counter(), sum(os.times()[:4])
        work()
        waited.append(time.perf_counter() - started)
        worked.append(sum(os.times()[:4]) - before)
    spread = f" (from {min(waited):.3g} to {max(waited):.3g})" if times > 1 else ""
    print(
        f"{what}: n={times}, median {statistics.median(waited):.3g} s{spread}, "
        f"processors {statistics.median(worked):.3g} s",
        flush=True,
    )


def report(results: Path, *words: str) -> None:
    launch("report", "runs", str(results), *words)


def launch(script: str, *words: str) -> None:
    command = [sys.executable, str(REPOSITORY / "launch" / f"{script}.py"), *words]
    subprocess.run(command, check=True, capture_output=True)


# --- the runs -------------------------------------------------------------------------------------


def write_runs(results: Path, runs: int) -> None:
    chance = random.Random(7)
    for number in range(runs):
        if number % EVERY_FOREIGN == EVERY_FOREIGN - 1:
            (results / f"plots-{number}").mkdir(parents=True)
        else:
            write_run(results, number, chance)


def write_run(results: Path, number: int, chance: random.Random) -> None:
    when = FIRST_DAY + chance.random() * DAYS * 86400
    backend, model, dtype, gpus = KINDS[number % len(KINDS)]
    night = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(when))
    suite = "weekly" if number % 7 == 0 else "nightly"
    folder = quick_run(
        results,
        f"{night}-{backend}-{model}-pretrain-{dtype}-{gpus}xcpu-{number:05x}",
        seconds=5 * chance.gauss(1, 0.004),
        commit=f"{chance.getrandbits(160):040x}",
        tags=["accept"] if number % 10 == 0 else [],
        nightly={"suite": suite, "cell": f"{model}-{gpus}", "night": night, "role": "night"} if number % 3 else None,
        **{"backend": backend, "model": model, "dtype": dtype, "gpus": gpus},
    )
    if number % EVERY_DAMAGED == 0:
        (folder / "result.json").write_text("{")
    os.utime(folder, (when + 600, when + 600))  # as one that ended then


if __name__ == "__main__":
    main()
