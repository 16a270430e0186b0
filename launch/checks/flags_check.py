"""Ask the compiler of an environment on this machine whether it knows XLA flags, before a run starts.

The backend names the check program (FlagsCheck). This module runs the program and refuses a run with an unknown flag.
If the program itself fails, the run starts with a note. `launch/doctor.py flags` prints the same results as a table.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import Backend, CompilerFlags, EnvironmentSpec, FlagsCheck, backends
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError
from benchmarks.text import aligned
from benchmarks.values import Benchmark, Value
from launch.environments import venvs
from launch.environments.selection import runtime_of
from launch.machine import processes
from launch.terminal.progress import note

SECONDS = 180  # a compiler needs about 2 s, but the first import from a shared disk takes longer
KNOWN = "known"
EXAMPLE = 'python launch/doctor.py flags "--xla_gpu_graph_level=0 --xla_gpu_enable_command_buffer="'
FLAG = re.compile(r"--[A-Za-z0-9_]+=[^\s'\"`]*")


class Answer(NamedTuple):
    """The result of the check program."""

    refused: dict[str, str]  # the flag with its value -> why the compiler refuses it
    summary: str = ""  # the last line of the output, which names the compiler
    broken: str = ""  # why the program could not check the flags


def ask(check: FlagsCheck, python: Path) -> Answer:
    """Run the check's program with a Python of this machine, and cache its answer."""
    where = processes.places(python, Path.cwd())
    command = tuple(processes.fill(word, where) for word in check.command)
    return ask_once(command, tuple(check.environment.items()), tuple(fact.flag for fact in check.facts))


@cache
def ask_once(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], flags: tuple[str, ...]) -> Answer:
    try:
        done = processes.ask(command, SECONDS, {**processes.inherited_environment(), **dict(variables)})
    except subprocess.TimeoutExpired:
        return Answer({}, broken=f"no answer within {SECONDS} s")
    except OSError as error:
        return Answer({}, broken=f"{command[0]}: {error.strerror or error}")
    lines = done.stdout.splitlines()
    last = lines[-1] if lines else ""
    refused = {
        flag: line.removeprefix(f"{flag}: ") for line in lines for flag in flags if line.startswith(f"{flag}: ")
    }
    if done.returncode == EXIT_VALID or (done.returncode == EXIT_REFUSED and refused):
        return Answer(refused, summary=last)
    return Answer({}, broken=last or "".join(done.stderr.splitlines()[-1:]) or f"exit code {done.returncode}")


# --- before a run -------------------------------------------------------------------------------


def refuse_unknown_flags(benchmark: Benchmark, backend: Backend, compiler: EnvironmentSpec | None = None) -> None:
    """Refuse XLA flags that `compiler` (default: the run's) does not know. In a container, the job checks them."""
    if not isinstance(backend, CompilerFlags) or (compiler is None and benchmark.site.runtime == "container"):
        return
    own = [f"--{name}={value}" for name, value in benchmark.settings.xla_flags.items()]
    of_phases = [phase.environment.get("XLA_FLAGS", "") for phase in backend.plan(benchmark).phases]
    # XLA splits flags at spaces. Flags with a placeholder are skipped, because the run has no folder yet.
    words = dict.fromkeys(word for flag in [*own, *of_phases] for word in flag.split())
    check = backend.flags_check([word for word in words if "{" not in word])
    if compiler is not None:
        found = [(compiler, venvs.python_of(compiler))]
    else:  # if the environment for the run's devices does not exist, use the CPU's, which has the same compiler
        runtimes = [runtime_of(benchmark, backend, platform) for platform in (benchmark.hardware.platform, "cpu")]
        found = [(one.spec, one.installed_python()) for one in runtimes]
    spec, python = next((one for one in found if one[1]), found[0])
    answer = ask(check, python) if python else Answer({}, broken=f"environment '{spec.name}' does not exist yet")
    if answer.broken:
        note(f"the XLA flags were not checked: {answer.broken}")
    if answer.refused:
        names = ", ".join(flag.removeprefix("--").partition("=")[0] for flag in answer.refused)
        pgle = f"--pgle={benchmark.instruments.pgle}"  # the source of the flags that the user did not set
        where = [flag.replace("--", "--set=", 1) if flag in own else pgle for flag in answer.refused]
        raise RequestError(
            f"environment '{spec.name}' refuses XLA flags of this run: {names}",
            where=" ".join(dict.fromkeys(where)),
            why="; ".join(f"{flag}: {why}" for flag, why in answer.refused.items()),
            next_command=f'python launch/doctor.py flags "{" ".join(answer.refused)}"',
        )


# --- doctor.py flags ---------------------------------------------------------------------------


class CheckedFlag(Value, frozen=True):
    flag: str
    table: str  # the status in the FlagFact
    installed: str | None  # "known", or why the compiler refuses the flag; None: the compiler gave no answer
    text: str
    successor: str

    @property
    def is_refused(self) -> bool:
        return self.installed != KNOWN if self.installed else self.table == "unknown"


class CheckedFlags(Value, frozen=True):
    """All flags, checked against the compiler of one environment."""

    environment: str
    python: str | None
    summary: str
    flags: list[CheckedFlag]


def report(text: str) -> tuple[list[CheckedFlags], str, int]:
    """Check each flag in a value of XLA_FLAGS with every installed compiler. Return data, text and exit code."""
    flags = text.split()
    if not flags or not all(map(FLAG.fullmatch, flags)):
        raise RequestError(
            f"'{text}' is not a list of XLA flags",
            why="use --name=value without quotes, separated by spaces",
            next_command=EXAMPLE,
        )
    places, lines = [], []
    for _, backend in sorted(backends().items()):
        if isinstance(backend, CompilerFlags):
            specs = [backend.environment(backend.engines[0], platform) for platform in ("cpu", "cuda")]
            spec = next((one for one in specs if venvs.python_of(one)), specs[0])
            place = _checked(backend.flags_check(flags), spec)
            places.append(place)
            lines += [place.summary, *aligned([(row.flag, _cell(row)) for row in place.flags])]
    refused = any(row.is_refused for place in places for row in place.flags)
    return places, "\n".join(lines), EXIT_REFUSED if refused else EXIT_VALID


def _checked(check: FlagsCheck, spec: EnvironmentSpec) -> CheckedFlags:
    python = venvs.python_of(spec)
    answer = Answer({}, broken="the environment does not exist yet") if python is None else ask(check, python)
    summary = f"environment '{spec.name}': {answer.summary}"
    if answer.broken:
        summary = f"Stepmark used its own table, because environment '{spec.name}' did not answer: {answer.broken}"
    return CheckedFlags(
        environment=spec.name,
        python=None if python is None else str(python),
        summary=summary,
        flags=[
            CheckedFlag(
                flag=fact.flag,
                table=fact.status,
                installed=None if answer.broken else answer.refused.get(fact.flag, KNOWN),
                text=fact.text,
                successor=fact.successor,
            )
            for fact in check.facts
        ],
    )


def _cell(row: CheckedFlag) -> str:
    """Return the text of a flag: its status, its purpose, and its replacement if it is refused."""
    instead = f"instead: {row.successor or 'remove or correct the flag'}" if row.is_refused else ""
    return "\n".join(line for line in (row.installed or row.table, row.text, instead) if line)
