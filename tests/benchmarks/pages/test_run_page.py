"""A run's page has the values of the result, the reasons of unknown ones, and no markup from quoted text."""

import html.parser
import re
from typing import Any

import msgspec
import pytest

from benchmarks.pages.page import LogTail, page
from benchmarks.pages.run import RunMaterial, run_part
from tests.benchmarks.pages.samples import gpu_material

EVIL = "<script>alert(1)</script>'\"&{{ 7 * 7 }}"
MATERIAL = gpu_material()


def run_page(material: RunMaterial) -> str:
    return page(run_part(material))


def changed(**figures: Any) -> RunMaterial:
    return msgspec.structs.replace(MATERIAL, result=msgspec.structs.replace(MATERIAL.result, **figures))


class Reader(html.parser.HTMLParser):
    """What a browser would see: tags, and text outside of style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_figures_on_the_page_are_those_of_the_result() -> None:
    result = MATERIAL.result
    text = Reader(run_page(MATERIAL)).text
    for label, figure in (
        ("seconds per step, median", f"{result.seconds_per_step.median:.4g} s"),
        ("tokens per second", f"{result.tokens_per_second:,.0f}"),
        ("MFU", f"{result.mfu[0].percent:.1f}%"),
        ("loss of the last step", f"{result.loss.last:.4f}"),
    ):
        assert f"{label} {figure}" in text
    low, high = result.seconds_per_step.ci95
    assert f"95% interval {low:.4g} s to {high:.4g} s · {result.window.counted} steps counted" in text
    for entry in [*result.mfu, *result.hfu]:
        peak = f"of {entry.peak_tflops:.5g} TFLOP/s {entry.precision_peak} ({entry.table})"
        assert f"by {entry.counted_by}: {entry.percent:.2f}% {peak}" in text


def test_all_of_the_provenance_is_there_also_what_this_version_does_not_know() -> None:
    provenance = {
        "worker": [{"rank": 0, "versions": {"jax": "0.9"}}],
        "phases": {"perf": {"argv": ["python", "x"], "xla_flags": []}},
        "brand_new": {"deep": {"deeper": "1"}},
        "notes": ["a note that is elsewhere"],
    }
    text = Reader(run_page(msgspec.structs.replace(MATERIAL, provenance=provenance))).text
    for words in (
        '"rank": 0, "versions": { "jax": "0.9" }',
        '"argv": [ "python", "x" ]',
        'brand new brand_new { "deep": { "deeper": "1" } }',
    ):
        assert words in text
    assert "a note that is elsewhere" not in text


def test_of_several_reports_the_table_has_status_figures_and_time() -> None:
    result = msgspec.structs.replace(MATERIAL.result, run_id="20261124T031415Z-jax-llama2_70b-64xh100-beef")
    slowed = changed(notes=["a note", "slowed on purpose: every step by 50%"])
    failed = changed(status="failed", reasons=[f"rank {n}: no step was trained" for n in range(64)])
    shown = page(
        run_part(msgspec.structs.replace(MATERIAL, result=result), "a"), run_part(failed, "b"), run_part(slowed, "c")
    )
    read = Reader(shown)
    seconds = f"{result.seconds_per_step.median:.4g} s"
    table = read.text[: read.text.index("Each report")]
    assert "llama2_70b pretrain fp8 jax (maxtext) on 64 x" in table
    assert seconds in table
    assert "2026-11-24 03:14 beef" in read.text
    assert "64 ranks (0-63): no step was trained" in table
    assert "slowed on purpose: every step by 50%" in table


def test_the_nearest_published_row_with_its_ratio_and_what_differs() -> None:
    found = MATERIAL.nearest[0]
    text = Reader(run_page(MATERIAL)).text
    assert f"{found.ratio:.3f} x the tokens/s per GPU of {found.reference}" in text
    assert found.source in text
    for difference in found.differs:
        assert difference in text
    unknown = msgspec.structs.replace(MATERIAL, nearest=(None, "nothing like it"))
    assert "none: nothing like it" in run_page(unknown)


@pytest.mark.parametrize("where", ["reason", "log", "name", "version", "run_id", "null"])
def test_markup_in_what_is_quoted_stays_text(where: str) -> None:
    material = {
        "reason": lambda: changed(status="invalid", reasons=[EVIL]),
        "log": lambda: msgspec.structs.replace(MATERIAL, logs=[LogTail("a", [EVIL])]),
        "name": lambda: msgspec.structs.replace(MATERIAL, logs=[LogTail(EVIL, [])]),
        "version": lambda: msgspec.structs.replace(MATERIAL, provenance={"machine": {EVIL: EVIL}}),
        "run_id": lambda: changed(run_id=EVIL),
        "null": lambda: changed(null_because={EVIL: EVIL}),
    }[where]()
    read = Reader(run_page(material))
    assert "script" not in {tag for tag, _ in read.tags}
    assert EVIL in read.text or EVIL.replace('"', '\\"') in read.text  # as JSON has it


def test_it_is_one_file_without_script_and_without_another_address() -> None:
    shown = run_page(MATERIAL)
    assert "<script" not in shown
    assert "http" not in re.sub(r"<(title|p|li|dd|span|td)[^>]*>[^<]*", "", shown)
    assert "url(#" in shown
    assert re.findall(r"url\((?!#)", shown) == []
    assert "@import" not in shown
    assert shown == run_page(MATERIAL)
