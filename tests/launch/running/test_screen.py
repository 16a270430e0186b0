"""The live line, with and without a terminal, and what the screen says to do next."""

import os
import pty
import subprocess
import sys
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


# --- what to do next: of a failed run, which log to read first ------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two attempts of three ranks, of whom one in the second never wrote a log."""
    for name in ("attempt-1/perf/rank-0.log", "attempt-1/perf/rank-1.log", "attempt-1/perf/rank-2.log"):
        path = tmp_path / "a run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        later = tmp_path / "a run" / name.replace("attempt-1", "attempt-2")
        later.parent.mkdir(parents=True, exist_ok=True)
        if "rank-1" not in name:
            later.touch()
    return RunFolder(tmp_path / "a run")


def next_of(folder: RunFolder, *attempts: AttemptEnd, status: str = "failed", profiled: bool = False) -> str:
    against = ["profiled"] if profiled else []
    result = SimpleNamespace(status=status, attempts=list(attempts), not_comparable=against)
    command = screen.next_command(folder, cast("Result", result))
    return command.replace(str(folder.path), "RUN")


def end(attempt: int, rank: int | None = None) -> AttemptEnd:
    return AttemptEnd(attempt=attempt, outcome="failed", text="", steps=0, rank=rank)


ROWS = [
    ([end(1, 1), end(2, 2)], "tail -n 40 'RUN'/attempt-2/*/rank-2.log"),
    ([end(1, 1)], "tail -n 40 'RUN'/attempt-1/*/rank-1.log"),
    ([end(2, 1)], "python launch/doctor.py logs 'RUN'"),  # rank 1 left no log
    ([end(0)], "python launch/doctor.py logs 'RUN'"),
]


@pytest.mark.parametrize(("attempts", "command"), ROWS)
def test_the_log_of_a_failed_run_is_that_of_the_rank_that_its_last_attempt_names(
    folder: RunFolder, attempts: list[AttemptEnd], command: str
) -> None:
    assert next_of(folder, *attempts) == command


def test_a_run_that_went_through_is_verified_and_a_profiled_one_looked_at_first(folder: RunFolder) -> None:
    verified = next_of(folder, end(2, 2), status="valid")
    assert verified.startswith("python launch/verify.py ") and verified.endswith(" 'a run'")
    assert next_of(folder, end(2, 2), status="valid", profiled=True).startswith("python launch/report.py trace ")


# --- the end of a run -----------------------------------------------------------------------------

STORED = sorted((REPOSITORY / "tests/launch/stored_runs").iterdir())
REFERENCE = nearest_reference.NearestRow(
    reference="llama2_70b 64 x h100",
    source="a page",
    reference_seconds=4.3,
    reference_tokens_per_second_per_gpu=1900.0,
    ratio=0.997,
    differs=["GPUs 64, here 1"],
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
