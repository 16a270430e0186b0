"""The workers' kit: events, steps, assertions, how a worker ends, and the words of settings. No framework."""

import enum
import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest

from benchmarks.inside import worker_kit as kit
from benchmarks.inside.setting_words import SCALARS, word_of
from benchmarks.runs.worker_events import read_phase
from tests.benchmarks.inside.events import Events

KIT = Path(kit.__file__)
LOAD_KIT = f"import os, sys, time\nsys.path.insert(0, {str(KIT.parent)!r})\nimport worker_kit as kit\n"


# --- proof that adapters train and nothing else does ----------------------------------------------------


Looks = dict[str, int]


def proof_of(before: tuple[Looks, Looks], after: tuple[Looks, Looks]) -> Any:
    proof = kit.AdapterProof(rank=3)
    proof.begin(*before)
    proof.finish(*after)
    return proof


BEFORE: tuple[Looks, Looks] = ({"a": 1, "b": 2}, {"w": 7})


def test_adapters_changed_and_nothing_else_did() -> None:
    proof = proof_of(BEFORE, ({"a": 3, "b": 4}, {"w": 7}))
    assert proof.failures == []
    assert proof.notes == ["adapters on rank 3: 2 of 2 tensors changed; 0 of 1 frozen tensors changed"]


@pytest.mark.parametrize(
    ("after", "failure"),
    [
        (({"a": 3, "b": 2}, {"w": 7}), "1 of 2 adapters did not change (first: b)"),
        (({"a": 3, "b": 4}, {"w": 8}), "1 of 1 frozen weights changed (first: w)"),
        (({"a": 3, "b": 4}, {}), "1 of 1 frozen weights are missing after training (first: w)"),
        (({}, {"w": 7}), "no adapter was made: nothing was trained"),
    ],
)
def test_whatever_else_happened_is_a_failure(after: tuple[Looks, Looks], failure: str) -> None:
    assert proof_of(BEFORE, after).failures == [failure]


# --- the event file -------------------------------------------------------------------------------------


def test_a_line_cut_by_a_full_disk_does_not_take_the_next_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = kit.EventFile(tmp_path / "events-rank0.jsonl")
    real, calls = os.write, []

    def nearly_full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:15])

    monkeypatch.setattr(kit.os, "write", nearly_full)
    with pytest.raises(OSError, match="No space left"):
        events.write("step", step=0)
    monkeypatch.undo()
    events.write("end", rank=0, status="error", message="OSError", failures=[])
    record = read_phase(tmp_path, 1)
    assert [end.status for end in record.ends] == ["error"]
    assert len(record.unreadable) == 1


# --- steps ----------------------------------------------------------------------------------------------


def recorded(losses: list[float | None], norms: list[float] | None = None, **more: Any) -> tuple[Any, Events]:
    """Steps that end 0.5 s after each other."""
    events = Events()
    recorder = kit.StepRecorder(events)
    recorder.start()
    begin = time.perf_counter()
    for step, loss in enumerate(losses):
        recorder.record(step, begin + 0.5 * (step + 1), loss, norms[step] if norms else 1.5, **more)
    return recorder, events


def test_what_is_not_finite_is_written_as_unknown_and_is_a_failure() -> None:
    losses, norms = [5.0, math.nan, 4.0, math.inf], [1.0, 2.0, math.nan, 1.0]
    recorder, events = recorded(losses, norms, framework_seconds=math.inf, framework_tflops_per_device=None)
    assert events.all("loss") == [5.0, None, 4.0, None]
    assert events.all("gradient_norm") == [1.0, 2.0, None, 1.0]
    assert events.all("framework_seconds") == events.all("framework_tflops_per_device") == [None] * 4
    json.dumps(events.written, allow_nan=False)
    assert recorder.failures() == [
        "the loss is not finite in 2 steps (first: 1, 3)",
        "the gradient norm is not finite in 1 steps (first: 2)",
    ]


SAME = "the loss is the same to the last bit in all 4 steps: nothing was trained"
ZERO = "every gradient is zero: nothing was trained"


@pytest.mark.parametrize(
    ("losses", "norms", "failures"),
    [
        ([5.25] * 4, None, [SAME]),
        ([5.25] * 3, None, []),
        ([5.25, 5.25, 5.25, math.nextafter(5.25, 6)], None, []),
        ([5.25, 5.0, 5.25, 5.25], None, []),
        ([None] * 4, None, []),  # of a rank that does not hold the loss
        ([5.0, 4.0], [0.0, 0.0], [ZERO]),
    ],
)
def test_a_model_that_does_not_train_is_a_failure(
    losses: list[float | None], norms: list[float] | None, failures: list[str]
) -> None:
    assert recorded(losses, norms)[0].failures() == failures


