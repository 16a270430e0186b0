"""Samples this machine beside a run of the site `local`; on a cluster the job script starts the same program."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from launch import local

SAMPLER = local.REPOSITORY / "benchmarks" / "telemetry" / "node_sampler.py"
LOG = "node_sampler.log"
END_SECONDS = 2.0  # for a last sample; a driver that hangs must not hold a run


@contextlib.contextmanager
def beside(folder: Path, interval: float = 1.0, gpus: bool = True) -> Iterator[None]:
    """Writes `folder`/node-NAME.jsonl meanwhile. That the machine cannot be sampled is said, and costs no run."""
    sampler = _start(folder, interval, gpus)
    try:
        yield
    finally:
        if sampler is not None:
            _stop(sampler)
            _say_trouble(folder / LOG)


def _start(folder: Path, interval: float, gpus: bool) -> "subprocess.Popen[bytes] | None":
    command = [sys.executable, "-P", str(SAMPLER), f"--out={folder}", f"--interval={interval}"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("wb") as log:
            return subprocess.Popen(
                command if gpus else [*command, "--no_gpus"],
                env=local.inherited_environment() | {"STEPMARK_DIE_WITH_PARENT": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends the workers first
            )
    except OSError as error:
        print(f"stepmark: this machine is not sampled beside the run: {error}", file=sys.stderr)
        return None


def _stop(sampler: "subprocess.Popen[bytes]") -> None:
    sampler.terminate()
    try:
        sampler.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        sampler.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs inside a driver cannot be killed
            sampler.wait(END_SECONDS)


def _say_trouble(log: Path) -> None:
    """The sampler says nothing where all goes well; what it did say stays beside its samples."""
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace").strip()
        if text:
            print(text.splitlines()[-1], file=sys.stderr)
        else:
            log.unlink()
