"""Measures the index over very many runs: how long it takes to make, and a filtered report over it. Not a test.

    python tests/measure_store.py --runs=100000
    python tests/measure_store.py --runs=100000 --tensorboard     the dashboard over them, and TensorBoard on it, too

One run's files are written many times over with another name, date, commit, tag, suite and speed. Some runs are
damaged, some folders are no runs. The reports are made as a person makes them, by the script in a process of its own.
Everything lies in a temporary folder (--dir=DIR: below DIR) and is removed in the end.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # run by its path, it is beside the packages and not among them

from launch.dashboards.serving import tensorboard  # noqa: E402
from tests.benchmarks.history.made_runs import quick_run  # noqa: E402

KINDS = [
    *(("jax", "llama2_70b", dtype, gpus) for dtype in ("bf16", "fp8") for gpus in (64, 128, 256, 512)),
    ("nemo", "llama31_70b", "bf16", 64),
    *(("nemo", "llama31_8b", dtype, 8) for dtype in ("bf16", "fp8")),
]
SERVED_SECONDS = 120.0
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
    parser.add_argument("--tensorboard", action="store_true", help="the dashboard, and TensorBoard on it, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepmark-store-", dir=options.dir) as place:
        os.environ["STEPMARK_HOME"] = f"{place}/home"
        measure(Path(place), options.runs, options.repeats)
        if options.tensorboard:
            measure_dashboard(Path(place, "results"))


def measure(place: Path, runs: int, repeats: int) -> None:
    results = place / "results"
    print(f"{os.cpu_count()} processors, {os.getloadavg()[0]:.1f} at work when it began (load average)")
    say(f"{runs} folders written", [timed(lambda: write_runs(results, runs))])
    found = [timed(lambda: report(results, ["--rebuild_index", "--newest=1"])) for _ in range(min(repeats, 3))]
    say("index made anew, and one run shown", found)
    size = sum(path.stat().st_size for path in (place / "home" / "index").iterdir())
    print(f"  the index takes {size / 1e6:.0f} MB; resident memory at most {peak_memory_mb():.0f} MB")
    say("report of nothing new", [timed(lambda: report(results, ["--newest=1"])) for _ in range(repeats)])
    for question in QUESTIONS:
        lines = report(results, question).count("\n")
        found = [timed(lambda question=question: report(results, question)) for _ in range(repeats)]
        say(f"{' '.join(question)} ({lines} lines)", found)
    write_run(results, 10_000_000, random.Random(8))
    say("report after one run has come", [timed(lambda: report(results, [*QUESTIONS[0]]))])
    say("all runs as JSON", [timed(lambda: report(results, ["--json"]))])
    print(f"  {counted(results)}")


def measure_dashboard(results: Path) -> None:
    """Made from nothing, and once more with nothing new; its size and number of files are what TensorBoard reads."""
    script = [sys.executable, str(REPOSITORY / "launch" / "dashboard.py"), f"--output_dir={results}"]
    for what in ("dashboard made", "dashboard with nothing new"):
        say(what, [timed(lambda: subprocess.run(script, check=True, capture_output=True))])
    logdir = results / "dashboard"
    files = [path for path in logdir.rglob("*") if path.is_file()]
    print(f"  {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    measure_tensorboard(logdir)


def measure_tensorboard(logdir: Path) -> None:
    """From its start until it serves every series that the directory holds, and its answers after that."""
    wanted = {str(path.parent.relative_to(logdir)) for path in logdir.glob("series/**/events.out.tfevents.*")}
    began, before = time.perf_counter(), processor_seconds()
    with tensorboard(logdir, "localhost", 0) as (address, server):
        while not wanted <= set(tags := ask(f"{address}/data/plugin/scalars/tags")):
            if time.perf_counter() - began > SERVED_SECONDS:
                raise SystemExit(f"TensorBoard does not serve {sorted(wanted - set(tags))}")
            time.sleep(0.2)
        ready = Took(time.perf_counter() - began, processor_seconds() - before + seconds_of(server.pid))
        say(f"TensorBoard serves all {len(wanted)} series", [ready])
        series = max(wanted, key=lambda run: len(tags[run]))
        line = f"scalars/scalars?{urllib.parse.urlencode({'run': series, 'tag': min(tags[series])})}"
        points = len(ask(f"{address}/data/plugin/{line}"))
        for what, where in ((f"a line of {points} points", line), ("the charts' layout", "custom_scalars/layout")):
            say(f"  {what}", [timed(lambda where=where: ask(f"{address}/data/plugin/{where}")) for _ in range(5)])


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=SERVED_SECONDS) as answer:
        return json.load(answer)


def seconds_of(process: int) -> float:
    """That a process which still runs has worked, by /proc."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Took(NamedTuple):
    """The seconds that a person waits, and those that the processors worked: the first holds other people's work."""

    waited: float
    worked: float


def timed(work: Callable[[], object]) -> Took:
    started, before = time.perf_counter(), processor_seconds()
    work()
    return Took(time.perf_counter() - started, processor_seconds() - before)


def processor_seconds() -> float:
    """Of this process and of those that it has started and seen end."""
    return sum(os.times()[:4])


def say(what: str, found: list[Took]) -> None:
    waited, worked = [took.waited for took in found], [took.worked for took in found]
    spread = f" (from {min(waited):.3g} to {max(waited):.3g})" if len(found) > 1 else ""
    print(
        f"{what}: n={len(found)}, median {statistics.median(waited):.3g} s{spread}, "
        f"processors {statistics.median(worked):.3g} s",
        flush=True,
    )


def report(results: Path, arguments: list[str]) -> str:
    command = [sys.executable, str(REPOSITORY / "launch" / "report.py"), "runs", str(results), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def counted(results: Path) -> str:
    found = json.loads(report(results, ["--json"]))
    return f"{len(found['runs'])} runs, {len(found['problems'])} folders left out with a reason"


def peak_memory_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6


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
