"""One run from its first file to its result: folder, provenance, phases, steps as they come, result."""

import os
from pathlib import Path

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RunError
from benchmarks.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, STEPS, RunFolder, new_run_id, recompute
from benchmarks.summary import Result
from benchmarks.values import Benchmark, Plan, Step
from launch import environments, local, provenance
from launch.screen import Screen
from launch.tensorboard_events import ScalarWriter


def execute(benchmark: Benchmark, backend: Backend, output_dir: Path) -> tuple[RunFolder, Result]:
    """Run a benchmark on this machine. The result is recomputed from the raw files, as verify does it."""
    folder = RunFolder.create(output_dir, new_run_id(benchmark))
    spec = backend.environment(benchmark.engine)
    try:
        python = environments.ensure(spec)
    except BaseException:
        folder.path.rmdir()  # nothing was started, so nothing is left
        raise
    plan = backend.plan(benchmark)
    places = {phase.name: local.places(python, folder.phase_dir(phase.name)) for phase in plan.phases}
    about = provenance.collect(plan, spec, provenance.command_line(), provenance.ignored_variables(), places)
    about["run_id"] = folder.run_id
    folder.write(BENCHMARK, benchmark)
    folder.write(PLAN, plan)
    folder.write(PROVENANCE, about)
    with local.interrupted_once():
        _run_phases(plan, folder, benchmark, backend, python)
        about["worker"] = [msgspec.to_builtins(fact) for fact in _facts(folder, benchmark, backend)]
        about["files"] = folder.raw_digests()
        folder.write(PROVENANCE, about)
        return folder, store_result(folder, backend)


def _run_phases(plan: Plan, folder: RunFolder, benchmark: Benchmark, backend: Backend, python: Path) -> None:
    for phase in plan.phases:
        phase_dir = folder.phase_dir(phase.name)
        with (
            StepSink(folder, benchmark) as sink,
            Screen(benchmark.steps, f"starting {backend.title} for {benchmark.model.name}") as screen,
        ):

            def on_steps(steps: list[Step], sink: StepSink = sink, screen: Screen = screen) -> None:
                screen.show(sink.take(steps))

            new_steps = backend.follow(benchmark, phase_dir, 1) if phase.writes_steps else list
            ended = local.run_phase(phase, phase_dir, python, new_steps, on_steps)
        if any(process.exit_code != 0 for process in ended):
            break  # what comes after rests on this phase


def store_result(folder: RunFolder, backend: Backend) -> Result:
    result, steps = recompute(folder, backend)
    folder.write_steps(steps)
    folder.write(RESULT, result)
    return result


def _facts(folder: RunFolder, benchmark: Benchmark, backend: Backend) -> list[object]:
    records = [backend.read_phase(benchmark, folder.phase_dir(phase.name), 1) for phase in folder.plan().phases]
    return [fact for record in records for fact in record.facts]


class StepSink:
    """Puts every step into steps.jsonl and TensorBoard the moment it is read; a killed launcher loses none."""

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._path = folder.path / STEPS
        self._tokens = benchmark.tokens_per_step
        self._events = ScalarWriter(folder.path / "tensorboard")
        self._descriptor = -1

    def __enter__(self) -> "StepSink":
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        self._events.close()

    def take(self, steps: list[Step]) -> list[Step]:
        counted = [msgspec.structs.replace(step, tokens=self._tokens) for step in steps]
        text = b"".join(msgspec.json.encode(step) + b"\n" for step in counted)
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            raise RunError(
                f"steps could not be written: {error.strerror}",
                where=str(self._path),
                why="the run was ended; the steps written until then are kept",
                next_command=f"make space, then: python launch/verify.py --repair {self._path.parent}",
            ) from None
        self._events.write(counted)
        return counted
