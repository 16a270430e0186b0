"""under_nsys.py as it runs: by path, with an nsys made here that notes how it was called and starts the rest."""

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "inside" / "under_nsys.py"

# The program's words begin with this Python; all before it are nsys's own.
FAKE_NSYS = f"""#!{sys.executable}
import json, os, sys
cut = sys.argv.index({sys.executable!r})
with open(os.environ["FAKE_CALLS"], "a") as stream:
    stream.write(json.dumps(sys.argv[1:cut]) + "\\n")
os.execv(sys.argv[cut], sys.argv[cut:])
"""
SAYS_ITS_WORDS = "import sys, json; print(json.dumps(sys.argv[1:]))"
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_NODEID": "1", "SLURM_LOCALID": "2", "SLURM_PROCID": "6"}


class ProgramResult(NamedTuple):
    code: int
    out: str
    err: str
    calls: list[list[str]]  # of nsys

    @property
    def options(self) -> list[str]:
        ((profile, *options),) = self.calls
        assert profile == "profile"
        return options


Start = Callable[..., ProgramResult]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With the fake nsys first in PATH, and nothing of Slurm."""
    folder = tmp_path / "with space"
    folder.mkdir()
    nsys = folder / "nsys"
    nsys.write_text(FAKE_NSYS)
    nsys.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "STEPMARK"))}
    return {**kept, "PATH": f"{folder}:{os.environ['PATH']}", "FAKE_CALLS": str(tmp_path / "calls")}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Start:
    def start_it(
        *options: str, rank: int | None = 0, program: str = SAYS_ITS_WORDS, **variables: str
    ) -> ProgramResult:
        rank_variables = {"STEPMARK_RANK": str(rank)} if rank is not None else {}
        done = subprocess.run(
            [sys.executable, "-I", str(SCRIPT), *options, "--", sys.executable, "-c", program, "a b", "--", "--x=1"],
            env={**environment, **rank_variables, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        calls = tmp_path / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return ProgramResult(done.returncode, done.stdout, done.stderr, [json.loads(line) for line in lines])

    return start_it


# --- who is recorded ----------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "rank", "recorded"), [
    ("0,1,8", 0, True), ("0,1,8", 8, True), ("0,1,8", 2, False), ("0-5,7-15", 6, False), ("0-5,7-15", 15, True),
    ("10", 1, False), ("1", 10, False),
])  # fmt: skip
def test_a_rank_runs_under_nsys_where_it_is_named_and_else_as_it_is(
    start: Start, ranks: str, rank: int, recorded: bool
) -> None:
    done = start(f"--ranks={ranks}", "--output=o", rank=rank)
    assert (done.code, len(done.calls)) == (0, int(recorded))
    assert json.loads(done.out) == ["a b", "--", "--x=1"]


def test_a_signal_is_the_programs(environment: dict[str, str]) -> None:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(130));"
        "print('up', flush=True); time.sleep(30)"
    )
    for rank in ("0", "1"):
        task = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--ranks=0", "--output=o", "--", sys.executable, "-c", program],
            env={**environment, "STEPMARK_RANK": rank},
            stdout=subprocess.PIPE,
        )
        assert task.stdout is not None
        assert task.stdout.readline() == b"up\n"
        task.terminate()
        assert task.wait(60) == 130
        task.stdout.close()


# --- the options of nsys ------------------------------------------------------------------------


def test_it_records_between_the_programs_own_start_and_stop(start: Start) -> None:
    assert start("--ranks=0", "--output=/out/name").options == [
        "-s", "none", "--cpuctxsw=none", "-o", "/out/name", "--force-overwrite", "true",
        "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "-t", "cuda,nvtx", "--cuda-graph-trace=node",
    ]  # fmt: skip


@pytest.mark.parametrize(("ranks", "rank", "local", "samples"), [
    ("0-15", 0, 0, True), ("0-15", 7, 7, False), ("0-15", 8, 0, True), ("0-15", 9, 1, False),
    ("3,5,12", 3, 3, True), ("3,5,12", 5, 5, False), ("3,5,12", 12, 4, True),
])  # fmt: skip
def test_a_nodes_counters_have_one_reader(start: Start, ranks: str, rank: int, local: int, samples: bool) -> None:
    place = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(rank // 8)}
    options = start(f"--ranks={ranks}", "--output=o", "--gpu_metrics", rank=rank, **place).options
    assert ("--gpu-metrics-devices=all" in options) is samples


# --- the report's name --------------------------------------------------------------------------

NAME = "/out/m-70b_64g_%q{SLURM_JOB_ID}_%q{SLURM_NODEID}_%q{SLURM_LOCALID}-%q{SLURM_PROCID}%q{MINE}%q{NOT_SET}"


def test_the_name_has_slurms_numbers(start: Start) -> None:
    options = start("--ranks=6", f"--output={NAME}", rank=6, **SLURM, MINE="x").options
    assert options[options.index("-o") + 1] == "/out/m-70b_64g_4711_1_2-6x"


# --- what cannot be -----------------------------------------------------------------------------


def test_without_nsys_a_rank_that_is_to_be_recorded_ends_at_once_and_says_what_to_do(
    start: Start, tmp_path: Path
) -> None:
    done = start("--ranks=0", "--output=o", PATH=str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert done.err.startswith("under_nsys: nsys must record rank 0, ")
    assert [line.split(":")[0].strip() for line in done.err.splitlines()[1:]][:2] == ["where", "why"]
    assert str(tmp_path) in done.err
    assert "--profile=none" in done.err


# --- its environment ----------------------------------------------------------------------------


def test_nsys_ends_with_who_started_it_and_the_program_is_left_to_nsys(environment: dict[str, str]) -> None:
    """A worker under nsys has a thread of nsys for a parent, which may end long before."""
    program = (
        "import ctypes, os; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n));"
        "print(n.value, os.environ.get('STEPMARK_DIE_WITH_PARENT'), flush=True)"
    )
    found = {}
    for rank in ("0", "1"):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--ranks=0", "--output=o", "--", sys.executable, "-c", program],
            env={**environment, "STEPMARK_RANK": rank, "STEPMARK_DIE_WITH_PARENT": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        found[rank] = done.stdout.split()
    assert found == {"0": [str(int(signal.SIGTERM)), "None"], "1": ["0", "1"]}


def test_it_is_written_for_python_3_8_and_its_standard_library() -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names
