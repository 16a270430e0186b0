"""What other programs take of this machine's processors while ours run (Linux; elsewhere it is not known)."""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
WORKING = (0, 1, 2, 5, 6, 7)  # of the columns behind "cpu": user, nice, system, interrupts, steal; not idle, waiting
ENOUGH = 0.1  # of the cores that are ours, from which on our figures are in doubt


class OtherPrograms:
    """Watched from its making on. Ours are this process and the children it has waited for, with theirs."""

    def __init__(self) -> None:
        self._seconds, self._since = _seconds_of_others(), time.monotonic()

    def cores(self) -> float | None:
        """That they took on average; a hypervisor's other guests count too. None where the machine does not say."""
        now, passed = _seconds_of_others(), time.monotonic() - self._since
        if now is None or self._seconds is None or passed <= 0:
            return None
        return max(0.0, now - self._seconds) / passed


def _seconds_of_others() -> float | None:
    """Of the processors, since the machine started."""
    try:
        columns = STAT.read_text().partition("\n")[0].split()[1:]
        ticks = sum(int(columns[number]) for number in WORKING)
    except (OSError, ValueError, IndexError):
        return None
    own = os.times()
    return ticks / os.sysconf("SC_CLK_TCK") - (own.user + own.system + own.children_user + own.children_system)


def note(taken: float | None, ours: int, all_cores: int) -> list[str]:
    """Said beside our figures where others took more than the cores that are not ours have room for."""
    if taken is None or taken <= all_cores - ours + ENOUGH * ours:
        return []
    return [f"other programs took {taken:.1f} of the {all_cores} cores meanwhile: the rates may be too low"]
