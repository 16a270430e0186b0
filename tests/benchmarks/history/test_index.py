"""The index over many runs: up to date whenever it is opened, recreated when necessary, shared by processes."""

import multiprocessing
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.history import index as module
from benchmarks.history.filters import parse_condition
from benchmarks.history.index import FOREIGN, Index
from benchmarks.runs.runfolder import BENCHMARK, RESULT
from tests.benchmarks.history.made_runs import age, put, quick_run

Opened = Callable[[], Index]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    place = tmp_path / "results"
    for number, dtype in enumerate(("bf16", "fp8", "bf16")):
        quick_run(place, f"2026112{number}T000000Z-{dtype}", dtype=dtype, gpus=8 * (number + 1), seconds=1.0 + number)
    return place


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "home" / "index" / "some.sqlite"


@pytest.fixture
def opened(results: Path, database: Path) -> Opened:
    return lambda: Index(results, database)


def ids(index: Index, *where: str, newest: int | None = None) -> list[str]:
    return [entry.run_id for entry in index.select([parse_condition(text) for text in where], newest)]


def problems(index: Index) -> dict[str, str]:
    return {problem.folder: problem.reason for problem in index.problems()}


def test_the_oldest_first_filtered_and_the_newest_of_them(opened: Opened) -> None:
    index = opened()
    assert ids(index) == ["20261120T000000Z-bf16", "20261121T000000Z-fp8", "20261122T000000Z-bf16"]
    assert ids(index, "dtype=bf16") == ["20261120T000000Z-bf16", "20261122T000000Z-bf16"]
    assert ids(index, "dtype=bf16", "gpus>8") == ["20261122T000000Z-bf16"]
    assert ids(index, newest=2) == ["20261121T000000Z-fp8", "20261122T000000Z-bf16"]
    assert index.problems() == []
    assert index.notes == []


def test_new_changed_and_removed_runs_are_seen(opened: Opened, results: Path) -> None:
    opened()
    quick_run(results, "20261123T000000Z-new")
    changed = results / "20261121T000000Z-fp8"
    put(changed / RESULT, (changed / RESULT).read_text().replace('"median": 2.0', '"median": 9.0'))
    age(changed)  # its time is the old one again: that it was changed is seen all the same
    shutil.rmtree(results / "20261120T000000Z-bf16")
    index = opened()
    assert ids(index) == ["20261121T000000Z-fp8", "20261122T000000Z-bf16", "20261123T000000Z-new"]
    assert index.select([parse_condition("dtype=fp8")])[0].metrics.seconds_per_step == 9.0
    assert index.read_anew == 2


def test_runs_one_level_deeper(opened: Opened, results: Path) -> None:
    opened()
    inner = quick_run(results / "team", "20261124T000000Z-deep")
    (results / "team" / "plots").mkdir()
    index = opened()
    assert [entry.path for entry in index.select([parse_condition("run=deep")])] == ["team/20261124T000000Z-deep"]
    assert problems(index) == {}  # a young, empty folder may become a run
    age(results / "team" / "plots")
    assert problems(opened()) == {"team/plots": FOREIGN}
    quick_run(results / "team", "20261125T000000Z-deep")
    assert len(ids(opened(), "run=deep")) == 2
    shutil.rmtree(inner)
    assert len(ids(opened(), "run=deep")) == 1


def test_what_is_no_run_is_named_and_what_stepmark_keeps_there_is_not(opened: Opened, results: Path) -> None:
    (results / "sweep-x.json").write_text("{}")
    (results / ".sweep-x.lock").write_text("")
    jobs = ("preflight-dev-20261128T090000Z", "setup-px-20261128T090000Z-2", "preparing-20261128T090000Z")
    for name in ("nights", "dashboard", "pgle-profiles", *jobs, ".hidden", "plots"):
        (results / name).mkdir()
        (results / name / "file").write_text("")
    (results / "cut").mkdir()
    (results / "cut" / RESULT).write_text("{}")
    damaged = quick_run(results, "20261123T000000Z-damaged")
    whole = (damaged / RESULT).read_text()
    put(damaged / RESULT, "{")
    age(damaged)
    found = problems(opened())
    assert found["plots"] == FOREIGN
    assert found["cut"] == "a damaged run: benchmark.json is missing"
    assert "result.json cannot be read" in found[damaged.name]
    assert f"python launch/verify.py --repair {damaged}" in found[damaged.name]
    assert len(found) == 3
    (damaged / RESULT).write_text(whole)  # by hand, in place: the folder's time stays
    assert set(problems(opened())) == {"plots", "cut"}


