"""A suite of naps: launch/nightly.py on the toy backend, in its own home.

Nights run in a fork of the test, on a machine that is made up: its workers nap in no time, and write what they would
have written. What surrounds them (folders, results, records, verdicts) is made as always. `start` starts a real one.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.job_record import ProcessEnd
from benchmarks.values import Phase
from launch.running import local
from tests import forked
from tests.benchmarks.conftest import FACTS, write_events, write_exits
from tests.toy_backend import install, make_environment_in

REPOSITORY = Path(__file__).resolve().parents[4]
LIMIT_SECONDS = 240
SECONDS = itertools.count(1)  # each night uses one, so that none waits for a unique name

SUITE = """\
name: naps
title: Naps
matrix:
  - backend: toy
    model: llama2_tiny
    steps: 8
    label: short
    settings: {nap_seconds: 0.01}
  - backend: toy
    model: llama2_tiny
    steps: 8
    label: long
    settings: {nap_seconds: 0.03}
rerun_budget: 6
source: a test
date: "2026-11-22"
"""
SHORT, LONG = "toy-llama2_tiny-short", "toy-llama2_tiny-long"


@dataclass
class Machine:
    """What happens to runs: the first that is started is number 1."""

    started: Path  # a line for each start
    longer: float = 1.0  # what steps take, where neither benchmark nor environment shows why
    failing: tuple[int, ...] = ()
    killing: int = 0  # the run with which the launcher is killed

    def run_phase(
        self,
        phase: Phase,
        phase_dir: Path,
        _python: Path,
        new_steps: Callable[[], Any],
        on_steps: Callable[..., None],
        *_of_the_machine: object,
    ) -> list[ProcessEnd]:
        """In the place of launch.running.local's."""
        with self.started.open("a+") as starts:
            starts.write(f"{phase_dir}\n")
            starts.seek(0)
            number = len(starts.readlines())
        words = dict(word.lstrip("-").split("=", 1) for word in phase.command if "=" in word)
        steps, fault = int(words["steps"]), words["fault"]
        if number == self.killing:
            write_events(phase_dir, _events(steps // 2, 1.0, ""))
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.failing:
            steps, fault = 0, "raise@0 by its number"
        kind, _, rest = fault.partition("@")
        steps = int(rest.split()[0]) if kind else steps
        # A little more or less from run to run, always the same.
        level = float(words["nap"]) * (1 + 0.002 * (number * 7 % 5 - 2)) * self.longer
        seconds = level * (1 + float(words.get("inject_slowdown", 0)))
        write_events(phase_dir, _events(steps, seconds, "error" if kind else "done"))
        write_exits(phase_dir, 1 if kind else 0)
        on_steps(new_steps())
        return [ProcessEnd(rank=0, exit_code=1 if kind else 0)]


def _events(steps: int, seconds: float, status: str) -> list[dict[str, Any]]:
    """What a worker writes; without a status, one that was cut off."""
    times = [seconds * (1 + 0.001 * (step * 3 % 5 - 2)) for step in range(steps)]
    written = [
        {"event": "step", "step": n, "seconds": took, "elapsed_seconds": end, "loss": 6.0 - n / 10}
        for n, (took, end) in enumerate(zip(times, itertools.accumulate(times), strict=True))
    ]
    message = "RuntimeError: told to" if status == "error" else ""
    end = [{"event": "end", "rank": 0, "status": status, "message": message, "failures": []}] if status else []
    return [{**FACTS, "rank": 0, "versions": {}}, *written, *end]


@dataclass
class Naps:
    folder: Path
    variables: dict[str, str]
    machine: Machine = field(init=False)

    def __post_init__(self) -> None:
        self.machine = Machine(self.folder / "started")

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def nights(self) -> Path:
        return self.results / "nights" / "naps"

    @property
    def suite_file(self) -> Path:
        return Path(self.variables["STEPMARK_CONFIGS"]) / "suites/naps.yml"

    def suite_text(self) -> str:
        return self.suite_file.read_text()

    def write_suite(self, text: str) -> None:
        self.suite_file.write_text(text)

    def nap_longer(self, times: float) -> None:
        """From now on every step takes longer."""
        self.machine.longer = times

    def let_fail(self, *numbers: int) -> None:
        """Let these of the next runs, counted from 1, raise an error."""
        self.machine.failing = tuple(self._runs_so_far() + number for number in numbers)

    def let_kill(self, number: int) -> None:
        """The launcher is killed while this run trains: of those from now on, the first is 1."""
        self.machine.killing = self._runs_so_far() + number

    def _runs_so_far(self) -> int:
        return len(self.machine.started.read_text().splitlines()) if self.machine.started.exists() else 0

    def leave_unfinished(self) -> None:
        """The newest night's record, as a launcher that was killed has left it."""
        path = max(self.nights.glob("2*.json"))
        report = json.loads(path.read_text())
        report["finished"] = None
        path.write_text(json.dumps(report))

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        environment = {**os.environ, **self.variables, "HOME": str(self.folder), **variables}
        if "GITHUB_STEP_SUMMARY" not in variables:
            environment.pop("GITHUB_STEP_SUMMARY", None)
        return environment

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        """A real one, on this machine."""
        return subprocess.Popen(
            [sys.executable, str(REPOSITORY / "launch/nightly.py"), *words],
            env=self._environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def call(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        seconds, gmtime = next(SECONDS), time.gmtime

        def make_up_a_machine() -> None:
            local.run_phase = self.machine.run_phase
            local.sample_while = lambda *_, **__: nullcontext()
            time.gmtime = lambda moment=None: gmtime(time.time() + seconds if moment is None else moment)

        done = forked.run(
            REPOSITORY / "launch/nightly.py",
            *words,
            env=self._environment(variables),
            cwd=self.folder,
            timeout=LIMIT_SECONDS,
            prepare=make_up_a_machine,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def night(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.call("--suite=naps", f"--output_dir={self.results}", *words, **variables)

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.nights.glob("2*.json"))]

    def last(self) -> dict[str, Any]:
        return self.reports()[-1]


def naps_in(folder: Path) -> Naps:
    variables = install(folder)
    make_environment_in(folder)
    suites = folder / "configs/suites"
    if suites.is_symlink():
        suites.unlink()
    suites.mkdir(exist_ok=True)
    naps = Naps(folder, variables)
    naps.write_suite(SUITE)
    return naps


def cell(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in report["cells"] if one["cell"] == name)
    return dict(found)


def judged(report: dict[str, Any], name: str, metric: str = "seconds_per_step") -> dict[str, Any]:
    (found,) = (one for one in cell(report, name)["judgements"] if one["metric"]["name"] == metric)
    return dict(found)


def used_as(report: dict[str, Any], name: str) -> list[str]:
    """Return how each night of a cell's step times was used."""
    return [point["used_as"] for point in judged(report, name)["points"]]
