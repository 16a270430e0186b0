"""Status words in colour: on a terminal, and nowhere else."""

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
from benchmarks.errors import RequestError
def main(argv):
    print("  status  invalid")
    raise RequestError("no such thing")
run_main(main)
"""


@pytest.mark.parametrize(
    ("text", "word", "colour"),
    [
        ("  status        valid", "valid", GREEN),
        ("2026-11-24 06:38  invalid  4.7 ms", "invalid", RED),
        ("  gpus  not checked  no driver", "not checked", YELLOW),
        ("results/RUN: agrees (20 steps, status valid)", "agrees", GREEN),
        ("  cell  invalid: run failed   1", "invalid", RED),
        ("  Slurm   answers: partition batch is UP", "answers:", GREEN),
        ("  images  missing: /images", "missing", RED),
        ("something is missing or refused", "something is missing or refused", RED),
        ("the private cluster 'dev' is up: 2 nodes", "is up", GREEN),
        ("3 logs, 1 kB: ended well, 1 warning", "ended well", GREEN),
        ("  first cause  GPU out of memory", "first cause", RED),
        ("A and B cannot be compared: no run fits gpus=8", "A and B cannot be compared:", YELLOW),
    ],
)
def test_the_word_of_a_cell_is_coloured(text: str, word: str, colour: str) -> None:
    assert coloured(text) == text.replace(word, f"\x1b[{colour}m{word}\x1b[0m", 1)


@pytest.mark.parametrize(
    "text", ["a valid run", "2 runs failed", "  notes  invalidated", "  why  failed to start", "  made of steel"]
)
def test_words_in_sentences_are_not(text: str) -> None:
    assert coloured(text) == text


def printed(environment: dict[str, str], terminal: bool) -> str:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdout=theirs if terminal else subprocess.PIPE,
        stderr=theirs if terminal else subprocess.STDOUT,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": os.environ["PATH"], "TERM": "xterm"} | environment,
        check=False,
    )
    os.close(theirs)
    assert done.returncode == 2
    text = os.read(ours, 4096) if terminal else done.stdout
    os.close(ours)
    return text.decode()


def test_a_terminal_gets_colours() -> None:
    assert f"  status  \x1b[{RED}minvalid" in (shown := printed({}, terminal=True))
    assert f"\x1b[{RED}mstepmark\x1b[0m: no such thing" in shown


@pytest.mark.parametrize(
    ("environment", "terminal"), [({}, False), ({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, True)]
)
def test_nothing_else_does(environment: dict[str, str], terminal: bool) -> None:
    shown = printed(environment, terminal)
    assert "status  invalid" in shown
    assert "\x1b" not in shown
