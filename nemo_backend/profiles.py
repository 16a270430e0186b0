"""What --profile does to a run of either engine: its command, its variables, and which of its steps are spoilt. Pure.

The recording itself is NeMo's worker's (profiled_steps.py) and Megatron-Bridge's own (its settings profiling.*).
"""

import msgspec

from benchmarks.request.profiling import (
    PROFILER,
    disturbed_steps,
    nccl_trace_environment,
    ranks_text,
    report_name,
    under_nsys,
)
from benchmarks.values import Benchmark, Profiling, RunRecord, Step

NSYS = "nsys"
NCCL = "nccl"


def profiled(benchmark: Benchmark, command: list[str]) -> list[str]:
    """The command of a phase, under nsys where the benchmark is recorded."""
    if benchmark.profiling is None:
        return command
    report = f"{{phase_dir}}/{report_name(benchmark)}"
    return under_nsys(benchmark.profiling, report, command, on_gpu=benchmark.hardware.kind == "gpu")


def programs(benchmark: Benchmark) -> list[str]:
    return [NSYS] if benchmark.profiling else []


def traced(benchmark: Benchmark) -> dict[str, str]:
    """The variables that trace NCCL's calls; last, so that nothing that a site or a recipe says undoes them."""
    return nccl_trace_environment() if benchmark.profile == NCCL else {}


def worker_options(profiling: Profiling | None) -> list[str]:
    """What NeMo's worker must know: where to begin and end, on which ranks, and which steps to mark."""
    if profiling is None:
        return []
    disturbed = disturbed_steps(profiling)
    return [
        f"--recorded_steps={profiling.start_step}-{profiling.stop_step}",
        f"--disturbed_steps={disturbed[0]}-{disturbed[-1]}",
        f"--recorded_ranks={ranks_text(profiling.ranks)}",
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


def marked(steps: list[Step], profiling: Profiling | None) -> list[Step]:
    """Steps that a framework's own log tells of, those that were disturbed with the reason; an own reason stands."""
    disturbed = disturbed_steps(profiling) if profiling else range(0)
    return [
        msgspec.structs.replace(step, excluded_because=PROFILER)
        if step.step in disturbed and step.excluded_because is None
        else step
        for step in steps
    ]


def marked_record(record: RunRecord, profiling: Profiling | None) -> RunRecord:
    return msgspec.structs.replace(record, steps=marked(record.steps, profiling))
