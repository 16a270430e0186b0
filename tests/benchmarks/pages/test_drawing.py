"""Plots as the page's own SVG: the same every time, no colour and no font of matplotlib's, text that stays text."""

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from benchmarks.pages.drawing import BLUE, INK, plot
from benchmarks.pages.page import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def drawn(name: str = "one", label: str = "seconds") -> Plot:
    def draw(axes: "Axes") -> None:
        axes.plot([0, 1, 2], [0.12345, 0.5, 0.3], color=BLUE, marker="o")
        axes.annotate(label, (1, 0.4), color=INK)

    return plot(name, "a heading", "in words", draw, 200)


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
