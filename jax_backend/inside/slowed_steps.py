"""Makes MaxText's steps longer, for --inject_slowdown.

Runs inside MaxText's environment, loaded by its path. The loop dispatches a step before it waits for the one before,
so a sleep beside a step would hide behind the next one, which runs already. Here a step is begun only when the one
before is done and slept for: nothing runs while the worker sleeps, and what the loop does between two steps still
runs beside one.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any


class SlowedSteps:
    """The steps as `slowdown` (worker_kit.Slowdown) makes them; `wait_for` returns when what a step made is there."""

    def __init__(self, slowdown: Any, wait_for: Callable[[Any], Any]) -> None:
        self._slowdown = slowdown
        self._wait_for = wait_for
        self._running: Any = None  # what the step that was begun last makes, until that is over
        self._ends: deque[float] = deque()

    def around(self, train_step: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            self._end_running()
            self._running = train_step(*arguments)
            return self._running

        return step

    def end_of_next(self) -> float:
        """When the oldest step was over that was not asked for yet; of the last one nobody begins another after."""
        if not self._ends:
            self._end_running()
        return self._ends.popleft()

    def _end_running(self) -> None:
        if self._running is not None:
            self._wait_for(self._running)
            self._running = None
            self._ends.append(self._slowdown.end_of_step(time.perf_counter()))
