"""Flags that the installed compiler refuses are refused before a run, and shown by doctor.py flags."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks.backend import Backend, FlagFact, FlagGroup, FlagsCheck, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Container, Hardware, Plan, changed_benchmark
from launch.checks import flags_check
from launch.environments import venvs
from launch.terminal import progress
from tests import forked

REPOSITORY = Path(__file__).resolve().parents[3]
GONE, KNOWN, TYPO = "--xla_gpu_graph_level=0", "--xla_gpu_enable_command_buffer=", "--xla_gpu_typo=1"
SETTINGS = {flag.removeprefix("--").partition("=")[0]: flag.partition("=")[2] for flag in (GONE, KNOWN, TYPO)}
# What a check's program prints of them, and its exit code.
REFUSES = f"print('{GONE}: unknown to X 1; use b'); print('{TYPO}: unknown to X 1'); print('X 1 was asked'); exit(2)"
KNOWS_ALL = "print('X 1 knows all')"


class FlagsRun:
    """The jax backend with another program for the check, and optionally its environment."""

    name = "jax"
    engines = ("maxtext",)

    def __init__(self, code: str, *arguments: str, phase_flags: str = "") -> None:
        self.command = ["{python}", "-c", code, *arguments]
        self.phase_flags = phase_flags

    def environment(self, engine: str, platform: str = "cpu") -> Any:
        return find_backend("jax").environment(engine, platform)

    def plan(self, benchmark: Benchmark) -> Plan:
        plan = find_backend("jax").plan(benchmark)
        first = msgspec.structs.replace(plan.phases[0], environment={"XLA_FLAGS": self.phase_flags})
        return msgspec.structs.replace(plan, phases=[first])

    def flag_group(self, name: str, hardware: Hardware) -> FlagGroup:
        return find_backend("jax").flag_group(name, hardware)

    def flags_check(self, flags: list[str]) -> FlagsCheck:
        facts = [
            FlagFact(flag=flag, status="unknown", text="of old", successor=KNOWN)
            if flag == GONE
            else FlagFact(flag=flag, status="not listed", text="not in the table")
            for flag in flags
        ]
        return FlagsCheck(facts=facts, command=self.command, environment={"PLAYED": "{phase_dir}"})


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    flags_check.ask_once.cache_clear()
    progress.note.cache_clear()
    yield
    flags_check.ask_once.cache_clear()


@pytest.fixture
def python_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is made: its Python is this one."""
    monkeypatch.setattr(venvs, "python_of", lambda _spec: Path(sys.executable))


def benchmark(**changes: Any) -> Benchmark:
    request = Request(backend="jax", model="llama2_tiny", steps=10, settings={})
    return changed_benchmark(
        resolve(request, Configs(), find_backend("jax")), xla_flags=changes.pop("flags", SETTINGS), **changes
    )


def refuse(checked: FlagsRun, **changes: Any) -> None:
    flags_check.refuse_unknown_flags(benchmark(**changes), cast(Backend, checked))


# --- before a run -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("python_here")
def test_what_the_compiler_refuses_is_refused_by_name() -> None:
    with pytest.raises(RequestError) as refused:
        refuse(FlagsRun(REFUSES))
    error = refused.value
    assert error.what == "environment 'jax-maxtext' refuses XLA flags of this run: xla_gpu_graph_level, xla_gpu_typo"
    assert error.where == "--set=xla_gpu_graph_level=0 --set=xla_gpu_typo=1"
    assert "--xla_gpu_typo=1: unknown to X 1" in error.why


@pytest.mark.usefixtures("python_here")
def test_in_a_container_the_image_decides(capsys: pytest.CaptureFixture[str]) -> None:
    site = msgspec.structs.replace(benchmark().site, runtime="container", container=Container(images="/images"))
    refuse(FlagsRun(REFUSES), site=site)
    assert capsys.readouterr().err == ""
    checked = cast(Backend, FlagsRun(REFUSES))
    with pytest.raises(RequestError, match="xla_gpu_typo"):  # unless it is compiled on this machine
        flags_check.refuse_unknown_flags(benchmark(site=site), checked, checked.environment("maxtext", "cuda"))


