"""Samples this machine beside a run of the site `local`; on a cluster the job script starts the same program."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.telemetry import samples
from launch.machine import processes

SAMPLER = processes.REPOSITORY / "benchmarks" / "inside" / "node_sampler.py"
LOG = "node_sampler.log"
TAIL_BYTES = 2**16  # more than the line of a sample
END_SECONDS = 2.0  # for a last sample; a driver that hangs must not hold a run


@contextlib.contextmanager
def sample_while(folder: Path, interval: float = 1.0, gpus: Sequence[str] | None = None) -> Iterator[None]:
    """Write `folder`/node-NAME.jsonl meanwhile. If the machine cannot be sampled, it is said, and costs no run.

    `gpus`: PCI bus ids of those that the run uses; None: all.
    """
    sampler = _start(folder, interval, gpus)
    try:
        yield
    finally:
        if sampler is not None:
            sampler.terminate()
            try:
                sampler.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                sampler.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # hanging inside a driver, it cannot be killed
                    sampler.wait(END_SECONDS)
            _say_trouble(folder / LOG)


def _start(folder: Path, interval: float, gpus: Sequence[str] | None) -> "subprocess.Popen[bytes] | None":
    command = [sys.executable, "-P", str(SAMPLER), f"--out={folder}", f"--interval={interval}"]
    if gpus is not None:
        command.append(f"--gpus={','.join(gpus)}" if gpus else "--no_gpus")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("wb") as log:
            return subprocess.Popen(
                command,
                env=processes.inherited_environment() | {"STEPMARK_DIE_WITH_PARENT": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends the workers first
            )
    except OSError as error:
        print(f"stepmark: this machine is not sampled beside the run: {error}", file=sys.stderr)
        return None


def lost_gpu(folder: Path) -> bool:
    """Whether the last sample has a GPU that answered nothing."""
    for path in folder.glob(samples.NODE_FILES):
        with contextlib.suppress(OSError), path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            last = stream.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
            return samples.has_lost_gpu(last)
    return False


def _say_trouble(log: Path) -> None:
    """The sampler says nothing where all goes well; what it did say stays beside its samples."""
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace").strip()
        if text:
            print(text.splitlines()[-1], file=sys.stderr)
        else:
            log.unlink()
