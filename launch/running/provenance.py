"""Where a result comes from: versions, lock file, git state, machine, final environment. Secrets never reach it."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.secret_rules import REDACTED, hidden, is_secret_name
from benchmarks.values import Plan
from benchmarks.version import VERSION
from launch.machine import processes, this_machine

LAUNCHER_PACKAGES = ("absl-py", "msgspec", "numpy", "PyYAML", "rich", "scipy", "tensorboard")


def collect(
    plan: Plan,
    environment: dict[str, str | None],
    command: list[str],
    notes: list[str],
    places: dict[str, processes.Places],
) -> dict[str, Any]:
    """Return everything that is known before a run starts; `places` fills in the paths of each phase."""
    versions = {}
    for package in LAUNCHER_PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "stepmark": VERSION,
        "command": [hidden(word) for word in command],
        "git": git_state(processes.REPOSITORY),
        "launcher": {"python": platform.python_version(), **versions},
        "environment": environment,
        "machine": this_machine.facts(),
        "phases": {
            phase.name: {
                "argv": [processes.fill(word, places[phase.name]) for word in phase.command],
                "environment": redacted(
                    {name: processes.fill(value, places[phase.name]) for name, value in phase.environment.items()}
                ),
                "xla_flags": phase.environment.get("XLA_FLAGS", "").split(),
            }
            for phase in plan.phases
        },
        "shell": redacted({k: v for k, v in os.environ.items() if k.startswith(processes.PREFIXES_THAT_MATTER)}),
        "notes": notes,
    }


def ignored_variables() -> list[str]:
    """Return a note on what the user's shell holds and the run does not get, so that nobody believes it counted."""
    names = sorted(name for name in os.environ if not processes.is_inherited(name))
    return [f"not taken from the shell: {', '.join(names)}"] if names else []


def redacted(variables: dict[str, str]) -> dict[str, str]:
    return {name: REDACTED if is_secret_name(name) else hidden(value) for name, value in sorted(variables.items())}


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit and whether it was changed; None outside a checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed_files": len(changed.splitlines()) if changed is not None else None}


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def command_line() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]]
