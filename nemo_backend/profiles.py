"""Plan the training phase and the worker's command for NeMo and Megatron-Bridge, with the changes for --profile."""

from collections.abc import Mapping, Sequence

from benchmarks.request.framework import program, slowdown_option
from benchmarks.request.profiling import (
    disturbed_steps,
    nccl_trace_environment,
    report_name,
    under_nsys,
)
from benchmarks.text import spans_text
from benchmarks.values import Benchmark, Phase, Plan, Profiling
from nemo_backend import megatron

NSYS = "nsys"
NCCL = "nccl"


def plan(
    benchmark: Benchmark,
    environment_name: str,
    command: list[str],
    environment: Mapping[str, str],
    needs: Mapping[str, str],
    mounts: Sequence[str] = (),
) -> Plan:
    """Return a plan with one process per device. The run's features in `needs` require Transformer Engine."""
    profiling = benchmark.instruments.profiling
    if profiling is not None:
        report = f"{{phase_dir}}/{report_name(benchmark)}"
        command = under_nsys(profiling, report, command, on_gpu=benchmark.hardware.kind == "gpu")
    traced = nccl_trace_environment() if benchmark.instruments.profile == NCCL else {}
    perf = Phase(
        name="perf",
        command=command,
        environment={**environment, **traced},  # `traced` last, so that the site's variables cannot replace it
        nodes=benchmark.nodes,
        tasks_per_node=benchmark.gpus // benchmark.nodes,
        devices_per_task=1,
        writes_steps=True,
        programs=[NSYS] if profiling else [],
        mounts=list(mounts),
    )
    unfused = benchmark.hardware.kind != "cpu" and megatron.lacks_transformer_engine(benchmark, needs)
    notes = [megatron.UNFUSED_ATTENTION] if unfused else []
    return Plan(backend=benchmark.backend, environment_name=environment_name, phases=[perf], notes=notes)


def worker_command(benchmark: Benchmark, worker: str, own: list[str], settings: list[str]) -> list[str]:
    """Return the command of a worker: the options that both workers have, its `own` options, and the settings."""
    return [
        *program(f"nemo_backend/inside/{worker}"),
        "--events_dir={phase_dir}",
        f"--processes={benchmark.gpus}",
        f"--devices={benchmark.gpus}",
        *(f"--device_name={name}" for name in benchmark.hardware.device_names),
        f"--task={benchmark.trains}",
        f"--data={benchmark.data}",
        *own,
        f"--tasks_per_node={benchmark.gpus // benchmark.nodes}",
        f"--tokens_per_step={benchmark.tokens_per_step}",
        *_recording(benchmark.instruments.profiling),
        *slowdown_option(benchmark),
        "--",
        *settings,
    ]


def _recording(profiling: Profiling | None) -> list[str]:
    """Return the worker's options for a profile: the recorded steps and ranks, and the steps that nsys disturbs."""
    if profiling is None:
        return []
    disturbed = disturbed_steps(profiling)
    return [
        f"--recorded_steps={profiling.start_step}-{profiling.stop_step}",
        f"--disturbed_steps={disturbed[0]}-{disturbed[-1]}",
        f"--recorded_ranks={spans_text(profiling.ranks)}",
    ]
