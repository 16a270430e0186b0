"""Comparisons, nights and sweeps on a page: each figure and each sentence of the values is there."""

import html
from typing import Any

import msgspec
import pytest

from benchmarks.compare.values import Comparison, Side
from benchmarks.nightly.values import NightReport
from benchmarks.pages.comparison import comparison_part
from benchmarks.pages.night import night_dates, night_part
from benchmarks.pages.page import page
from benchmarks.pages.sweep import sweep_part
from benchmarks.sweeps.sweep_report import SweepReport, report_of
from benchmarks.values import to_builtins
from benchmarks.verdict import Verdict
from tests.benchmarks.pages import samples
from tests.benchmarks.pages.test_run_page import EVIL, Reader
from tests.benchmarks.sweeps.test_scaling import result, scale
from tests.benchmarks.sweeps.test_sweep import a_sweep
from tests.benchmarks.sweeps.test_sweep_report import ran

VERDICTS = ("not tested", "not interleaved", "left out")


def texts(value: Any) -> list[str]:
    """Every text that a person wrote or reads in a value: those with a blank in them."""
    if isinstance(value, str):
        return [value] if " " in value and value != "left out" else []
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in [*texts(key), *texts(inner)]]
    return [text for inner in value for text in texts(inner)] if isinstance(value, list) else []


def evil(kind: Any, value: Any) -> Any:
    """The same value with markup in every text."""

    def poison(inner: Any) -> Any:
        if isinstance(inner, str):
            return f"{inner} {EVIL}" if " " in inner and inner not in VERDICTS else inner
        if isinstance(inner, list):
            return [poison(one) for one in inner]
        return {key: poison(one) for key, one in inner.items()} if isinstance(inner, dict) else inner

    return msgspec.convert(poison(to_builtins(value)), kind)


# --- a comparison -------------------------------------------------------------------------------


def test_a_comparison_says_every_sentence_and_every_figure() -> None:
    made = samples.comparison()
    read = Reader(page(comparison_part(made)))
    for text in [one.why for one in made.differences] + [one.why for one in made.causes or []]:
        assert text in read.text
    assert "not run in turns" in read.text
    assert "last loss: moved" in read.text
    for one in made.differences:
        assert one.name in read.text
        assert one.percent is None or f"{one.percent:+.2f}%" in read.text
    assert read.text.index("1. jaxlib") < read.text.index("2. NCCL_ALGO")
    assert "run-a4: profiled" in read.text
    assert "image, nodes" in read.text


def test_a_comparison_begins_with_its_sentence_and_calls_the_sides_by_name() -> None:
    known = samples.comparison()
    a, b = (msgspec.structs.replace(side, name=name) for side, name in ((known.a, "bf16"), (known.b, "fp8")))
    lacking = samples.difference("HFU", Verdict.NOT_TESTED, a=None, b=None, percent=None, why="none", absent=True)
    made = samples.comparison(
        a=a,
        b=b,
        summary="MaxText fp8 is 31% faster",
        differences=[*known.differences, lacking],
    )
    text = Reader(page(comparison_part(made))).text
    first = text.index("fp8 against bf16 MaxText fp8 is 31% faster. fp8 relative to bf16")
    assert first < text.index("A: bf16")
    assert "HFU" not in text


def test_a_refusal_stands_first_and_there_is_no_plot() -> None:
    made = samples.comparison(refused=["A was profiled"], differences=[], causes=None)
    shown = page(comparison_part(made))
    text = Reader(shown).text
    assert text.index("not comparable") < text.index("A was profiled")
    assert "<svg" not in shown
    assert "Possible causes" not in text


def test_what_was_asked_and_what_is_not_known_is_said() -> None:
    made = samples.comparison(asked=["dtype: bf16 -> fp8"], not_known=["clocks: A has no telemetry"])
    text = Reader(page(comparison_part(made))).text
    assert "dtype: bf16 -> fp8" in text
    assert "Not known: clocks: A has no telemetry" in text
    assert "Within 1% either way" in text


# --- a night ------------------------------------------------------------------------------------


def test_a_night_says_every_sentence_of_every_cell() -> None:
    made = samples.night()
    read = Reader(page(night_part(made)))
    unsaid = {text for text in texts(to_builtins(made)) if text not in read.text}
    assert unsaid == {"3 nights in the baseline: a verdict needs 10"}  # of the new cell: said once
    assert "7 nights from now" in read.text
    effects = [one.effect_percent for cell in made.cells for one in cell.judgements if one.effect_percent is not None]
    assert all(f"{effect:+.2f}%" in read.text for effect in effects)
    legend = "baseline ● recent ◆ latest night ◇ confirmation ┆ first night of the change ▒ two standard deviations"
    assert legend in read.text


