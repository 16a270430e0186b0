"""Asks the compiler of an environment on this machine whether it knows some flags, before anything is started.

The backend says which program asks it (FlagsCheck); here it is run, and its answer is a refusal for a run, or a
table for `launch/doctor.py flags`. A program that breaks says nothing of the flags: a note, and no refusal.
What it answers for a run is kept, so that the next one, or a dry run, need not wait for it; doctor asks anew.
"""

import contextlib
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.backend import Backend, CompilerFlags, EnvironmentSpec, FlagFact, FlagsCheck, backends
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError, RunError
from benchmarks.rendering.columns import aligned
from benchmarks.values import Benchmark, Value, json_text
from launch.command_line.places import stepmark_home
from launch.environments import venvs
from launch.running import runtimes

SECONDS = 180  # a compiler answers within two; the first import from a shared disk takes longer
KNOWN = "known"
FLAG = re.compile(r"--[A-Za-z0-9_]+(?:=\S*)?")


class Answer(Value, frozen=True):
    """What the program said: a line for each flag that is refused, or why nobody knows."""

    refused: dict[str, str]  # flag as given -> why
    said: str = ""  # its last line, which names the compiler
    broken: str = ""


class CheckedFlag(Value, frozen=True):
    """What the table and the installed compiler say of one flag."""

    flag: str
    table: str
    installed: str | None  # known, or why it is refused; None: there is no compiler here, or it gave no answer
    text: str
    successor: str

    @property
    def refused(self) -> bool:
        return self.installed != KNOWN if self.installed is not None else self.table == "unknown"


class CheckedFlags(Value, frozen=True):
    """All flags, held against the compiler of one environment."""

    environment: str
    python: str | None
    said: str
    flags: list[CheckedFlag]


# --- the question -----------------------------------------------------------------------------


def ask(check: FlagsCheck, python: Path) -> Answer:
    """Run the check's program with a Python that exists here; equal questions are asked once a process."""
    from launch.running.local import fill, places

    where = places(python, Path.cwd())
    command = _command(check, python)
    variables = tuple((name, fill(value, where)) for name, value in sorted(check.environment.items()))
    return _ask(command, variables, tuple(fact.flag for fact in check.facts))


def _command(check: FlagsCheck, python: Path) -> tuple[str, ...]:
    from launch.running.local import fill, places

    where = places(python, Path.cwd())
    return tuple(fill(word, where) for word in check.command)


def answer_kept(check: FlagsCheck, spec: EnvironmentSpec, python: Path) -> Answer:
    """The answer that the same program of the same environment gave before, else a new one, which is kept."""
    from benchmarks.runs.runfolder import write_atomically

    path = None
    with contextlib.suppress(OSError, RequestError):
        path = stepmark_home() / "flags-checked" / f"{_digest(_command(check, python), spec)}.json"
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(path.read_bytes(), type=Answer)
    answer = ask(check, python)
    if path and not answer.broken:
        with contextlib.suppress(OSError, RunError):  # a disk that is full or not ours: asked again the next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json_text(answer).encode())
    return answer


def _digest(command: Iterable[str], spec: EnvironmentSpec) -> str:
    """Of all that the answer rests on: the lock files, the Python, the flags, and the program itself."""
    import hashlib

    programs = [Path(word) for word in command if word.endswith(".py")]
    files = [path.read_bytes() for path in (*(lock.path for lock in spec.locks), *programs)]
    return hashlib.sha256(b"\0".join([*files, *(word.encode() for word in command)])).hexdigest()[:32]


