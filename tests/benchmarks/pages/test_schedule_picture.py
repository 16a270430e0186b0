"""The loops over layers are found in a program and drawn: bars at their times, and labels that people know."""

from typing import Any

from benchmarks.compilation.breakdown import Span
from benchmarks.compilation.compiled import Operation, Schedule
from benchmarks.pages.schedule_picture import label_of, layer_trips, schedule_plot
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
    assert (up.heading, up.seconds) == ("Forward: 2 layers", 0.005)  # without the concurrent copy
    assert down.heading == "Backward: 1 layer"


def test_matmuls_are_named_by_layer_and_q_differs_from_merged_projections() -> None:
    up = [label_of(one, output_flops=1e12) for one in FORWARD]
    assert up == ["qkv", "attention", "out", "MLP", "AG 1.71 GB", ""]
    assert [label_of(one, output_flops=1e12) for one in BACKWARD] == ["q", "out", ""]


def test_exposed_communication_is_described_and_drawn() -> None:
    up, _ = layer_trips(recipe(), SCHEDULE, loops(exposed=0.0004))
    assert "400 us of it exposed" in up.under
    (hidden,), (exposed,) = (schedule_plot(recipe(), SCHEDULE, loops(one), "layer") for one in (0.0, 0.0004))
    assert "AG: all-gather" in exposed.says
    assert "not measured" in exposed.says
    assert exposed.svg.count("--bad") > hidden.svg.count("--bad")
