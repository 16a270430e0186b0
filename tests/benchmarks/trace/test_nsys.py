"""Nsight Systems' SQLite: its tables as its schema reference has them, each of which may be missing."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import RequestError
from benchmarks.trace.nsys import read_nsys
from benchmarks.trace.summary import summarise
from benchmarks.values import Profiling
from tests.benchmarks.trace.made import kinds
from tests.stand_ins.nsys_tables import SCHEMA

MS = 10**6  # nanoseconds
STRINGS = {
    1: "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    2: "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    3: "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0",
    4: "loop_add_fusion",
    5: "XlaModule:#prefix=jit(train_step)/jit(main),hlo_module=jit_train_step,program_id=12#",
    6: "XlaModule:#hlo_module=jit_clip,program_id=3#",
    7: "optimizer_step",
}


class Database:
    """An export under the making."""

    def __init__(self, path: Path, without: tuple[str, ...] = ()) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as database, database:
            database.executescript(SCHEMA)
            for table in without:
                database.execute(f"DROP TABLE {table}")
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS.items())

    def insert(self, table: str, **values: Any) -> "Database":
        with closing(sqlite3.connect(self.path)) as database, database:
            marks = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
        return self

    def kernel(self, start: float, end: float, name: int, device: int = 0, stream: int = 7) -> "Database":
        common = {"contextId": 1, "shortName": name, "deviceId": device, "streamId": stream}
        times = {"start": round(start * MS), "end": round(end * MS)}
        return self.insert("CUPTI_ACTIVITY_KIND_KERNEL", demangledName=name, **times, **common)

    def steps(self, count: int) -> "Database":
        """10 ms each: matmul 4, a gather of 4 of which 1 lies under it, attention 1, a sum 1 which occurs once."""
        for at in (10 * number for number in range(count)):
            self.kernel(at, at + 2, 1).kernel(at + 2, at + 4, 1).kernel(at + 3, at + 7, 2, stream=13)
            self.kernel(at + 7, at + 8, 3).kernel(at + 8, at + 9, 4)
        return self

    def ranges(self, count: int, text: int = 5, thread: int = 11) -> "Database":
        for at in range(count):
            self.insert("NVTX_EVENTS", start=at * 100, end=at * 100 + 90, eventType=59, textId=text, globalTid=thread)
        return self


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "report.sqlite")


def test_kernels_and_copies_are_kinds_of_work_and_steps_are_separated(database: Database) -> None:
    database.steps(4).ranges(4).ranges(1, text=6)
    database.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start=29 * MS, end=29.5 * MS, deviceId=0, streamId=7, bytes=8,
                    copyKind=8)  # fmt: skip
    trace = read_nsys(database.path)
    assert trace.launches == 4
    summary = summarise(trace, kinds(), Profiling(ranks=[0], start_step=9, stop_step=12))
    assert summary.window.steps == 3
    found = {kind: round(seconds * 3e3, 6) for kind, seconds in summary.mean.wall_seconds.items()}
    assert found == {"matmul": 12, "attention": 3, "other": 3, "collective": 9, "copy": 0.5, "idle": 2.5}


def test_a_capture_without_xla_is_taken_for_the_steps_that_were_asked_for(database: Database) -> None:
    database.steps(4).ranges(4, text=7)
    summary = summarise(read_nsys(database.path), kinds(), Profiling(ranks=[0], start_step=45, stop_step=48))
    assert (summary.window.steps, summary.window.first_step) == (4, 45)
    assert summary.mean.seconds_per_step == pytest.approx(0.039 / 4)


def test_a_column_that_an_export_does_not_have_is_done_without(database: Database) -> None:
    """SQLite would take the name of a column that is not there for a text."""
    database.steps(2).ranges(2)
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("ALTER TABLE NVTX_EVENTS DROP COLUMN text")
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName")
    trace = read_nsys(database.path)
    assert trace.launches == 2
    assert {one.kernel for one in trace.operations} == {STRINGS[number] for number in (1, 2, 3, 4)}


def test_devices_and_hosts_are_read(database: Database) -> None:
    database.kernel(0, 1, 1, device=3).kernel(0, 1, 1, device=0)
    database.insert("TARGET_INFO_SYSTEM_ENV", devStateName="x", name="Hostname", nameEnum=1, value="node7")
    trace = read_nsys(database.path)
    assert [device.name for device in trace.devices] == ["GPU 0", "GPU 3"]
    assert trace.host == "node7"


@pytest.mark.parametrize("table", ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY", "TARGET_INFO_SYSTEM_ENV"])
def test_a_table_without_rows_is_left_out_of_an_export(tmp_path: Path, table: str) -> None:
    folder = tmp_path / "a folder?with #marks%20"
    folder.mkdir()
    database = Database(folder / "report.sqlite", without=(table,)).kernel(0, 1, 1)
    database.path.chmod(0o444)
    before = sorted(folder.iterdir()), database.path.stat().st_mtime_ns
    trace = read_nsys(database.path)
    assert (sorted(folder.iterdir()), database.path.stat().st_mtime_ns) == before, "it is only read"
    assert len(trace.devices[0].begins) == 1
    assert trace.host == "report", "the file's name, where the host's is not said"


def test_what_is_known_in_part_is_a_note(database: Database) -> None:
    trace = read_nsys(database.path)
    assert (trace.devices, trace.notes) == ([], ["the trace has no GPU activity"])
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER)"
        )
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 1000, 0)")
    trace = read_nsys(database.path)
    assert "CUDA graph" in {one.kernel for one in trace.operations}
    assert trace.notes[0].startswith("1 CUDA graphs are listed")


def test_what_is_no_whole_export_is_refused(database: Database, tmp_path: Path) -> None:
    cut, foreign, other = (tmp_path / name for name in ("cut.sqlite", "foreign.sqlite", "other.sqlite"))
    whole = database.steps(40).path.read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    foreign.write_bytes(b"not a database at all, and long enough to have a header of one hundred bytes" * 3)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    database.kernel(0, 2**62 / MS, 1)
    for path in (cut, foreign, other, database.path):
        with pytest.raises(RequestError, match="cannot be read as an export of Nsight Systems"):
            read_nsys(path)
