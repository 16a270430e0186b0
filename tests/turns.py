"""Who runs beside whom among the workers of pytest-xdist: tests in general together, one that measures time alone."""

import fcntl
from pathlib import Path


class Turns:
    """A worker's share of a lock; the folder is the same for all workers.

    Whoever waits keeps the gate, so one who wants to be alone waits for those at work and for nobody after them.
    """

    def __init__(self, folder: Path) -> None:
        self._room = (folder / "room").open("w")
        self._gate = (folder / "gate").open("w")
        self._alone = False

    def take(self, alone: bool) -> None:
        """Wait for a turn. A turn alone that was not given back goes on."""
        if self._alone:
            return
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = alone

    def give_back(self) -> None:
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._alone = False
