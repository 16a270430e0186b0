"""Implement Stepmark's backend interface for MaxText, without importing MaxText or JAX."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.backend import EnvironmentSpec, FlagGroup, FlagsCheck, LockFile, LogFormat, SideProgram
from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.framework import program
from benchmarks.runs import worker_events
from benchmarks.values import Benchmark, Hardware, Lora, Parallelism, RunRecord, Scalar, Step
from jax_backend import memory, phases, planning

if TYPE_CHECKING:
    from benchmarks.compilation.compiled import Job

HERE = Path(__file__).parent
# jaxlib itself supports only CPUs. jax[cuda12] and jax[cuda13] install one of these plugins (jax's pyproject.toml).
GPU_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")

# Platform -> the lock files of MaxText's environment. TPUs and ROCm do not have lock files yet.
LOCKS = {
    "cpu": (LockFile(phases.LOCK, python_minimum=(3, 12), python_maximum=(3, 13), size_gb=1.2),),
    "cuda": (LockFile(phases.CUDA_LOCK, python_minimum=(3, 12), python_maximum=(3, 13), size_gb=6.0, cuda=(12, 9)),),
}


@cache
def maxtext_settings() -> dict[str, str]:
    """Return every setting of the pinned MaxText with its type, from the file that list_settings.py writes."""
    settings: dict[str, str] = parse_yaml(HERE / "maxtext_settings.yml")
    return settings


class MaxTextBackend:
    """MaxText 0.2.5 on XLA, with FSDP, data parallelism and MaxText's other parallel axes."""

    name = "jax"
    title = "MaxText (JAX)"
    engines = ("maxtext",)
    layout_settings = frozenset(planning.AXES)
    reserved_variables = ("JAX_", "M_", "LIBTPU_INIT_ARGS")  # MaxText reads M_<SETTING> as a setting
    reserved_settings: Mapping[str, str] = planning.RESERVED
    profiles = frozenset({"nsys", "xplane", "nccl"})
    pgle_ways = frozenset({"nsys", "auto"})

    # Methods of the backend interface -> the functions that implement them.
    settings = staticmethod(maxtext_settings)
    storage = staticmethod(memory.storage)
    plan = staticmethod(phases.plan)
    profile_key = staticmethod(phases.profile_key)
    check_phase = staticmethod(phases.check_phase)
    needs_transformer_engine = staticmethod(planning.needs_transformer_engine)

    def parallelism(self, knobs: dict[str, Scalar], gpus: int) -> Parallelism:  # noqa: ARG002 - knobs has every axis
        return planning.parallelism(knobs)

    def layout_settings_for(
        self,
        engine: str,  # noqa: ARG002 - one engine
        parallelism: Parallelism,
        gpus: int,
        hardware: Hardware,
    ) -> dict[str, Scalar] | None:
        return planning.layout_settings_for(parallelism, gpus, hardware)

    # The methods below import modules that only some runs need.

    def lora(self, knobs: Mapping[str, Scalar]) -> Lora:
        from jax_backend import lora

        return lora.of_knobs(knobs)

    def lora_settings_for(self, engine: str, wanted: Lora) -> dict[str, Scalar]:  # noqa: ARG002 - one engine
        from jax_backend import lora

        return lora.settings_for(wanted)

    def flag_group(self, name: str, hardware: Hardware) -> FlagGroup:
        from jax_backend import xla_flags

        return xla_flags.group_for(name, hardware)

    def flags_check(self, flags: list[str]) -> FlagsCheck:
        from jax_backend import xla_flags

        return xla_flags.check(flags)

    def refusals(self, benchmark: Benchmark) -> list[RequestError]:
        adapters: Iterator[RequestError] = iter(())
        if benchmark.lora is not None or any(name.startswith("lora") for name in benchmark.settings.overrides):
            from jax_backend import lora

            adapters = lora.refusals(benchmark)
        of_experts: Iterator[RequestError] = iter(())
        if benchmark.model.experts is not None:
            from jax_backend import experts

            of_experts = experts.refusals(benchmark)
        return [*planning.refusals(benchmark), *of_experts, *adapters, *phases.refusals(benchmark)]

    def environment(self, engine: str, platform: str = "cpu") -> EnvironmentSpec:  # noqa: ARG002 - one engine
        return EnvironmentSpec(
            name=planning.ENVIRONMENT_NAME,
            locks=LOCKS.get(platform, ()),
            import_check="maxtext.trainers.pre_train.train",
            image=phases.IMAGE,
            gpu_packages=GPU_PLUGINS if platform == "cuda" else (),
        )

    def read_phase(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
        record = worker_events.read_phase(phase_dir, attempt)
        if benchmark.instruments.pgle == "off":
            return record
        from jax_backend import pgle_evidence

        return msgspec.structs.replace(record, pgle=pgle_evidence.evidence_of(benchmark, phase_dir, record))

    def follow(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:  # noqa: ARG002
        return worker_events.follow(phase_dir, attempt)

    def log_formats(self) -> tuple[LogFormat, ...]:
        from jax_backend.logs import MaxTextLog

        return (MaxTextLog(),)

    def peak_program(self, engine: str, platform: str) -> SideProgram | None:  # noqa: ARG002
        if platform not in ("cuda", "cpu"):
            return None
        command = program("jax_backend/inside/peak_program.py", f"--platform={platform}", "{phase_dir}")
        return SideProgram(command=command, environment={"JAX_PLATFORMS": platform}, platform=platform)

    def work_program(self, benchmark: Benchmark) -> SideProgram | None:
        ours = program("jax_backend/inside/work_program.py", "--folder={phase_dir}", "--")
        return SideProgram(
            command=[*ours, *planning.maxtext_argv(benchmark)],
            environment=planning.environment(benchmark),
            platform=benchmark.hardware.platform,
        )

    def compile_engine(self, benchmark: Benchmark) -> str:  # noqa: ARG002 - there is only one
        return "maxtext"

    def compile_job(self, name: str, benchmark: Benchmark) -> "Job":
        from jax_backend import compiling

        return compiling.job(name, benchmark)

    def compile_program(self) -> SideProgram:
        from jax_backend import compiling

        return compiling.PROGRAM
