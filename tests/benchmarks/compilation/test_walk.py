"""Walking a schedule: small programs whose times are computed by hand."""

import msgspec
import pytest

from benchmarks.compilation.overlap import overlap
from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.compilation.walk import (
    EXPOSED,
    KERNEL_GAP_SECONDS,
    RING_HOP_SECONDS,
    RING_SECONDS,
    SIDE,
    Rates,
    Walked,
    profile_text,
    rates_of,
    seconds_of,
    walk,
)
from benchmarks.configs import Configs
from benchmarks.errors import RequestError

RATES = Rates(
    matmul_flops={"bf16": 1e12},
    attention_flops={"forward": 0.5e12, "backward": 0.25e12},
    memory_bytes=1e9,
    node_bytes=100e9,
    network_bytes=10e9,
)


def matmul(name: str, seconds: float) -> Operation:
    return Operation(name=name, what="matmul", dtype="bf16", flops=(seconds - KERNEL_GAP_SECONDS) * 1e12)


def gather(name: str, seconds: float, event: str = "start", axis: str = "fsdp") -> Operation:
    """Of two devices in one node, so that it takes these seconds."""
    wire = (seconds - RING_SECONDS - RING_HOP_SECONDS) * RATES.node_bytes
    return Operation(
        name=name,
        what="collective",
        kind="all-gather",
        event=event,
        axes=[axis],
        group_size=2,
        group_nodes=1,
        wire_bytes=wire,
    )


def done(of: Operation) -> Operation:
    return Operation(name=f"{of.name}-done", what=of.what, kind=of.kind, event="done", of=of.name)


def program(*operations: Operation, **bodies: list[Operation]) -> Schedule:
    return Schedule(entry="main", computations={"main": list(operations), **bodies})


def spent(walked: Walked) -> dict[str, float]:
    assert sum(walked.spent.values()) == pytest.approx(walked.seconds)
    return {what: round(seconds, 6) for what, seconds in walked.spent.items()}


# --- what one operation takes -------------------------------------------------------------------


def collective(kind: str, size: int, nodes: int, wire_bytes: float) -> float:
    one = Operation(name="c", what="collective", kind=kind, group_size=size, group_nodes=nodes, wire_bytes=wire_bytes)
    return seconds_of(one, RATES) * 1e6


def test_a_kernel_takes_the_longer_of_its_flops_and_its_bytes() -> None:
    gap = KERNEL_GAP_SECONDS
    assert seconds_of(Operation(name="m", what="matmul", dtype="bf16", flops=2e12, bytes=1e9), RATES) == 2 + gap
    assert seconds_of(Operation(name="m", what="matmul", dtype="bf16", flops=2e12, bytes=3e9), RATES) == 3 + gap
    assert seconds_of(Operation(name="a", what="attention", kind="backward", flops=1e12), RATES) == 4 + gap
    assert seconds_of(Operation(name="f", what="fusion", bytes=0.5e9), RATES) == 0.5 + gap


def test_a_ring_within_a_node_and_between_nodes() -> None:
    assert collective("all-gather", 8, 1, 100e3) == pytest.approx(1 + 7 * 3.4 + 8.4)
    # 8 network cards a node carry 80 GB/s together
    assert collective("all-gather", 16, 2, 80e3) == pytest.approx(1 + 14 * 3.4 + 14 + 8.4)
    # a group with one device in each node has one network card there
    assert collective("reduce-scatter", 2, 2, 80e3) == pytest.approx(8 + 14 + 8.4)


def test_a_large_all_reduce_goes_along_a_tree() -> None:
    ring, tree = 2 * (56 * 3.4 + 7 * 14), 2 * (7 * 4.0 + 3 * 14)
    assert tree < ring
    assert collective("all-reduce", 64, 8, 0) == pytest.approx(tree + 8.4)
    assert collective("all-reduce", 2, 1, 0) == pytest.approx(2 * 3.4 + 8.4)  # of two, a ring is shorter


