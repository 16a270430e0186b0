"""A timer of systemd's user manager, and the service that it starts."""

import os
import shutil
import subprocess
from pathlib import Path

from launch.campaigns.nights.installing import Change, Timetable, file_change


def changes(table: Timetable, *, install: bool) -> list[Change]:
    return [
        file_change(_units() / f"{_name(table)}.service", _service(table) if install else None),
        file_change(_units() / f"{_name(table)}.timer", _timer(table) if install else None),
    ]


def _name(table: Timetable) -> str:
    return f"stepmark-nightly-{table.suite}"


def _units() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _service(table: Timetable) -> str:
    return f"""[Unit]
Description=A night of Stepmark's suite {table.suite}

[Service]
Type=oneshot
ExecStart=/bin/sh {_word(str(table.script))}
"""


def _timer(table: Timetable) -> str:
    return f"""[Unit]
Description=Stepmark's suite {table.suite}, every night

[Timer]
OnCalendar=*-*-* {table.at}:00
Persistent=true

[Install]
WantedBy=timers.target
"""


def _word(text: str) -> str:
    """One argument in a unit file: quoted, with what systemd would expand doubled."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def reload(table: Timetable, *, install: bool) -> list[str]:
    """Tell the user manager; where there is none, what to type where there is."""
    timer = f"{_name(table)}.timer"
    steps = [["daemon-reload"]]
    if install:
        steps += [["enable", timer], ["restart", timer]]
    else:
        steps = [["disable", "--now", timer], *steps]
    commands = [["systemctl", "--user", *step] for step in steps]
    for command in commands:
        problem = _problem(command)
        if problem and install:
            typed = " && ".join(" ".join(one) for one in commands)
            return [f"the units are there, but systemd was not told ({problem}); to start the timer:  {typed}"]
    lingering = "without lingering it runs while you are logged in:  loginctl enable-linger"
    return [f"{timer} is {'started' if install else 'stopped'}", *([lingering] if install else [])]


def _problem(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return f"there is no {command[0]}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stderr.strip().splitlines()[0] if done.returncode and done.stderr.strip() else ""
