"""One run from its first file to its result: folder, provenance, the phases on this machine, result."""

import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks.backend import Backend
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.machine.machine_gpus import busy_notes, on_gpus
from benchmarks.measuring.summary import Result
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, RunFolder
from benchmarks.runs.worker_events import read_phase
from benchmarks.secret_rules import refuse_secrets, shell_secrets
from benchmarks.text import duration_text
from benchmarks.values import NO_LABELS, Benchmark, Labels, Phase, Plan, Step, to_builtins
from launch.environments.runtime import Containers, Origin
from launch.environments.selection import runtime_of
from launch.machine import machine_gpus, processes
from launch.running import local, provenance, sampling
from launch.running.screen import Screen
from launch.running.step_sink import StepSink

MOST_LOOKED_AT = 5  # earlier runs of the same name


def execute(
    benchmark: Benchmark,
    backend: Backend,
    output_dir: Path,
    run_id: str,
    telemetry: bool = True,
    labels: Labels = NO_LABELS,
) -> tuple[RunFolder, Result]:
    """Run a benchmark on this machine. The result is recomputed from the raw files, as verify does it."""
    folder = RunFolder.create(output_dir, run_id)
    try:
        runtime = runtime_of(benchmark, backend)
        python, origin = runtime.prepare()
        containers = runtime.containers(folder.path)
        gpus = machine_gpus.chosen(benchmark)
        plan = on_gpus(backend.plan(benchmark), gpus)
        begin(folder, benchmark, plan, python, origin, labels, busy_notes(gpus))
    except BaseException:
        shutil.rmtree(folder.path)  # nothing was started, so nothing is left
        raise
    with processes.interrupted_once():
        pci = [gpu.pci for gpu in gpus]
        sampled = sampling.sample_while(folder.telemetry_dir(1), gpus=pci) if telemetry else contextlib.nullcontext()
        with sampled:
            _run_phases(plan, folder, benchmark, backend, Path(python), containers)
        return folder, finish(folder, backend)


def begin(
    folder: RunFolder,
    benchmark: Benchmark,
    plan: Plan,
    python: str,
    origin: Origin,
    labels: Labels,
    notes: Sequence[str] = (),
) -> None:
    """Write down what is to be run before anything starts."""
    _refuse_blanks(folder, plan)
    if benchmark.pgle_profile:
        from launch.running import kept_profiles

        kept_profiles.take(folder, benchmark, origin)
    places = {phase.name: processes.places(python, folder.phase_dir(phase.name)) for phase in plan.phases}
    notes = [*provenance.ignored_variables(), *plan.notes, *notes]
    about = provenance.collect(plan, origin, provenance.command_line(), notes, places)
    about["run_id"] = folder.run_id
    about["labels"] = to_builtins(labels)
    known = shell_secrets(paths=(folder.path.absolute(), processes.REPOSITORY))
    for value, name in ((benchmark, BENCHMARK), (plan, PLAN), (labels, PROVENANCE)):
        refuse_secrets(to_builtins(value), f"{name}:", known)
    folder.write(BENCHMARK, benchmark)
    folder.write(PLAN, plan)
    folder.write(PROVENANCE, about)


def _refuse_blanks(folder: RunFolder, plan: Plan) -> None:
    """XLA and profilers split what they are told at blanks: half a folder's name would be another folder."""
    told = [phase.environment.get("XLA_FLAGS", "") for phase in plan.phases]
    told += [word for phase in plan.phases for word in phase.command if word.startswith("--hlo_dir")]
    if re.search(r"\s|['\"]", str(folder.path.absolute())) and any("{phase_dir}" in text for text in told):
        raise RequestError(
            "the run's folder has a blank or a quote in its name, at which XLA would split its flags",
            where=str(folder.path.parent),
            next_command="--output_dir=DIR with a plainer name",
        )


def _run_phases(
    plan: Plan,
    folder: RunFolder,
    benchmark: Benchmark,
    backend: Backend,
    python: Path,
    containers: Containers | None,
) -> None:
    measured = folder.measured_phase()
    with StepSink(folder, benchmark) as sink:
        for number, phase in enumerate(plan.phases, 1):
            phase_dir = folder.phase_dir(phase.name)
            starting = f"starting {backend.title} for {benchmark.model.name}"
            if len(plan.phases) > 1:
                place = f"phase {number} of {len(plan.phases)}, {phase.name}"
                starting = f"{place}: {backend.title}, {benchmark.model.name}"
            with Screen(benchmark.steps, starting + time_of_last_run(folder, benchmark, phase)) as screen:
                ended = local.run_phase(
                    phase,
                    phase_dir,
                    python,
                    backend.follow(benchmark, phase_dir, 1) if phase == measured else list,
                    _shown(screen, sink),
                    lambda: sampling.lost_gpu(folder.telemetry_dir(1)),
                    containers,
                )
            if any(process.exit_code != 0 for process in ended):
                break  # what comes after rests on this phase


def _shown(screen: Screen, sink: StepSink) -> Callable[[list[Step]], None]:
    return lambda steps: screen.show(sink.take(steps))


def time_of_last_run(folder: RunFolder, benchmark: Benchmark, phase: Phase) -> str:
    """Return how long the newest other run of this benchmark took to end its first step; empty if there is none."""
    alike = re.sub(r"^[^-]*-(.*)-[^-]*$", r"*-\1-*", folder.run_id)  # but for when and by chance
    for path in sorted(folder.path.parent.glob(alike), reverse=True)[:MOST_LOOKED_AT]:
        earlier = RunFolder(path)
        with contextlib.suppress(StepmarkError, OSError):
            if path == folder.path or replace(earlier.benchmark(), steps=benchmark.steps) != benchmark:
                continue
            record = read_phase(earlier.phase_dir(phase.name), 1)
            if record.started and record.steps and record.started[0].launched_unix_seconds:
                to_loop = record.started[0].unix_seconds - record.started[0].launched_unix_seconds
                return f", about {duration_text(to_loop + (record.steps[0].seconds or 0))} as last time"
    return ""


def finish(folder: RunFolder, backend: Backend) -> Result:
    """Seal the raw files of a run that has ended, and make its result from them."""
    about = folder.provenance()
    benchmark, plan = folder.benchmark(), folder.plan()
    records = [
        backend.read_phase(benchmark, folder.phase_dir(phase.name, attempt), attempt)
        for attempt in folder.attempts()
        for phase in plan.phases
    ]
    about["worker"] = [msgspec.to_builtins(fact) for record in records for fact in record.facts]
    # The NUMA node of each rank of the last attempt, or why it has none; empty if no rank was to be bound.
    ended = folder.ended(folder.measured_phase().name, max(folder.attempts(), default=1))
    bound = [(one, one.binding) for one in ended if one.binding is not None]
    about["numa"] = [{"rank": one.rank, "host": one.host, **to_builtins(binding)} for one, binding in bound]
    about["files"] = folder.raw_digests()
    folder.write(PROVENANCE, about)
    result = store_result(folder, backend)
    if benchmark.pgle != "off":
        from launch.running import kept_profiles

        kept_profiles.keep(folder, result)
    return result


def store_result(folder: RunFolder, backend: Backend) -> Result:
    """Write steps.jsonl and result.json as the raw files have them."""
    result, steps = recompute(folder, backend)
    folder.write_steps(steps)
    folder.write(RESULT, result)
    return result
