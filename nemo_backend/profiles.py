"""The phase that trains, of either engine, and what --profile does to it and to its steps. Pure.

The recording itself is NeMo's worker's and Megatron-Bridge's own (its settings profiling.*).
"""

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.request.profiling import (
    disturbed_steps,
    nccl_trace_environment,
    report_name,
    under_nsys,
)
from benchmarks.text import spans_text
from benchmarks.values import PROFILER, Benchmark, Phase, Profiling, Step

NSYS = "nsys"
NCCL = "nccl"


def perf_phase(
    benchmark: Benchmark, command: list[str], environment: Mapping[str, str], mounts: Sequence[str] = ()
) -> Phase:
    """A process a GPU, under nsys where the benchmark is recorded. On a CPU each device is a process too."""
    profiling = benchmark.instruments.profiling
    if profiling is not None:
        report = f"{{phase_dir}}/{report_name(benchmark)}"
        command = under_nsys(profiling, report, command, on_gpu=benchmark.hardware.kind == "gpu")
    traced = (
        nccl_trace_environment() if benchmark.instruments.profile == NCCL else {}
    )  # nothing that a site says undoes them
    return Phase(
        name="perf",
        command=command,
        environment={**environment, **traced},
        nodes=benchmark.nodes,
        tasks_per_node=benchmark.gpus // benchmark.nodes,
        devices_per_task=1,
        writes_steps=True,
        programs=[NSYS] if profiling else [],
        mounts=list(mounts),
    )


def worker_options(profiling: Profiling | None) -> list[str]:
    """Return the options of NeMo's worker: where to begin and end, on which ranks, and which steps to mark."""
    if profiling is None:
        return []
    disturbed = disturbed_steps(profiling)
    return [
        f"--recorded_steps={profiling.start_step}-{profiling.stop_step}",
        f"--disturbed_steps={disturbed[0]}-{disturbed[-1]}",
        f"--recorded_ranks={spans_text(profiling.ranks)}",
    ]


def bridge_settings(profiling: Profiling | None) -> dict[str, str]:
    """Megatron-Bridge begins before the step of one number, counted from 0, and ends before that of the other."""
    if profiling is None:
        return {}
    return {
        "profiling.use_nsys_profiler": "true",
        "profiling.profile_step_start": str(profiling.start_step),
        "profiling.profile_step_end": str(profiling.stop_step + 1),
        "profiling.profile_ranks": f"[{','.join(map(str, profiling.ranks))}]",
    }


def mark_disturbed(steps: list[Step], profiling: Profiling | None) -> list[Step]:
    """Mark the steps of a log that a profiler disturbed. A step that already has a reason keeps it."""
    disturbed = disturbed_steps(profiling) if profiling else range(0)
    return [
        msgspec.structs.replace(step, excluded_because=PROFILER)
        if step.step in disturbed and step.excluded_because is None
        else step
        for step in steps
    ]
