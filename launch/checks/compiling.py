"""Compile training steps on this machine, without the hardware on which they will run."""

import shlex
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.backend import Backend, CompilesAhead, SideProgram
from benchmarks.compilation.compiled import CompileReport, Job
from benchmarks.compilation.traced import TraceJob, TraceReport
from benchmarks.errors import RequestError, RunError, StepmarkError
from benchmarks.values import Benchmark, Value
from launch.checks.flags_check import refuse_unknown_flags
from launch.environments import venvs
from launch.running.side_program import REPORT, run_side_program
from launch.terminal import progress

FOLDER, REQUEST, LOG, FAILED = "compile", "request.json", "log", "failed.json"
Outcome = CompileReport | TraceReport | StepmarkError


class CompileEnd(Value, frozen=True):
    """The final report of the compile program."""

    jobs: int


class CompileFailure(Value, frozen=True):
    exit_code: int  # of the process that compiled; negative: the signal that ended it


def compile_steps(
    benchmarks: Mapping[str, Benchmark], backend: Backend, *, make_environment: bool = False
) -> dict[str, Outcome]:
    """Compile each benchmark. Return the name of each benchmark -> its report or its error."""
    if not isinstance(backend, CompilesAhead):
        raise RequestError(
            f"{backend.title} cannot be compiled without its hardware",
            where=f"compile --backend={backend.name}",
            why="Stepmark lists the contents of a training step only if one compiler compiles the whole step",
            next_command="python launch/plan.py compile --backend=jax --model=llama2_70b --hardware=h100",
        )
    jobs = {name: backend.compile_job(name, benchmark) for name, benchmark in benchmarks.items()}
    program, groups = backend.compile_program(), dict[str, dict[str, Job | TraceJob]]()
    for name, benchmark in benchmarks.items():
        engine = backend.compile_engine(benchmark)
        refuse_to_compile(benchmark, backend, engine, program, make_environment=make_environment)
        groups.setdefault(engine, {})[name] = jobs[name]
    found: dict[str, Outcome] = {}
    for engine, group in groups.items():
        found |= _compile(group, backend, program, engine)
    return {name: found[name] for name in benchmarks}


def _compile(
    jobs: Mapping[str, Job | TraceJob], backend: Backend, program: SideProgram, engine: str
) -> dict[str, Outcome]:
    place = Path(tempfile.mkdtemp(prefix="stepmark-"))
    folder = place / FOLDER
    folder.mkdir()
    (folder / REQUEST).write_bytes(msgspec.json.encode(list(jobs.values())))
    folders = {name: folder / str(number) for number, name in enumerate(jobs)}
    with progress.shown() as show:

        def look() -> None:
            begun = [name for name, its in folders.items() if its.exists()]
            doing = begun[-1] if begun else "importing the framework"
            show("compiling", max(0, len(begun) - 1), len(jobs), doing)

        run_side_program(backend, engine, program, folder, CompileEnd, look=look)
    found = {name: _outcome(folders[name], job) for name, job in jobs.items()}
    if not any(isinstance(one, StepmarkError) for one in found.values()):
        shutil.rmtree(place, ignore_errors=True)  # after a failure, the logs are kept
    return found


def refuse_to_compile(
    benchmark: Benchmark, backend: Backend, engine: str, program: SideProgram, *, make_environment: bool
) -> None:
    """Raise RequestError if the compiler is not installed, or does not know one of the XLA flags.

    With `make_environment`, do not refuse a missing compiler, because the caller installs it.
    """
    spec = backend.environment(engine, program.platform)
    if not make_environment and venvs.python_of(spec) is None:
        lock_file = spec.locks[0]
        raise RequestError(
            f"the environment that compiles for {benchmark.hardware.title} is not installed "
            f"(about {lock_file.size_gb:g} GB)",
            where=f"environment '{spec.name}' from {lock_file.path.name}, in {venvs.environments_root()}",
            why="--make_environment downloads and installs it once",
            next_command="--make_environment",
        )
    refuse_unknown_flags(benchmark, backend, spec)


# --- the outcome of a job -----------------------------------------------------------------------

LINES_SHOWN = 5


def _outcome(folder: Path, job: Job | TraceJob) -> Outcome:
    try:
        if not (folder / FAILED).exists():
            if isinstance(job, TraceJob):
                return files.read_json(folder / REPORT, TraceReport)
            return files.read_json(folder / REPORT, CompileReport)
        code = files.read_json(folder / FAILED, CompileFailure).exit_code
    except (OSError, ValueError) as error:
        return RunError(f"{job.name}: the compiler's report cannot be read", where=str(folder), why=str(error))
    log = folder / LOG
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    killed = "was killed (signal 9); usually the machine ran out of memory"
    return RunError(
        f"{job.name}: the compiler {killed if code == -signal.SIGKILL else f'failed with exit code {code}'}",
        where=str(log),
        why="\n".join(lines[-LINES_SHOWN:]) or "its log is empty",
        next_command=f"tail -n 40 {shlex.quote(str(log))}",
    )
