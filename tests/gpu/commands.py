"""Starts the commands that `make gpu` checks, as a user types them; each leaves its words in a log of the folder."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.errors import EXIT_REFUSED

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 3600  # the first run may make an environment of some GB


class Here(NamedTuple):
    """What is trained, and on what."""

    hardware: str  # as --hardware takes it
    model: str
    published: dict[str, float]  # precision -> the datasheet's TFLOP/s
    on_gpu: bool


class Output(NamedTuple):
    code: int
    out: str
    err: str
    log: Path

    def expect(self, *codes: int) -> "Output":
        """Fail with the command's output if it ended with another code."""
        if self.code not in codes:
            pytest.fail(f"exit code {self.code}: {self.complaint} ({self.log.name})", pytrace=False)
        return self

    def tried(self) -> "Output":
        """Skip if it was refused, because its environment is not available here."""
        if self.code == EXIT_REFUSED:
            pytest.skip(f"refused: {self.complaint}")
        return self

    @property
    def complaint(self) -> str:
        """Return Stepmark's error and the last line of its reason, or the last line of the output."""
        printed = [line for line in (self.out + self.err).splitlines() if line.strip()]
        places = [place for place, line in enumerate(printed) if line.startswith("stepmark: ")]
        if not places:
            return (printed or ["it said nothing"])[-1]
        what, *more = printed[places[-1] :]
        why = [line.removeprefix("  why:").strip() for line in more if not line.startswith(("  next:", "  where:"))]
        return ": ".join([what.removeprefix("stepmark: "), *(why[-1:])])


class Run(NamedTuple):
    """A run that has ended, valid or not."""

    path: Path

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "result.json").read_text())
        return found

    @property
    def losses(self) -> list[float | None]:
        """Return the losses of rank 0, which has them."""
        steps = map(json.loads, (self.path / "steps.jsonl").read_text().splitlines())
        return [step["loss"] for step in steps if step["rank"] == 0]


class Commands:
    """Numbered as they were started; `words` go to every run."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        self._words = words
        self._runs: dict[str, Run] = {}
        self._count = 0

    def start(self, name: str, script: str, *flags: str) -> Output:
        self._count += 1
        log = self.folder / "logs" / f"{self._count:02}-{name}.log"
        log.parent.mkdir(exist_ok=True)
        command = [sys.executable, str(REPOSITORY / script), *flags]
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
        typed = shlex.join(["python", script, *flags])
        log.write_text(f"$ {typed}\n{done.stdout}{done.stderr}exit code {done.returncode}\n")
        return Output(done.returncode, done.stdout, done.stderr, log)

    def run(self, host: Here, backend: str, dtype: str, *flags: str) -> Run:
        """One run of each kind, whichever checks look at it. One that is refused is not tried."""
        name = "-".join([backend, dtype, *(flag.strip("-").replace("=", "-") for flag in flags)])
        if name not in self._runs:
            self._runs[name] = self._run(name, host, backend, dtype, flags)
        return self._runs[name]

    def _run(self, name: str, host: Here, backend: str, dtype: str, flags: tuple[str, ...]) -> Run:
        runs = self.folder / "runs"
        before = set(runs.glob("*/benchmark.json"))
        asked = [f"--backend={backend}", f"--model={host.model}", f"--dtype={dtype}", f"--hardware={host.hardware}"]
        peak = self.peak(backend)
        if peak.exists() and dtype in json.loads(peak.read_text())["peaks"]:
            asked.append(f"--measured_peak={peak}")
        done = self.start(name, "launch/run.py", *asked, f"--output_dir={runs}", *flags, *self._words)
        if dtype == "fp8":  # not every device has it
            done.tried()
        (left,) = set(runs.glob("*/benchmark.json")) - before or [None]
        if left is None:
            done.expect(0)
        assert left is not None
        return Run(left.parent)

    def peak(self, backend: str) -> Path:
        """The file of its measured peak, once it is measured."""
        return self.folder / "peaks" / f"{backend}.json"
