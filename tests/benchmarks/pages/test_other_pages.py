"""Comparisons, nights and sweeps on a page, which shows each value and each sentence."""

import html
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.compare.values import Comparison, Side
from benchmarks.nightly.values import NightReport
from benchmarks.pages.comparison import comparison_part
from benchmarks.pages.night import night_part
from benchmarks.pages.page import page
from benchmarks.pages.sweep import sweep_part
from benchmarks.sweeps.sweep_report import SweepReport, report_of
from benchmarks.values import to_builtins
from tests.benchmarks.pages import samples
from tests.benchmarks.pages.test_run_page import EVIL, Reader
from tests.benchmarks.sweeps.test_scaling import result, scale
from tests.benchmarks.sweeps.test_sweep import a_sweep
from tests.benchmarks.sweeps.test_sweep_report import ran

VERDICTS = ("not tested", "not interleaved", "left out")


def texts(value: Any) -> list[str]:
    """Return every text in a value that users read: those with a blank in them."""
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
    assert "do not alternate" in read.text
    assert "last loss: differs by more" in read.text
    for one in made.differences:
        assert one.name in read.text
        assert one.percent is None or f"{one.percent:+.2f}%" in read.text
    assert read.text.index("jaxlib") < read.text.index("NCCL_ALGO")
    assert "run-a4: profiled" in read.text
    assert "image, nodes" in read.text


# --- a night ------------------------------------------------------------------------------------


def test_a_night_says_every_sentence_of_every_cell() -> None:
    made = samples.night()
    read = Reader(page(night_part(made)))
    unsaid = {text for text in texts(to_builtins(made)) if text not in read.text}
    assert unsaid == {"3 nights in the baseline: a verdict needs 10"}  # of the new cell: said once
    assert "7 nights from now" in read.text
    effects = [one.effect_percent for cell in made.cells for one in cell.judgements if one.effect_percent is not None]
    assert all(f"{effect:+.2f}%" in read.text for effect in effects)
    assert "● recent ● latest night ◇ confirmation ┆ first night of the change" in read.text


# --- a sweep ------------------------------------------------------------------------------------


def scaling_report() -> SweepReport:
    of = a_sweep(repeats=2, gpus="1,2,4")
    of, results = ran(of)
    cells = {run.run_id: of.cells[run.cell].scale.gpus for run in of.runs}
    found = {
        name: msgspec.structs.replace(result(scale(gpus), 1 + 0.1 * gpus), run_id=name)
        for name, gpus in cells.items()
        if name in results
    }
    return report_of(of, found, Path())


def test_a_sweep_has_its_ideal_line_and_every_figure() -> None:
    report = scaling_report()
    read = Reader(page(sweep_part(report)))
    assert read.text.count("ideal: the same speed per device") == 1
    for point in report.series[0].points:
        assert f"{point.efficiency:.1%}" in read.text


def test_a_gain_is_a_comparison() -> None:
    report = msgspec.structs.replace(scaling_report(), gains=[samples.comparison()])
    assert samples.comparison().differences[0].why in Reader(page(sweep_part(report))).text


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
