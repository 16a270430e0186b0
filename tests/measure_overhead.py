"""The step time under Stepmark divided by that of the same MaxText or NeMo script run bare.

    python tests/measure_overhead.py --backend=nemo --pairs=6
    python tests/measure_overhead.py --backend=jax --model=llama32_1b --hardware=here --pairs=0

Not a test: it prints two ratios, each with its interval. First only the clock, on and off in turn within one run
(overhead_inside.py): precise. Then everything, including the launcher, in whole runs: each pair is one run
of launch/run.py and one bare run (MaxText's own entry point; NeMo's own Trainer without our callback) with the same
settings and environment, back to back, in an order that alternates.

Whole runs are timed by a clock that neither arm is: when the kernel says that the framework's own line of a step was
written to its log, which is the log's time of last change while that line is its last. Looking at it now and then
blurs nothing, and the time from one such line to another holds all that happens in the steps and between them; what
NeMo prints as a step's time ends before Stepmark's callback begins, and would hide what that costs.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags
from scipy import special

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID
from benchmarks.machine.machine_gpus import on_gpus
from benchmarks.request.resolve import Request, resolve
from launch.cli.command import run_main
from launch.environments import venvs
from launch.environments.selection import runtime_of
from launch.machine import machine_gpus, processes
from tests.overhead_inside import CLOCK_ON, SEGMENT_STEPS

REPOSITORY = Path(__file__).resolve().parents[1]
INSIDE = str(REPOSITORY / "tests" / "overhead_inside.py")
BACKEND = flags.DEFINE_enum("backend", "jax", ["jax", "nemo"], "The framework.")
MODEL = flags.DEFINE_string("model", None, "The model; else a tiny one of the framework.")
HARDWARE = flags.DEFINE_string("hardware", "cpu", "As in launch/run.py; here: one GPU of this machine.")
DTYPE = flags.DEFINE_string("dtype", None, "The precision; else the recipe's.")
PAIRS = flags.DEFINE_integer("pairs", 6, "Pairs of whole runs; 0: the clock alone.", lower_bound=0)
STEPS = flags.DEFINE_integer("steps", 400, "Steps of a whole run.", lower_bound=100)
CLOCK_STEPS = flags.DEFINE_integer("clock_steps", 4000, "Steps of the run that has the clock on and off.", 180)
SETTINGS = flags.DEFINE_multi_string("set", None, "Settings of all runs, as in launch/run.py.")

FIRST_STEP = 50  # after compilation and warm-up
LOOK_SECONDS = 0.05
LOG = "rank-0.log"


@dataclass(frozen=True)
class Framework:
    """What differs between the frameworks."""

    model: str
    settings: tuple[str, ...]
    step_line: re.Pattern[str]
    bare: Callable[[str, list[str]], list[str]]  # (python, the worker's arguments) -> command


def maxtext(python: str, words: list[str]) -> list[str]:
    base = next(Path(python).parents[1].glob("lib/python*/site-packages/maxtext/configs/base.yml"))
    return [python, "-m", "maxtext.trainers.pre_train.train", str(base), *words[words.index("--") + 1 :]]


def nemo(python: str, words: list[str]) -> list[str]:
    return [python, "-P", INSIDE, "nemo_bare", *words]


FRAMEWORKS = {
    "jax": Framework("llama2_tiny", ("micro_batch_size=8",), re.compile(r"completed step: (\d+),"), maxtext),
    "nemo": Framework("llama3_tiny", (), re.compile(r"^Training epoch \d+, iteration (\d+)/"), nemo),
}


def framework() -> Framework:
    return FRAMEWORKS[BACKEND.value]


def model() -> str:
    return MODEL.value or framework().model


def settings() -> tuple[str, ...]:
    if SETTINGS.value is not None:
        return tuple(SETTINGS.value)
    return () if MODEL.value else framework().settings


# --- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A run without the launcher."""

    python: str
    words: list[str]  # the worker's arguments
    environment: dict[str, str]


def script(folder: Path, steps: int) -> Script:
    """What Stepmark plans for this run, with its places filled in."""
    backend = find_backend(BACKEND.value)
    chosen = dict(text.split("=", 1) for text in settings())
    request = Request(
        backend=BACKEND.value,
        model=model(),
        dtype=DTYPE.value,
        hardware=HARDWARE.value,
        gpus=1,  # one process: what is timed is what the clock does in it
        steps=steps,
        settings=chosen,
    )
    configs = Configs()
    benchmark = resolve(machine_gpus.with_local_gpus(request, configs, backend), configs, backend)
    if benchmark.hardware.kind != "cpu":
        for refusal in machine_gpus.refusals(benchmark, configs, backend, allow_busy=False):
            raise refusal
    spec = backend.environment(benchmark.engine, benchmark.hardware.platform)
    runtime_of(benchmark, backend).refuse()
    phase = on_gpus(backend.plan(benchmark), machine_gpus.chosen(benchmark)).phases[0]
    places = processes.places(venvs.ensure(spec), folder)
    python, _, _, *words = (processes.fill(word, places) for word in phase.command)  # {python} -P worker.py ...
    variables = {name: processes.fill(value, places) for name, value in phase.environment.items()}
    return Script(python, words, processes.inherited_environment() | variables)


def start(command: list[str], folder: Path, log: str, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    with (folder / log).open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=folder)


