"""The first phase of a cluster's job, `check`: the phase itself from the one that trains, and the one reason it ends
with from what it printed; the reason of `unpack` too, which follows where the job has a container. Pure.

A check says itself what is wrong, in its last line. Where it could not even start (no Python in the image, an image
of another architecture), the symptoms of the doctor say what the shell, Slurm or pyxis printed.
"""

import re
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from benchmarks.secret_rules import hidden_in_reason
from benchmarks.values import Phase

if TYPE_CHECKING:
    from benchmarks.doctor.symptoms import Symptoms

CHECK = "check"
UNPACK = "unpack"  # makes the container on all other nodes
BEFORE_THE_RUN = (CHECK, UNPACK)
SAID = "stepmark check: "
OK = "ok"

PROGRAM = "{repository}/launch/slurm/first_check.sh"


def check_phase(
    trains: Phase, command: Sequence[str], environment: Mapping[str, str] | None = None, programs: Sequence[str] = ()
) -> Phase:
    """One task on one node that sees all GPUs which a phase has there, with the phase's mounts and variables."""
    needed = sorted({*trains.programs, *programs})
    return msgspec.structs.replace(
        trains,
        name=CHECK,
        command=["bash", PROGRAM, *needed, "--", *command],
        environment=dict(trains.environment if environment is None else environment),
        nodes=1,
        tasks_per_node=1,
        devices_per_task=trains.tasks_per_node * trains.devices_per_task,
        writes_steps=False,
        programs=[],  # it asks for them itself, inside the container
    )


def with_option(command: Sequence[str]) -> list[str]:
    """A worker's command line with --check among its own options, which end at `--`."""
    at = command.index("--") if "--" in command else len(command)
    return [*command[:at], "--check", *command[at:]]


# --- what it ended with -------------------------------------------------------------------------

_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Exit)\b.*")
_FAILED_ON = re.compile(r"^srun: error: ([\w.,\[\]-]+): tasks? ")
LONGEST = 300
CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV)


def reason(log: str, printed: str, exit_code: int | None, host: str | None, symptoms: "Symptoms") -> str:
    """Why the check failed: what, why, and what to do next, in one line. `log` is its own; `printed` has that of the
    job script before it, where Slurm and pyxis say why a task could not be started.
    """
    where = f" on {host}" if host else ""
    found = _said(log) or _crash(log, exit_code) or _known(printed, symptoms) or _last_words(log) or _end(exit_code)
    return f"the check{where} found: {hidden_in_reason(found)}"


def unpack_reason(printed: str, exit_code: int | None) -> str:
    """Why the container could not be made on every node, in one line, from all that was printed meanwhile."""
    lines = _lines(printed)
    told = next((line for words in ("[ERROR] ", "error: pyxis: ") for line in lines if words in line), None)
    failed = next(filter(None, map(_FAILED_ON.search, lines)), None)
    found = told or _last_words(printed) or f"it ended with exit code {exit_code} and printed nothing"
    return hidden_in_reason(
        f"the container could not be unpacked{f' on {failed[1]}' if failed else ''}: {found[:LONGEST]}; "
        "next: python launch/doctor.py RUN explains it; --exclude=NODE leaves out a node that fails alone"
    )


def _said(log: str) -> str | None:
    said = [line.removeprefix(SAID) for line in _lines(log) if line.startswith(SAID)]
    return said[-1] if said and not is_ok(said[-1]) else None


def is_ok(said: str) -> bool:
    return said == OK or said.startswith(f"{OK} ")


def _crash(log: str, exit_code: int | None) -> str | None:
    """It had begun: what it printed of modules and programs before is not why."""
    number = -exit_code if exit_code is not None and exit_code < 0 else (exit_code or 0) - 128
    name = next((one.name for one in CRASHES if one == number), None)
    return f"it crashed ({name}); its last words: {_last_words(log)}" if name and _lines(log) else None


def _known(printed: str, symptoms: "Symptoms") -> str | None:
    from benchmarks.doctor.order import first_cause

    found = first_cause(printed.encode(), symptoms)
    if found is None or found.kind not in ("cause", "consequence"):
        return None
    return f"{found.title}; it printed: {found.first.text}; next: {found.do[0]}"


def _last_words(log: str) -> str | None:
    """The last line that names an exception; else the last one."""
    lines = _lines(log)
    telling = next((line for line in reversed(lines) if _EXCEPTION.match(line)), lines[-1] if lines else None)
    return telling[:LONGEST] if telling else None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _end(exit_code: int | None) -> str:
    return f"it ended with exit code {exit_code} and printed nothing; next: read slurm-*.out in the run's folder"
