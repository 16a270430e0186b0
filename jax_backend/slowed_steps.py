"""Makes MaxText's steps longer, for --inject_slowdown.

Runs inside MaxText's environment, loaded by its path. The loop dispatches a step before it waits for the one before,
so a sleep beside a step would hide behind the next one, which runs already. Here each step is waited for before the
loop has it back: nothing runs while the worker sleeps.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any


def around(
    train_step: Callable[..., Any], slowdown: Any, ended: "deque[float]", wait_for: Callable[[Any], Any]
) -> Callable[..., Any]:
    """The training step, as much longer as `slowdown` (worker_kit.Slowdown) says; `ended` gets when each was over."""

    def step(*arguments: Any) -> Any:
        begun = time.perf_counter()
        made = train_step(*arguments)
        wait_for(made)
        done = time.perf_counter()
        ended.append(slowdown.end_of_step(done, done - begun))
        return made

    return step
