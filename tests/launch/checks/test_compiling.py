"""What is done with a compiled step, and with one that fails; the compiler itself is in tests/end_to_end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.backend import Backend, SideProgram
from benchmarks.compilation.compiled import CompileReport
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError, StepmarkError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, changed_benchmark
from jax_backend import BACKEND
from launch.checks import compiling
from tests.toy_backend.toy_backend import Toy

SAMPLE = (Path(__file__).parents[2] / "benchmarks/compilation/llama2_70b_64_bf16.json").read_bytes()
CRASHED = "F1123 20:10:57.404649   20248 nvptx_compiler.cc:12] LLVM error: no such symbol\n"


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return resolve(Request(backend="jax", model="llama2_70b", gpus=64, dtype="fp8"), Configs(), BACKEND)


Compiler = Callable[[Path, str], None]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Compiler]:
    """The compiler's actions for each job, by the job's folder and name; its requests are in `asked`."""
    does: list[Compiler] = [lambda folder, _: folder.joinpath("report.json").write_bytes(SAMPLE) and None]

    def run(_backend: object, engine: str, program: SideProgram, folder: Path, _type: object, look: Any) -> None:
        assert engine == "maxtext"
        assert "{repository}/jax_backend/inside/compile_program.py" in program.command
        for place, job in enumerate(json.loads((folder / "request.json").read_bytes())):
            (folder / str(place)).mkdir()
            look()
            does[0](folder / str(place), job["name"])

    monkeypatch.setattr(compiling, "run_side_program", run)
    monkeypatch.setattr(compiling, "refuse_to_compile", lambda *_, **__: None)
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    return does


def fails(stderr: str, exit_code: int = -6) -> Compiler:
    def fail(folder: Path, _name: str) -> None:
        (folder / "log").write_text(stderr)
        (folder / "failed.json").write_text(json.dumps({"exit_code": exit_code}))

    return fail


def compile_step(benchmark: Benchmark, backend: Backend = BACKEND) -> CompileReport:
    """The program of one benchmark; its error is raised."""
    (outcome,) = compiling.compile_steps({"the step": benchmark}, backend).values()
    if isinstance(outcome, StepmarkError):
        raise outcome
    return outcome


def test_a_step_is_compiled(benchmark: Benchmark, compiler: list[Compiler]) -> None:
    assert compiler
    assert compile_step(benchmark).devices == 64


@pytest.mark.parametrize(
    ("fail", "error", "words"),
    [
        (fails(CRASHED), RunError, ["the step: the compiler failed with exit code -6", "LLVM error: no such symbol"]),
        (fails("I1123 GetPjrtApi was found\n", -9), RunError, ["killed (signal 9)", "memory"]),
        (fails("Traceback\nValueError: 64 does not divide\n", 1), RunError, ["exit code 1", "64 does not divide"]),
        (lambda folder, _: folder.joinpath("report.json").write_text("{"), RunError, ["report cannot be read"]),
    ],
)
def test_a_failure_is_one_message(
    benchmark: Benchmark, compiler: list[Compiler], fail: Compiler, error: type[StepmarkError], words: list[str]
) -> None:
    compiler[0] = fail
    with pytest.raises(error) as raised:
        compile_step(benchmark)
    assert [word for word in words if word not in str(raised.value)] == []
    assert Path(raised.value.where).exists()  # its log can be read


def test_one_variant_that_fails_leaves_the_others(benchmark: Benchmark, compiler: list[Compiler]) -> None:
    well = compiler[0]
    compiler[0] = lambda folder, name: (fails(CRASHED) if name == "wrong" else well)(folder, name)
    other = changed_benchmark(benchmark, xla_flags={"xla_gpu_nonsense": "1"})
    found = compiling.compile_steps({"as planned": benchmark, "wrong": other}, BACKEND)
    assert [type(outcome) for outcome in found.values()] == [CompileReport, RunError]


def test_a_backend_without_such_a_program_names_what_can_be_compiled(benchmark: Benchmark) -> None:
    with pytest.raises(RequestError, match="Toy") as refused:
        compile_step(benchmark, Toy())
    assert refused.value.next_command.startswith("python launch/plan.py compile --backend=jax ")


# --- what this machine lacks ----------------------------------------------------------------------


def refusal(flag: str = "", *, make_environment: bool = False) -> RequestError | None:
    name, _, value = flag.partition("=")
    request = Request(backend="jax", model="llama2_70b", gpus=64, settings={name: value} if name else {})
    benchmark = resolve(request, Configs(), BACKEND)
    try:
        program = BACKEND.compile_program()
        compiling.refuse_to_compile(benchmark, BACKEND, "maxtext", program, make_environment=make_environment)
    except RequestError as refused:
        return refused
    return None


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no environment."""
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    return tmp_path


def test_the_compiler_is_installed_only_where_it_is_asked_for(bare: Path) -> None:
    refused = refusal()
    assert refused is not None
    assert "about 6 GB" in refused.what
    assert str(bare / "home" / "environments") in refused.where
    assert refused.next_command.endswith("--make_environment")
    assert not (bare / "home").exists()
    assert refusal(make_environment=True) is None