# --- all flags of the plan ----------------------------------------------------------------------------


@pytest.mark.usefixtures("python_here")
def test_a_flag_that_pgle_brings_is_asked_too_and_refused_as_its() -> None:
    checked = FlagsRun(REFUSES, phase_flags=f"{KNOWN} {TYPO} --xla_a={{phase_dir}}/b")
    with pytest.raises(RequestError) as refused:
        refuse(checked, flags={"xla_gpu_graph_level": "0"}, pgle="nsys")
    error = refused.value
    assert error.where == "--set=xla_gpu_graph_level=0 --pgle=nsys"
    with pytest.raises(RequestError):
        refuse(checked, flags={}, pgle="nsys")


@pytest.mark.usefixtures("python_here")
@pytest.mark.parametrize(
    ("code", "why"), [("exit(2)", "exit code 2"), ("import time; time.sleep(60)", "no answer within 0.5 s")]
)
def test_a_check_that_breaks_is_a_note_and_no_refusal(
    code: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in code:
        monkeypatch.setattr(flags_check, "SECONDS", 0.5)
    refuse(FlagsRun(code))
    printed = capsys.readouterr().err
    assert "the XLA flags were not checked: " in printed
    assert why in printed


# --- doctor.py flags ---------------------------------------------------------------------------------


def doctor(*flags: str, home: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **({"STEPMARK_HOME": str(home)} if home else {})}
    done = forked.run(REPOSITORY / "launch/doctor.py", *flags, env=environment)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def test_without_an_environment_doctor_asks_the_table_and_says_so(tmp_path: Path) -> None:
    done = doctor("flags", f"{GONE} {KNOWN} {TYPO}", home=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert done.stdout.startswith("Stepmark used its own table")
    assert [GONE, "unknown"] in lines
    assert [KNOWN, "known"] in lines
    assert [TYPO, "not listed"] in lines
    assert ["instead:", "--xla_gpu_enable_command_buffer="] in lines
    assert doctor("flags", KNOWN, TYPO, home=tmp_path).returncode == 0  # what is only not listed
    (place,) = json.loads(doctor("flags", GONE, "--json", home=tmp_path).stdout)
    (flag,) = place["flags"]
    assert (place["python"], flag["table"], flag["installed"], flag["successor"]) == (None, "unknown", None, KNOWN)


@pytest.mark.usefixtures("python_here")
@pytest.mark.parametrize(
    ("program", "code", "shown"),
    [
        (KNOWS_ALL, 0, ["X 1 knows all"]),
        (REFUSES, 2, ["unknown to X 1; use b", f"instead: {KNOWN}", "instead: remove"]),
        ("print('X 1 is no module'); exit(1)", 2, ["Stepmark used its own table", "X 1 is no module"]),
    ],
)
def test_the_installed_compiler_decides_and_a_broken_one_leaves_the_table(
    program: str, code: int, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags_check, "backends", lambda: {"jax": FlagsRun(program)})
    _, text, exit_code = flags_check.report(f"{GONE} {TYPO}")
    assert exit_code == code
    assert [words for words in shown if words not in text] == []
    assert ("instead" in text) == bool(code)


# --- the real compiler ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_real_jaxlib_refuses_a_run_and_doctor_shows_why(tmp_path: Path) -> None:
    venvs.ensure(find_backend("jax").environment("maxtext"))
    run = [sys.executable, str(REPOSITORY / "launch/run.py"), "--backend=jax", "--model=llama2_tiny", "--steps=5"]
    command = [*run, f"--output_dir={tmp_path / 'results'}", "--set=xla_gpu_typo=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "--xla_gpu_typo=1: unknown to jaxlib 0.12.0.1" in done.stderr
    assert not (tmp_path / "results").exists()
    done = doctor("flags", f"{GONE} {KNOWN} {TYPO}")
    assert done.returncode == 2
    assert done.stdout.startswith("environment 'jax-maxtext': jaxlib 0.12.0.1 checked 3 flags\n")
    assert doctor("flags", KNOWN).returncode == 0
