"""Runners, which resolve requests at one site and start the runs. The local runner waits until each run has ended.

The runner of a cluster is in launch/slurm/submit.py; launch/cli/runners.py chooses the runner of a site.
"""

import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.backend import Backend, ReadsHub, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, StepmarkError, capture
from benchmarks.request.resolve import Request, other_recipes, resolve
from benchmarks.values import NO_LABELS, Benchmark, Labels, Plan


class Job(msgspec.Struct):
    """The flags that determine how runs are started."""

    typed: Mapping[str, Any]
    hang_timeout: float | None = None
    telemetry: bool = True
    labels: Labels = NO_LABELS
    allow_busy: bool = False


# Raises RequestError if the run's compiler does not know one of the run's XLA flags.
FlagsRefusal = Callable[[Benchmark, Backend], None]


class Runner(ABC):
    """Resolves requests at one site and starts their benchmarks."""

    def __init__(self, configs: Configs, output_dir: Path, job: Job, refuse_flags: FlagsRefusal) -> None:
        self._configs, self._output_dir, self._job, self._refuse_flags = configs, output_dir, job, refuse_flags

    def resolve_offline(self, request: Request) -> Benchmark:
        """Return the benchmark of a request, without checking whether it can run."""
        benchmark = resolve(request, self._configs, find_backend(request.backend), self._kept_profile)
        note_other_recipes(request, benchmark, self._configs)
        return benchmark

    def resolve(self, request: Request) -> Benchmark:
        """Return the benchmark of a request. Raise the first refusal if the benchmark cannot run here."""
        benchmark = self.resolve_offline(request)
        for refusal in self.refusals(benchmark, patient=True):
            raise refusal
        # Without these options, all XLA flags come from Stepmark and need no check.
        if benchmark.settings.xla_flags or benchmark.instruments.pgle != "off":
            self._refuse_flags(benchmark, find_backend(benchmark.backend))
        return benchmark

    def _kept_profile(self, benchmark: Benchmark) -> str:
        from launch.running import kept_profiles

        return kept_profiles.find(benchmark, find_backend(benchmark.backend), self._output_dir.absolute())

    @abstractmethod
    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:
        """Yield every reason to refuse the run now. With `patient`, wait for a cluster that does not answer."""

    @abstractmethod
    def plan(self, benchmark: Benchmark, backend: Backend) -> Plan: ...

    @abstractmethod
    def preview(self, benchmark: Benchmark, backend: Backend) -> str:
        """Return what a dry run shows after the plan, such as the job script."""

    @abstractmethod
    def start(self, benchmark: Benchmark, run_id: str) -> None: ...

    @abstractmethod
    def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Return the runs that have ended, after their results are written if possible."""


def note_other_recipes(request: Request, benchmark: Benchmark, configs: Configs) -> None:
    """Print a note about other recipes that fit the request equally well, unless the request names a recipe."""
    from launch.terminal.progress import note

    if request.recipe is None and (others := other_recipes(benchmark, configs)):
        note(f"recipe {benchmark.recipe.name}; to use another: {' '.join(f'--recipe={name}' for name in others)}")


class LocalRunner(Runner):
    """Runs benchmarks on this machine, one after the other."""

    def resolve_offline(self, request: Request) -> Benchmark:
        from launch.machine import machine_gpus

        backend = find_backend(request.backend)
        benchmark = super().resolve_offline(machine_gpus.with_local_gpus(request, self._configs, backend))
        if self._job.hang_timeout is not None:
            raise RequestError("--hang_timeout needs a site with a queue", where=f"--site={benchmark.site.name}")
        return benchmark

    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:  # noqa: ARG002
        from launch.environments.selection import runtime_of
        from launch.machine import machine_gpus

        backend = find_backend(benchmark.backend)
        if benchmark.hardware.kind == "cpu":
            yield from _memory_refusals(benchmark, backend)
        else:
            yield from machine_gpus.refusals(benchmark, self._configs, backend, allow_busy=self._job.allow_busy)
        if benchmark.site.runtime != "container":  # a container has its programs in the image
            yield from _program_refusals(backend.plan(benchmark))
        yield from capture(lambda: runtime_of(benchmark, backend).refuse())
        if isinstance(backend, ReadsHub):
            from launch.assets import site_hub

            yield from capture(lambda: site_hub.refuse(benchmark, backend))
        yield from _path_refusals(benchmark, backend.plan(benchmark))
        if machine_gpus.detect().gpus:  # without GPUs, `plan` adds a warning instead
            from benchmarks.request.refusals import without_transformer_engine

            yield from without_transformer_engine(benchmark, backend)

    def plan(self, benchmark: Benchmark, backend: Backend) -> Plan:
        from benchmarks.request.refusals import without_transformer_engine
        from launch.machine import machine_gpus

        plan = backend.plan(benchmark)
        lacks = [] if machine_gpus.detect().gpus else without_transformer_engine(benchmark, backend)
        warnings = [f"warning: a machine with GPUs would refuse this ({one.what}; {one.why})" for one in lacks]
        return msgspec.structs.replace(plan, notes=[*plan.notes, *warnings])

    def preview(self, benchmark: Benchmark, backend: Backend) -> str:
        from launch.environments.selection import runtime_of

        try:
            return runtime_of(benchmark, backend).preview(self._output_dir.absolute() / "RUN")
        except RequestError:
            return ""  # the dry run shows the refusal after the plan

    def start(self, benchmark: Benchmark, run_id: str) -> None:
        """Run the benchmark to its end and show its result. Raise KeyboardInterrupt if the user ended it."""
        from launch.running.execute import execute

        backend = find_backend(benchmark.backend)
        result = execute(benchmark, backend, self._output_dir, run_id, self._job.telemetry, self._job.labels)
        if result.attempts[-1].outcome == "cancelled":
            raise KeyboardInterrupt

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Return the runs that have ended: no launcher follows them. Write the result of an interrupted run."""
        from benchmarks.runs.runfolder import RESULT, RunFolder, is_followed
        from launch.running.execute import store_result

        ended = set()
        for run_id in run_ids:
            folder = RunFolder(self._output_dir / run_id)
            if is_followed(folder):
                continue
            if folder.is_whole() and not (folder.path / RESULT).exists():
                store_result(folder, find_backend(folder.benchmark().backend))
            ended.add(run_id)
        return ended


