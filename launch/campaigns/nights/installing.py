"""Installs a suite where nobody types: cron, scrontab, systemd's user timers, or a GitHub workflow. Idempotent.

Each of the first three starts a script of its own, $STEPMARK_HOME/nights/<suite>.<kind>.sh, which holds the whole
command with absolute paths and the few variables that a bare environment lacks. No secret is ever written: variables
with a login in them are left out, and the address of a webhook is read from a file of the user's own (--webhook_file)
or, on GitHub, from the repository's secrets.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError
from benchmarks.runs.runfolder import write_atomically
from benchmarks.secret_rules import why_secret
from launch.campaigns.nights.posting import VARIABLE
from launch.command_line.places import stepmark_home

KINDS = ("cron", "scrontab", "systemd", "github")
# What a launcher is told by its environment; PATH, as sbatch and srun may lie anywhere.
CARRIED = (
    "PATH", "STEPMARK_HOME", "STEPMARK_CONFIGS", "XDG_CACHE_HOME", "PYTHONPATH", "SLURM_CONF", "PIP_FIND_LINKS",
    "TZ", "LANG",
)  # fmt: skip
LAUNCHER = Path(__file__).resolve().parents[3] / "nightly.py"


class Timetable(NamedTuple):
    """A suite, once a night."""

    suite: str
    hour: int
    minute: int
    words: list[str]  # flags of launch/nightly.py, absolute
    output_dir: Path
    kind: str

    @property
    def script(self) -> Path:
        return stepmark_home() / "nights" / f"{self.suite}.{self.kind}.sh"

    @property
    def log(self) -> Path:
        return self.output_dir / "nights" / self.suite / "launcher.log"

    @property
    def at(self) -> str:
        return f"{self.hour:02d}:{self.minute:02d}"


class Change(NamedTuple):
    """One thing that an installation makes or removes."""

    place: str
    old: str | None  # None: it was not there
    new: str | None  # None: it is removed
    apply: Callable[[], None]

    @property
    def needed(self) -> bool:
        return self.old != self.new


def time_of(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,2}):(\d\d)", text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise RequestError(
            f"--at={text}: HH:MM is expected", where="--at", next_command="--at=02:30, of this machine's clock"
        )
    return int(match[1]), int(match[2])


# --- the script that all of them start --------------------------------------------------------------


def script_text(table: Timetable, environment: Mapping[str, str] = os.environ) -> str:
    exports = [
        f"export {name}={shlex.quote(_plain(name, environment[name]))}"
        for name in CARRIED
        if environment.get(name) and not why_secret(environment[name])
    ]
    command = [sys.executable, str(LAUNCHER), *table.words]
    folder = shlex.quote(str(table.log.parent))
    return "\n".join(
        [
            "#!/bin/sh",
            f"# One night of Stepmark's suite {table.suite}. Written by launch/nightly.py --install; do not edit.",
            *exports,
            f"mkdir -p {folder} && cd {folder} || exit 1",
            f"exec {shlex.join(command)} >>{shlex.quote(str(table.log))} 2>&1",
            "",
        ]
    )


def not_carried(kind: str, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """What this shell has, and the nights will not: secrets."""
    found = [
        f"${name} is not carried, its value holds a login or a token: nights run without it"
        for name in CARRIED
        if kind != "github" and why_secret(environment.get(name, ""))
    ]
    if environment.get(VARIABLE) and not any(word.startswith("--webhook_file=") for word in words):
        instead = f"the repository's secret {VARIABLE}" if kind == "github" else "--webhook_file=FILE"
        found.append(f"${VARIABLE} is not carried, it is a secret; to have the nights posted: {instead}")
    return found


def _plain(name: str, value: str) -> str:
    if "\n" in value:
        raise RequestError(f"${name} has a line break in it, which no timetable can hold", where=f"${name}")
    return value


def script_change(table: Timetable, *, install: bool) -> Change:
    return file_change(table.script, script_text(table) if install else None, mode=0o755)


def file_change(path: Path, text: str | None, mode: int = 0o644) -> Change:
    old = path.read_text(encoding="utf-8") if path.exists() else None

    def apply() -> None:
        if text is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        path.chmod(mode)

    return Change(str(path), old, text, apply)


# --- lines in a table of a user's ---------------------------------------------------------------------


def with_block(table: str, suite: str, lines: Sequence[str]) -> str:
    """A user's table with the block of a suite made, replaced, or (no lines) removed; the rest is left as it is."""
    begin, end = f"# stepmark nightly {suite}: begin", f"# stepmark nightly {suite}: end"
    kept: list[str] = []
    inside = False
    place = None
    for line in table.splitlines():
        if line.strip() == begin:
            inside, place = True, len(kept) if place is None else place
        if not inside:
            kept.append(line)
        if line.strip() == end:
            inside = False
    if inside:
        raise RequestError(
            f"the table has '{begin}' and no '{end}' after it",
            why="somebody has edited it, and what belongs to the suite cannot be told",
            next_command="mend it by hand (crontab -e, scrontab -e)",
        )
    block = [begin, *lines, end] if lines else []
    place = len(kept) if place is None else place
    made = [*kept[:place], *block, *kept[place:]]
    return "\n".join(made) + "\n" if made else ""


# --- all of them --------------------------------------------------------------------------------------


def changes(kind: str, table: Timetable, *, install: bool) -> list[Change]:
    if kind == "github":
        from launch.campaigns.nights import github

        return [github.change(table, install=install)]
    from launch.campaigns.nights import systemd, tables

    script = script_change(table, install=install)
    entry = (
        systemd.changes(table, install=install)
        if kind == "systemd"
        else [tables.change(kind, table, install=install)]
    )
    return [script, *entry] if install else [*entry, script]


def carry_out(kind: str, table: Timetable, *, install: bool, print_only: bool) -> str:
    """What was done, for people."""
    found = changes(kind, table, install=install)
    lines = [_done(change, print_only=print_only) for change in found]
    if not print_only:
        for change in found:
            if change.needed:
                change.apply()
        if kind == "systemd":
            from launch.campaigns.nights import systemd

            if any(change.needed for change in found):
                lines += systemd.reload(table, install=install)
    if install:
        lines += [f"every night at {table.at}{' UTC' if kind == 'github' else ''}: suite {table.suite}"]
        lines += [] if kind == "github" else [f"what it says:  {table.log}"]
        lines += not_carried(kind, table.words)
        lines += [f"to remove it:  python launch/nightly.py --suite={table.suite} --uninstall={kind}"]
    return "\n".join(lines)


def _done(change: Change, *, print_only: bool) -> str:
    if change.new is None:
        what = "was not there" if change.old is None else "would be removed" if print_only else "removed"
    elif not change.needed:
        what = "is as it should be"
    elif print_only:
        what = "would be" + (" made" if change.old is None else " changed")
    else:
        what = "made" if change.old is None else "changed"
    text = f"\n{change.new.rstrip()}\n" if change.new and (change.needed or print_only) else ""
    return f"{change.place}: {what}{text}"
