"""A suite of naps: launch/nightly.py on the toy backend, in a home of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.toy_backend import install, make_environment_in

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 240

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
RECORDED = "    recorder.start()\n"
NAP = 'float(said["nap"])'
SHORT, LONG = "toy-llama2_tiny-short", "toy-llama2_tiny-long"


@dataclass
class Naps:
    folder: Path
    variables: dict[str, str]

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

    @property
    def worker_file(self) -> Path:
        return Path(self.variables["PYTHONPATH"]) / "toy_worker.py"

    def nap_longer(self, times: float) -> None:
        """From now on every step takes longer, and neither benchmark nor environment shows why."""
        text = self.worker_file.read_text()
        assert NAP in text
        self.worker_file.write_text(text.replace(NAP, f"{NAP} * {times}"))

    def let_fail(self, *numbers: int) -> None:
        """Of the runs from now on, the first is 1: these raise an error."""
        countdown = self.folder / "countdown"
        countdown.write_text("0")
        text = self.worker_file.read_text()
        assert RECORDED in text
        fault = f"""\
    number = int(Path({str(countdown)!r}).read_text()) + 1
    Path({str(countdown)!r}).write_text(str(number))
    if number in {numbers!r}:
        raise RuntimeError("told to by its number")
"""
        self.worker_file.write_text(text.replace(RECORDED, fault + RECORDED))

    def leave_unfinished(self, **cells: dict[str, Any]) -> None:
        """The newest night's record, as a launcher that was killed has left it; `cells`: what it says of each."""
        path = max(self.nights.glob("2*.json"))
        report = json.loads(path.read_text())
        report["finished"] = None
        for one in report["cells"]:
            one.update(cells.get(one["cell"].rpartition("-")[2], {}))
        path.write_text(json.dumps(report))

    @contextmanager
    def left_as_it_was(self) -> Iterator[None]:
        """What a test changes of the suite and the worker."""
        before = {path: path.read_text() for path in (self.suite_file, self.worker_file)}
        yield
        for path, text in before.items():
            path.write_text(text)

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, **self.variables, "HOME": str(self.folder), **variables}
        environment.pop("GITHUB_STEP_SUMMARY", None) if "GITHUB_STEP_SUMMARY" not in variables else None
        return subprocess.Popen(
            [sys.executable, str(REPOSITORY / "launch/nightly.py"), *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def call(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*words, **variables)
        try:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{words} did not end: {process.communicate()}") from None
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

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
    """What each night of a cell's step times was used as."""
    return [point["used_as"] for point in judged(report, name)["points"]]
