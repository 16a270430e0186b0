"""Entries of crontab and scrontab: read, changed between marker lines, written back as a whole."""

import shlex
import subprocess

from benchmarks.errors import RequestError, RunError
from launch.campaigns.nights.installing import Change, Timetable, with_block

PROGRAMS = {"cron": "crontab", "scrontab": "scrontab"}
# A launcher waits for its jobs: it needs little of its node, and the time of all its runs one after the other.
SCRON_OPTIONS = ("--time=12:00:00", "--ntasks=1", "--cpus-per-task=1", "--requeue")
LONGEST_LINE = 990  # cron cuts a line at 1000 characters


def change(kind: str, table: Timetable, *, install: bool) -> Change:
    program = PROGRAMS[kind]
    old = _read(program)
    new = with_block(old, table.suite, _lines(kind, table) if install else [])
    # A table that is empty but for ours is removed with it.
    return Change(
        f"{program} -l", _block_of(old, table.suite), _block_of(new, table.suite), lambda: _write(program, new)
    )


def _lines(kind: str, table: Timetable) -> list[str]:
    # In cron % is the end of the line, unless it stands behind a backslash.
    command = shlex.quote(str(table.script))
    command = command.replace("%", r"\%") if kind == "cron" else command
    line = f"{table.minute} {table.hour} * * * {command}"
    if len(line) > LONGEST_LINE:
        raise RequestError("the path of STEPMARK_HOME is too long for a line of cron", where=command)
    options = [f"#SCRON {option}" for option in (f"--job-name=stepmark-{table.suite}", *SCRON_OPTIONS)]
    return [*(options if kind == "scrontab" else []), line]


def _block_of(text: str, suite: str) -> str | None:
    begin, end = f"# stepmark nightly {suite}: begin\n", f"# stepmark nightly {suite}: end"
    return text.partition(begin)[2].partition(end)[0] if begin in text else None


def _read(program: str) -> str:
    done = _call(program, "-l")
    if done.returncode == 0:
        return done.stdout
    if "no crontab" in done.stderr.lower() or not done.stderr.strip():
        return ""
    raise RunError(
        f"{program} -l failed: {done.stderr.strip()}", why="what is in it now is not known, so it is not changed"
    )


def _write(program: str, text: str) -> None:
    done = _call(program, "-", text)
    if done.returncode != 0:
        raise RunError(f"{program} did not take the table: {(done.stderr or done.stdout).strip()}")


def _call(program: str, word: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run([program, word], input=text, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        other = "systemd" if program == "crontab" else "cron"
        raise RequestError(
            f"there is no {program} on this machine", where=f"--install={program}", next_command=f"--install={other}"
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError(f"{program} could not be asked: {error}") from None