def test_a_group_of_one_sends_nothing() -> None:
    assert collective("all-reduce", 1, 1, 0) == pytest.approx(0.9)


# --- the walk -----------------------------------------------------------------------------------


def test_a_collective_beside_a_longer_matmul_is_hidden() -> None:
    sent = gather("g", 0.3)
    walked = walk(program(sent, matmul("m", 1.0), done(sent)), RATES)
    assert spent(walked) == {"matmul": 1.0}
    (exchanged,) = walked.exchanged
    assert (exchanged.axes, exchanged.kind) == (["fsdp"], "all-gather")
    assert exchanged.exposed_seconds == 0
    assert exchanged.seconds == pytest.approx(0.3)
    assert exchanged.wire_bytes == sent.wire_bytes


def test_what_a_collective_takes_beyond_the_work_beside_it_is_exposed() -> None:
    sent = gather("g", 1.5)
    walked = walk(program(sent, matmul("m", 1.0), done(sent)), RATES)
    assert spent(walked) == {"matmul": 1.0, EXPOSED: 0.5}
    assert walked.exchanged[0].exposed_seconds == pytest.approx(0.5)


def test_a_synchronous_collective_is_exposed_whole() -> None:
    assert spent(walk(program(gather("g", 0.3, event="run"), matmul("m", 1.0)), RATES)) == {
        "matmul": 1.0,
        EXPOSED: 0.3,
    }


def test_collectives_run_one_after_the_other_and_each_bears_its_own_wait() -> None:
    """The second waits for the first: compute waits from 1.0 to 1.6 for the first, then to 2.0 for the second."""
    first, second = gather("a", 1.6, axis="fsdp"), gather("b", 0.4, axis="data")
    walked = walk(program(first, second, matmul("m", 1.0), done(second), done(first)), RATES)
    assert spent(walked) == {EXPOSED: 1.0, "matmul": 1.0}
    assert {one.axes[0]: round(one.exposed_seconds, 6) for one in walked.exchanged} == {"fsdp": 0.6, "data": 0.4}


def test_a_fusion_on_the_side_stream_costs_nothing_until_it_is_waited_for() -> None:
    side = Operation(name="s", what="fusion", event="start", bytes=(1.5 - KERNEL_GAP_SECONDS) * 1e9)
    assert spent(walk(program(side, matmul("m", 1.0), done(side)), RATES)) == {"matmul": 1.0, SIDE: 0.5}


def loop(body: str, trips: int) -> Operation:
    return Operation(name=f"while-{body}", what="loop", body=body, trips=trips)


def test_a_loop_takes_its_trips() -> None:
    sent = gather("g", 1.5)
    body = [sent, matmul("m", 1.0), done(sent), matmul("n", 0.5)]
    walked = walk(program(matmul("head", 3.0), loop("layer", 10), layer=body), RATES)
    assert spent(walked) == {"matmul": 18.0, EXPOSED: 5.0}
    assert walked.exchanged[0].seconds == pytest.approx(15.0)
    assert walked.exchanged[0].wire_bytes == pytest.approx(10 * sent.wire_bytes)
    streams = {span.name: (span.stream, round(span.start_seconds, 6)) for span in walked.loops["layer"]}
    assert streams == {"g": ("communication", 0.0), "m": ("compute", 0.0), "n": ("compute", 1.5)}
    assert {span.name: round(span.exposed_seconds, 6) for span in walked.loops["layer"]} == {"g": 0.5, "m": 0, "n": 0}


def test_a_steady_trip_is_not_the_first_one() -> None:
    """What is still sent from before the loop delays the first trip; the fourth is steady."""
    before, inside = gather("before", 5.0), gather("inside", 0.5)
    body = [inside, matmul("m", 1.0), done(inside)]
    walked = walk(program(before, loop("layer", 10), done(before), layer=body), RATES)
    assert spent(walked) == {"matmul": 10.0, EXPOSED: 4.5}  # the first trip waits from 1.0 to 5.5
    assert [span.exposed_seconds for span in walked.loops["layer"]] == [0, 0]
    assert [one.exposed_seconds for one in walked.exchanged] == [pytest.approx(4.5)]


