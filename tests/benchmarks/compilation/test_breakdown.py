"""Shares of a step: small programs whose times are computed by hand."""

import msgspec
import pytest

from benchmarks.compilation.breakdown import (
    EXPOSED,
    KERNEL_GAP_SECONDS,
    RING_HOP_SECONDS,
    RING_SECONDS,
    SIDE,
    Breakdown,
    breakdown,
    rates_of,
    seconds_of,
)
from benchmarks.compilation.compiled import Operation, Schedule, overlap
from benchmarks.configs import Configs
from tests.benchmarks.compilation.samples import done, flagship, loop, schedule_of

H100 = Configs().hardware("h100")
RATES = rates_of(H100)
MATMUL_FLOPS = RATES.matmul_flops["bf16"]


def breakdown_of(schedule: Schedule) -> Breakdown:
    return breakdown(schedule, H100)


def shares(*operations: Operation, **bodies: list[Operation]) -> dict[str, float]:
    rounded = {
        what: round(share, 4) for what, share in breakdown_of(schedule_of(*operations, **bodies)).shares.items()
    }
    return {what: share for what, share in rounded.items() if share}


def matmul(name: str, seconds: float) -> Operation:
    return Operation(name=name, what="matmul", dtype="bf16", flops=(seconds - KERNEL_GAP_SECONDS) * MATMUL_FLOPS)


def gather(name: str, seconds: float, event: str = "start") -> Operation:
    """Return a gather over two devices of one node that takes these seconds."""
    sent = (seconds - RING_SECONDS - RING_HOP_SECONDS) * RATES.node_bytes
    return Operation(
        name=name, what="collective", kind="all-gather", event=event, axes=["fsdp"], group_size=2, group_nodes=1,
        wire_bytes=sent,
    )  # fmt: skip


# --- what one operation takes -------------------------------------------------------------------


def collective(kind: str, size: int, nodes: int, wire_bytes: float) -> float:
    """In microseconds, on an H100: 360 GB/s within a node, 45 GB/s by each network card."""
    one = Operation(name="c", what="collective", kind=kind, group_size=size, group_nodes=nodes, wire_bytes=wire_bytes)
    return seconds_of(one, RATES) * 1e6


def test_a_kernel_takes_the_longer_of_its_flops_and_its_bytes() -> None:
    gap, memory = KERNEL_GAP_SECONDS, RATES.memory_bytes
    two_seconds = Operation(name="m", what="matmul", dtype="bf16", flops=2 * MATMUL_FLOPS, bytes=memory)
    assert seconds_of(two_seconds, RATES) == pytest.approx(2 + gap)
    assert seconds_of(msgspec.structs.replace(two_seconds, bytes=3 * memory), RATES) == pytest.approx(3 + gap)
    assert seconds_of(Operation(name="f", what="fusion", bytes=memory / 2), RATES) == pytest.approx(0.5 + gap)
    backward = Operation(name="a", what="attention", kind="backward", flops=499e12)
    assert seconds_of(backward, RATES) == pytest.approx(1 + gap, rel=1e-3)


def test_a_ring_within_a_node_and_between_nodes() -> None:
    assert collective("all-gather", 8, 1, 360e3) == pytest.approx(1 + 7 * 3.4 + 8.4)
    assert collective("all-gather", 16, 2, 360e3) == pytest.approx(1 + 14 * 3.4 + 14 + 8.4)
    # a group with one device in each node has one network card there
    assert collective("reduce-scatter", 2, 2, 360e3) == pytest.approx(8 + 14 + 8.4)


def test_a_large_all_reduce_goes_along_a_tree() -> None:
    ring, tree = 2 * (56 * 3.4 + 7 * 14), 2 * (7 * 4.0 + 3 * 14)
    assert tree < ring
    assert collective("all-reduce", 64, 8, 0) == pytest.approx(tree + 8.4)
    assert collective("all-reduce", 2, 1, 0) == pytest.approx(2 * 3.4 + 8.4)  # with two nodes, a ring is shorter
    assert collective("all-reduce", 1, 1, 0) == pytest.approx(0.9)  # one device sends nothing


# --- the shares ---------------------------------------------------------------------------------


SHORT, LONG, SYNCHRONOUS = gather("g", 0.3), gather("g", 1.25), gather("g", 0.25, event="run")
FUSION = Operation(name="s", what="fusion", event="start", bytes=1.25 * RATES.memory_bytes)
AROUND, MATMUL = gather("around", 5.0), matmul("m", 1.0)


