"""Asks the compiler of an environment on this machine whether it knows some flags, before anything is started.

The backend says which program asks it (FlagsCheck); here it is run, and its answer is a refusal for a run, or a
table for `launch/doctor.py flags`. A program that breaks says nothing of the flags: a note, and no refusal.
What it answers for a run is kept, so that the next run, or a dry run, need not wait for it; doctor asks anew.
"""

import contextlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.backend import Backend, CompilerFlags, EnvironmentSpec, FlagsCheck, backends
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError, RunError
from benchmarks.files import read_json
from benchmarks.text import aligned
from benchmarks.values import Benchmark, Value
from launch.environments import venvs
from launch.environments.selection import runtime_of
from launch.terminal.places import stepmark_home
from launch.terminal.progress import note

SECONDS = 180  # a compiler answers within two; the first import from a shared disk takes longer
KNOWN = "known"
EXAMPLE = 'python launch/doctor.py flags "--xla_gpu_graph_level=0 --xla_gpu_enable_command_buffer="'
FLAG = re.compile(r"--[A-Za-z0-9_]+(?:=[^\s'\"`]*)?")


class Answer(NamedTuple):
    """What the program said."""

    refused: dict[str, str]  # flag as given -> why
    said: str = ""  # its last line, which names the compiler
    broken: str = ""  # why nobody knows


# --- the question -----------------------------------------------------------------------------


def ask(check: FlagsCheck, python: Path) -> Answer:
    """Run the check's program with a Python that exists here; equal questions are asked once a process."""
    from launch.machine.processes import fill, places

    where = places(python, Path.cwd())
    command = _command(check, python)
    variables = tuple((name, fill(value, where)) for name, value in sorted(check.environment.items()))
    return ask_once(command, variables, tuple(fact.flag for fact in check.facts))


def answer_kept(check: FlagsCheck, spec: EnvironmentSpec, python: Path) -> Answer:
    """The answer that the same program of the same environment gave before, else a new one, which is kept."""
    from hashlib import sha256

    from benchmarks.runs.runfolder import write_atomically

    command = _command(check, python)
    files = [*(lock.path for lock in spec.locks), *(Path(word) for word in command if word.endswith(".py"))]
    rests_on = [*(path.read_bytes() for path in files), *(word.encode() for word in command)]
    path = None
    with contextlib.suppress(OSError, RequestError):
        path = stepmark_home() / "flags-checked" / f"{sha256(bytes(1).join(rests_on)).hexdigest()[:32]}.json"
        with contextlib.suppress(ValueError):
            return read_json(path, Answer)
    answer = ask(check, python)
    if path and not answer.broken:
        with contextlib.suppress(OSError, RunError):  # a disk that is full or not ours: asked again the next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.encode(answer))
    return answer


def _command(check: FlagsCheck, python: Path) -> tuple[str, ...]:
    from launch.machine.processes import fill, places

    where = places(python, Path.cwd())
    return tuple(fill(word, where) for word in check.command)


@cache
def ask_once(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], flags: tuple[str, ...]) -> Answer:
    import subprocess

    from launch.machine import processes

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
    if done.returncode == EXIT_VALID:
        return Answer({}, said=last)
    if done.returncode == EXIT_REFUSED and refused:
        return Answer(refused, said=last)
    return Answer({}, broken=last or "".join(done.stderr.splitlines()[-1:]) or f"exit code {done.returncode}")


# --- before a run -------------------------------------------------------------------------------


def refuse_unknown_flags(benchmark: Benchmark, backend: Backend, *, dry_run: bool = False) -> None:
    """Refuse flags that the compiler which is to run does not know; where it is not here, say who decides.

    A dry run needs no environment, and says nothing where there is none.
    """
    own = _words(f"--{name}={value}" for name, value in benchmark.settings.xla_flags.items())
    of_phases = _words(phase.environment.get("XLA_FLAGS", "") for phase in backend.plan(benchmark).phases)
    # A placeholder cannot be asked about before the run has its folder.
    flags = [*own, *(word for word in of_phases if word not in own and "{" not in word)]
    if not flags or not isinstance(backend, CompilerFlags):
        return
    check = backend.flags_check(flags)
    # The environment for the run's devices, if it is made; otherwise a CPU's, whose compiler has the same version.
    runtimes = [runtime_of(benchmark, backend, platform) for platform in (benchmark.hardware.platform, "cpu")]
    found = [(one.spec, one.installed_python()) for one in runtimes]
    spec, python = next((one for one in found if one[1]), found[0])
    # The packages of a Python that the site names may change under the same path: it is asked each time.
    kept = benchmark.site.runtime != "python"
    answer = None if python is None else answer_kept(check, spec, python) if kept else ask(check, python)
    if benchmark.site.runtime == "container":
        said = "" if dry_run else "whether the XLA flags are known is up to the image"
        if answer and answer.refused:
            here = f"environment '{spec.name}' of this machine refuses {', '.join(answer.refused)}"
            said = f"{here}; the image decides"
    elif answer is None:
        said = "" if dry_run else f"the XLA flags were not checked: environment '{spec.name}' is not made yet"
    elif answer.refused:
        raise _refusal(answer, spec, own, f"--pgle={benchmark.instruments.pgle}")
    else:
        said = f"the XLA flags were not checked: {answer.broken}" if answer.broken else ""
    if said:
        note(said)


