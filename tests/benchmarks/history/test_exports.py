"""Many runs as text: nothing of a run is lost in CSV and JSON, and people see which MFU and which interval."""

import csv
import io

import pytest

from benchmarks.history.exports import RunListing, as_csv, table_text
from benchmarks.history.index import Problem
from benchmarks.runs.finished_run import FIELDS, FinishedRun
from tests.benchmarks.history.made_runs import an_entry

NIGHT = {"suite": "smoke", "cell": "jax", "night": "20261122T020000Z", "role": "rerun"}
NULLS = ("seconds_per_step", "seconds_low", "seconds_high", "tokens_per_second", "mfu_percent")
ENTRIES = [
    an_entry(run_id="a", path="a", tags=["x", "y"], **NIGHT),
    an_entry(run_id="b", path="b", status="failed", reasons=["rank 3 died", "more"], **dict.fromkeys(NULLS)),
    an_entry(run_id="c", path="c", seconds_per_step=0.0125, seconds_low=0.012, seconds_high=0.013, dtype="fp8"),
    an_entry(
        run_id="d",
        path="team/d|e",
        not_comparable=["profiled"],
        slowed_by=0.5,
        started="",
        settling="still moving",
        median_off_percent=0.8,
    ),
]


def text(form: str, entries: list[FinishedRun] | None = None) -> str:
    found = ENTRIES if entries is None else entries
    problems = [Problem(folder="z", reason="no run")]
    selected = RunListing(folder="results", where=["gpus>=64"], runs=found, problems=problems)
    return as_csv(selected) if form == "csv" else table_text(selected)


def test_csv_has_every_field_and_nothing_where_nothing_is_known() -> None:
    rows = list(csv.DictReader(io.StringIO(text("csv"), newline="")))
    assert [row["run_id"] for row in rows] == ["a", "b", "c", "d"]
    assert set(FIELDS) - {"identity", "identity_text"} <= set(rows[0])
    assert {"identity.benchmark", "identity_text.machine"} <= set(rows[0])
    assert rows[0]["seconds_per_step"] == "7.0"
    assert rows[0]["tags"] == "x; y"
    assert rows[1]["seconds_per_step"] == ""
    assert rows[1]["reasons"] == "rank 3 died; more"


def test_the_table_says_which_mfu_which_interval_and_what_must_be_known() -> None:
    lines = text("table").splitlines()
    (row,) = (line for line in lines if line.endswith("  a"))
    assert "7 s" in row
    assert "6.9 s to 7.1 s" in row
    assert "52.6% recipe, bf16 989 TFLOP/s" in row
    assert "149,797" in row
    (small,) = (line for line in lines if line.endswith("  c"))
    assert "12.5 ms" in small
    assert "12 ms to 13 ms" in small
    shown = "\n".join(lines)
    assert "failed: rank 3 died" in shown
    assert "not comparable: profiled" in shown
    assert "slowed on purpose by 50%" in shown
    assert "off by up to 0.8%" in shown
    assert "tag x; tag y; suite smoke, cell jax, night 20261122T020000Z, rerun" in shown
    assert "4 runs in results with gpus>=64: 3 valid, 1 failed" in shown
    assert lines.count("llama2_70b pretrain bf16 · jax (maxtext) · 64 x h100 · eos") == 1  # of three runs


HOSTILE = '=HYPERLINK("http://x")\x1b]0;owned\x07\nFAKE\u202e'


@pytest.mark.parametrize("form", ["table", "csv"])
def test_what_a_stranger_wrote_moves_no_cursor_and_is_no_formula(form: str) -> None:
    entry = an_entry(status="failed", reasons=[HOSTILE], tags=["=1+1", "@x"], path="[a](b)`c`\x1b", site="-1+\n2")
    shown = text(form, [entry])
    assert not any(sign in shown for sign in ("\x1b", "\x07", "\u202e"))
    assert not any(line.startswith("FAKE") for line in shown.splitlines())
    if form == "csv":
        (row,) = csv.DictReader(io.StringIO(shown, newline=""))
        assert row["reasons"].startswith("'=HYPERLINK")
        assert row["tags"] == "'=1+1; @x"
        assert row["site"].startswith("'-1")
        assert row["seconds_per_step"] == "7.0"
