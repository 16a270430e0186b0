"""A PGLE profile from simulated costs: the step is compiled on this machine, and the hardware's rates give each
instruction its cost.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.backend import Backend, GuidedByProfiles
from benchmarks.compilation import walk
from benchmarks.errors import RequestError
from benchmarks.request.settings import PGLE_PROFILE
from benchmarks.values import Benchmark, PgleProfile, json_text, to_builtins
from launch.command_line import places
from launch.planning.compiling import compile_step

SIMULATED: Final = "simulated"
WITH_PROFILE = "with its simulated profile"
COSTS, ABOUT = "profile.pbtxt", "profile.json"


def write(benchmark: Benchmark, backend: Backend, folder: Path) -> PgleProfile:
    """The profile, and what it is of, for a run; the folder is made."""
    text, about = _made(benchmark, backend, make_environment=True)  # as the run itself would
    folder.mkdir(parents=True)
    (folder / COSTS).write_text(text, encoding="utf-8")
    (folder / ABOUT).write_text(json_text(about), encoding="utf-8")
    return about


def beside(
    benchmarks: Mapping[str, Benchmark], backend: Backend, *, make_environment: bool = False
) -> dict[str, Benchmark]:
    """What is to be compiled: each benchmark, and with --pgle=simulated also as it is with its profile."""
    found = {}
    for name, benchmark in benchmarks.items():
        if benchmark.pgle not in ("off", SIMULATED):
            raise RequestError(
                f"--pgle={benchmark.pgle} records its profile on a GPU: a program without it would say nothing of it",
                where=f"--pgle={benchmark.pgle}",
                next_command=f"--pgle=off, or --pgle={SIMULATED} for a profile of modelled costs",
            )
        found[name] = benchmark
        if benchmark.pgle == SIMULATED:
            words = WITH_PROFILE if len(benchmarks) == 1 else f"{name}, {WITH_PROFILE}"
            found[words] = _with_profile(benchmark, backend, make_environment=make_environment)
    return found


def _with_profile(benchmark: Benchmark, backend: Backend, *, make_environment: bool) -> Benchmark:
    """The benchmark as it is to be compiled with its simulated profile; it is not to be run like that.

    The file is named by what is in it: so the program is found again among those that were compiled before.
    """
    text, about = _made(benchmark, backend, make_environment=make_environment)
    path = places.stepmark_home() / "compiled" / f"{about.sha256[:32]}.pbtxt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            "the simulated profile cannot be written, and XLA reads it from a file",
            where=str(path),
            why=error.strerror or str(error),
            next_command="export STEPMARK_HOME=<a folder that this user can write>",
        ) from error
    return msgspec.structs.replace(benchmark, xla_flags=benchmark.xla_flags | {PGLE_PROFILE: str(path)})


def _made(benchmark: Benchmark, backend: Backend, *, make_environment: bool) -> tuple[str, PgleProfile]:
    key = backend.profile_key(benchmark) if isinstance(backend, GuidedByProfiles) else None
    if not isinstance(backend, GuidedByProfiles) or key is None:
        raise RequestError(
            f"{backend.title} reads no simulated profile",
            where=f"--pgle={benchmark.pgle}",
            next_command="--backend=jax --pgle=simulated",
        )
    rates = walk.rates_of(benchmark.hardware)
    compiled = compile_step(backend.simulated(benchmark), backend, make_environment=make_environment)
    text = walk.profile_text(compiled.schedule, rates)
    operations = [one for part in compiled.schedule.computations.values() for one in part]
    collectives = [one for one in operations if one.what == "collective" and one.event != "done"]
    about = PgleProfile(
        key=key,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        instructions=text.count("\n"),
        collectives=len(collectives),
        covered=sum(f'"{one.name}"' in text for one in collectives),
        made_by=backend.simulated_program(benchmark, compiled.versions),
        origin=SIMULATED,
        program=compiled.program_sha256,
        rates=to_builtins(rates),
    )
    return text, about
