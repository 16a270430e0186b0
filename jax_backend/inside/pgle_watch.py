"""Watches jax's own profile-guided latency estimation: which steps it profiles, and in which it compiles once more.

A worker loads this file by its path. jax says through its public monitoring when it compiles something, and by a
warning when a trace was empty; both are asked for inside the calls of the training step alone, because jax profiles
every other function that is compiled, too.
"""

import warnings

EMPTY_TRACE = "PGLE collected an empty trace"
COMPILED = "/jax/core/compile/backend_compile_duration"
REASON = "pgle"


class PgleWatch:
    """From the first step to the one from which the steps are those of the program that was compiled last."""

    def __init__(self, runs, settling):
        self._runs = runs  # so many calls are profiled, and the one after them compiles
        self._settling = settling
        self._calls = 0
        self._inside = False
        self.empty_traces = 0
        self.recompile_step = None
        self.recompile_seconds = 0.0

    def around(self, train_step):
        """The training step, with an ear for what jax does in it."""
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
        # A compilation in an earlier step is none of the profile's: its costs are not known before.
        if event == COMPILED and self._inside and self._calls >= self._runs and self.recompile_step is None:
            self.recompile_step = self._calls
            self.recompile_seconds = seconds

    def reason_against(self, step):
        """Why a step cannot count; the first one compiles, and is left out for that."""
        if step == 0:
            return None
        over = self.recompile_step is not None and step > self.recompile_step + self._settling
        return None if over else REASON

    def seen(self):
        """The fields of the event that tells of it."""
        applied = self.recompile_step is not None and self.empty_traces < self._runs
        return {
            "applied": applied,
            "reason": self._words(),
            "profiled_steps": min(self._calls, self._runs),
            "empty_traces": self.empty_traces,
            "recompile_step": self.recompile_step,
        }

    def _words(self):
        if self.recompile_step is None:
            return f"jax did not compile again in any of {self._calls} steps, of which it was to profile {self._runs}"
        again = f"jax profiled {self._runs} steps and compiled again in step {self.recompile_step}"
        again += f" ({self.recompile_seconds:.1f} s)"
        if self.empty_traces >= self._runs:
            return f"{again}; but every trace was empty, so there were no costs to schedule by"
        if self.empty_traces:
            return f"{again}; {self.empty_traces} of the traces were empty"
        return again
