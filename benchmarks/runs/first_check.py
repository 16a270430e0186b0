"""Define `check`, the first phase of a cluster's job, and explain failures of `check` and `unpack`. No I/O.

The last line that a check prints contains its result. If a check could not start (no Python in the image, an image
for another architecture), the doctor's symptoms find the reason in the output of the shell, Slurm or pyxis.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from benchmarks.secret_rules import hidden_in_reason
from benchmarks.values import Phase

if TYPE_CHECKING:
    from benchmarks.doctor.symptoms import Symptoms

CHECK = "check"
UNPACK = "unpack"  # the phase that creates the container on the other nodes
BEFORE_THE_RUN = (CHECK, UNPACK)
RESULT_PREFIX = "stepmark check: "
OK = "ok"

PROGRAM = "{repository}/launch/slurm/first_check.sh"


def check_phase(
    trains: Phase, command: Sequence[str], environment: Mapping[str, str] | None = None, programs: Sequence[str] = ()
) -> Phase:
    """Return a phase that runs one task on one node, with the GPUs, mounts and variables of the training phase."""
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
        programs=[],  # the check itself looks for these programs, inside the container
    )


def with_option(command: Sequence[str]) -> list[str]:
    """Return a worker's command line with --check inserted before `--`, where the worker's own options end."""
    at = command.index("--") if "--" in command else len(command)
    return [*command[:at], "--check", *command[at:]]


# --- the reason for a failure -------------------------------------------------------------------

_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Exit)\b.*")
_FAILED_ON = re.compile(r"^srun: error: ([\w.,\[\]-]+): tasks? ", re.MULTILINE)
LONGEST = 300
WHAT = {CHECK: "the check", UNPACK: "unpacking the container"}


def reason(phase: str, log: str, output: str, exit_code: int, symptoms: "Symptoms") -> str:
    """Return in one line why the phase failed: what, why, and what to do next.

    `log` is the log of the phase. In `output`, the job's output, Slurm and pyxis report tasks that did not start.
    """
    own = _lines(log)
    results = [line.removeprefix(RESULT_PREFIX) for line in own if line.startswith(RESULT_PREFIX)]
    if results and not is_ok(results[-1]):
        found = results[-1]
    elif own and not 0 <= exit_code < 128:  # after a crash, earlier messages are not the reason
        found = f"it crashed (exit code {exit_code}); its last output: {_last_words(own)}"
    else:
        found = _known(f"{output}\n{log}", symptoms) or _last_words(own or _lines(output))
    failed = _FAILED_ON.search(output)
    where = f" on {failed[1]}" if failed else ""
    found = found or f"it ended with exit code {exit_code} and without output; try: read slurm-*.out of the run"
    return f"{WHAT[phase]}{where} found: {hidden_in_reason(found)}"


def is_ok(results: str) -> bool:
    return results == OK or results.startswith(f"{OK} ")


def _known(printed: str, symptoms: "Symptoms") -> str | None:
    from benchmarks.doctor.order import first_cause

    found = first_cause(printed.encode(), symptoms)
    if found is None or found.kind not in ("cause", "consequence"):
        return None
    return f"{found.title}; it printed: {found.first.text}; try: {found.do[0]}"


def _last_words(lines: Sequence[str]) -> str:
    """Return the last line that names an exception; without such a line, the last line."""
    last = lines[-1] if lines else ""
    return next((line for line in reversed(lines) if _EXCEPTION.match(line)), last)[:LONGEST]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