def test_a_regression_stands_first_and_the_table_leads_to_it() -> None:
    shown = page(night_part(samples.night()))
    read = Reader(shown)
    sections = [str(found["id"]) for tag, found in read.tags if tag == "section" and "id" in found]
    assert sections[0] == "night-cell-1"  # the second cell of the suite is the one that regressed
    links = {str(found["href"]).removeprefix("#") for tag, found in read.tags if tag == "a"}
    assert links == set(sections)


@pytest.mark.parametrize(("quiet", "folded"), [(3, 0), (4, 4)])
def test_of_many_cells_those_that_ask_for_nothing_are_folded(quiet: int, folded: int) -> None:
    cells = [samples.slow_cell(), *(samples.quiet_cell() for _ in range(quiet))]
    tags = [tag for tag, _ in Reader(page(night_part(samples.night(cells=cells)))).tags]
    assert tags.count("details") == folded


@pytest.mark.parametrize(
    ("nights", "ticks", "below"),
    [
        (["20261101T023000Z", "2026-11-02"], ["Nov 1", "Nov 2"], "night, 2026-11-01 to 2026-11-02"),
        (["20261101T023000Z", "20261101T024500Z"], ["02:30", "02:45"], "night of 2026-11-01, UTC"),
        (["the first", "20261101T024500Z"], ["the first", "20261101T024"], "night"),
    ],
)
def test_the_axis_of_a_history_has_dates(nights: list[str], ticks: list[str], below: str) -> None:
    assert night_dates(nights) == (ticks, below)


def test_a_slowed_night_and_runs_that_no_metric_may_use_are_said() -> None:
    text = Reader(page(night_part(samples.night(slowed_by=0.5, cells=[samples.slow_cell()])))).text
    assert "slowed on purpose by 50%: a trial" in text
    assert "20261106T023000Z: slowed on purpose by 50%" in text


# --- a sweep ------------------------------------------------------------------------------------


def sweep_report() -> SweepReport:
    return report_of(*ran(a_sweep(repeats=3, gpus="1,2", pgle="off,auto")))


def scaling_report() -> SweepReport:
    of = a_sweep(repeats=2, gpus="1,2,4")
    of, results = ran(of)
    cells = {run.run_id: of.cells[run.cell].scale.gpus for run in of.runs}
    found = {
        name: msgspec.structs.replace(result(scale(gpus), 1 + 0.1 * gpus), run_id=name)
        for name, gpus in cells.items()
        if name in results
    }
    return report_of(of, found)


def test_a_sweep_has_its_ideal_line_and_every_figure() -> None:
    report = scaling_report()
    read = Reader(page(sweep_part(report)))
    assert read.text.count("ideal: the same speed a device as the smallest scale") == 1
    for point in report.series[0].points:
        assert f"{point.efficiency.median:.1%}" in read.text


def test_a_gain_has_its_interval_and_its_verdict() -> None:
    report = sweep_report()
    text = Reader(page(sweep_part(report))).text
    assert report.gains
    for one in report.gains:
        assert one.why in text
        assert f"{one.percent:+.2f}%" in text


def test_what_was_refused_and_left_out_is_named() -> None:
    report = scaling_report()
    point = msgspec.structs.replace(report.series[0].points[0], left_out=["repeat 2: it failed"], valid=1)
    series = msgspec.structs.replace(report.series[0], points=[point])
    text = Reader(page(sweep_part(msgspec.structs.replace(report, refused=["--gpus=3: no"], series=[series])))).text
    assert "--gpus=3: no" in text
    assert "repeat 2: it failed" in text
    assert "No scaling plot" in text


# --- all of them --------------------------------------------------------------------------------


def test_markup_in_any_text_stays_text() -> None:
    pages = [
        page(comparison_part(evil(Comparison, samples.comparison()))),
        page(comparison_part(samples.comparison(a=Side(label=EVIL, run_ids=[EVIL], left_out={EVIL: EVIL})))),
        page(night_part(evil(NightReport, samples.night()))),
    ]
    report = scaling_report()
    pages.append(page(sweep_part(msgspec.structs.replace(report, refused=[EVIL], command=[EVIL], sweep_id=EVIL))))
    for shown in pages:
        assert "script" not in {tag for tag, _ in Reader(shown).tags}
        assert html.escape("<script>alert(1)</script>") in shown


def test_several_reports_on_a_page_share_no_id_and_a_table_leads_to_each() -> None:
    parts = [
        night_part(samples.night(), "a"),
        night_part(samples.night(), "b"),
        comparison_part(samples.comparison()),
    ]
    read = Reader(page(*parts))
    ids = [str(found["id"]) for _, found in read.tags if "id" in found]
    assert len(ids) == len(set(ids))
    links = [str(found["href"])[1:] for tag, found in read.tags if tag == "a"]
    assert links[:3] == ["a", "b", "comparison"]
    assert set(links) <= set(ids)
