"""A backend of another package: its worker naps instead of training, and fails on request."""

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.backend import EnvironmentSpec, LockFile, LogFormat, SideProgram
from benchmarks.errors import RequestError
from benchmarks.request.framework import slowdown_option
from benchmarks.runs import worker_events
from benchmarks.values import (
    Benchmark,
    Hardware,
    NumberBytes,
    Parallelism,
    Phase,
    Plan,
    RunRecord,
    Scalar,
    SettingTypes,
    Step,
    Storage,
)

HERE = Path(__file__).parent
SETTINGS = {
    "replicas": "int",
    "nap_seconds": "float",
    "naps": "int",
    "phases": "int",  # naps before the measured phase
    "fault": "str",  # FAULT@STEP of toy_worker.py, only in the first attempt
    "fault_rank": "int",
}


class Toy:
    name = "toy"
    title = "Toy (sleeps)"
    engines = ("nap",)
    layout_settings = frozenset({"replicas"})
    reserved_variables = ("TOY_",)
    reserved_settings: Mapping[str, str] = {"naps": "--steps"}

    def settings(self) -> SettingTypes:
        return SETTINGS

    def parallelism(self, knobs: dict[str, Scalar], gpus: int) -> Parallelism:
        return Parallelism(data=int(knobs.get("replicas", gpus)))

    def layout_settings_for(
        self,
        engine: str,  # noqa: ARG002
        parallelism: Parallelism,
        gpus: int,
        hardware: Hardware,  # noqa: ARG002
    ) -> dict[str, Scalar] | None:
        return {"replicas": parallelism.data} if parallelism.data == gpus else None

    def refusals(self, benchmark: Benchmark) -> list[RequestError]:
        too_deep = float(benchmark.settings.knobs["nap_seconds"]) > 1
        return [RequestError("too deep a sleep", where="--set=nap_seconds")] if too_deep else []

    def storage(self, benchmark: Benchmark) -> Storage:  # noqa: ARG002
        return Storage(
            saved_activations=frozenset(),
            one_byte_activations=frozenset(),
            numbers=NumberBytes(
                weight_bytes=4,
                gradient_bytes=4,
                optimizer_bytes=8,
            ),
            optimizer_replicas=1,
            gathers_layers=False,
            writes_attention_scores=False,
            usable_fraction=0.9,
        )

    def environment(self, engine: str, platform: str = "cpu") -> EnvironmentSpec:  # noqa: ARG002
        lock = LockFile(path=HERE / "toy.lock", python_minimum=(3, 11), python_maximum=(3, 20), size_gb=0.01)
        return EnvironmentSpec(name="toy", locks=(lock,), import_check="json", image="registry.example/toy:1.0")

    def _command(self, benchmark: Benchmark) -> list[str]:
        knobs, tasks = benchmark.settings.knobs, self._tasks(benchmark)
        return [
            "{python}",
            str(HERE / "toy_worker.py"),
            "{repository}/benchmarks/inside/worker_kit.py",
            "--events_dir={phase_dir}",
            f"--processes={benchmark.nodes * tasks}",
            f"--devices={benchmark.gpus}",
            f"--tasks_per_node={tasks}",
            *slowdown_option(benchmark),
            "--",
            f"steps={benchmark.steps}",
            f"nap={float(knobs['nap_seconds'])}",
            f"fault={knobs.get('fault', '')}",
            f"fault_rank={knobs.get('fault_rank', 0)}",
        ]

    def _tasks(self, benchmark: Benchmark) -> int:
        return max(1, benchmark.gpus // benchmark.nodes)

    def plan(self, benchmark: Benchmark) -> Plan:
        knobs = benchmark.settings.knobs
        measured = self._measured(benchmark)
        before = [
            self._phase(f"nap{number}", ["{python}", "-c", "import time; time.sleep(0.2)"], benchmark, 1)
            for number in range(int(knobs.get("phases", 0)))
        ]
        return Plan(backend="toy", environment_name="toy", phases=[*before, measured])

    def check_phase(self, benchmark: Benchmark) -> Phase:
        from benchmarks.runs import first_check

        command = first_check.with_option(self._command(benchmark))
        return first_check.check_phase(self._measured(benchmark), command)

    def _measured(self, benchmark: Benchmark) -> Phase:
        return self._phase("perf", self._command(benchmark), benchmark, self._tasks(benchmark), writes_steps=True)

    def _phase(
        self, name: str, command: list[str], benchmark: Benchmark, tasks: int, *, writes_steps: bool = False
    ) -> Phase:
        return Phase(
            name=name,
            command=command,
            environment={"NAPPING": "a lot, 'and' \"well\" for $5"},
            nodes=benchmark.nodes,
            tasks_per_node=tasks,
            devices_per_task=1,
            writes_steps=writes_steps,
        )

    def read_phase(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:  # noqa: ARG002
        return worker_events.read_phase(phase_dir, attempt)

    def follow(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:  # noqa: ARG002
        return worker_events.follow(phase_dir, attempt)

    def log_formats(self) -> tuple[LogFormat, ...]:
        return ()

    def peak_program(self, engine: str, platform: str) -> SideProgram | None:  # noqa: ARG002
        program, turns = "{repository}/tests/toy_backend/toy_peak.py", "{repository}/benchmarks/inside/peak_turns.py"
        return SideProgram(command=["{python}", program, turns, platform, "{phase_dir}"])


BACKEND = Toy()
