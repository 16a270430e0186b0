"""Implement Stepmark's backend interface for the engines that use Megatron-core, without importing a framework.

Engine `nemo` is NeMo 2.x, and engine `bridge` is its successor, Megatron-Bridge. Stepmark runs a worker inside each
of these two. Each MLPerf submission is a separate engine, which runs NVIDIA's program without a worker.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.assets import Repository
from benchmarks.backend import EnvironmentSpec, LogFormat, SideProgram
from benchmarks.errors import RequestError
from benchmarks.request.framework import program, words_of
from benchmarks.values import (
    SUBMISSION_ENGINE,
    Benchmark,
    Hardware,
    Lora,
    Parallelism,
    Phase,
    Plan,
    RunRecord,
    Scalar,
    SettingTypes,
    Step,
    Storage,
)
from nemo_backend import bridge_planning, experts, layout, lora, megatron, memory, mlperf_planning, planning, profiles

if TYPE_CHECKING:
    from benchmarks.compilation.traced import TraceJob

NEMO, BRIDGE = "nemo", "bridge"


class Engine(Protocol):
    """The interface of the three planning modules."""

    def needs_transformer_engine(self, benchmark: Benchmark) -> Mapping[str, str]: ...

    def environment(self, engine: str, platform: str) -> EnvironmentSpec: ...

    def refusals(self, benchmark: Benchmark) -> list[RequestError]: ...

    def plan(self, benchmark: Benchmark) -> Plan: ...

    def check_phase(self, benchmark: Benchmark) -> Phase: ...

    def read_phase(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord: ...

    def follow(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]: ...


def _engine(name: str) -> Engine:
    if name.startswith(SUBMISSION_ENGINE):
        return mlperf_planning
    return bridge_planning if name == BRIDGE else planning


class NemoBackend:
    """The backend of NeMo 2.7.3, Megatron-Bridge, and NVIDIA's MLPerf submissions, all on Megatron-core."""

    name = "nemo"
    title = "NeMo (Megatron)"
    engines = (NEMO, BRIDGE, *mlperf_planning.engines())
    layout_settings = layout.SETTINGS | mlperf_planning.LAYOUT_SETTINGS
    reserved_variables = ("MASTER_", "NEMO_", "PL_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")
    reserved_settings: Mapping[str, str] = {
        **planning.RESERVED,
        **bridge_planning.RESERVED,
        **mlperf_planning.reserved(),
    }
    profiles = frozenset({profiles.NSYS, profiles.NCCL})

    def settings(self) -> SettingTypes:
        return {**planning.settings(), **bridge_planning.settings(), **mlperf_planning.settings()}

    def refuses_hardware(self, engine: str, hardware: Hardware) -> RequestError | None:
        if engine not in (NEMO, BRIDGE):
            return mlperf_planning.refuses_hardware(hardware)
        return megatron.refuses_hardware(engine, hardware)

    def parallelism(self, knobs: dict[str, Scalar], gpus: int) -> Parallelism:
        if not mlperf_planning.LAYOUT_SETTINGS.isdisjoint(knobs):
            return mlperf_planning.parallelism(knobs, gpus)
        return layout.parallelism(knobs, gpus)

    def layout_settings_for(
        self,
        engine: str,
        parallelism: Parallelism,
        gpus: int,  # noqa: ARG002 - Megatron computes the data parallel size
        hardware: Hardware,
    ) -> dict[str, Scalar] | None:
        return layout.settings_for(engine, parallelism, hardware) if engine in (NEMO, BRIDGE) else None

    def lora(self, knobs: dict[str, Scalar]) -> Lora:
        return lora.of_knobs(knobs)

    def lora_settings_for(self, engine: str, wanted: Lora) -> dict[str, Scalar]:  # noqa: ARG002 - equal for both
        return lora.settings_for(wanted)

    def refusals(self, benchmark: Benchmark) -> list[RequestError]:
        return _engine(benchmark.engine).refusals(benchmark)

    def layers_in_pipeline(self, benchmark: Benchmark) -> int | None:
        return experts.layers_in_pipeline(benchmark)

    def storage(self, benchmark: Benchmark) -> Storage:
        if benchmark.engine not in (NEMO, BRIDGE):
            raise RequestError(
                "the memory and the step time of an MLPerf submission cannot be estimated",
                where=f"--task=mlperf --model={benchmark.model.name}",
                why="NVIDIA's program decides how it stores the model; run.py --dry_run shows what would run",
            )
        return memory.storage(benchmark)

    def environment(self, engine: str, platform: str = "cpu") -> EnvironmentSpec:
        return _engine(engine).environment(engine, platform)

    def plan(self, benchmark: Benchmark) -> Plan:
        return _engine(benchmark.engine).plan(benchmark)

    def needs_transformer_engine(self, benchmark: Benchmark) -> Mapping[str, str]:
        return _engine(benchmark.engine).needs_transformer_engine(benchmark)

    def check_phase(self, benchmark: Benchmark) -> Phase:
        return _engine(benchmark.engine).check_phase(benchmark)

    def hub_repository(self, engine: str, model: str) -> Repository | None:
        return bridge_planning.hub_repository(model) if engine == BRIDGE else None

    def read_phase(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
        return _engine(benchmark.engine).read_phase(benchmark, phase_dir, attempt)

    def follow(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
        return _engine(benchmark.engine).follow(benchmark, phase_dir, attempt)

    def log_formats(self) -> tuple[LogFormat, ...]:
        from nemo_backend.logs import LOG_FORMATS

        return LOG_FORMATS

    def peak_program(self, engine: str, platform: str) -> SideProgram | None:
        if engine != NEMO or platform not in ("cuda", "cpu"):
            return None
        command = program("nemo_backend/inside/peak_program.py", f"--platform={platform}", "{phase_dir}")
        return SideProgram(command=command, platform=platform)

    def compile_engine(self, benchmark: Benchmark) -> str:
        """Return the engine whose environment traces the step: NeMo for dense models, with adapters or without."""
        return NEMO if benchmark.model.experts is None else BRIDGE

    def compile_job(self, name: str, benchmark: Benchmark) -> "TraceJob":
        from nemo_backend import tracing

        self.storage(benchmark)  # refuses an MLPerf submission
        return tracing.job(name, benchmark)

    def compile_program(self) -> SideProgram:
        from nemo_backend import tracing

        return tracing.PROGRAM

    def work_program(self, benchmark: Benchmark) -> SideProgram | None:
        """Return the program for equivalence checks, which uses no fused kernels; None for an MLPerf submission."""
        if benchmark.engine == BRIDGE:
            words = program("nemo_backend/inside/bridge_work_program.py")
            return SideProgram(
                command=[*words, *bridge_planning.command(benchmark)[len(words) :]],
                environment=bridge_planning.variables(benchmark),
                platform=benchmark.hardware.platform,
            )
        if benchmark.engine != NEMO:
            return None
        plain = {
            name: False for name in planning.FALSE_WITHOUT_TRANSFORMER_ENGINE if name.startswith("model.config.")
        }
        return SideProgram(
            command=[
                *program("nemo_backend/inside/work_program.py", "--folder={phase_dir}"),
                f"--vocabulary_size={benchmark.model.vocabulary_size}",
                "--",
                *words_of({**planning.nemo_settings(benchmark), **plain}),
            ],
            environment=planning.variables(benchmark),
            platform=benchmark.hardware.platform,
        )
