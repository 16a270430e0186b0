"""The step time under Stepmark divided by that of the same MaxText command run bare.

    .venv/bin/python tests/measure_overhead.py --pairs=6

Not a test: it prints two ratios, each with its interval. First the clock alone, on and off in turn within one
MaxText run (overhead_segments.py): precise. Then everything, the launcher beside it included, in whole runs: each
pair is one run of launch/run.py and one of MaxText's own entry point with the same settings and environment, back to
back, in an order that alternates. Both are timed by the same clock, which neither of them is: the timestamps that
absl puts before MaxText's `completed step` lines. A run's figure is the time between two of its lines, divided by
the steps between them.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags
from scipy import special

from benchmarks.configs import Configs
from benchmarks.resolve import Request, resolve
from jax_backend import BACKEND, planning
from launch import environments, local

REPOSITORY = Path(__file__).resolve().parents[1]
PAIRS = flags.DEFINE_integer("pairs", 6, "Pairs of runs.", lower_bound=2)
STEPS = flags.DEFINE_integer("steps", 400, "Steps a run.", lower_bound=100)
SETTINGS = flags.DEFINE_multi_string("set", ["micro_batch_size=8"], "Settings of both, as in launch/run.py.")
FIRST_STEP = 50  # compile and warm-up lie before
SEGMENT_RUN_STEPS = 4000

LINE = re.compile(r"I\d{4} (\d\d):(\d\d):(\d\d\.\d+).*completed step: (\d+),")


def seconds_per_step(log: str) -> float:
    """Between the line of FIRST_STEP and the last one."""
    ends = {int(m[4]): 3600 * int(m[1]) + 60 * int(m[2]) + float(m[3]) for m in LINE.finditer(log)}
    last = max(ends)
    elapsed = (ends[last] - ends[FIRST_STEP]) % 86_400
    return elapsed / (last - FIRST_STEP)


def under_stepmark(folder: Path) -> str:
    words = [f"--set={text}" for text in SETTINGS.value]
    command = [sys.executable, str(REPOSITORY / "launch/run.py"), "--backend=jax", "--model=llama2_tiny", *words]
    done = subprocess.run(
        [*command, f"--steps={STEPS.value}", f"--output_dir={folder}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return next(folder.glob("*/attempt-1/perf/rank-0.log")).read_text(errors="replace")


def maxtext_run(folder: Path, steps: int) -> tuple[Path, list[str], dict[str, str]]:
    """(python, MaxText's arguments, environment) of the same run without Stepmark."""
    settings = dict(text.split("=", 1) for text in SETTINGS.value)
    request = Request(backend="jax", model="llama2_tiny", steps=steps, settings=settings)
    benchmark = resolve(request, Configs(), BACKEND)
    python = environments.ensure(BACKEND.environment())
    places = local.places(python, folder)
    argv = [local.fill(word, places) for word in planning.maxtext_argv(benchmark)]
    variables = {name: local.fill(value, places) for name, value in planning.environment(benchmark).items()}
    return python, argv, {**local.inherited_environment(), **variables}


def bare(folder: Path) -> str:
    python, argv, environment = maxtext_run(folder, STEPS.value)
    base = python.parents[1].glob("lib/python*/site-packages/maxtext/configs/base.yml")
    command = [str(python), "-m", "maxtext.trainers.pre_train.train", str(next(base)), *argv]
    with (folder / "bare.log").open("wb") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True, cwd=folder)
    return (folder / "bare.log").read_text(errors="replace")


def clock_alone() -> None:
    """Prints the ratio of the steps under the worker's clock to those without, in one run."""
    with tempfile.TemporaryDirectory() as folder:
        python, argv, environment = maxtext_run(Path(folder), SEGMENT_RUN_STEPS)
        script = str(REPOSITORY / "tests" / "overhead_segments.py")
        done = subprocess.run(
            [str(python), "-P", script, *argv],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
        )
    line = next(line for line in done.stdout.splitlines() if line.startswith("SEGMENTS"))
    ratio, half, count, milliseconds = line.split()[1:]
    print(f"clock alone: ratio {ratio} +- {half} (95%, n {count} segments, {milliseconds} ms a step)", flush=True)


def pairs(count: int) -> Iterator[tuple[float, float]]:
    """(Stepmark, bare) seconds a step of each pair; the order alternates, so that drift falls on both."""
    for number in range(count):
        figures = {}
        for arm in (under_stepmark, bare) if number % 2 else (bare, under_stepmark):
            with tempfile.TemporaryDirectory() as folder:
                figures[arm] = seconds_per_step(arm(Path(folder)))
        yield figures[under_stepmark], figures[bare]


def main(_: list[str]) -> None:
    logs = []
    clock_alone()
    settings = ", ".join(SETTINGS.value)
    print(f"whole runs: {PAIRS.value} pairs, {STEPS.value} steps a run, {settings}, {os.cpu_count()} CPUs")
    print("pair  Stepmark ms  bare ms  ratio")
    for number, (ours, theirs) in enumerate(pairs(PAIRS.value), start=1):
        logs.append(math.log(ours / theirs))
        print(f"{number:4}  {ours * 1e3:11.3f}  {theirs * 1e3:7.3f}  {ours / theirs:.4f}", flush=True)
    n = len(logs)
    mean = math.fsum(logs) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = float(special.stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n)
    low, high = math.exp(mean - half), math.exp(mean + half)
    print(f"ratio {math.exp(mean):.4f}, 95% interval {low:.4f} to {high:.4f} (n {n}, paired, geometric mean)")


if __name__ == "__main__":
    app.run(main)
