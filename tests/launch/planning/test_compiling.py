"""What `plan.py compile` says and how it ends; the program itself is run in tests/end_to_end/test_compiled.py."""

import json
from pathlib import Path

import msgspec
import pytest

import nemo_backend
from benchmarks.backend import SideProgram
from benchmarks.compilation.compiled import Compiled
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark
from jax_backend import BACKEND
from launch.planning import compiling

SAMPLE = Path(__file__).parents[2] / "benchmarks" / "compilation" / "compiled" / "llama2_70b_64_fp8.json"


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return resolve(Request(backend="jax", model="llama2_70b", gpus=64, dtype="fp8"), Configs(), BACKEND)


@pytest.fixture(autouse=True)
def nothing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with a compiler and memory (tests/launch/checks/test_compile_check.py)."""
    monkeypatch.setattr(compiling, "refuse_to_compile", lambda *_, **__: None)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """What the program is to report; the folder it gets is made and removed as ever."""
    reports = [msgspec.json.decode(SAMPLE.read_bytes(), type=Compiled)]

    def run(_backend: object, engine: str, program: SideProgram, folder: Path, _type: object) -> Compiled:
        assert engine == "maxtext"
        assert "{repository}/jax_backend/inside/compile_program.py" in program.command
        assert folder.parent.is_dir()
        return reports[0]

    monkeypatch.setattr(compiling, "run_side_program", run)
    return reports


def test_what_is_explained_ends_well(
    benchmark: Benchmark, compiled: list[Compiled], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled
    assert compiling.compile_and_show(benchmark, BACKEND, as_json=False, make_environment=False) == 0
    out, err = capsys.readouterr()
    assert "matrices of layers are gathered in fp8" in out
    assert "92 cuBLASLt matmuls in fp8" in out
    assert "63.49 GB a device at the peak" in out
    assert "64 x NVIDIA H100" in err


def test_what_is_not_explained_is_exit_code_3(
    benchmark: Benchmark, compiled: list[Compiled], capsys: pytest.CaptureFixture[str]
) -> None:
    compiled[0] = msgspec.structs.replace(compiled[0], parameters=7)
    assert compiling.compile_and_show(benchmark, BACKEND, as_json=True, make_environment=False) == 3
    assert json.loads(capsys.readouterr().out)["not_explained"] == ["parameters: -6.898e+10 parameters of a device"]


def test_a_backend_without_such_a_program_names_what_can_be_compiled(benchmark: Benchmark) -> None:
    with pytest.raises(RequestError, match="NeMo") as refused:
        compiling.compile_and_show(benchmark, nemo_backend.BACKEND, as_json=False, make_environment=False)
    assert refused.value.next_command.startswith("python launch/plan.py compile --backend=jax ")


def test_the_folder_is_kept_where_its_log_must_be_read(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def fail(_backend: object, _engine: str, _program: object, folder: Path, _type: object) -> Compiled:
        folders.append(folder)
        raise RunError("it failed", where=str(folder / "rank-0.log"))

    monkeypatch.setattr(compiling, "run_side_program", fail)
    with pytest.raises(RunError, match="it failed"):
        compiling.compile_and_show(benchmark, BACKEND, as_json=False, make_environment=False)
    assert folders[0].parent.is_dir()
    folders[0].parent.rmdir()


def test_an_interrupted_compilation_leaves_no_folder(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def interrupted(_backend: object, _engine: str, _program: object, folder: Path, _type: object) -> Compiled:
        assert folder.parent.is_dir()
        folders.append(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "run_side_program", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiling.compile_step(benchmark, BACKEND)
    assert not folders[0].parent.exists()
