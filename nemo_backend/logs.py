"""The log formats of NeMo and Megatron, and how a log is read whole, or followed while it grows.

What their lines look like is in line_logs.py and progress_bar_log.py (NeMo 24.09).
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from benchmarks.backend import LogFormat
from benchmarks.reading.log_stream import StreamedFormat, Window
from benchmarks.values import Step
from nemo_backend.line_logs import MegatronLog, NemoLog, NemoUntimedLog
from nemo_backend.progress_bar_log import NemoBarLog

MEGATRON = MegatronLog()
# A log that has NeMo's lines may have its bar too: the lines come first, they have a digit more.
LOG_FORMATS: tuple[LogFormat, ...] = (NemoLog(), MEGATRON, NemoBarLog(), NemoUntimedLog())


def read_log(path: Path, log_format: LogFormat, attempt: int) -> tuple[list[Step], list[str]]:
    """The steps of a log, and what could not be read. After a restart within it, they are of the next attempt."""
    steps: list[Step] = []
    unreadable: list[str] = []
    with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
        for event in log_format.read(stream):
            if event.step is not None:
                steps.append(_of_attempt(event.step, attempt))
            if event.skipped is not None:
                unreadable.append(f"{path.name}:{event.skipped.line} {event.skipped.reason}")
    return steps, unreadable


def _of_attempt(step: Step, attempt: int) -> Step:
    return msgspec.structs.replace(step, attempt=attempt - 1 + step.attempt)


def follow_log(path: Path, attempt: int, log_format: StreamedFormat = MEGATRON) -> Callable[[], list[Step]]:
    """A function that gives the steps written to a log since it was last called.

    A line still being written waits for the next call, and so does the last step of a progress bar, which may be
    painted again.
    """
    reader = log_format.reader()
    window = Window(cast(BinaryIO, _GrowingFile(path)), growing=True)

    def new_steps() -> list[Step]:
        found = []
        while window.advance():
            found += [event.step for event in reader.read_window(window) if event.step is not None]
        return [_of_attempt(step, attempt) for step in found]

    return new_steps


class _GrowingFile:
    """A file that may not be there yet. It is open only while it is read: nobody says when following ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read(self, size: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                chunk = file.read(size)
        except FileNotFoundError:
            return b""
        self._position += len(chunk)
        return chunk
