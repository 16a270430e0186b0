"""One launcher at a time for one piece of work, on any machine that sees its folder; the lock ends with it."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.errors import RequestError


@contextlib.contextmanager
def alone(path: Path, *, work: str, kept_there: str, two_would: str) -> Iterator[None]:
    """`path` is the lock's file; the words say what is done, what its folder keeps, what two would do."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RequestError(
            f"the output folder cannot be written: {error.strerror}",
            where=str(path.parent),
            why=f"{kept_there} is kept there",
            next_command="--output_dir=DIR with a folder that is writable and has space",
        ) from None
    try:
        _lock(descriptor, path, work, two_would)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, work: str, two_would: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 300, 0).decode(errors="replace").strip()
        raise RequestError(
            f"another launcher runs this {work}: {holder or 'it has not said which'}",
            where=str(path),
            why=f"two would {two_would}",
            next_command="wait for it, or end it and type the same command again",
        ) from None
    except OSError as error:
        text = f"{path}: no lock ({error.strerror}): nothing keeps a second launcher from running this {work} too"
        print(text, file=sys.stderr, flush=True)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
