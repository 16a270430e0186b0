"""What a schedule has between the start of a collective and its done."""

from benchmarks.compilation.schedule import Operation, overlap
from tests.benchmarks.compilation.samples import done, loop, schedule_of


def gather(name: str, event: str = "start") -> Operation:
    return Operation(name=name, what="collective", kind="all-gather", event=event, axes=["fsdp"], group_size=2)


def test_what_lies_between_a_start_and_its_done() -> None:
    hidden, alone = gather("hidden"), gather("alone")
    fusion = Operation(name="f", what="fusion", bytes=1.0)
    matmul = Operation(name="m", what="matmul", flops=5.0)
    attention = Operation(name="a", what="attention", kind="forward", flops=7.0)
    schedule = schedule_of(
        hidden,
        loop("layer", 3),
        fusion,
        done(hidden),
        matmul,
        gather("run", event="run"),
        layer=[alone, fusion, done(alone), matmul, attention],
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
