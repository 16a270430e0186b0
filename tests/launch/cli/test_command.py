"""How a launch script ends: exit codes and messages for everything that can be raised."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

SCRIPT = '''"""A script: script.py --follow RUN."""
from absl import flags
from benchmarks.errors import RequestError, RunError, UnknownName
from launch.cli.command import Words, run_main
flags.DEFINE_string("raise", "", "What to raise.")
flags.DEFINE(Words(("bf16", "fp32")), "dtype", None, "The precision.")
flags.DEFINE_multi_string("set", [], "A setting.")
flags.DEFINE_string("note", None, "A note.")
flags.DEFINE_integer("steps", None, "Steps.")
flags.DEFINE_enum("format", "table", ["table", "csv"], "The shape of the list.")
flags.DEFINE_boolean("follow", False, "Follow it.")
flags.DEFINE_boolean("list", False, "List them.")
def main(argv):
    {body}
if __name__ == "__main__":
    run_main(main)
'''


def ends(tmp_path: Path, body: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(body=body))
    return subprocess.run(
        [sys.executable, str(script), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("return 0", 0, ""),
        ("return 3", 3, ""),
        ("raise RequestError('no such thing', where='here', why='so', next_command='do that')", 2, "next:  do that"),
        ("raise RunError('it broke')", 1, "stepmark: it broke"),
        ("raise KeyboardInterrupt", 130, "stepmark: interrupted"),
        ("open('/nonexistent/file')", 1, "No such file or directory\n  where: /nonexistent/file"),
    ],
)
def test_ends(tmp_path: Path, body: str, code: int, words: str) -> None:
    done = ends(tmp_path, body)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_fault(tmp_path: Path, closed: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(body="print('a figure'); return 3"))
    command = ["sh", "-c", f"{sys.executable} {script} {closed}"]
    done = subprocess.run(command, check=False, capture_output=True, env={"PYTHONPATH": str(REPOSITORY)}, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--dtyp=fp16", "unknown flag --dtyp: did you mean 'dtype'?"),
        ("--boat=x", "unknown flag --boat: "),
        ("--format=cvs", "--format=cvs: did you mean 'csv'?"),
        ("--dtype=fp16", "'fp16'"),
        ("--note=", "--note= has no value"),
    ],
)
def test_a_mistyped_flag_or_value_gets_the_nearest_and_a_command(tmp_path: Path, typed: str, message: str) -> None:
    body = "raise UnknownName(\"unknown dtype 'fp16'\", 'fp16', ['bf16', 'fp32'])"
    done = ends(tmp_path, body, typed)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("  next:  ")


@pytest.mark.parametrize(
    ("named", "typed", "shown"),
    [
        ("--steps=1", ["--steps=0", "--note=x"], "--note=x --steps=1"),
        ("--steps=1 --list", ["--steps", "0", "--nolist", "--note=x"], "--note=x --steps=1 --list"),
        ("--set=a=2", ["--set=a=1", "--set=b=1"], "--set=b=1 --set=a=2"),
        ("--set=a --set=c=", ["--set=a=1", "--set=b=1"], "--set=b=1 --set=c="),
        ("--steps=", ["--steps=9", "--note=x"], "--note=x"),
        ("", ["--steps=9"], "--help"),
    ],
)
def test_flags_become_a_command_to_paste(tmp_path: Path, named: str, typed: list[str], shown: str) -> None:
    done = ends(tmp_path, f"raise RequestError('no', next_command='{named}')", *typed)
    assert done.stderr.splitlines()[-1].endswith(f"script.py {shown}")


def test_a_reader_that_goes_away_is_no_error_to_show(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    body = "[print('x' * 1000) for _ in range(10000)]; return 0"
    script.write_text(SCRIPT.format(body=body))
    done = subprocess.run(
        f"{sys.executable} {script} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == ""
