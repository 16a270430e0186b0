"""A whole run of two phases on this machine, with small programs in place of a framework."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark, Plan
from jax_backend import MaxTextBackend
from launch.running import execute
from tests.launch.dashboards.made_runs import benchmark

# Both wait, and succeed after a signal to stop, as a profiler's own program may.
WAITS = """import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open("begun", "w")
time.sleep(15)
"""


class TwoPhases(MaxTextBackend):
    def plan(self, benchmark: Benchmark) -> Plan:
        plan = super().plan(benchmark)
        perf = msgspec.structs.replace(plan.phases[-1], command=["{python}", "-c", WAITS], environment={})
        before = msgspec.structs.replace(perf, name="before", writes_steps=False)
        return msgspec.structs.replace(plan, phases=[before, perf])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_in_a_phase_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    runtime = SimpleNamespace(prepare=lambda: (sys.executable, {}), containers=lambda _: None)
    monkeypatch.setattr(execute, "runtime_of", lambda *_: runtime)
    phases = [tmp_path / "run-1" / "attempt-1" / name for name in ("before", "perf")]

    def interrupt_each() -> None:
        deadline = time.monotonic() + 30
        for phase in phases:  # the second is never there, unless it was begun
            while not (phase / "begun").exists() and time.monotonic() < deadline and not ended.is_set():
                time.sleep(0.02)
            if not ended.is_set():
                os.kill(os.getpid(), number)

    ended = threading.Event()
    user = threading.Thread(target=interrupt_each)
    user.start()
    try:
        execute.execute(benchmark(), TwoPhases(), tmp_path, "run-1", telemetry=False)
    except KeyboardInterrupt:
        pass
    finally:
        ended.set()
        user.join()
    assert [phase.exists() for phase in phases] == [True, False]
    result = RunFolder(tmp_path / "run-1").stored_result()
    assert (result.status, [one.outcome for one in result.attempts]) == ("failed", ["cancelled"])
    assert result.reasons == ["interrupted by the user in phase before"]
