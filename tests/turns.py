"""Take turns among the workers of pytest-xdist: tests run together, except those that measure time."""

import fcntl
from pathlib import Path


class Turns:
    """A worker's share of a lock; the folder is the same for all workers.

    A waiting worker keeps the gate, so an exclusive test waits only for tests that have already started.
    """

    def __init__(self, folder: Path) -> None:
        self._room = (folder / "room").open("w")
        self._gate = (folder / "gate").open("w")
        self._alone = False

    def take(self, alone: bool) -> None:
        """Wait for a turn. An exclusive turn that was not given back continues."""
        if self._alone:
            return
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = alone

    def give_back(self) -> None:
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._alone = False
