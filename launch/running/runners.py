"""What each kind of site does with a run: this machine runs it to its end, a cluster takes it into its queue."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.backend import Backend, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import DRY_RUN_SHOWS, RequestError, RunError, StepmarkError, raised
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import NO_LABELS, Benchmark, JobOptions, Labels, Plan, Site

if TYPE_CHECKING:
    from launch.slurm.client import Slurm


class Job(msgspec.Struct):
    """What the flags say of how runs are started, whatever is run."""

    typed: Mapping[str, Any]
    hang_timeout: float | None
    telemetry: bool
    labels: Labels = NO_LABELS
    allow_busy: bool = False


class _Site(ABC):
    """What the sites have in common: a request is understood alike."""

    def understand(self, request: Request) -> Benchmark:
        """What a request means. Nobody is asked whether it can run but a compiler that is here, for its flags."""
        benchmark = self._meant(request)
        self._check_flags(benchmark, dry_run=True)
        return benchmark

    def resolve(self, request: Request) -> Benchmark:
        """What a request means, where it can run."""
        benchmark = self._meant(request)
        for refusal in self.refusals(benchmark, patient=True):
            raise refusal
        self._check_flags(benchmark)
        return benchmark

    @abstractmethod
    def _meant(self, request: Request) -> Benchmark: ...

    @abstractmethod
    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:
        """All that would be refused now; `patient`: whoever is asked is waited for."""

    def _check_flags(self, benchmark: Benchmark, *, dry_run: bool = False) -> None:
        if benchmark.xla_flags or benchmark.pgle != "off":  # else the plan's flags are Stepmark's own alone
            from launch.checks.flags_check import refuse_unknown_flags

            refuse_unknown_flags(benchmark, find_backend(benchmark.backend), dry_run=dry_run)


class LocalRunner(_Site):
    """Runs on this machine, one after the other."""

    def __init__(self, configs: Configs, output_dir: Path, job: Job) -> None:
        self._configs, self._output_dir, self._job = configs, output_dir, job

    def _meant(self, request: Request) -> Benchmark:
        from launch.running import machine_gpus

        backend = find_backend(request.backend)
        benchmark = resolve(machine_gpus.settled(request, self._configs, backend), self._configs, backend)
        self._refuse_job_flags(benchmark.site)
        return benchmark

    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:  # noqa: ARG002
        from launch.running import refusals

        backend = find_backend(benchmark.backend)
        yield from refusals.here(benchmark, backend, self._configs, allow_busy=self._job.allow_busy)

    def start(self, benchmark: Benchmark, run_id: str) -> None:
        """Run it to its end, and show its result. KeyboardInterrupt where the person ended it."""
        from launch.running.execute import execute
        from launch.running.showing import show_result

        backend = find_backend(benchmark.backend)
        folder, result = execute(benchmark, backend, self._output_dir, run_id, self._job.telemetry, self._job.labels)
        show_result(folder, result)
        if any(reason.startswith("interrupted") for reason in result.reasons):
            raise KeyboardInterrupt

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        """All but those that another launcher is running; a run that was cut off gets the result it can have."""
        from benchmarks.runs.runfolder import RESULT, RunFolder, is_followed
        from launch.running.execute import store_result

        found = set()
        for run_id in run_ids:
            folder = RunFolder(self._output_dir / run_id)
            if is_followed(folder):
                continue
            if folder.is_whole() and not (folder.path / RESULT).exists():
                store_result(folder, find_backend(folder.benchmark().backend))
            found.add(run_id)
        return found

    def plan(self, benchmark: Benchmark, backend: Backend) -> Plan:
        return backend.plan(benchmark)

    def preview(self, benchmark: Benchmark, backend: Backend) -> str:
        """What a dry run shows beside the plan: how the runtime starts it, or what is made first."""
        from launch.running import runtimes

        spec = backend.environment(benchmark.engine, benchmark.hardware.platform)
        try:
            return runtimes.preview(benchmark, spec, self._output_dir.absolute() / "RUN")
        except RequestError:
            return ""  # that it is refused is said after the plan

    def _refuse_job_flags(self, site: Site) -> None:
        if self._job.typed:
            from launch.slurm.options import refuse_without_slurm

            refuse_without_slurm(site, self._job.typed)
        if self._job.hang_timeout is not None:
            raise RequestError("--hang_timeout needs a site with a queue", where=f"--site={site.name}")


class SlurmRunner(_Site):
    """Runs in the queue of a cluster."""

    def __init__(self, site: Site, configs: Configs, output_dir: Path, job: Job) -> None:
        from launch.slurm import options

        self._site, self._configs, self._output_dir, self._job = site, configs, output_dir, job
        self.options: JobOptions = options.choose(site, job.typed, os.environ)

    def _meant(self, request: Request) -> Benchmark:
        benchmark = resolve(request, self._configs, find_backend(request.backend))
        if benchmark.is_submission:
            from launch.mlperf.admit import admit

            for note in admit(benchmark, self._configs, self._options_of(benchmark)):
                print(f"note: {note}", file=sys.stderr)
        return benchmark

    def _options_of(self, benchmark: Benchmark) -> JobOptions:
        """A submission says itself how long it takes; what a person typed stays."""
        if not benchmark.is_submission:
            return self.options
        from launch.mlperf.admit import with_its_time

        return with_its_time(benchmark, self.options, typed="time" in self._job.typed)

    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:
        from launch.slurm import submit

        if benchmark.is_submission:
            from launch.mlperf.admit import refuse_missing_data

            yield from raised(lambda: refuse_missing_data(benchmark, self._configs))
        backend, options = find_backend(benchmark.backend), self._options_of(benchmark)
        slurm = self._slurm() if patient else self._asked_once
        notes: list[str] = []
        yield from submit.refusals(benchmark, backend, self._output_dir, options, slurm, notes)
        for note in notes if patient else ():
            print(f"note: {note}", file=sys.stderr)

    @cached_property
    def _asked_once(self) -> "Slurm":
        from launch.slurm.client import Slurm

        return Slurm(self._site, patience_seconds=0)

    def start(self, benchmark: Benchmark, run_id: str) -> None:
        from launch.slurm import submit

        backend = find_backend(benchmark.backend)
        options = self._options_of(benchmark)
        submit.submit(benchmark, backend, self._output_dir, run_id, options, self._slurm(), self._job)

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Those that Slurm has no more in its queue; they are collected. One that cannot be hides no other."""
        from benchmarks.job_record import SUBMITTED
        from benchmarks.runs.runfolder import RunFolder
        from launch.slurm.run_states import states

        folders = [RunFolder(self._output_dir / run_id) for run_id in run_ids]
        never_submitted = {folder.run_id for folder in folders if not (folder.path / SUBMITTED).exists()}
        rows = states(folder for folder in folders if folder.run_id not in never_submitted)
        if rows and all(row.problems for row in rows):
            raise RunError(rows[0].problems[0])
        return never_submitted | {row.folder.run_id for row in rows if row.ended or row.state == "not submitted"}

    def plan(self, benchmark: Benchmark, backend: Backend) -> Plan:
        from launch.slurm.job_script import prepared

        in_container = benchmark.site.runtime == "container"
        return prepared(benchmark, backend, self._options_of(benchmark), container=in_container)

    def preview(self, benchmark: Benchmark, backend: Backend) -> str:
        from launch.slurm import submit

        script = submit.preview(benchmark, backend, self._output_dir, self._options_of(benchmark), self._job)
        return f"job.sbatch\n\n{script}".rstrip("\n") if script else ""

    def _slurm(self) -> "Slurm":
        from launch.slurm.client import Slurm

        return Slurm(self._site)


Runner = LocalRunner | SlurmRunner


def runner_of(site: Site, configs: Configs, output_dir: Path, job: Job) -> Runner:
    from launch.running import runtimes

    runtimes.refuse_unknown_engines(site)
    if site.slurm is None:
        return LocalRunner(configs, output_dir, job)
    return SlurmRunner(site, configs, output_dir, job)


def refused_text(refusals: Iterable[StepmarkError]) -> str:
    """The end of a dry run: everything that would be refused now, without repeats; a reason is said once."""
    alike: dict[tuple[str, ...], dict[str, StepmarkError]] = {}
    for one in refusals:
        alike.setdefault((one.why, one.next_command) if one.why else (str(one),), {})[str(one)] = one
    paragraphs = []
    for first, *others in map(list, map(dict.values, alike.values())):
        also = "".join(f"\n  also:  {one.what}" for one in others)
        paragraphs.append(f"\nwould be refused: {first}{also}\n".replace(f"; {DRY_RUN_SHOWS}", ""))
    return "".join(paragraphs)
