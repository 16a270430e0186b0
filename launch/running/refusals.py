"""Every reason why this machine cannot run a benchmark. What no machine can run: benchmarks/request/refusals.py."""

import shutil
from collections.abc import Iterator

from benchmarks.backend import Backend, ReadsHub
from benchmarks.configs import Configs
from benchmarks.errors import DRY_RUN_SHOWS, RequestError, StepmarkError, raised
from benchmarks.model import capacity
from benchmarks.rendering.report import bytes_text
from benchmarks.request.refusals import without_transformer_engine
from benchmarks.values import Benchmark, Plan, Storage
from launch.running import machine_gpus, runtimes
from launch.running.this_machine import host_memory_bytes


def here(benchmark: Benchmark, backend: Backend, configs: Configs, *, allow_busy: bool) -> Iterator[StepmarkError]:
    if benchmark.hardware.kind == "cpu":
        yield from _memory(benchmark, backend.storage(benchmark))
    else:
        yield from machine_gpus.refusals(benchmark, configs, backend, allow_busy=allow_busy)
    if benchmark.site.runtime != "container":  # whose programs are the image's
        yield from _programs(backend.plan(benchmark))
    spec = backend.environment(benchmark.engine, benchmark.hardware.platform)
    yield from raised(lambda: runtimes.refuse(benchmark, spec))
    if isinstance(backend, ReadsHub):
        from launch.sites import site_hub

        yield from raised(lambda: site_hub.refuse(benchmark, backend))
    if machine_gpus.found().gpus:  # else the plan is looked at, and may be for any site
        yield from without_transformer_engine(benchmark, backend)


def _memory(benchmark: Benchmark, storage: Storage) -> Iterator[RequestError]:
    needed, have = capacity.total_bytes(benchmark, storage) * benchmark.gpus, host_memory_bytes()
    if needed > have:
        parts = sorted(capacity.memory_by_part(benchmark, storage).items(), key=lambda part: -part[1])
        yield RequestError(
            f"{benchmark.model.name} needs {bytes_text(needed)} of memory, this machine has {bytes_text(have)}",
            where=f"--model={benchmark.model.name} on this machine's CPU",
            why=", ".join(f"{name} {bytes_text(size * benchmark.gpus)}" for name, size in parts[:3])
            + (f"; it would run on the CPU: {no_gpus}" if (no_gpus := machine_gpus.found().why_none) else ""),
            next_command="a smaller model; or --site=NAME of a cluster (python launch/setup.py --new_site=NAME adds "
            f"one); {DRY_RUN_SHOWS}",
        )


def _programs(plan: Plan) -> Iterator[RequestError]:
    for program in sorted({name for phase in plan.phases for name in phase.programs}):
        if shutil.which(program) is None:
            phases = sorted(phase.name for phase in plan.phases if program in phase.programs)
            yield RequestError(
                f"this machine has no program '{program}'",
                where="PATH",
                why="; ".join(f"phase {name} runs it" for name in phases),
                next_command=f"install {program}, or a run without it",
            )
