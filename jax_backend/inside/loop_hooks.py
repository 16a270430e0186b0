"""Hook the steps of MaxText's loop, to slow the steps (--inject_slowdown) and to watch jax's own PGLE (--pgle=auto).

The worker loads this module by path. MaxText's loop dispatches each step before it waits for the previous step.
"""

import time
import warnings
from collections import deque

# --- slower steps, for --inject_slowdown --------------------------------------------------------


class SlowedSteps:
    """Sleeps after every step as `slowdown` (worker_kit.Slowdown) requires. `wait_for` waits for a step's result.

    MaxText dispatches the next step early, so a sleep would overlap with that step. This class therefore delays each
    step until the previous step and its sleep have ended. Then no step runs while the worker sleeps, and the loop's
    other work still overlaps with a step.
    """

    def __init__(self, slowdown, wait_for):
        self._slowdown = slowdown
        self._wait_for = wait_for
        self._running = None  # the result of the last started step, until that step has ended
        self._ends = deque()

    def around(self, train_step):
        def step(*arguments):
            self._end_running()
            self._running = train_step(*arguments)
            return self._running

        return step

    def end_of_next(self):
        """Return the end of the earliest step that no call has returned yet. If the step still runs, wait for it."""
        if not self._ends:
            self._end_running()
        return self._ends.popleft()

    def _end_running(self):
        if self._running is not None:
            self._wait_for(self._running)
            self._running = None
            self._ends.append(self._slowdown.end_of_step(time.perf_counter()))


# --- jax's own profile-guided latency estimation ------------------------------------------------

EMPTY_TRACE = "PGLE collected an empty trace"
COMPILED = "/jax/core/compile/backend_compile_duration"


class PgleWatch:
    """Watches how many steps jax profiles, when jax compiles again, and which steps run the new program.

    jax reports a compilation through its public monitoring interface, and an empty trace as a warning. This class
    ignores both outside of the training step, because jax also profiles every other compiled function.
    """

    def __init__(self, runs, settling):
        self._runs = runs  # number of profiled calls, after which jax compiles again
        self._settling = settling
        self._calls = 0
        self._inside = False
        self.empty_traces = 0
        self.recompile_step = None
        self._recompile_seconds = 0.0

    def around(self, train_step):
        import jax.monitoring

        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        show = warnings.showwarning

        def listen(message, *rest, **named):
            if self._inside and EMPTY_TRACE in str(message):
                self.empty_traces += 1
            show(message, *rest, **named)

        warnings.filterwarnings("always", message=EMPTY_TRACE)
        warnings.showwarning = listen

        def step(*arguments):
            self._inside = True
            try:
                return train_step(*arguments)
            finally:
                self._inside = False
                self._calls += 1

        return step

    def _on_duration(self, event, seconds, **_named):
        # Ignore compilations in earlier steps, in which the profile is still incomplete.
        if event == COMPILED and self._inside and self._calls >= self._runs and self.recompile_step is None:
            self.recompile_step = self._calls
            self._recompile_seconds = seconds

    def reason_against(self, step):
        """Return why a step cannot be measured; None if it can. Return None for step 0, which is excluded anyway."""
        over = self.recompile_step is not None and step > self.recompile_step + self._settling
        return None if over or step == 0 else "pgle"

    def seen(self):
        """Return the fields of the `pgle` event."""
        reason = f"jax should have profiled {self._runs} of {self._calls} steps, but did not compile again"
        if self.recompile_step is not None:
            reason = f"jax profiled {self._runs} steps and compiled again in step {self.recompile_step}"
            reason += f" ({self._recompile_seconds:.1f} s)"
        if self.empty_traces >= self._runs:
            reason += "; but every trace was empty, so XLA had no costs for its schedule"
        elif self.empty_traces:
            reason += f"; {self.empty_traces} of the traces were empty"
        return {
            "applied": self.recompile_step is not None and self.empty_traces < self._runs,
            "reason": reason,
            "profiled_steps": min(self._calls, self._runs),
            "empty_traces": self.empty_traces,
            "recompile_step": self.recompile_step,
        }
