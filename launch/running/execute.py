"""Execute one run: write its folder and provenance, run its phases, and write its result."""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import VERSION
from benchmarks.backend import Backend
from benchmarks.dashboard.events import ScalarWriter
from benchmarks.errors import RequestError
from benchmarks.files import cannot_write, mark_write_failure, retried
from benchmarks.machine.machine_gpus import busy_notes, on_gpus
from benchmarks.measuring.summary import Result
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, STEPS, RunFolder
from benchmarks.secret_rules import REDACTED, hidden, is_secret_name, refuse_secrets, shell_secrets
from benchmarks.values import NO_LABELS, Benchmark, Labels, Plan, Step, to_builtins
from launch.environments.runtime import Containers, Origin
from launch.environments.selection import runtime_of
from launch.machine import machine_gpus, processes, this_machine
from launch.running import local
from launch.running.screen import Screen, show_result

LAUNCHER_PACKAGES = ("absl-py", "msgspec", "numpy", "PyYAML", "rich", "scipy", "tensorboard")


def execute(
    benchmark: Benchmark,
    backend: Backend,
    output_dir: Path,
    run_id: str,
    telemetry: bool = True,
    labels: Labels = NO_LABELS,
) -> Result:
    """Run a benchmark on this machine, and show its result, which is computed from the raw files.

    Ctrl-C ends the workers. After the last worker has ended, Ctrl-C does not take effect until the result is shown.
    """
    folder = RunFolder.create(output_dir, run_id)
    try:
        runtime = runtime_of(benchmark, backend)
        python, origin = runtime.prepare()
        containers = runtime.containers(folder.path)
        gpus = machine_gpus.chosen(benchmark)
        plan = on_gpus(backend.plan(benchmark), gpus)
        begin(folder, benchmark, plan, python, origin, labels, busy_notes(gpus))
    except BaseException:
        shutil.rmtree(folder.path)  # nothing was started, so remove the folder
        raise
    with processes.interrupted_once() as let_signals_wait:
        pci = [gpu.pci for gpu in gpus]
        sampled = local.sample_while(folder.telemetry_dir(1), gpus=pci) if telemetry else contextlib.nullcontext()
        try:
            with sampled:
                _run_phases(plan, folder, benchmark, backend, Path(python), containers, let_signals_wait)
        except KeyboardInterrupt:
            if not folder.phase_dir(plan.phases[0].name).exists():  # no worker was started
                shutil.rmtree(folder.path)
            raise
        result = finish(folder, backend)
        show_result(folder, result)
        return result


def begin(
    folder: RunFolder,
    benchmark: Benchmark,
    plan: Plan,
    python: str,
    origin: Origin,
    labels: Labels,
    notes: Sequence[str] = (),
) -> None:
    """Write the description of the run before anything starts."""
    _refuse_blanks(folder, plan)
    if benchmark.instruments.pgle_profile:
        from launch.running import kept_profiles

        kept_profiles.take(folder, benchmark, origin)
    places = {phase.name: processes.places(python, folder.phase_dir(phase.name)) for phase in plan.phases}
    notes = [*ignored_variables(), *plan.notes, *notes]
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    about = collect_provenance(plan, origin, command, notes, places)
    about["run_id"] = folder.run_id
    about["labels"] = to_builtins(labels)
    known = shell_secrets(paths=(folder.path.absolute(), processes.REPOSITORY))
    for value, name in ((benchmark, BENCHMARK), (plan, PLAN), (labels, PROVENANCE)):
        refuse_secrets(to_builtins(value), f"{name}:", known)
    folder.write(BENCHMARK, benchmark)
    folder.write(PLAN, plan)
    folder.write(PROVENANCE, about)


def _refuse_blanks(folder: RunFolder, plan: Plan) -> None:
    """Refuse a folder with spaces or quotes in its path, because XLA and profilers split their options there."""
    words = [phase.environment.get("XLA_FLAGS", "") for phase in plan.phases]
    words += [word for phase in plan.phases for word in phase.command if word.startswith("--hlo_dir")]
    if re.search(r"\s|['\"]", str(folder.path.absolute())) and any("{phase_dir}" in text for text in words):
        raise RequestError(
            "the path of the run's folder has a space or a quote, at which XLA would split its flags",
            where=str(folder.path.parent),
            why="pass --output_dir=DIR without spaces or quotes",
        )


def _run_phases(
    plan: Plan,
    folder: RunFolder,
    benchmark: Benchmark,
    backend: Backend,
    python: Path,
    containers: Containers | None,
    let_signals_wait: Callable[[], None],
) -> None:
    measured = folder.measured_phase()
    with StepSink(folder, benchmark) as sink:
        for number, phase in enumerate(plan.phases, 1):
            phase_dir = folder.phase_dir(phase.name)
            starting = f"starting {backend.title} for {benchmark.model.name}"
            if len(plan.phases) > 1:
                place = f"phase {number} of {len(plan.phases)}, {phase.name}"
                starting = f"{place}: {backend.title}, {benchmark.model.name}"
            with Screen(benchmark.steps, starting) as screen:
                ended = local.run_phase(
                    phase,
                    phase_dir,
                    python,
                    backend.follow(benchmark, phase_dir, 1) if phase == measured else list,
                    partial(_take, screen, sink),
                    containers,
                    let_signals_wait if phase == plan.phases[-1] else None,
                    lambda: local.lost_gpu(folder.telemetry_dir(1)),
                )
            if any(process.exit_code != 0 or process.interrupted for process in ended):
                break  # later phases depend on this phase