# --- refusals -----------------------------------------------------------------------------------


def _memory_refusals(benchmark: Benchmark, backend: Backend) -> Iterator[RequestError]:
    from benchmarks.model import capacity
    from benchmarks.text import bytes_text
    from launch.machine import machine_gpus
    from launch.machine.this_machine import host_memory_bytes

    needed = capacity.total_bytes(benchmark, backend.storage(benchmark)) * benchmark.gpus
    have = host_memory_bytes()
    if needed > have:
        yield RequestError(
            f"{benchmark.model.name} needs {bytes_text(needed)} of memory, but this machine has {bytes_text(have)}",
            where=f"--model={benchmark.model.name} on this machine's CPU",
            why=f"choose a smaller model, or a cluster with --site=NAME; {machine_gpus.detect().why_none}",
            next_command="python launch/run.py --list",
        )


def _path_refusals(benchmark: Benchmark, plan: Plan) -> Iterator[RequestError]:
    """Refuse settings with a path that a phase reads and that does not exist, such as a checkpoint."""
    read = {mount.partition(":")[0] for phase in plan.phases for mount in phase.mounts}
    for name, value in benchmark.settings.knobs.items():
        path = Path(str(value))
        if value in read and not path.exists():
            why = "the run reads it on this machine"
            further = f"ls {shlex.quote(str(next(one for one in path.parents if one.exists())))}"
            yield RequestError(f"'{path}' does not exist", where=f"--set={name}", why=why, next_command=further)


def _program_refusals(plan: Plan) -> Iterator[RequestError]:
    for phase in plan.phases:
        for program in phase.programs:
            if shutil.which(program) is None:
                yield RequestError(
                    f"program '{program}' is not installed",
                    where="PATH",
                    why=f"phase {phase.name} runs it",
                )


def refused_text(refusals: Iterable[StepmarkError]) -> str:
    """Return the first part of a dry run's output: every reason to refuse the run now."""
    return "\n\n".join(dict.fromkeys(f"would be refused: {one}" for one in refusals))
