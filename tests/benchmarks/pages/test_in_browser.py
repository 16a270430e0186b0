"""Pages in a browser: they fit a phone and a desk, are accessible, need no network, and print."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from benchmarks.pages.comparison import comparison_part
from benchmarks.pages.compiled import compiled_parts
from benchmarks.pages.night import night_part
from benchmarks.pages.page import LogTail, page
from benchmarks.pages.run import run_part
from benchmarks.pages.sweep import sweep_part
from tests.benchmarks.pages import samples
from tests.benchmarks.pages.test_compiled_page import program
from tests.benchmarks.pages.test_other_pages import scaling_report
from tests.browser import DESK, PHONE, assert_accessible, assert_fits, browser, needs_chromium, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [needs_chromium, pytest.mark.slow(seconds=1)]

A4 = 700  # pixels between the margins of a sheet
LONG = "a" * 300  # a word that breaks nowhere


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    with browser() as started:
        yield started


def failed_page() -> str:
    logs = [LogTail("attempt-1/perf/rank-3.log", [LONG, "  File 'a.py', line 1", ""], "the last 40 lines")]
    material = samples.gpu_material(logs=logs, provenance={"machine": {LONG: LONG}})
    return page(run_part(material))


def several() -> str:
    run = samples.gpu_material(steps=12)
    return page(night_part(samples.night(), "a"), run_part(run, "b"), run_part(run, "c"))


def many() -> str:
    runs = []
    material = msgspec.structs.replace(samples.gpu_material(steps=12), steps=[])
    for number in range(20):
        status = {3: "failed", 4: "invalid"}.get(number, "valid")
        result = msgspec.structs.replace(
            material.result,
            seconds_per_step=msgspec.structs.replace(material.result.seconds_per_step, median=4.0 + number * 7 % 20),
            run_id=f"20261124T03{number:02d}00Z-jax-llama2_70b-64xh100-{number:04x}",
            status=status,
            reasons=[f"rank {rank}: no step was trained" for rank in range(64)] if status != "valid" else [],
        )
        runs.append(run_part(msgspec.structs.replace(material, result=result), f"run-{number}"))
    return page(*runs)


PAGES = {
    "run": lambda: page(run_part(samples.gpu_material())),
    "failed": failed_page,
    "comparison": lambda: page(comparison_part(samples.comparison())),
    "night": lambda: page(night_part(samples.night())),
    "sweep": lambda: page(sweep_part(scaling_report())),
    "compiled": lambda: page(*compiled_parts({"as planned": program(), LONG: program(peak_gb=90.0)}, {})),
    "several": several,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    made = PAGES | {"many": many}
    for name, make in made.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return {name: Path(folder, f"{name}.html").as_uri() for name in made}


def unfold(seen: "Page") -> None:
    seen.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")


def cut_off(seen: "Page") -> list[str]:
    """Elements whose text is wider than they are, and which offer no way to scroll to it."""
    found: list[str] = seen.evaluate(
        """() => [...document.querySelectorAll('body *')]
            .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 1)
            .filter(one => !['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
            .filter(one => getComputedStyle(one).display !== 'inline' && !one.closest('svg'))
            .map(one => one.tagName + '.' + one.className + ': ' + one.textContent.trim().slice(0, 40))"""
    )
    return found


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *((name, PHONE, "light") for name in PAGES),
        *((name, DESK, "dark") for name in ("failed", "comparison", "night", "sweep")),
        *(("run", width, scheme) for width, scheme in ((PHONE, "dark"), (DESK, "light"), (DESK, "dark"))),
    ],
)
def test_it_fits_and_everybody_can_read_it(
    chromium: "Browser", places: dict[str, str], name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with page_of(chromium, places[name], width, scheme) as seen:
        unfold(seen)
        assert_fits(seen)
        assert cut_off(seen) == []
        assert_accessible(seen)


@pytest.mark.parametrize("name", ["failed", "several", "sweep"])
def test_it_asks_nobody_and_runs_nothing(chromium: "Browser", places: dict[str, str], name: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    asked: list[str] = []
    try:
        seen = context.new_page()
        seen.on("request", lambda request: asked.append(request.url))
        seen.goto(places[name])
    finally:
        context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert places[name] in asked


@pytest.mark.parametrize("name", ["run", "comparison", "night", "sweep"])
def test_the_text_of_plots_is_large_enough_and_stays_inside(
    chromium: "Browser", places: dict[str, str], name: str
) -> None:
    for width in (PHONE, DESK):
        with page_of(chromium, places[name], width) as seen:
            texts: list[tuple[str, float, bool]] = seen.evaluate(
                """() => [...document.querySelectorAll('svg text')].map(one => {
                    const text = one.getBoundingClientRect(), plot = one.ownerSVGElement
                    const box = plot.getBoundingClientRect()
                    const pixels = parseFloat(getComputedStyle(one).fontSize) * box.width / plot.viewBox.baseVal.width
                    const inside = text.left > box.left - 2 && text.right < box.right + 2
                        && text.top > box.top - 2 && text.bottom < box.bottom + 2
                    return [one.textContent, text.width ? pixels : 0, inside]
                }).filter(one => one[1])"""
            )
            assert texts
            assert [text for text, pixels, _ in texts if pixels < 9] == []
            assert [text for text, _, inside in texts if not inside] == []


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "light"), (DESK, "dark")])
def test_a_page_of_twenty_runs_is_a_table_that_leads_to_each(
    chromium: "Browser", places: dict[str, str], width: int, scheme: Literal["light", "dark"]
) -> None:
    with page_of(chromium, places["many"], width, scheme) as seen:
        assert seen.evaluate("document.documentElement.scrollHeight") <= 7500
        assert_fits(seen)
        assert_accessible(seen)
        row = seen.locator("#run-7")
        assert not row.is_visible()
        seen.locator("a[href='#run-7']").click()
        row.wait_for(state="visible")


def brightness(colour: str) -> float:
    return sum(int(part) for part in colour[4:-1].split(",")) / 3 / 255


@pytest.mark.parametrize("name", ["failed", "night", "sweep"])
def test_on_paper_nothing_is_cut_and_nothing_stays_folded(
    chromium: "Browser", places: dict[str, str], name: str
) -> None:
    with page_of(chromium, places[name], A4, "dark") as seen:
        seen.emulate_media(media="print", color_scheme="dark")
        assert_fits(seen)
        assert brightness(seen.evaluate("getComputedStyle(document.body).color")) < 0.3  # ink, on a dark screen too
        hidden: list[str] = seen.evaluate(
            """() => [...document.querySelectorAll('details .inside')]
                .filter(one => !one.checkVisibility({contentVisibilityAuto: true}) || one.offsetHeight < 5)
                .map(one => one.parentElement.textContent.trim().slice(0, 30))"""
        )
        assert hidden == []
