"""Folders and records on disk -> one HTML file: what is read, what is refused, and that no secret gets there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.errors import RequestError
from benchmarks.pages.html_pages import LAST_LINES, write_html
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import PROVENANCE, RESULT, STEPS, RunFolder
from benchmarks.text import seconds_text
from benchmarks.values import json_text
from jax_backend import BACKEND
from tests.benchmarks.conftest import (  # noqa: F401 - fixtures
    add_attempt,
    benchmark_value,
    empty_run,
    whole_run,
    write_exits,
)
from tests.benchmarks.history.made_runs import quick_run
from tests.benchmarks.pages import samples
from tests.benchmarks.sweeps.test_sweep import a_sweep
from tests.benchmarks.sweeps.test_sweep_report import ran

TOKEN = "hf_" + "a" * 34


def written(tmp_path: Path, *places: Path) -> str:
    output = tmp_path / "pages" / "page.html"
    assert write_html([str(place) for place in places], output) == 0
    return output.read_text()


@pytest.fixture
def failed_run(empty_run: RunFolder, add_attempt: Callable[..., Path]) -> RunFolder:  # noqa: F811
    """Two ranks; the second one died, and its log says of what."""
    add_attempt(empty_run, exit_code=None)
    place = empty_run.phase_dir("perf")
    write_exits(place, 0, 1)
    (place / "rank-0.log").write_text("".join(f"rank 0 line {n}\n" for n in range(100)))
    (place / "rank-1.log").write_text(
        "".join(f"line {n}\n" for n in range(100))
        + f"\x1b[31mlogin https://me:pass@host/x with {TOKEN}\x1b[0m\n  password=hunter2\nRuntimeError: <b>no</b>\n"
    )
    result, steps = recompute(empty_run, BACKEND)
    empty_run.write_steps(steps)
    empty_run.write(RESULT, result)
    assert result.status == "failed"
    return empty_run


def test_a_run_has_the_figures_of_its_result(whole_run: RunFolder, tmp_path: Path) -> None:  # noqa: F811
    (whole_run.phase_dir("perf") / "rank-0.log").write_text("quiet\n")
    page = written(tmp_path, whole_run.path)
    assert "quiet" not in page  # of a valid run no log is shown
    stored = whole_run.stored_result()
    assert seconds_text(stored.seconds_per_step.median) in page
    assert f"python launch/verify.py {whole_run.path}" in page
    assert "a note of the launcher" in page
    assert "no published result for llama2_tiny" in page


def test_of_a_failed_run_the_last_lines_of_the_rank_that_failed(failed_run: RunFolder, tmp_path: Path) -> None:
    page = written(tmp_path, failed_run.path)
    assert "attempt-1/perf/rank-1.log" in page
    assert f"the last {LAST_LINES} lines" in page
    assert "RuntimeError: &lt;b&gt;no&lt;/b&gt;" in page
    assert "line 99\n" in page
    assert "line 50\n" not in page
    assert "rank 0 line" not in page


def test_no_secret_reaches_the_page(failed_run: RunFolder, tmp_path: Path) -> None:
    failed_run.write(
        PROVENANCE,
        {"notes": [], "shell": {"MY_API_KEY": "not-a-shape", "URL": "https://u:p@h/"}, "worker": [{"argv": [TOKEN]}]},
    )
    result = failed_run.stored_result()
    failed_run.write(RESULT, msgspec.structs.replace(result, reasons=[f"it said {TOKEN}"], notes=["token=abc123456"]))
    page = written(tmp_path, failed_run.path)
    for secret in (TOKEN, "hunter2", "me:pass", "u:p@", "not-a-shape", "abc123456", "\x1b"):
        assert secret not in page, secret
    assert page.count("&lt;redacted&gt;") >= 6


def test_a_sweep_and_a_night_and_all_of_them_on_one_page(whole_run: RunFolder, tmp_path: Path) -> None:  # noqa: F811
    sweep, results = ran(a_sweep(repeats=1, gpus="1,2"))
    record = tmp_path / "sweep-1.json"
    record.write_text(json_text(sweep))
    for name in results:
        quick_run(tmp_path, name, gpus=int(name[0]) + 1)  # of cell 0 or 1
    night = tmp_path / "2026-11-20.json"
    night.write_text(json_text(samples.night()))
    assert "Tokens per second" in written(tmp_path, record)
    assert "The nightly suite" in written(tmp_path, night)
    page = written(tmp_path, whole_run.path, record, night)
    assert page.count("<article") == 3
    assert "3 reports" in page
    assert 'href="#report-2"' in page


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: None, "does not exist"),  # noqa: ARG005
        (lambda place: place.mkdir(), "this is not a run's folder"),
        (lambda place: place.write_text("{}"), "this is not a report of a night"),
        (lambda place: place.write_bytes(b"\xff\xfe"), "this is not a report of a night"),
    ],
)
def test_what_is_no_report_is_refused_and_nothing_is_written(
    make: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "place")
    with pytest.raises(RequestError, match=message):
        write_html([str(tmp_path / "place")], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_folder_as_output_and_a_run_without_result_are_refused(
    whole_run: RunFolder,  # noqa: F811
    tmp_path: Path,
) -> None:
    with pytest.raises(RequestError, match="not a page of Stepmark"):
        write_html([str(whole_run.path)], tmp_path)
    (whole_run.path / RESULT).unlink()
    with pytest.raises(RequestError, match="the run was interrupted") as refused:
        write_html([str(whole_run.path)], tmp_path / "page.html")
    assert "verify.py --repair" in refused.value.next_command


def test_nothing_but_a_page_is_replaced(whole_run: RunFolder, tmp_path: Path) -> None:  # noqa: F811
    steps = (whole_run.path / STEPS).read_bytes()
    with pytest.raises(RequestError, match="not a page of Stepmark"):
        write_html([str(whole_run.path)], whole_run.path / STEPS)
    assert (whole_run.path / STEPS).read_bytes() == steps
    (tmp_path / "notes.html").write_text("<html>my own")
    with pytest.raises(RequestError, match="not a page of Stepmark"):
        write_html([str(whole_run.path)], tmp_path / "notes.html")
    assert (tmp_path / "notes.html").read_text() == "<html>my own"
    (tmp_path / "empty.html").touch()
    for _ in range(2):
        assert write_html([str(whole_run.path)], tmp_path / "empty.html") == 0


@pytest.mark.parametrize("before", ["", "a line\n"])
def test_a_secret_that_is_longer_than_what_is_read_is_not_shown(
    failed_run: RunFolder, tmp_path: Path, before: str
) -> None:
    (failed_run.path / "attempt-1" / "perf" / "rank-1.log").write_text(f"{before}password={'hunter2' * 20_000}\n")
    page = written(tmp_path, failed_run.path)
    assert "hunter2" not in page
