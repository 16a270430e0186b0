"""The real scripts as a user starts them, and what a run leaves. Helpers of the end-to-end tests."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.running import kept_profiles

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600
TOKEN = "hf_a-token-that-must-not-be-written"

JAX = "--backend=jax"
TINY = "--model=llama2_tiny"
SHARDED = ("--gpus=4", "--set=ici_fsdp_parallelism=2", "--set=ici_data_parallelism=2")

NEMO = "--backend=nemo"
LLAMA3 = "--model=llama3_tiny"
STRATEGY = "--set=trainer.strategy"

Starter = Callable[..., "subprocess.Popen[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


@dataclass
class Run:
    """One ended `launch/run.py` and the folder it left."""

    code: int
    out: str
    err: str
    output_dir: Path
    path: Path | None = field(init=False)

    def __post_init__(self) -> None:
        places = self.output_dir.glob("*") if self.output_dir.exists() else []
        folders = sorted(place for place in places if place.is_dir() and place.name != kept_profiles.FOLDER)
        self.path = folders[-1] if folders else None

    @property
    def folder(self) -> Path:
        assert self.path is not None, self.err
        return self.path

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "steps.jsonl").read_text().splitlines()]

    @property
    def provenance(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "provenance.json").read_text())
        return found

    @property
    def losses(self) -> list[float]:
        """Return the losses of rank 0, which has them."""
        return [step["loss"] for step in self.steps if step["rank"] == 0]

    def events(self, rank: int = 0) -> list[dict[str, Any]]:
        text = (self.folder / f"attempt-1/perf/events-rank{rank}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def gradient_norms(self, rank: int = 0) -> list[float]:
        return [event["gradient_norm"] for event in self.events(rank) if event["event"] == "step"]


def finish(process: "subprocess.Popen[str]", output_dir: Path) -> Run:
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert "Traceback" not in out + err, err
    return Run(process.returncode, out, err, output_dir)


def measure_peak(starter: Starter, folder: Path, backend: str) -> Path:
    """Small and short: the real programs multiply and say the truth, and not how fast this CPU is."""
    quick = ("--model=llama2_tiny", "--tokens=32", "--hardware=cpu", "--json")
    path = folder / "peak.json"
    process = starter([sys.executable, str(REPOSITORY / "launch/peak.py"), backend, f"--out={path}", *quick])
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, err
    return path


def wait_for_steps(output_dir: Path, count: int) -> Path:
    """Return the run folder once `count` steps are in steps.jsonl."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        for path in output_dir.glob("*/steps.jsonl"):
            if path.read_bytes().count(b"\n") >= count:
                return path.parent
        time.sleep(0.1)
    raise AssertionError(f"no {count} steps within {LIMIT_SECONDS} s")


def script(name: str, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """launch/NAME.py, started as a user starts it and waited for."""
    command = [sys.executable, str(REPOSITORY / "launch" / f"{name}.py"), *map(str, words)]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )


def verify(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return script("verify", *arguments, **variables)


def doctor(*words: object, code: int) -> dict[str, Any]:
    done = script("doctor", "--json", *words)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def first_cause(run: Run) -> dict[str, Any]:
    """The first cause of a run that failed, which the end of the run has shown already."""
    assert run.code == 1, run.out + run.err
    found: dict[str, Any] = doctor(run.folder, code=3)["entries"][0]
    assert f"{found['first']['file']}:{found['first']['line']}: " in run.out
    assert found["do"][0] in run.out
    line = (run.folder / found["first"]["file"]).read_text().splitlines()[found["first"]["line"] - 1]
    assert found["first"]["text"] in " ".join(line.split())
    return found


def workers_of(folder: Path) -> list[int]:
    """The worker processes whose command names the run folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue  # it ended while we looked
        if b"worker.py" in words and str(folder).encode() in words:
            found.append(int(path.parent.name))
    return found
