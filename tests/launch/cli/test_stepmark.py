"""The console command `stepmark`, and its completion in bash."""

import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from benchmarks import VERSION

TABLES = yaml.safe_load(Path(__file__).with_name("stepmark.yml").read_text())

REPOSITORY = Path(__file__).resolve().parents[3]


def stepmark(*words: str) -> "subprocess.CompletedProcess[str]":
    """By its entry point in setup.cfg, as the script in .venv/bin calls it."""
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    module, _, name = config["options.entry_points"]["console_scripts"].partition("= ")[2].partition(":")
    code = f"from {module} import {name}; {name}()"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def test_the_help_lists_every_command() -> None:
    done = stepmark("--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {"run", "report", "nightly", "completion"} <= set(listed)
    assert len(listed) == 14
    assert stepmark().stdout == done.stdout
    assert json.loads(stepmark("--help", "--json").stdout) == {"text": done.stdout.rstrip("\n")}
    assert json.loads(stepmark("--json").stdout) == {"text": done.stdout.rstrip("\n")}
    assert stepmark("help").stdout == done.stdout
    assert stepmark("--version").stdout == f"stepmark {VERSION}\n"


def test_a_command_is_its_script() -> None:
    script = subprocess.run(
        [sys.executable, REPOSITORY / "launch/run.py", "--list"], capture_output=True, text=True, check=False
    )
    done = stepmark("run", "--list")
    assert (done.returncode, done.stdout, done.stderr) == (0, script.stdout, "")
    assert "--hardware=TEXT" in stepmark("run", "--help").stdout
    assert "--newest=" in stepmark("report", "runs", "--help").stdout


def flags_in(help_text: str) -> list[str]:
    return re.findall(r"^  --(?:\[no\])?(\w+)", help_text, re.MULTILINE)


def test_the_help_of_a_run_shows_eight_flags_and_topics_the_others() -> None:
    first = stepmark("run", "--help").stdout
    assert flags_in(first) == ["backend", "model", "hardware", "gpus", "dtype", "site", "steps", "dry_run"]
    assert len(first.splitlines()) <= 40 and first.count("\n  stepmark run ") == 3
    every = stepmark("run", "--help=all").stdout
    for topic, flag in (("sweep", "repeats"), ("profile", "profile_ranks"), ("slurm", "partition")):
        shown = stepmark("run", f"--help={topic}").stdout
        assert flag in flags_in(shown)
        assert set(flags_in(shown)) <= set(flags_in(every))
    assert len(flags_in(every)) > 50


@pytest.mark.parametrize("command", ["plan estimate", "plan layouts", "plan compile", "nightly"])
def test_other_commands_show_the_flags_that_matter_first(command: str) -> None:
    first, every = (flags_in(stepmark(*command.split(), word).stdout) for word in ("--help", "--help=all"))
    assert 4 < len(first) <= 10 and set(first) < set(every)


@pytest.mark.parametrize(("words", "message"), TABLES["refused"])
def test_refusals(words: list[str], message: str) -> None:
    done = stepmark(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_every_command_it_names_is_its_own(tmp_path: Path) -> None:
    """There may be no checkout: `python launch/...` would be no command, in a text, an error or a document."""
    help_text = stepmark("compare", "--help").stdout
    assert "\n  stepmark compare RUN_A RUN_B" in help_text
    empty = stepmark("report", "runs", str(tmp_path))
    document = stepmark("verify", "--json")
    for text in (help_text, empty.stdout + empty.stderr, document.stdout, document.stderr):
        assert "python launch" not in text
    assert "next:  stepmark status" in document.stderr
    assert '"stepmark status"' in document.stdout


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = stepmark("completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path_factory.mktemp("completion") / "stepmark.bash"
    path.write_text(done.stdout)
    return path


@pytest.mark.parametrize(("line", "expected"), TABLES["completed"])
def test_bash_completes(completion: Path, line: str, expected: list[str]) -> None:
    """Without any program on PATH, so no Python is started at TAB."""
    environment = {"PATH": "", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    code = f"source {completion}; _stepmark; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["/bin/bash", "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert done.stderr == ""
    found = done.stdout.split()
    assert set(expected) <= set(found) if line.endswith("--no") else found == expected