class Clock:
    """Stands in for the module time: a sleep takes as long as it says, and nothing else takes any."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def slowed_seconds(monkeypatch: pytest.MonkeyPatch, fraction: float, works: list[float]) -> tuple[list[float], Any]:
    """What steps take: each works so long before its end."""
    clock, slowdown, seconds = Clock(), kit.Slowdown(fraction), []
    monkeypatch.setattr(kit, "time", clock)
    for work in works:
        before = clock.now
        clock.now += work
        end = slowdown.end_of_step(clock.now)
        assert end == clock.now
        seconds.append(end - before)
    return seconds, slowdown


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 3.0])
def test_a_slowed_step_takes_that_much_longer_and_the_first_one_does_not(
    monkeypatch: pytest.MonkeyPatch, fraction: float
) -> None:
    seconds, slowdown = slowed_seconds(monkeypatch, fraction, [9.0, 1.0, 2.0, 1.0])
    longer = 1 + fraction
    assert seconds == pytest.approx([9.0, longer, 2 * longer, longer])
    note = f"--inject_slowdown={fraction:g} increased the time of 3 steps from 4 s to {4 * longer:g} s"
    assert slowdown.notes() == ([note] if fraction else [])


# --- the end --------------------------------------------------------------------------------------------


def ended(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> tuple[int, dict[str, Any]]:
    def train() -> None:
        written.append("a failure")
        if error is not None:
            raise error

    written: list[str] = []
    monkeypatch.setattr(kit.signal, "signal", lambda *_: None)  # the kit takes no signal of the tests' own process
    monkeypatch.setattr(kit.faulthandler, "register", lambda *_args, **_named: None)
    monkeypatch.delenv("STEPMARK_DIE_WITH_PARENT", raising=False)
    events = Events()
    code = kit.run(SimpleNamespace(rank=2), train, lambda: list(written), events, lambda: ["a note"])
    (event,) = events.written
    return code, event


@pytest.mark.parametrize(
    ("error", "code", "status", "message"),
    [
        (None, 0, "done", ""),
        (ValueError("no such axis"), 1, "error", "ValueError: no such axis"),
        (KeyboardInterrupt(), 1, "error", "KeyboardInterrupt: "),
        (SystemExit("1 processes have joined"), 1, "error", "1 processes have joined"),
        (SystemExit(0), 1, "error", "0"),  # a framework that leaves early has not trained to the end
        (MemoryError("x" * 5000), 1, "error", "MemoryError: " + "x" * 1987),
    ],
)
def test_however_a_worker_ends_it_says_so(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: int, status: str, message: str
) -> None:
    """Failures and notes are collected at the end, after the training."""
    found, event = ended(monkeypatch, error)
    assert found == code
    assert (event["event"], event["rank"], event["status"], event["message"]) == ("end", 2, status, message)
    assert (event["failures"], event["notes"]) == (["a failure"], ["a note"])


def test_a_check_that_fails_itself_says_so_in_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> dict[str, str]:
        raise KeyError("comm_overlap")

    events = Events()
    assert kit.run_check(look, events) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("stepmark check: the check itself failed; KeyError: 'comm_overlap'; try: ")
    assert [event["status"] for event in events.written] == ["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_worker_at_once_and_is_written(tmp_path: Path, number: signal.Signals) -> None:
    """Not by an exception, which other code may swallow."""
    script = LOAD_KIT + (
        "def never():\n"
        "    for _ in range(3):\n"  # or a worker that is not ended would outlive the tests
        "        try:\n            print('training', flush=True); time.sleep(15)\n"
        "        except BaseException:\n            pass\n"
        f"options = type('O', (), dict(rank=0, events_dir={str(tmp_path)!r}))\n"
        "kit.run(options, never, lambda: ['half way'], kit.events_of(options))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(number)
        assert process.wait(60) == 130
    (end,) = read_phase(tmp_path, 1).ends
    assert (end.status, end.failures) == ("interrupted", ["half way"])


@pytest.mark.parametrize("code", [0, 1])
def test_a_rank_that_failed_does_not_wait_in_exit_handlers(code: int) -> None:
    """Its output is not lost in a buffer."""
    script = LOAD_KIT + (
        f"import atexit\natexit.register(lambda: print('handler'))\nprint('out', end=' ')\nkit.leave({code})\n"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=buffered, check=False)
    assert done.returncode == code
    assert done.stdout == ("out " if code else "out handler\n")


# --- the word of a setting's type -----------------------------------------------------


class Number(enum.IntEnum):
    ONE = 1


class Name(enum.Enum):
    A = "a"


KNOWN = {**SCALARS, list: "list", dict: "dict", enum.IntEnum: "int", enum.Enum: "str"}


@pytest.mark.parametrize(
    ("annotation", "word"),
    [
        *((kind, kind.__name__) for kind in (bool, int, float, str, list, dict)),
        *((int | None, "int"), (int | float, "float"), (int | str, "str"), (bool | int, "int")),
        *((Literal["a", None], "str"), (Literal[1, 2], "int"), (Annotated[int, "over 0"], "int")),
        *((Number, "int"), (Name | None, "str"), (list[str], "list"), (dict[str, int], "dict")),
        *((Callable[[], None], None), (Callable[[], None] | bool, "bool"), (None, None), (Any, None)),
    ],
)
def test_the_word_for_an_annotation(annotation: object, word: str | None) -> None:
    assert word_of(annotation, KNOWN) == word
