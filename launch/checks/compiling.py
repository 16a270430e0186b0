"""Compiles training steps on this machine, without their hardware."""

import contextlib
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.backend import Backend, CompilesAlone, SideProgram
from benchmarks.compilation.compiled import Compiled, Job
from benchmarks.errors import RequestError, RunError, StepmarkError
from benchmarks.values import Benchmark, Value
from launch.checks.flags_check import refuse_unknown_flags
from launch.environments import venvs
from launch.machine import this_machine
from launch.running.side_program import REPORT, removed_on_interrupt, run_side_program
from launch.terminal import progress

FOLDER, REQUEST, LOG, FAILED = "compile", "request.json", "log", "failed.json"
Outcome = Compiled | StepmarkError


class Ended(Value, frozen=True):
    """The whole program's own report."""

    jobs: int


class Failed(Value, frozen=True):
    exit_code: int  # of the process that compiled; negative: the signal that ended it


def compile_steps(
    benchmarks: Mapping[str, Benchmark], backend: Backend, *, make_environment: bool = False
) -> dict[str, Outcome]:
    """The program of each benchmark by its name, or the error that takes its place."""
    if not isinstance(backend, CompilesAlone):
        raise RequestError(
            f"{backend.title} has no program that can be compiled without its hardware",
            where=f"compile --backend={backend.name}",
            why="only a compiler that takes a whole training step at once says what is in it",
            next_command="python launch/plan.py compile --backend=jax --model=llama2_70b --hardware=h100, say",
        )
    jobs = {name: backend.compile_job(name, benchmark) for name, benchmark in benchmarks.items()}
    program = backend.compile_program()
    for name, benchmark in benchmarks.items():
        with naming_variant(name, several=len(benchmarks) > 1):
            refuse_to_compile(benchmark, backend, program, make_environment=make_environment)
    return _compile(jobs, backend, program, next(iter(benchmarks.values())).engine)


@contextlib.contextmanager
def naming_variant(name: str, *, several: bool) -> Iterator[None]:
    """A refusal of one of several says which one."""
    try:
        yield
    except RequestError as error:
        if not several:
            raise
        what = f"{name}: {error.what}"
        raise type(error)(what, where=error.where, why=error.why, next_command=error.next_command) from None


def _compile(jobs: Mapping[str, Job], backend: Backend, program: SideProgram, engine: str) -> dict[str, Outcome]:
    place = Path(tempfile.mkdtemp(prefix="stepmark-"))
    folder = place / FOLDER
    folder.mkdir()
    (folder / REQUEST).write_bytes(msgspec.json.encode(list(jobs.values())))
    folders = {name: folder / str(number) for number, name in enumerate(jobs)}
    with removed_on_interrupt(place), progress.shown() as show:

        def look() -> None:
            begun = [name for name, its in folders.items() if its.exists()]
            doing = begun[-1] if begun else "importing the framework"
            show("compiling", max(0, len(begun) - 1), len(jobs), doing)

        run_side_program(backend, engine, program, folder, Ended, look=look)
    found = {name: _outcome(folders[name], job) for name, job in jobs.items()}
    if not any(isinstance(one, StepmarkError) for one in found.values()):
        shutil.rmtree(place, ignore_errors=True)  # only of what went well: else its log is what there is to read
    return found


# --- what this machine lacks -----------------------------------------------------------------------

# Llama 2 70B takes 1.1 to 1.5 GB, whether for 64 GPUs or for 2,048; a model of few layers little less.
COMPILER_GB = 1.5


def refuse_to_compile(
    benchmark: Benchmark, backend: Backend, program: SideProgram, *, make_environment: bool
) -> None:
    """RequestError where there is no compiler, too little memory, or an XLA flag that the compiler does not know."""
    if not make_environment:
        _refuse_without_compiler(benchmark, backend, program)
    available_gb = this_machine.available_memory_bytes() / 1e9
    if available_gb < COMPILER_GB:
        raise RequestError(
            f"this machine has too little free memory to compile: {available_gb:.2f} of {COMPILER_GB:g} GB",
            where="MemAvailable in /proc/meminfo, and the control group's memory.max",
            why="a compiler that runs out of memory is killed without a word",
            next_command="end what uses the memory, or run this on a larger machine",
        )
    refuse_unknown_flags(benchmark, backend)


def _refuse_without_compiler(benchmark: Benchmark, backend: Backend, program: SideProgram) -> None:
    """Planning downloads nothing that was not asked for."""
    spec = backend.environment(benchmark.engine, program.platform)
    if venvs.python_of(spec) is not None:
        return
    lock_file, root = spec.locks[0], venvs.environments_root()
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    free_gb = shutil.disk_usage(place).free / 1e9
    raise RequestError(
        f"the compiler for {benchmark.hardware.title} is not installed; it takes about {lock_file.size_gb:g} GB",
        where=f"environment '{spec.name}' from {lock_file.path.name}, in {root}",
        why=f"it is downloaded and installed once, when you ask for it; {free_gb:.1f} GB of disk are free there",
        next_command="the same command with --make_environment",
    )


# --- what came of a job -------------------------------------------------------------------------


UNKNOWN_FLAGS = re.compile(r"Unknown flags? in XLA_FLAGS: (.*)")
LINES_SHOWN = 5


def _outcome(folder: Path, job: Job) -> Outcome:
    if (folder / FAILED).exists():
        return _error(folder, job)
    try:
        return files.read_json(folder / REPORT, Compiled)
    except (OSError, ValueError) as error:
        return RunError(
            f"{job.name}: the compiler left no report that can be read", where=str(folder), why=str(error)
        )


def _error(folder: Path, job: Job) -> StepmarkError:
    log = folder / LOG
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if match := UNKNOWN_FLAGS.search("\n".join(lines)):
        return RequestError(
            f"{job.name}: XLA has no flag {match[1]}",
            where=str(log),
            next_command=f'python launch/doctor.py flags "{match[1]}"',
        )
    code = files.read_json(folder / FAILED, Failed).exit_code
    return RunError(
        f"{job.name}: the compiler {_end(code)}",
        where=str(log),
        why="\n".join(lines[-LINES_SHOWN:]) or "its log is empty",
        next_command=f"tail -n 40 {shlex.quote(str(log))}",
    )


def _end(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed (signal 9), as the kernel does where memory runs out"
    return f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
