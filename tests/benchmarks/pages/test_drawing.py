"""Plots as the page's own SVG: the same every time, no colour and no font of matplotlib's, text that stays text."""

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from benchmarks.pages.drawing import BLUE, INK, VARIABLES, plot
from benchmarks.pages.page import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def drawn(name: str = "one", label: str = "seconds") -> Plot:
    def draw(axes: "Axes") -> None:
        axes.plot([0, 1, 2], [0.12345, 0.5, 0.3], color=BLUE, marker="o")
        axes.annotate(label, (1, 0.4), color=INK)

    return plot(name, "a heading", "what is on which axis", "in words", draw, 200)


def test_it_says_what_it_is_to_those_who_cannot_see_it() -> None:
    root = ET.fromstring(str(drawn().svg))
    assert root.get("role") == "img"
    assert "width" not in root.attrib
    texts = {child.get("id"): child.text for child in root if child.get("id")}
    assert [texts[one] for one in str(root.get("aria-labelledby")).split()] == ["a heading", "what is on which axis"]


def test_colours_and_fonts_are_the_pages() -> None:
    svg = str(drawn().svg)
    assert "var(--blue)" in svg
    assert "var(--muted)" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []
    assert "DejaVu" not in svg
    assert not any(stand_in in svg for stand_in in VARIABLES)


def test_two_plots_share_no_id_and_each_refers_to_its_own() -> None:
    svgs = [str(drawn("one").svg), str(drawn("two").svg)]
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in svgs]
    assert all(ids)
    assert ids[0].isdisjoint(ids[1])
    for svg, own in zip(svgs, ids, strict=True):
        referred = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
        assert referred
        assert set(referred) <= own


@pytest.mark.parametrize("text", ["0.123456", "$x$ <b>", "#fe0001 -->", "font-family: x; id=\"y\" 'z'"])
def test_text_is_neither_markup_nor_mathematics_and_is_left_as_it_is(text: str) -> None:
    root = ET.fromstring(str(drawn(label=text).svg))
    assert text in [element.text for element in root.iter() if element.tag.endswith("text")]


def test_a_matplotlibrc_of_this_machine_changes_nothing() -> None:
    import matplotlib as mpl

    before = drawn()
    assert drawn() == before  # the same bytes every time
    with mpl.rc_context({"font.size": 30, "xtick.major.pad": 20, "axes.labelweight": "bold"}):
        assert drawn() == before
        assert mpl.rcParams["font.size"] == 30  # and ours are gone again