def test_a_copy_of_a_run_counts_once(opened: Opened, results: Path) -> None:
    shutil.copytree(results / "20261120T000000Z-bf16", results / "a_copy")
    index = opened()
    assert len(ids(index)) == 3
    assert problems(index) == {"a_copy": "a copy of 20261120T000000Z-bf16; Stepmark counts this run only once"}
    assert index.select(newest=3)[0].path == "20261120T000000Z-bf16"
    shutil.rmtree(results / "20261120T000000Z-bf16")
    index = opened()
    assert index.select()[0].path == "a_copy"
    assert problems(index) == {}


# --- contents of a folder -------------------------------------------------------------------------


@pytest.mark.parametrize("steps", ["1" + "0" * 20, "-1e400"])
def test_one_bad_folder_costs_no_other(opened: Opened, results: Path, steps: str) -> None:
    path = quick_run(results, "20261120T010000Z-bad") / BENCHMARK
    assert '"steps": 12' in path.read_text()
    put(path, path.read_text().replace('"steps": 12', f'"steps": {steps}', 1))
    index = opened()
    assert len(ids(index)) == 3
    assert list(problems(index)) == ["20261120T010000Z-bad"]


# --- recreated ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["missing", "empty", "text", "zeros", "cut", "other_version", "header"])
def test_a_spoilt_file_is_made_anew(opened: Opened, database: Path, spoil: str) -> None:
    opened()
    data = database.read_bytes()
    if spoil == "missing":
        shutil.rmtree(database.parent)
    elif spoil == "other_version":
        with sqlite3.connect(database) as connection:
            connection.execute(f"PRAGMA user_version = {module.SCHEMA_VERSION - 1}")
    else:
        spoilt = {"empty": b"", "text": b"no database at all", "zeros": b"\0" * len(data),
                  "cut": data[: len(data) // 2], "header": b"X" * 200 + data[200:]}  # fmt: skip
        database.write_bytes(spoilt[spoil])
    assert [len(ids(opened())) for _ in range(2)] == [3, 3]  # the first may only remove it
    again = opened()
    assert (again.read_anew, again.notes) == (0, [])


FULL = """
import resource, sys
from pathlib import Path
from benchmarks.history.index import Index
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
index = Index(Path(sys.argv[1]), Path(sys.argv[2]))
print(len(index.select()), index.notes)
"""


def test_a_full_disk_costs_the_index_and_not_the_report(results: Path, database: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, results, database], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("3 ['the index cannot be stored (")
    assert len(ids(Index(results, database))) == 3  # with space again


# --- several processes ----------------------------------------------------------------------------


def write_many(results: Path, writer: int, runs: int) -> None:
    for number in range(runs):
        path = quick_run(results, f"20261122T{writer:02d}{number:04d}Z-w", seconds=0.5, old=False)
        text = (path / RESULT).read_text()
        put(path / RESULT, text.replace('"median": 0.5', f'"median": {1 + number}.5'))


def open_often(results: Path, database: Path, counts: "Any", times: int) -> None:
    for _ in range(times):
        index = Index(results, database)
        counts.put((len(index.select()), index.notes, [problem.reason for problem in index.problems()]))


def test_runs_that_end_while_others_open_the_index_are_all_there(tmp_path: Path, database: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    writers = [context.Process(target=write_many, args=(results, n, 25)) for n in range(4)]
    readers = [context.Process(target=open_often, args=(results, database, queue, 12)) for _ in range(3)]
    for process in (*writers, *readers):
        process.start()
    seen = [queue.get(timeout=60) for _ in range(3 * 12)]
    for process in (*writers, *readers):
        process.join(60)
        assert process.exitcode == 0
    for path in results.iterdir():
        age(path)
    index = Index(results, database)
    entries = index.select()
    assert len(entries) == 100
    assert sorted({entry.metrics.seconds_per_step for entry in entries}) == [1.5 + number for number in range(25)]
    assert index.problems() == []
    assert all(notes == [] for _, notes, _ in seen)  # no reader was thrown back on its own memory
    assert {reason for _, _, reasons in seen for reason in reasons} <= {"a damaged run: benchmark.json is missing"}