def test_a_collective_beside_a_whole_loop_ends_when_it_would_without_it() -> None:
    around = gather("around", 5.0)
    walked = walk(program(around, loop("layer", 10), done(around), layer=[matmul("m", 0.1)]), RATES)
    assert spent(walked) == {EXPOSED: 4.0, "matmul": 1.0}


def test_loops_in_a_loop() -> None:
    walked = walk(program(loop("outer", 6), outer=[loop("inner", 5)], inner=[matmul("m", 0.1)]), RATES)
    assert spent(walked) == {"matmul": 3.0}
    (span,) = walked.loops["outer"]
    assert (span.what, round(span.seconds, 6)) == ("loop", 0.5)


def test_a_precision_without_a_rate_is_named() -> None:
    one = Operation(name="m", what="matmul", dtype="fp32", flops=1e15, bytes=1e9)
    walked = walk(program(one), RATES)
    assert walked.seconds == pytest.approx(1.0, abs=1e-5)
    assert any("fp32" in note for note in walked.notes)


# --- without rates --------------------------------------------------------------------------------


def test_what_lies_between_a_start_and_its_done() -> None:
    hidden, alone = gather("hidden", 1.0), gather("alone", 1.0)
    fusion = Operation(name="f", what="fusion", bytes=1.0)
    attention = Operation(name="a", what="attention", kind="forward", flops=7.0)
    within = [matmul("m", 1.0), attention]
    found = {
        one.name: one
        for one in overlap(
            program(
                hidden,
                loop("layer", 3),
                fusion,
                done(hidden),
                matmul("after", 1.0),
                gather("run", 1.0, event="run"),
                layer=[alone, fusion, done(alone), *within],
            )
        )
    }
    assert (found["hidden"].matmuls, found["hidden"].attentions, found["hidden"].fusions) == (3, 3, 4)
    assert found["hidden"].flops == 3 * (matmul("m", 1.0).flops + 7)
    assert (found["hidden"].times, found["alone"].times) == (1, 3)
    assert {name: (one.asynchronous, one.hidden) for name, one in found.items()} == {
        "hidden": (True, True),
        "alone": (True, False),  # a fusion is too short to hide it
        "run": (False, False),
    }


def test_a_profile_has_a_cost_for_every_instruction_that_runs() -> None:
    sent = gather("all-gather-start.3", 0.25)
    started = msgspec.structs.replace(sent, wraps="all-gather.92")
    text = profile_text(program(started, loop("layer", 3), done(sent), layer=[matmul("m", 0.5)]), RATES)
    assert text.splitlines() == [
        'costs { name: "all-gather-start.3" cost_us: 250000.000 }',
        'costs { name: "all-gather.92" cost_us: 250000.000 }',
        'costs { name: "m" cost_us: 500000.000 }',
    ]


# --- rates ----------------------------------------------------------------------------------------


def test_rates_of_the_hardware_files() -> None:
    h100 = rates_of(Configs().hardware("h100"))
    assert h100.matmul_flops == {"bf16": 794.5e12, "fp8": 1402.6e12}
    assert (h100.memory_bytes, h100.node_bytes, h100.network_bytes) == (3350e9, 360e9, 45e9)
    assert h100.attention_flops["forward"] == pytest.approx(518e12)
    assert h100.notes == []
    assert "A100" in rates_of(Configs().hardware("a100")).notes[0]


@pytest.mark.parametrize("name", ["cpu", "h100_pcie"])
def test_a_missing_rate_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        rates_of(Configs().hardware(name))
    assert f"configs/hardware/{name}.yml" in caught.value.where
