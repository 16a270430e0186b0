"""Waiting for one of several runs to end: asked ever more seldom, and on through a silence of the site's queue."""

import sys
from collections.abc import Callable, Sized

from benchmarks.errors import StepmarkError
from benchmarks.rendering.report import duration_text

FIRST_WAIT_SECONDS = 1.0  # between two questions about the runs; then longer, as long as none ends
LONGEST_WAIT_SECONDS = 15.0
LONGEST_SILENCE_SECONDS = 600.0  # a queue's controller may be restarted while jobs run


def wait_for_one(going: Sized, take_ended: Callable[[], bool], sleep: Callable[[float], None]) -> None:
    """Until `take_ended` says that a run has ended, or none is `going`."""
    pause, silence = FIRST_WAIT_SECONDS, 0.0
    while going:
        try:
            if take_ended():
                return
            silence = 0.0
        except StepmarkError as error:
            if silence >= LONGEST_SILENCE_SECONDS:
                raise
            if not silence:
                text = f"stepmark: {error}\nit is asked again, for {duration_text(LONGEST_SILENCE_SECONDS)}"
                print(text, file=sys.stderr, flush=True)
            silence += pause
        sleep(pause)
        pause = min(pause * 1.5, LONGEST_WAIT_SECONDS)
