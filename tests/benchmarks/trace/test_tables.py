"""The report as text: every number is there at 80 columns, nothing moves the cursor."""

import pytest
from msgspec.structs import replace

from benchmarks.trace.report import TraceFile, TraceReport
from benchmarks.trace.summary import HostSummary, mean_times, summarise
from benchmarks.trace.tables import report_text
from benchmarks.trace.xplane import read_xplane
from tests.benchmarks.trace.made import kinds, sample, steps_of, trace_of
from tests.benchmarks.trace.test_xplane import PATH


@pytest.fixture(scope="module")
def summary() -> HostSummary:
    return summarise(read_xplane(sample(), PATH), kinds())


def report_of(*summaries: HostSummary, **fields: object) -> TraceReport:
    files = [
        TraceFile(path=f"/runs/r/{one.host}.xplane.pb", format="xplane", bytes=2_000_000, summary=one)
        for one in summaries
    ]
    mean = mean_times([one.mean for one in summaries], "all") if summaries else None
    whole: dict[str, object] = {
        "place": "/runs/r", "title": "llama", "attempt": 1, "phase": "perf", "files": files, "mean": mean,
        "comparison": None, "nccl": None, "notes": [],
    }  # fmt: skip
    return TraceReport(**{**whole, **fields})  # type: ignore[arg-type]


def test_every_number_of_the_table_is_there_within_80_columns(summary: HostSummary) -> None:
    text = report_text(report_of(summary))
    rows = [line for line in text.splitlines() if "CPU" in line or line.startswith(("  share", "  mean"))]
    assert len(rows) == 4 and max(map(len, rows)) <= 80
    assert rows[2].endswith(f"{summary.mean.seconds_per_step * 1e3:.2f}") and rows[3].endswith("100.0%")


def test_of_many_hosts_some_are_shown_and_the_rest_counted() -> None:
    one = summarise(trace_of(steps_of(3, (0, 4, "dot.1"))), kinds())
    names = [f"a-long-name-of-node-{number}" for number in range(40)]
    text = report_text(report_of(*(replace(one, host=name, mean=replace(one.mean, host=name)) for name in names)))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ..")][8:11] == [
        "..me-of-node-8", "..me-of-node-9", "..e-of-node-10",
    ], "the end of a name tells hosts and ranks apart"  # fmt: skip
    for words in ("and 24 hosts more (--json has all)", "and 24 files more", "mean of 40"):
        assert words in text


def test_notes_and_files_without_a_summary_have_a_row() -> None:
    unread = TraceFile(path="/runs/r/a.nsys-rep", format="nsys", bytes=10, summary=None, why_not="no nsys on PATH")
    text = report_text(report_of(files=[unread], notes=["bad \x1b[2J\r name"]))
    assert "bad \\x1b[2J\\r name" in text
    assert "a.nsys-rep (0.0 kB): no nsys on PATH" in text