@cache
def _ask(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], flags: tuple[str, ...]) -> Answer:
    import subprocess

    from launch.running.local import inherited_environment

    try:
        done = subprocess.run(
            command,
            env={**inherited_environment(), **dict(variables)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(refused={}, broken=f"no answer within {SECONDS} s")
    except OSError as error:
        return Answer(refused={}, broken=f"{command[0]}: {error.strerror or error}")
    lines = done.stdout.decode(errors="replace").splitlines()
    last = lines[-1] if lines else ""
    refused = {
        flag: line.removeprefix(f"{flag}: ") for line in lines for flag in flags if line.startswith(f"{flag}: ")
    }
    if done.returncode == EXIT_VALID:
        return Answer(refused={}, said=last)
    if done.returncode == EXIT_REFUSED and refused:
        return Answer(refused=refused, said=last)
    errors = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return Answer(refused={}, broken=last or (errors[-1] if errors else f"exit code {done.returncode}"))


# --- before a run -------------------------------------------------------------------------------


def refuse_unknown_flags(benchmark: Benchmark, backend: Backend, *, dry_run: bool = False) -> None:
    """Refuse flags that the compiler which is to run does not know; where it is not here, say who decides.

    A dry run needs no environment, and says nothing where there is none.
    """
    own = _words(f"--{name}={value}" for name, value in benchmark.xla_flags.items())
    flags = [*own, *(word for word in _of_the_phases(benchmark, backend) if word not in own)]
    if not flags or not isinstance(backend, CompilerFlags):
        return
    check = backend.flags_check(flags)
    spec, python = _compiler_here(benchmark, backend)
    in_image = benchmark.site.runtime == "container"
    # The packages of a Python that the site names may change under the same path: it is asked each time.
    kept = benchmark.site.runtime != "python"
    answer = None if python is None else answer_kept(check, spec, python) if kept else ask(check, python)
    if answer and answer.refused and not in_image:
        raise _refusal(answer, check.facts, spec, own, f"--pgle={benchmark.pgle}")
    for note in _notes(answer, spec, in_image=in_image, dry_run=dry_run):
        _note(note)


def _compiler_here(benchmark: Benchmark, backend: Backend) -> tuple[EnvironmentSpec, Path | None]:
    """The environment for the run's devices where it is made; else a CPU's, whose compiler has the same version."""
    specs = [backend.environment(benchmark.engine, platform) for platform in (benchmark.hardware.platform, "cpu")]
    found = [(spec, runtimes.python_here(benchmark, spec)) for spec in specs]
    return next((one for one in found if one[1]), found[0])


def _words(flags: Iterable[str]) -> list[str]:
    """As XLA splits them: a value with a blank is more than one."""
    return list(dict.fromkeys(word for flag in flags for word in flag.split()))


def _of_the_phases(benchmark: Benchmark, backend: Backend) -> list[str]:
    """What the phases have beside the benchmark's flags, which --pgle brings.

    Stepmark's own alone need no question, and a placeholder cannot be asked about before the run has its folder.
    """
    if not benchmark.xla_flags and benchmark.pgle == "off":
        return []
    texts = [phase.environment.get("XLA_FLAGS", "") for phase in backend.plan(benchmark).phases]
    return [word for word in _words(texts) if "{" not in word]


def _notes(answer: Answer | None, spec: EnvironmentSpec, *, in_image: bool, dry_run: bool) -> list[str]:
    if in_image and answer and answer.refused:
        here = f"in environment '{spec.name}' of this machine; the image decides"
        return [f"{flag}: {why}, {here}" for flag, why in answer.refused.items()]
    if in_image:
        up_to_it = "whether the XLA flags are known is up to the image: its XLA is asked when the run starts"
        return [] if dry_run else [up_to_it]
    if answer is None:
        alone = f"the XLA flags were held against the table alone: environment '{spec.name}' is not made yet"
        return [] if dry_run else [alone]
    return [f"the XLA flags were not checked: {answer.broken}"] if answer.broken else []


def _refusal(
    answer: Answer, facts: list[FlagFact], spec: EnvironmentSpec, own: list[str], others: str
) -> RequestError:
    """`own` are the benchmark's flags; `others` is the option that has brought the rest."""
    successors = {fact.flag: fact.successor for fact in facts}
    settable = [flag for flag in answer.refused if flag in own]
    instead = " ".join(successors[flag] for flag in settable if successors[flag])
    leave_out = [flag.partition("=")[0] for flag in settable if not successors[flag]]
    words = [instead.replace("--", "--set=")] if instead else []
    words += [f"leave out {', '.join(leave_out)}, or correct the value"] if leave_out else []
    words += [f"leave out {others}"] if len(settable) < len(answer.refused) else []
    names = ", ".join(flag.removeprefix("--").partition("=")[0] for flag in answer.refused)
    where = [flag.replace("--", "--set=", 1) if flag in own else others for flag in answer.refused]
    return RequestError(
        f"environment '{spec.name}' refuses XLA flags of this run: {names}",
        where=" ".join(dict.fromkeys(where)),
        why="; ".join(f"{flag}: {why}" for flag, why in answer.refused.items()),
        next_command=" and ".join(words),
    )


@cache
def _note(text: str) -> None:
    """Once, however many runs a command starts."""
    print(f"note: {text}", file=sys.stderr, flush=True)


# --- alone: doctor.py flags --------------------------------------------------------------------


def report(text: str, as_json: bool) -> tuple[str, int]:
    """Each flag of a whole XLA_FLAGS, held against every compiler that is here; the text and the exit code."""
    checked = check_everywhere(parse_flags(text))
    refused = any(flag.refused for place in checked for flag in place.flags)
    code = EXIT_REFUSED if refused else EXIT_VALID
    return (json_text(checked).rstrip() if as_json else "\n".join(_table(checked))), code


def parse_flags(text: str) -> list[str]:
    """The flags of one XLA_FLAGS, which XLA splits at blanks."""
    if any(quote in text for quote in "'\"`"):
        raise _bad_text(text, "there is a quote in it", "quotes are the shell's, around the whole text")
    flags = text.split()
    if not flags:
        raise _bad_text(text, "it is empty", "")
    for flag in flags:
        if not flag.startswith("--"):
            raise _bad_text(text, f"'{flag}' does not begin with --", "XLA would take it for a file of flags")
        if not FLAG.fullmatch(flag):
            raise _bad_text(
                text, f"'{flag}' is no flag", "--name=value is expected: letters, digits and _ make a name"
            )
    return flags


def _bad_text(text: str, what: str, why: str) -> RequestError:
    return RequestError(
        f"no XLA flags: {what}",
        where=text,
        why=why,
        next_command='python launch/doctor.py flags "--xla_a=b --xla_c=d"',
    )


def check_everywhere(flags: list[str]) -> list[CheckedFlags]:
    found: dict[str, CheckedFlags] = {}
    for _, backend in sorted(backends().items()):
        if not isinstance(backend, CompilerFlags):
            continue
        check = backend.flags_check(flags)
        for engine in backend.engines:
            specs = [backend.environment(engine, platform) for platform in ("cpu", "cuda")]
            spec = next((one for one in specs if one.locks and venvs.python_of(one)), specs[0])
            if spec.name not in found:
                found[spec.name] = _checked(check, spec)
    if not found:
        raise RequestError("no backend here has XLA's flags", next_command="pip install stepmark")
    return list(found.values())


def _checked(check: FlagsCheck, spec: EnvironmentSpec) -> CheckedFlags:
    python = venvs.python_of(spec) if spec.locks else None
    if python is None:
        said = f"asked of the table alone: environment '{spec.name}' is not made yet"
        return CheckedFlags(environment=spec.name, python=None, said=said, flags=_flags(check.facts, None))
    answer = ask(check, python)
    if answer.broken:
        said = f"asked of the table alone: environment '{spec.name}' gave no answer: {answer.broken}"
        return CheckedFlags(environment=spec.name, python=str(python), said=said, flags=_flags(check.facts, None))
    return CheckedFlags(
        environment=spec.name,
        python=str(python),
        said=f"environment '{spec.name}': {answer.said}",
        flags=_flags(check.facts, answer),
    )


def _flags(facts: list[FlagFact], answer: Answer | None) -> list[CheckedFlag]:
    return [
        CheckedFlag(
            flag=fact.flag,
            table=fact.status,
            installed=None if answer is None else answer.refused.get(fact.flag, KNOWN),
            text=fact.text,
            successor=fact.successor,
        )
        for fact in facts
    ]


def _table(checked: list[CheckedFlags]) -> list[str]:
    lines = []
    for place in checked:
        lines += [place.said, *aligned([(flag.flag, _cell(flag)) for flag in place.flags])]
    return lines


def _cell(flag: CheckedFlag) -> str:
    """Whether it is known, then what for, then what to use instead."""
    verdict = flag.installed or flag.table
    instead = _instead(flag) if flag.refused else ""
    return "\n".join(line for line in (verdict, flag.text, instead) if line)


def _instead(flag: CheckedFlag) -> str:
    if flag.successor:
        return f"instead: {flag.successor}"
    return "instead: leave it out" if flag.table == "unknown" else "instead: leave it out, or correct it"
