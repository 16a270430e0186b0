"""What is done with a compiled step, and with one that fails; the compiler itself is in tests/end_to_end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nemo_backend
from benchmarks.backend import SideProgram
from benchmarks.compilation.compiled import Compiled
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError, StepmarkError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, changed_benchmark
from jax_backend import BACKEND
from launch.checks import compiling
from launch.machine import this_machine

SAMPLE = (Path(__file__).parents[2] / "benchmarks/compilation/llama2_70b_64_bf16.json").read_bytes()
ABORTED = (
    "F1123 20:10:57.404649   20248 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_gpu_nonsense=1\n"
)
CRASHED = "F1123 20:10:57.404649   20248 nvptx_compiler.cc:12] LLVM error: no such symbol\n"


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return resolve(Request(backend="jax", model="llama2_70b", gpus=64, dtype="fp8"), Configs(), BACKEND)


Compiler = Callable[[Path, str], None]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Compiler]:
    """What it does with each job, by the job's folder and name; its requests are in `asked`."""
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


def fails(said: str, exit_code: int = -6) -> Compiler:
    def fail(folder: Path, _name: str) -> None:
        (folder / "log").write_text(said)
        (folder / "failed.json").write_text(json.dumps({"exit_code": exit_code}))

    return fail


def test_a_program_that_was_compiled_before_is_read(benchmark: Benchmark, compiler: list[Compiler]) -> None:
    first = compiling.compile_step(benchmark, BACKEND)
    compiler[0] = fails(CRASHED)
    assert compiling.compile_step(benchmark, BACKEND) == first
    flags = changed_benchmark(benchmark, xla_flags={**benchmark.settings.xla_flags, "xla_gpu_autotune_level": "0"})
    with pytest.raises(RunError):
        compiling.compile_step(flags, BACKEND)


def test_a_damaged_file_of_it_is_made_again(benchmark: Benchmark, compiler: list[Compiler], tmp_path: Path) -> None:
    assert compiler
    compiling.compile_step(benchmark, BACKEND)
    (kept,) = (tmp_path / "home" / "compiled").iterdir()
    kept.write_bytes(SAMPLE[:1000])
    assert isinstance(compiling.compile_step(benchmark, BACKEND), Compiled)
    assert msgspec.json.decode(kept.read_bytes(), type=Compiled).devices == 64


def test_a_home_that_cannot_be_written_costs_no_program(
    benchmark: Benchmark, compiler: list[Compiler], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiler
    (tmp_path / "home").write_text("a file")
    assert compiling.compile_step(benchmark, BACKEND).devices == 64
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fail", "error", "words"),
    [
        (fails(ABORTED), RequestError, ["the step: XLA has no flag --xla_gpu_nonsense=1", "doctor.py flags"]),
        (fails(CRASHED), RunError, ["the step: the compiler was ended by signal 6", "LLVM error: no such symbol"]),
        (fails("I1123 GetPjrtApi was found\n", -9), RunError, ["killed (signal 9)", "memory"]),
        (fails("Traceback\nValueError: 64 does not divide\n", 1), RunError, ["exit code 1", "64 does not divide"]),
        (lambda folder, _: folder.joinpath("report.json").write_text("{"), RunError, ["no report that can be read"]),
    ],
)
def test_a_failure_is_one_message_and_nothing_is_kept(
    benchmark: Benchmark,
    compiler: list[Compiler],
    tmp_path: Path,
    fail: Compiler,
    error: type[StepmarkError],
    words: list[str],
) -> None:
    compiler[0] = fail
    with pytest.raises(error) as raised:
        compiling.compile_step(benchmark, BACKEND)
    assert [word for word in words if word not in str(raised.value)] == []
    assert Path(raised.value.where).exists()  # its log can be read
    assert not (tmp_path / "home" / "compiled").exists()


def test_one_variant_that_fails_leaves_the_others(benchmark: Benchmark, compiler: list[Compiler]) -> None:
    well = compiler[0]
    compiler[0] = lambda folder, name: (fails(ABORTED) if name == "wrong" else well)(folder, name)
    other = changed_benchmark(benchmark, xla_flags={"xla_gpu_nonsense": "1"})
    found = compiling.compile_steps({"as planned": benchmark, "wrong": other}, BACKEND)
    assert [type(outcome) for outcome in found.values()] == [Compiled, RequestError]


def test_a_backend_without_such_a_program_names_what_can_be_compiled(benchmark: Benchmark) -> None:
    with pytest.raises(RequestError, match="NeMo") as refused:
        compiling.compile_step(benchmark, nemo_backend.BACKEND)
    assert refused.value.next_command.startswith("python launch/plan.py compile --backend=jax ")


def test_an_interrupt_keeps_what_is_compiled_by_then(benchmark: Benchmark, compiler: list[Compiler]) -> None:
    well = compiler[0]

    def interrupted(folder: Path, name: str) -> None:
        if name == "second":
            raise KeyboardInterrupt
        well(folder, name)

    compiler[0] = interrupted
    other = changed_benchmark(benchmark, xla_flags={})
    with pytest.raises(KeyboardInterrupt):
        compiling.compile_steps({"first": benchmark, "second": other}, BACKEND)
    compiler[0] = fails(CRASHED)
    assert compiling.compile_step(benchmark, BACKEND).devices == 64


# --- what this machine lacks ----------------------------------------------------------------------


def refusal(flag: str = "", *, make_environment: bool = False) -> RequestError | None:
    name, _, value = flag.partition("=")
    request = Request(backend="jax", model="llama2_70b", gpus=64, settings={name: value} if name else {})
    benchmark = resolve(request, Configs(), BACKEND)
    try:
        compiling.refuse_to_compile(benchmark, BACKEND, BACKEND.compile_program(), make_environment=make_environment)
    except RequestError as refused:
        return refused
    return None


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no environment."""
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(this_machine, "available_memory_bytes", lambda: 8 * 10**9)
    return tmp_path


def test_the_compiler_is_installed_only_where_it_is_asked_for(bare: Path) -> None:
    refused = refusal()
    assert refused is not None
    assert "about 6 GB" in refused.what
    assert str(bare / "home" / "environments") in refused.where
    assert "GB of disk are free there" in refused.why
    assert refused.next_command.endswith("--make_environment")
    assert not (bare / "home").exists()
    assert refusal(make_environment=True) is None


@pytest.mark.usefixtures("bare")
def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "available_memory_bytes", lambda: 1_200_000_000)
    refused = refusal(make_environment=True)
    assert refused is not None
    assert "1.20 of 1.5 GB" in refused.what
