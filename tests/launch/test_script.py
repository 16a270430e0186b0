"""launch/_script.py: a script run by path with a Python that lacks Stepmark's packages."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("launch", "benchmarks"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    return tmp_path


def run(checkout: Path) -> "subprocess.CompletedProcess[str]":
    # -S leaves site-packages out: a Python with nothing installed.
    command = [sys.executable, "-S", str(checkout / "launch/run.py"), "--list"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_without_packages_it_says_what_to_do(checkout: Path) -> None:
    done = run(checkout)
    assert done.returncode == 2
    assert "lacks absl" in done.stderr
    assert f"make -C {checkout} install" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_goes_on_in_the_checkouts_own_environment(checkout: Path) -> None:
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "went on with: $@"\n')
    python.chmod(0o755)
    done = run(checkout)
    assert done.stdout == f"went on with: {checkout}/launch/run.py --list\n"
