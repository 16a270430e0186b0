"""A simulated PGLE profile: its text, what it says of itself, and that a run has it before anything starts.

That XLA reads one is shown by tests/end_to_end/test_compiled.py.
"""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import NO_LABELS, Benchmark, PgleProfile
from jax_backend import BACKEND
from launch.planning import simulated_profile
from launch.running.execute import begin

GATHER = Operation(
    name="all-gather-start.4", what="collective", event="start", kind="all-gather", group_size=64, group_nodes=8,
    bytes=1e9, wire_bytes=63 / 64 * 1e9,
)  # fmt: skip
SCHEDULE = Schedule(
    entry="main",
    computations={
        "main": [GATHER, Operation(name="while.1", what="loop", body="body", trips=80)],
        "body": [
            Operation(name="cublas-lt-matmul.7", what="matmul", flops=794.5e9, dtype="bf16"),
            Operation(name="all-gather-done.4", what="collective", event="done", of="all-gather-start.4"),
        ],
    },
)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """One whose compiled program has the schedule above."""
    compiled = SimpleNamespace(schedule=SCHEDULE, versions={"jaxlib": "0.12.0.1"}, program_sha256="d" * 64)
    monkeypatch.setattr(simulated_profile, "compile_step", lambda *_, **__: compiled)
    settings = {"attention": "cudnn_flash_jax"}
    request = Request(backend="jax", model="llama2_70b", gpus=64, dtype="bf16", pgle="simulated", settings=settings)
    return resolve(request, Configs(), BACKEND)


def test_what_is_simulated_is_compiled_twice(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_profile, "_with_profile", lambda one, *_, **__: one)
    planned = {"off": msgspec.structs.replace(benchmark, pgle="off"), "on": benchmark}
    assert list(simulated_profile.beside(planned, BACKEND)) == ["off", "on", "on, with its simulated profile"]


def test_a_profile_that_a_gpu_records_is_not_compiled_with(benchmark: Benchmark) -> None:
    with pytest.raises(RequestError, match="records its profile on a GPU"):
        simulated_profile.beside({"auto": msgspec.structs.replace(benchmark, pgle="auto")}, BACKEND)


def test_each_instruction_has_the_cost_that_the_rates_imply(benchmark: Benchmark, tmp_path: Path) -> None:
    simulated_profile.write(benchmark, BACKEND, tmp_path / "pgle")
    text = (tmp_path / "pgle/profile.pbtxt").read_text()
    costs = {line.split('"')[1]: float(line.split()[-2]) for line in text.splitlines()}
    assert costs.keys() == {"all-gather-start.4", "cublas-lt-matmul.7"}
    assert costs["cublas-lt-matmul.7"] == pytest.approx(1000, rel=0.01)  # microseconds, at 794.5 TFLOP/s
    assert 1e9 / 360e9 * 1e6 < costs["all-gather-start.4"] < 2 * 1e9 / 360e9 * 1e6


def test_it_is_marked_as_simulated_and_says_of_what_and_by_which_rates(benchmark: Benchmark, tmp_path: Path) -> None:
    about = simulated_profile.write(benchmark, BACKEND, tmp_path / "pgle")
    assert msgspec.json.decode((tmp_path / "pgle/profile.json").read_bytes(), type=PgleProfile) == about
    assert about.sha256 == hashlib.sha256((tmp_path / "pgle/profile.pbtxt").read_bytes()).hexdigest()
    assert (about.origin, about.program, about.key) == ("simulated", "d" * 64, BACKEND.profile_key(benchmark))
    assert (about.instructions, about.collectives, about.covered) == (2, 1, 1)
    assert about.made_by["settings"]["attention"] == "cudnn_flash_jax"
    assert about.made_by["versions"] == {"jaxlib": "0.12.0.1"}
    assert about.rates["matmul_flops"]["bf16"] == pytest.approx(794.5e12)


def test_a_run_has_it_in_its_folder_before_anything_starts(benchmark: Benchmark, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    begin(folder, benchmark, BACKEND, BACKEND.plan(benchmark), "python", {}, NO_LABELS)
    assert folder.path / "pgle/profile.pbtxt" in folder.raw_files()  # so it is sealed with the run


def test_a_compiler_that_fails_fails_the_run_before_it_starts(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunError("the compiler was ended by signal 6")

    monkeypatch.setattr(simulated_profile, "compile_step", fail)
    folder = RunFolder.create(tmp_path, "run")
    with pytest.raises(RunError, match="signal 6"):
        begin(folder, benchmark, BACKEND, BACKEND.plan(benchmark), "python", {}, NO_LABELS)
    assert list(folder.path.iterdir()) == []


def test_the_compiler_reads_it_from_a_file_that_is_named_by_what_is_in_it(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a program compiled with it is found again among those that were compiled before."""
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path))
    planned = {"as planned": benchmark}
    found = simulated_profile.beside(planned, BACKEND)
    assert found == simulated_profile.beside(planned, BACKEND)
    assert found["as planned"] == benchmark
    path = Path(found["with its simulated profile"].xla_flags["xla_gpu_pgle_profile_file_or_directory_path"])
    assert "cublas-lt-matmul.7" in path.read_text()
    assert path.stem in hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_backend_that_reads_no_profile_is_refused(benchmark: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="reads no simulated profile"):
        simulated_profile.write(benchmark, find_backend("nemo"), tmp_path / "pgle")
