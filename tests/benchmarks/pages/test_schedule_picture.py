"""The loops over layers are found in a program and drawn: bars at their times, and labels that people know."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.compilation.breakdown import Span
from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.pages.schedule_picture import (
    LEFT,
    RIGHT,
    SLACK,
    WIDTH,
    Bar,
    Trip,
    draw_trips,
    layer_trips,
    schedule_plot,
)
from tests.benchmarks.planned import recipe

QUERY, OUTPUT = "Attention.query_projection", "Attention.out_projection"


def loop(body: str, trips: int) -> Operation:
    return Operation(name=f"while.{body}", what="loop", body=body, trips=trips)


def matmul(name: str, layer: str, flops: float = 1e12, part: str = "forward") -> Operation:
    return Operation(name=name, what="matmul", layer=layer, flops=flops, dtype="bf16", part=part)


FORWARD = [
    matmul("qkv", QUERY, 1.25e12),
    Operation(name="core", what="attention", kind="forward", part="forward"),
    matmul("out", OUTPUT),
    matmul("up", "MlpBlock", 3.5e12),
    Operation(name="gather", what="collective", kind="all-gather", axes=["fsdp"], bytes=1.711e9, part="forward"),
    Operation(name="keep", what="fusion", bytes=1e8, part="forward"),
]
BACKWARD = [
    matmul("q", QUERY, part="backward"),
    matmul("out again", OUTPUT, part="recomputed"),
    matmul("odd", "Router", part="backward"),
]
SCHEDULE = Schedule(
    entry="main",
    computations={
        "main": [loop("micro-steps", 2)],
        "micro-steps": [loop("up", 39), loop("down", 80), matmul("head", "Head", part="backward")],
        "up": FORWARD,
        "down": BACKWARD,
    },
)


def spans_of(*operations: Operation, exposed: float = 0.0) -> list[Span]:
    """A millisecond each, one behind the other."""
    streams: dict[str, Any] = {"gather": "communication", "keep": "side"}
    return [
        Span(
            operation=one,
            stream=streams.get(one.name, "compute"),
            start_seconds=0.001 * place,
            seconds=0.001,
            exposed_seconds=exposed if one.name == "gather" else 0.0,
        )
        for place, one in enumerate(operations)
    ]


def loops(exposed: float = 0.0) -> dict[str, list[Span]]:
    head = spans_of(matmul("head", "Head", part="backward"))
    return {"micro-steps": head * 1000, "up": spans_of(*FORWARD, exposed=exposed), "down": spans_of(*BACKWARD)}


def test_a_trip_of_each_loop_over_layers_says_how_many_layers_it_holds() -> None:
    up, down = layer_trips(recipe(), SCHEDULE, loops())
    assert (up.heading, up.layers, up.seconds) == ("Forward: 2 layers", 2, 0.005)  # without the copy beside it
    assert (down.heading, down.layers) == ("Backward: 1 layer", 1)
    assert [bar.recomputed for bar in down.bars] == [False, True, False]


def test_matmuls_are_called_by_their_layer_and_q_alone_is_told_from_merged_projections() -> None:
    up, down = layer_trips(recipe(), SCHEDULE, loops())
    assert [bar.labels[-1] if bar.labels else "" for bar in up.bars] == ["qkv", "attention", "out", "MLP", "AG", ""]
    assert [bar.labels[-1] if bar.labels else "" for bar in down.bars] == ["q", "out", ""]
    assert up.bars[4].labels[0] == "all-gather 1.71 GB"
    assert [bar.lane for bar in up.bars[-2:]] == ["communication", "copies"]
    assert "along fsdp" in up.bars[4].details
    assert "Router" in down.bars[2].details


def test_exposed_communication_is_said_and_drawn() -> None:
    up, _ = layer_trips(recipe(), SCHEDULE, loops(exposed=0.0004))
    assert up.bars[4].exposed_seconds == 0.0004
    assert "400 us of it exposed" in up.under
    (hidden,), (exposed,) = (schedule_plot(recipe(), SCHEDULE, loops(one), "layer") for one in (0.0, 0.0004))
    assert "AG: all-gather" in exposed.says
    assert "not measured" in exposed.says
    assert ("--bad" in hidden.svg, "--bad" in exposed.svg) == (False, True)


def test_a_program_without_loops_over_layers_has_no_picture() -> None:
    assert schedule_plot(recipe(), Schedule(entry="main", computations={"main": FORWARD}), {}, "layer") == []


# --- the drawing ------------------------------------------------------------------------------------

SECONDS = 0.010
LEGEND = 20  # its lower end
SCALE = (WIDTH - LEFT - RIGHT) / (SECONDS * (1 + SLACK))  # pixels a second, where a row is 10 ms


def drawn(*bars: Bar, seconds: float = SECONDS) -> str:
    return str(draw_trips("one", [Trip("Forward", "10 ms", seconds, 1, bars)], SECONDS))


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