def under_stepmark(folder: Path) -> "subprocess.Popen[bytes]":
    request = [f"--backend={BACKEND.value}", f"--model={model()}", f"--steps={STEPS.value}", "--gpus=1"]
    request += [f"--hardware={HARDWARE.value}", *([f"--dtype={DTYPE.value}"] if DTYPE.value else [])]
    command = [sys.executable, str(REPOSITORY / "launch/run.py"), *request, *(f"--set={text}" for text in settings())]
    return start([*command, f"--output_dir={folder}"], folder, "launcher.log", dict(os.environ))


def bare(folder: Path) -> "subprocess.Popen[bytes]":
    run = script(folder, STEPS.value)
    return start(framework().bare(run.python, run.words), folder, LOG, run.environment)


def expect_success(run: "subprocess.Popen[bytes]", folder: Path) -> None:
    if run.wait():
        logs = [path.read_text(errors="replace")[-4000:] for path in sorted(folder.rglob("*.log"))]
        sys.exit("\n".join([*logs, f"{run.args!r} ended with {run.returncode}"]))


# --- only the clock --------------------------------------------------------------------------


def clock_alone() -> None:
    """Prints the ratio of the steps under the worker's clock to those without, in one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = script(folder, CLOCK_STEPS.value)
        command = [run.python, "-P", INSIDE, f"{BACKEND.value}_segments", *run.words]
        expect_success(start(command, folder, LOG, run.environment), folder)
        starts = json.loads((folder / "segments.json").read_text())
    seconds = [after - before for before, after in pairwise(starts)]
    size = len(CLOCK_ON)
    blocks = [seconds[k : k + size] for k in range(size, len(seconds) - size + 1, size)]  # the first warms up
    logs = [math.log(seconds_where(True, block) / seconds_where(False, block)) for block in blocks]
    steps = size * SEGMENT_STEPS
    milliseconds = math.fsum(map(math.fsum, blocks)) / (len(blocks) * steps) * 1e3
    print(f"clock alone: {CLOCK_STEPS.value} steps, {milliseconds:.3f} ms a step")
    print(f"{ratio_text(logs)} blocks of {steps} steps)", flush=True)


def seconds_where(clock: bool, block: list[float]) -> float:
    return math.fsum(seconds for seconds, on in zip(block, CLOCK_ON, strict=True) if on is clock)


# --- whole runs -------------------------------------------------------------------------------


def last_step(log: Path) -> Iterator[tuple[int, float]]:
    """(step, the kernel's time of its line) if that is the log's last line, and nothing was written as we looked."""
    before = log.stat()
    with log.open("rb") as file:
        file.seek(max(0, before.st_size - 2000))
        *_, line, rest = ["", *file.read().decode(errors="replace").split("\n")]
    found = framework().step_line.search(line)
    if found and not rest and log.stat().st_mtime_ns == before.st_mtime_ns:
        yield int(found[1]), before.st_mtime_ns / 1e9


def seconds_per_step(arm: Callable[[Path], "subprocess.Popen[bytes]"]) -> float:
    """Return the seconds per step of one run, from the first line of FIRST_STEP or later to the last one."""
    seen = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = arm(folder)
        while run.poll() is None:
            time.sleep(LOOK_SECONDS)
            seen += [sample for log in folder.rglob(LOG) for sample in last_step(log) if sample[0] >= FIRST_STEP]
        expect_success(run, folder)
    if len({step for step, _ in seen}) < 2:
        sys.exit(f"the run was over before it could be timed: --steps={STEPS.value} are too few")
    (first, began), (last, ended) = seen[0], seen[-1]
    return (ended - began) / (last - first)


def pairs() -> Iterator[tuple[float, float]]:
    """(Stepmark, bare) seconds a step of each pair; the order alternates, so that drift falls on both."""
    for number in range(PAIRS.value):
        arms = (under_stepmark, bare) if number % 2 else (bare, under_stepmark)
        figures = {arm: seconds_per_step(arm) for arm in arms}
        yield figures[under_stepmark], figures[bare]


def ratio_text(logs: Sequence[float]) -> str:
    """The geometric mean and its t interval, which a single value does not have; the caller adds what n counts."""
    n = len(logs)
    mean = math.fsum(logs) / n
    if n == 1:
        return f"ratio {math.exp(mean):.4f} (n 1"
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = float(special.stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n)
    low, high = math.exp(mean - half), math.exp(mean + half)
    return f"ratio {math.exp(mean):.4f}, 95% interval {low:.4f} to {high:.4f} (geometric mean, n {n}"


def main(_: list[str]) -> int:
    print(", ".join([f"{BACKEND.value} {model()} on {HARDWARE.value}", *settings(), f"{os.cpu_count()} CPUs"]))
    clock_alone()
    if PAIRS.value == 0:
        return EXIT_VALID
    print(f"whole runs: {PAIRS.value} pairs, {STEPS.value} steps a run")
    print("pair  Stepmark ms  bare ms  ratio")
    logs = []
    for number, (ours, theirs) in enumerate(pairs(), start=1):
        logs.append(math.log(ours / theirs))
        print(f"{number:4}  {ours * 1e3:11.3f}  {theirs * 1e3:7.3f}  {ours / theirs:.4f}", flush=True)
    print(f"{ratio_text(logs)} pairs)")
    return EXIT_VALID


if __name__ == "__main__":
    run_main(main)
