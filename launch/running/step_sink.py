"""Steps as they come -> steps.jsonl and TensorBoard, so that a killed launcher loses none."""

import fcntl
import os

import msgspec

from benchmarks.dashboard.events import EVENT_FILES, ScalarWriter
from benchmarks.files import cannot_write, leave_word
from benchmarks.runs.runfolder import STEPS, RunFolder, remake_command
from benchmarks.values import Benchmark, Step


class StepSink:
    """Writes every step the moment it is read. Of several launchers that follow one run, the first alone writes."""

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._path = folder.path / STEPS
        self._folder, self._benchmark = folder, benchmark
        self._tokens = benchmark.tokens_per_step
        self._queued = folder.is_queued()
        self._events: ScalarWriter | None = None
        self._descriptor = -1

    def __enter__(self) -> "StepSink":
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another launcher writes them
            return self
        except OSError:  # a file system without locks
            pass
        # What a launcher before this one has written is read again from the raw files.
        os.ftruncate(self._descriptor, 0)
        for old in (self._folder.path / "tensorboard").glob(EVENT_FILES):
            old.unlink()
        self._events = ScalarWriter(self._folder, self._benchmark)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        if self._events is not None:
            self._events.close()

    def take(self, steps: list[Step]) -> list[Step]:
        """The same steps with their tokens, written down."""
        counted = [msgspec.structs.replace(step, tokens=self._tokens) for step in steps]
        if self._events is None:
            return counted
        text = b"".join(msgspec.json.encode(step) + b"\n" for step in counted)
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            if not self._queued:  # of a job that trains on, this is not how it ended
                leave_word(self._folder.phase_dir(self._folder.measured_phase().name), error)
            why = "the steps written until then are kept, and so are the raw files"
            raise cannot_write(error, self._path, why, remake_command(self._path.parent)) from None
        self._events.write(counted)
        return counted
