"""The live line, with and without a terminal, and what the screen says to do next."""

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import msgspec
import pytest

from benchmarks.job_record import AttemptEnd
from benchmarks.measuring.summary import Result
from benchmarks.references import nearest_reference
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Step
from launch.running import screen

REPOSITORY = Path(__file__).resolve().parents[3]


def steps(first: int, last: int, rank: int = 0) -> list[Step]:
    return [Step(step=n, seconds=0.5, loss=6.0 - n / 100, tokens=256, rank=rank) for n in range(first, last + 1)]


def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.Screen(10, "starting") as shown:
        shown.show([])
        shown.show(steps(0, 3))
        shown.show(steps(4, 9))
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.splitlines() == [
        "starting",
        "step 4/10 · 3 s left · 500 ms/step · 512 tokens/s · loss 5.970",
        "step 10/10 · 0 s left · 500 ms/step · 512 tokens/s · loss 5.910",
    ]


def test_another_attempt_is_not_timed_by_the_steps_before(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.Screen(10, "starting") as shown:
        shown.show(steps(0, 5))
        shown.show([msgspec.structs.replace(one, seconds=2.0) for one in steps(0, 2)])
    assert "step 3/10 · 14 s left · 2 s/step" in capsys.readouterr().err


def test_one_live_line_on_a_terminal() -> None:
    """A real pseudo-terminal: the line is drawn over and over, with a spinner while nothing has come yet."""
    script = (
        "import time\n"
        "from launch.running.screen import Screen\n"
        "from benchmarks.values import Step\n"
        "with Screen(3, 'starting') as shown:\n"
        "    time.sleep(0.4)\n"
        "    for n in range(3):\n"
        "        shown.show([Step(step=n, seconds=0.5, loss=6.0, tokens=256)])\n"
        "        time.sleep(0.3)\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, stdout=theirs, cwd=REPOSITORY) as process:
        os.close(theirs)
        drawn = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:
                break
            if not more:
                break
            drawn += more
    assert process.returncode == 0, drawn.decode()
    text = drawn.decode()
    assert "starting" in text
    assert "step 1/3" in text
    assert "step 3/3 · 0 s left · 500 ms/step" in text
    assert "\x1b[" in text


# --- what to do next ------------------------------------------------------------------------------


def next_of(outcome: str, status: str, not_comparable: Sequence[str] = ()) -> str:
    attempt = AttemptEnd(attempt=1, outcome=outcome, text="", steps=0)
    result = SimpleNamespace(status=status, attempts=[attempt], not_comparable=not_comparable)
    return screen.next_command(RunFolder(Path("results/a run")), cast("Result", result))


def test_a_failed_run_is_diagnosed_a_profiled_one_traced_and_any_other_verified() -> None:
    assert next_of("failed", "failed") == "python launch/doctor.py logs 'results/a run'"
    assert next_of("completed", "valid", ["profiled"]).startswith("python launch/report.py trace ")
    for verified in (next_of("completed", "valid"), next_of("cancelled", "failed")):
        assert verified.startswith("python launch/verify.py ") and verified.endswith(" 'a run'")


# --- the end of a run -----------------------------------------------------------------------------

STORED = sorted((REPOSITORY / "tests/launch/stored_runs").iterdir())
REFERENCE = nearest_reference.NearestRow(
    reference="llama2_70b 64 x h100",
    source="a page",
    reference_seconds=4.3,
    reference_tokens_per_second_per_gpu=1900.0,
    ratio=0.997,
    differs=["GPUs 64 in the published row, 1 in this run"],
)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
@pytest.mark.parametrize("status", ["valid", "invalid", "failed"])
@pytest.mark.parametrize("near", [REFERENCE, None])
def test_a_run_ends_with_eight_lines_at_most(
    path: Path, status: Literal["valid", "invalid", "failed"], near: nearest_reference.NearestRow | None
) -> None:
    run = RunFolder(path)
    notes = [f"note {n}" for n in range(9)]
    reasons = [] if status == "valid" else ["it broke"]
    result = msgspec.structs.replace(run.stored_result(), status=status, reasons=reasons, notes=notes)
    lines = screen.result_lines(run, result, (near, ""))
    assert len(lines) <= screen.MOST_LINES
    assert lines[0].startswith(f"{status.upper()}  ")
    labels = [line.split("  ")[1] for line in lines[1:] if line.startswith("  ")]
    assert ("Reason" in labels) == (status != "valid")
    assert ("Reference" in labels) == (status == "valid" and near is not None)
    if status != "failed":
        assert {"Step time", "Throughput", "MFU", "Loss"} <= set(labels)
        assert "steps)" in next(line for line in lines if "Step time" in line)
        assert sum("more in result.json" in line for line in lines) == 1
    assert "Next  " in lines[-1] and any(line.startswith("Results  ") for line in lines[-2:])


def test_each_warning_is_shown_once() -> None:
    run = RunFolder(STORED[0])
    lines = screen.result_lines(run, run.stored_result(), (None, ""))
    assert sum("steady state" in line for line in lines) == 1
    assert not any(words in line for line in lines for words in ("too narrow", "no text was read"))
