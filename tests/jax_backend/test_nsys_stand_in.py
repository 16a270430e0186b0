"""The stand-in for nsys behaves as nsys does where Stepmark depends on it; else what it shows proves nothing."""

import csv
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

STAND_INS = Path(__file__).resolve().parents[1] / "stand_ins"
NSYS = STAND_INS / "nsys"
SAMPLES = Path(__file__).parent / "samples"
RECORDED = ["-s", "none", "--force-overwrite", "true", "--capture-range=cudaProfilerApi", "--capture-range-end=stop"]


def nsys(*words: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [str(NSYS), *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=60, check=False
    )


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "hlo").mkdir()
    sample = SAMPLES / "fsdp_cpu_after_optimizations.txt"
    shutil.copy(sample, tmp_path / "hlo" / "module_0010.jit_train_step.cpu_after_optimizations.txt")
    assert nsys("profile", *RECORDED, "-o", tmp_path / "run-prof", "true").returncode == 0
    return tmp_path / "run-prof.nsys-rep"


def table_of(report: Path, **variables: str) -> list[dict[str, str]]:
    done = nsys(
        "stats", "--report", "nvtx_kern_sum", "--format", "csv", "-o", report.parent / "out", report, **variables
    )
    assert done.returncode == 0
    with (report.parent / "out_nvtx_kern_sum.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("code", [0, 3, 130])
def test_the_programs_exit_code_is_its_own_and_a_report_is_written(tmp_path: Path, code: int) -> None:
    done = nsys("profile", *RECORDED, "-o", tmp_path / "a", sys.executable, "-c", f"print('hi'); exit({code})")
    assert (done.returncode, done.stdout) == (code, "hi\n")
    assert (tmp_path / "a.nsys-rep").exists()


def test_each_kernel_has_a_row_for_its_instruction_and_for_its_program(report: Path) -> None:
    rows = table_of(report)
    with (SAMPLES / "nvtx_kern_sum_2025.csv").open() as stream:
        assert list(rows[0]) == next(csv.reader(stream))
    instructions = [row for row in rows if "Thunk:" in row["NVTX Range"]]
    modules = [row for row in rows if "XlaModule:" in row["NVTX Range"]]
    assert len(instructions) == len(modules) > 20
    assert {re.sub(r".*hlo_module=(\w+),program_id=(\d+)#", r"\1 \2", row["NVTX Range"]) for row in modules} == {
        "jit_train_step 10"
    }
    assert all("unique_hlo_op_id=" in row["NVTX Range"] for row in instructions)


def test_the_export_holds_the_same_kernels_within_the_same_ranges(report: Path) -> None:
    """Joined as nsys's own report joins them: a kernel by its call, a call by the range around it."""
    output = report.parent / "x.sqlite"
    assert nsys("export", "--type=sqlite", "-o", output, report).returncode == 0
    database = sqlite3.connect(output)
    found = database.execute(
        """
        SELECT d.text || ':' || s.value, COUNT(*), AVG(k.end - k.start)
        FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r
          ON k.correlationId = r.correlationId AND k.globalPid = (r.globalTid & 0x7FFFFFFFFF000000)
        JOIN NVTX_EVENTS AS e
          ON e.eventType = 59 AND e.start <= r.start AND e.end >= r.end AND e.globalTid = r.globalTid
        JOIN StringIds AS s ON s.id = e.textId
        JOIN NVTX_EVENTS AS d ON d.eventType = 75 AND d.domainId = e.domainId
        WHERE s.value LIKE 'Thunk%' GROUP BY s.value
        """
    ).fetchall()
    name = re.compile(r"hlo_op=([\w.\-]+)")
    times = {name.findall(text)[0]: average for text, _, average in found}
    rows = [row for row in table_of(report) if "Thunk:" in row["NVTX Range"]]
    assert times == {name.findall(row["NVTX Range"])[0]: float(row["Avg (ns)"]) for row in rows}
    (copies,) = database.execute("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()
    assert copies == 3