def _words(flags: Iterable[str]) -> list[str]:
    """As XLA splits them: a value with a blank is more than one."""
    return list(dict.fromkeys(word for flag in flags for word in flag.split()))


def _refusal(answer: Answer, spec: EnvironmentSpec, own: list[str], others: str) -> RequestError:
    """`own` are the benchmark's flags; `others` is the option that has brought the rest."""
    names = ", ".join(flag.removeprefix("--").partition("=")[0] for flag in answer.refused)
    where = [flag.replace("--", "--set=", 1) if flag in own else others for flag in answer.refused]
    return RequestError(
        f"environment '{spec.name}' refuses XLA flags of this run: {names}",
        where=" ".join(dict.fromkeys(where)),
        why="; ".join(f"{flag}: {why}" for flag, why in answer.refused.items()),
        next_command=f'python launch/doctor.py flags "{" ".join(answer.refused)}"',
    )


# --- alone: doctor.py flags --------------------------------------------------------------------


class CheckedFlag(Value, frozen=True):
    flag: str
    table: str  # its FlagFact's status
    installed: str | None  # known, or why not; None: the compiler gave no answer
    text: str
    successor: str

    @property
    def is_refused(self) -> bool:
        return self.installed != KNOWN if self.installed else self.table == "unknown"


class CheckedFlags(Value, frozen=True):
    """All flags, held against the compiler of one environment."""

    environment: str
    python: str | None
    said: str
    flags: list[CheckedFlag]


def report(text: str) -> tuple[list[CheckedFlags], str, int]:
    """Each flag of a whole XLA_FLAGS against every compiler that is here; as data and text, and the exit code."""
    flags = text.split()
    if not flags:
        raise RequestError("which flags?", next_command=EXAMPLE)
    wrong = next((word for word in flags if not FLAG.fullmatch(word)), None)
    if wrong is not None:
        raise RequestError(
            f"'{wrong}' is no XLA flag",
            where=text,
            why="--name=value is expected, without quotes, the flags separated by blanks",
            next_command=EXAMPLE,
        )
    places: dict[str, CheckedFlags] = {}
    for _, backend in sorted(backends().items()):
        if not isinstance(backend, CompilerFlags):
            continue
        check = backend.flags_check(flags)
        for engine in backend.engines:
            specs = [backend.environment(engine, platform) for platform in ("cpu", "cuda")]
            spec = next((one for one in specs if one.locks and venvs.python_of(one)), specs[0])
            places.setdefault(spec.name, _checked(check, spec))
    rows = [row for place in places.values() for row in place.flags]
    code = EXIT_REFUSED if any(row.is_refused for row in rows) else EXIT_VALID
    lines = []
    for place in places.values():
        lines += [place.said, *aligned([(row.flag, _cell(row)) for row in place.flags])]
    return list(places.values()), "\n".join(lines), code


def _checked(check: FlagsCheck, spec: EnvironmentSpec) -> CheckedFlags:
    python = venvs.python_of(spec) if spec.locks else None
    answer = Answer({}, broken="is not made yet") if python is None else ask(check, python)
    said = f"environment '{spec.name}': {answer.said}"
    if answer.broken:
        said = f"from the table alone: environment '{spec.name}': {answer.broken}"
    return CheckedFlags(
        environment=spec.name,
        python=None if python is None else str(python),
        said=said,
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
    """Whether it is known, then what for, then what to use instead."""
    instead = f"instead: {row.successor or 'leave it out, or correct it'}" if row.is_refused else ""
    return "\n".join(line for line in (row.installed or row.table, row.text, instead) if line)
