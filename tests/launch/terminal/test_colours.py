"""Verdicts and states have colours on a terminal only."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from launch.terminal.output import GREEN, RED, YELLOW, coloured

REPOSITORY = Path(__file__).resolve().parents[3]
SCRIPT = """
from launch.cli.command import run_main
def main(argv):
    print("  status  invalid")
    return 3
run_main(main)
"""


@pytest.mark.parametrize(
    ("text", "word", "colour"),
    [
        ("  status        valid", "valid", GREEN),
        ("2026-11-24 06:38  invalid  4.7 ms", "invalid", RED),
        ("inconclusive: B takes 1 s", "inconclusive", YELLOW),
        ("  first cause  GPU out of memory", "first cause", RED),
    ],
)
def test_a_cell_is_coloured(text: str, word: str, colour: str) -> None:
    assert coloured(text) == text.replace(word, f"\x1b[{colour}m{word}\x1b[0m", 1)


@pytest.mark.parametrize("text", ["a valid run", "2 runs failed", "  notes  invalidated", "  why  failed to start"])
def test_a_sentence_is_not(text: str) -> None:
    assert coloured(text) == text


@pytest.mark.parametrize(
    ("environment", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_only_a_terminal_that_wants_them_gets_colours(environment: dict[str, str], has_colours: bool) -> None:
    ours, theirs = pty.openpty()
    variables = {"PYTHONPATH": str(REPOSITORY), "PATH": os.environ["PATH"], "TERM": "xterm"} | environment
    done = subprocess.run([sys.executable, "-c", SCRIPT], stdout=theirs, stderr=theirs, env=variables, check=False)
    os.close(theirs)
    text = os.read(ours, 4096).decode()
    os.close(ours)
    assert done.returncode == 3
    assert (f"\x1b[{RED}minvalid" in text) is has_colours
    assert ("\x1b" in text) is has_colours