@pytest.mark.parametrize(
    ("operations", "bodies", "found"),
    [
        pytest.param([SHORT, MATMUL, done(SHORT)], {}, {"matmul": 1.0}, id="hidden beside a longer matmul"),
        pytest.param([LONG, MATMUL, done(LONG)], {}, {"matmul": 0.8, EXPOSED: 0.2}, id="exposed beyond it"),
        pytest.param([SYNCHRONOUS, MATMUL], {}, {"matmul": 0.8, EXPOSED: 0.2}, id="synchronous"),
        pytest.param(
            [FUSION, MATMUL, done(FUSION)], {}, {"matmul": 0.8, SIDE: 0.2}, id="the side stream is waited for"
        ),
        pytest.param(
            [AROUND, loop("layer", 10), done(AROUND)],
            {"layer": [matmul("m", 0.1)]},
            {EXPOSED: 0.8, "matmul": 0.2},
            id="beside a whole loop",
        ),
        pytest.param(
            [loop("outer", 6)],
            {"outer": [loop("inner", 5)], "inner": [matmul("m", 0.1)]},
            {"matmul": 1.0},
            id="nested",
        ),
    ],
)
def test_the_shares_of_small_programs(
    operations: list[Operation], bodies: dict[str, list[Operation]], found: dict[str, float]
) -> None:
    assert shares(*operations, **bodies) == found


def test_a_loop_takes_its_trips_and_a_trip_has_its_spans() -> None:
    sent = gather("g", 1.5)
    body = [sent, matmul("m", 1.0), done(sent), matmul("n", 0.5)]
    program = schedule_of(matmul("head", 5.0), loop("layer", 10), layer=body)
    assert breakdown_of(program).shares == pytest.approx({"matmul": 0.8, EXPOSED: 0.2}, abs=1e-4)
    spans = breakdown_of(program).loops["layer"]
    streams = {span.operation.name: (span.stream, round(span.start_seconds, 6)) for span in spans}
    assert streams == {"g": ("communication", 0.0), "m": ("compute", 0.0), "n": ("compute", 1.5)}


def test_the_flagship_s_shares() -> None:
    assert flagship().breakdown.shares == pytest.approx(
        {"matmul": 0.873, "attention": 0.067, "fusion": 0.047, EXPOSED: 0.013, "copy": 0.0}, abs=1e-3
    )


# --- what hides a collective ----------------------------------------------------------------------


def test_what_lies_between_a_start_and_its_done() -> None:
    hidden, alone = gather("hidden", 1.0), gather("alone", 1.0)
    fusion = Operation(name="f", what="fusion", bytes=1.0)
    five = Operation(name="m", what="matmul", flops=5.0)
    attention = Operation(name="a", what="attention", kind="forward", flops=7.0)
    schedule = schedule_of(
        hidden,
        loop("layer", 3),
        fusion,
        done(hidden),
        five,
        gather("run", 1.0, event="run"),
        layer=[alone, fusion, done(alone), five, attention],
    )
    found = {one.name: one for one in overlap(schedule)}
    assert (found["hidden"].matmuls, found["hidden"].attentions, found["hidden"].fusions) == (3, 3, 4)
    assert found["hidden"].flops == 3 * (5 + 7)
    assert (found["hidden"].times, found["alone"].times) == (1, 3)
    assert {name: (one.asynchronous, one.hidden) for name, one in found.items()} == {
        "hidden": (True, True),
        "alone": (True, False),  # a fusion is too short to hide it
        "run": (False, False),
    }


# --- rates ----------------------------------------------------------------------------------------


def test_rates_are_those_of_the_hardware_files() -> None:
    assert RATES.matmul_flops == {"bf16": 794.5e12, "fp8": 1402.6e12}
    assert (RATES.memory_bytes, RATES.node_bytes, RATES.network_bytes) == (3350e9, 360e9, 45e9)
    assert RATES.attention_flops["forward"] == pytest.approx(518e12)
    a100 = breakdown(flagship().compiled.schedule, Configs().hardware("a100"))
    assert "A100" in a100.notes[0]
    fp32 = Operation(name="m", what="matmul", dtype="fp32", flops=1e15, bytes=1e9)
    assert any("fp32" in note for note in breakdown_of(schedule_of(fp32)).notes)


@pytest.mark.parametrize("name", ["cpu", "h100_pcie"])
def test_a_missing_rate_is_named_and_there_are_no_times(name: str) -> None:
    unknown = breakdown(flagship().compiled.schedule, Configs().hardware(name))
    assert (unknown.shares, unknown.loops) == ({}, {})
    assert f"configs/hardware/{name}.yml" in unknown.notes[0]