def _take(screen: Screen, sink: "StepSink", steps: list[Step]) -> None:
    screen.show(sink.take(steps))


@retried
def finish(folder: RunFolder, backend: Backend) -> Result:
    """Record the digests of the raw files of a run that has ended, and make its result from these files."""
    about = folder.provenance()
    benchmark, plan = folder.benchmark(), folder.plan()
    records = [
        backend.read_phase(benchmark, folder.phase_dir(phase.name, attempt), attempt)
        for attempt in folder.attempts()
        for phase in plan.phases
    ]
    about["worker"] = [
        {"attempt": record.attempt, **msgspec.to_builtins(fact)} for record in records for fact in record.facts
    ]
    # For each rank of the last attempt, its NUMA node or why the rank was not bound; empty without binding.
    ended = folder.ended(folder.measured_phase().name, max(folder.attempts(), default=1))
    bound = [(one, one.binding) for one in ended if one.binding is not None]
    about["numa"] = [{"rank": one.rank, "host": one.host, **to_builtins(binding)} for one, binding in bound]
    about["files"] = folder.raw_digests()
    folder.write(PROVENANCE, about)
    result = store_result(folder, backend)
    if benchmark.instruments.pgle != "off":
        from launch.running import kept_profiles

        kept_profiles.keep(folder, result)
    return result


def store_result(folder: RunFolder, backend: Backend) -> Result:
    """Recompute steps.jsonl and result.json from the raw files, and write them."""
    result, steps = recompute(folder, backend)
    folder.write_steps(steps)
    folder.write(RESULT, result)
    return result


# --- the steps while the run trains -------------------------------------------------------------


class StepSink:
    """Writes each step as soon as it is read. If several launchers follow a run, only the first one writes."""

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._path = folder.path / STEPS
        self._folder, self._benchmark = folder, benchmark
        self._tokens = benchmark.tokens_per_step
        self._queued = folder.is_queued()
        self._events: ScalarWriter | None = None
        self._descriptor = -1

    def __enter__(self) -> "StepSink":
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another launcher writes the steps
            return self
        except OSError:  # a file system without locks
            pass
        # Remove the steps that an earlier launcher wrote. This launcher reads all steps again from the raw files.
        os.ftruncate(self._descriptor, 0)
        self._begin_events()
        return self

    @retried
    def _begin_events(self) -> None:
        place = self._folder.path / "tensorboard"
        if place.is_symlink():  # in a folder that others can write, it may lead to other files of this user
            place.unlink()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            shutil.rmtree(place)  # the steps of an earlier launcher; never through a link
        self._events = ScalarWriter(self._folder, self._benchmark)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        if self._events is not None:
            self._events.close()

    def take(self, steps: list[Step]) -> list[Step]:
        """Write the steps, and return them with their number of tokens."""
        counted = [msgspec.structs.replace(step, tokens=self._tokens) for step in steps]
        if self._events is None:
            return counted
        text = b"".join(msgspec.json.encode(step) + b"\n" for step in counted)
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            if not self._queued:  # a queued job continues to train
                mark_write_failure(self._folder.phase_dir(self._folder.measured_phase().name), error)
            why = "the steps so far and the raw files are kept"
            raise cannot_write(error, self._path, why, self._path.parent) from None
        self._events.write(counted)
        return counted


# --- provenance ---------------------------------------------------------------------------------
# The provenance never contains secrets.


def collect_provenance(
    plan: Plan,
    origin: Origin,
    command: list[str],
    notes: list[str],
    places: dict[str, processes.Places],
) -> dict[str, Any]:
    """Return the facts that are known before a run starts; `places` gives the paths of each phase."""
    return {
        "stepmark": VERSION,
        "command": [hidden(word) for word in command],
        "git": git_state(processes.REPOSITORY),
        "launcher": {"python": platform.python_version(), **{name: version(name) for name in LAUNCHER_PACKAGES}},
        "environment": origin,
        "machine": this_machine.facts(),
        "phases": {
            phase.name: {
                "argv": [processes.fill(word, places[phase.name]) for word in phase.command],
                "environment": redacted(
                    {name: processes.fill(value, places[phase.name]) for name, value in phase.environment.items()}
                ),
                "xla_flags": phase.environment.get("XLA_FLAGS", "").split(),
            }
            for phase in plan.phases
        },
        "shell": redacted({k: v for k, v in os.environ.items() if k.startswith(processes.PREFIXES_THAT_MATTER)}),
        "notes": notes,
    }


def ignored_variables() -> list[str]:
    """Return a note that names the variables of the user's shell that the run does not inherit."""
    names = sorted(name for name in os.environ if not processes.is_inherited(name))
    return [f"variables that the run does not inherit: {', '.join(names)}"] if names else []


def redacted(variables: dict[str, str]) -> dict[str, str]:
    return {name: REDACTED if is_secret_name(name) else hidden(value) for name, value in sorted(variables.items())}


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of a checkout and its number of changed files; None outside a checkout."""
    git = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    changed = sum(not line.startswith("#") for line in lines)
    return {"commit": lines[0].removeprefix("# branch.oid "), "changed_files": changed}
