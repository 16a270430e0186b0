"""Schedules as drawings: bars lie at their times, what is exposed is red, labels do not run into each other."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from benchmarks.pages.timeline import LEFT, RIGHT, SLACK, WIDTH, Bar, Trip, standalone, timeline

SECONDS = 0.010
LEGEND = 20  # its lower end
SCALE = (WIDTH - LEFT - RIGHT) / (SECONDS * (1 + SLACK))  # pixels a second, where a row is 10 ms


def drawn(*bars: Bar, seconds: float = SECONDS) -> str:
    return str(
        timeline("one", "a heading", "what is to be seen", [Trip("Forward", "10 ms", seconds, 1, bars)], SECONDS)
    )


def compute(start: float, seconds: float, *labels: str) -> Bar:
    return Bar("compute", "matmul", start, seconds, labels, "a matmul")


def gather(start: float, seconds: float, exposed: float = 0.0) -> Bar:
    return Bar("communication", "hidden", start, seconds, ("all-gather 1 GB", "AG"), "a <gather>", exposed)


def bars(svg: str, colour: str) -> list[tuple[float, float]]:
    """Where the bars of a colour begin, and how wide they are; without the legend and the wash."""
    found = [one for one in ET.fromstring(svg).iter("rect") if f"var({colour})" in one.get("style", "")]
    return [
        (float(one.get("x", 0)), float(one.get("width", 0)))
        for one in found
        if float(one.get("y", 0)) > LEGEND and "opacity" not in one.get("style", "")
    ]


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg).iter("text")]


def test_bars_lie_at_their_times_and_the_exposed_end_of_a_collective_is_red() -> None:
    svg = drawn(compute(0, 0.004), gather(0.001, 0.005, exposed=0.002), compute(0.006, 0.004))
    assert bars(svg, "--blue") == [
        pytest.approx((LEFT, 0.004 * SCALE), abs=0.1),
        pytest.approx((LEFT + 0.006 * SCALE, 0.004 * SCALE), abs=0.1),
    ]
    assert bars(svg, "--good") == [pytest.approx((LEFT + 0.001 * SCALE, 0.003 * SCALE), abs=0.1)]
    assert bars(svg, "--bad") == [pytest.approx((LEFT + 0.004 * SCALE, 0.002 * SCALE), abs=0.1)]
    assert "waits 2 ms" in texts(svg)


def test_nothing_is_red_where_nothing_is_exposed() -> None:
    assert "--bad" not in drawn(compute(0, 0.01), gather(0.001, 0.005))


def test_a_wait_across_two_rows_is_named_once_and_the_legend_has_what_is_drawn() -> None:
    said = texts(drawn(gather(0.0085, 0.002, exposed=0.002), seconds=0.02))
    assert [text for text in said if "waits" in text] == ["waits 2 ms"]
    assert "collective, exposed" in said
    assert "collective, hidden" not in said


def test_a_trip_longer_than_a_row_goes_on_in_the_next_at_the_same_scale() -> None:
    svg = drawn(*(compute(0.003 * number, 0.003) for number in range(8)), seconds=0.024)
    assert sum(wide for _, wide in bars(svg, "--blue")) == pytest.approx(0.024 * SCALE, abs=1)
    assert texts(svg).count("modelled ms") == 3
    assert {"0", "10", "20"} <= set(texts(svg))


@pytest.mark.parametrize(("room", "label"), [(0.006, "all-gather 1 GB"), (0.0005, "AG"), (0.00005, None)])
def test_a_collectives_label_is_as_long_as_there_is_room(room: float, label: str | None) -> None:
    said = texts(drawn(gather(0, 0.0001), gather(0.0001 + room, 0.0001)))
    assert {text for text in said if text in ("all-gather 1 GB", "AG")} == {label, "all-gather 1 GB"} - {None}


def test_labels_above_narrow_bars_do_not_run_into_each_other() -> None:
    narrow = [compute(0.0001 * number, 0.0001, "a long label") for number in range(20)]
    svg = drawn(*narrow)
    places = sorted(float(one.get("x", 0)) for one in ET.fromstring(svg).iter("text") if one.text == "a long label")
    assert 0 < len(places) < len(narrow)
    assert all(right - left > 70 for left, right in pairwise(places))


def test_text_is_escaped_and_colours_are_the_pages() -> None:
    svg = drawn(gather(0, 0.001))
    assert "a &lt;gather&gt;" in svg
    assert re.findall(r"#[0-9a-f]{3,6}\b", svg) == []


def test_a_file_of_its_own_has_its_colours_for_light_and_dark_and_lies_on_paper() -> None:
    alone = standalone(timeline("one", "h", "s", [Trip("Forward", "", SECONDS, 1, [compute(0, 0.01)])], SECONDS))
    ET.fromstring(alone)
    assert alone.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "prefers-color-scheme: dark" in alone
    variables = set(re.findall(r"var\((--\w+)\)", alone))
    assert variables <= set(re.findall(r"(--\w+):", alone))
    assert "--paper" in variables
