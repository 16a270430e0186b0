"""The live line, with and without a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

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
        "step 4/10 · 500 ms/step · 512 tokens/s · loss 5.970 · 3 s left",
        "step 10/10 · 500 ms/step · 512 tokens/s · loss 5.910 · 0 s left",
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
    assert "step 3/3 · 500 ms/step" in text
    assert "\x1b[" in text
