"""When step times have settled: a matter of seconds (power, thermals), not of steps. Pure.

A worker loads this file by its path: the standard library alone. The constants were measured on 1,194 public
MLPerf logs.
"""

SETTLING_BIN_SECONDS = 15.0
SETTLING_AGREEMENT = 0.0025
SETTLING_LIMIT_SECONDS = 75.0


class Settling:
    """Is told of every step in order, and finds the position of the first one after settling.

    Stepping starts with the first step that could count: a device that compiles or collects a profile
    is not yet under the load that settles it.
    """

    def __init__(self) -> None:
        self.settled_from: int | None = None
        self._taken = 0
        self._last_end = 0.0
        self._started: float | None = None
        self._bin_start = 0.0
        self._in_bin: list[float] = []
        self._earlier: float | None = None

    def take(self, seconds: float | None, end: float, *, counts: bool) -> None:
        """A step of so many seconds that ended at `end`; one without a time never counts."""
        before, self._last_end = self._last_end, end
        self._taken += 1
        if self.settled_from is not None:
            return
        if self._started is None:
            if not counts:
                return
            self._started = self._bin_start = before
        if counts and seconds is not None:
            self._in_bin.append(seconds)
        if self._bin_agrees(end) or end - self._started >= SETTLING_LIMIT_SECONDS:
            self.settled_from = self._taken

    def _bin_agrees(self, end: float) -> bool:
        """Whether a bin ends here, and its median agrees with that of the bin before."""
        if not self._in_bin or end - self._bin_start < SETTLING_BIN_SECONDS:
            return False
        from statistics import median

        earlier, later = self._earlier, median(self._in_bin)
        if earlier is not None and abs(later - earlier) < SETTLING_AGREEMENT * earlier:
            return True
        self._earlier, self._bin_start, self._in_bin = later, end, []
        return False
