"""Which buffers a device holds at the peak, from the three files that XLA writes."""

from pathlib import Path
from typing import Any

import pytest

from jax_backend.inside import buffers

SAMPLES = Path(__file__).parent / "samples"
ASSIGNMENT = (SAMPLES / "peak-buffer-assignment.txt").read_text()
VALUES = (SAMPLES / "peak-buffer-assignment-values.txt").read_text()


def held(**ranges: str) -> list[Any]:
    """Names of values, `_0` for the first part of a tuple, and when each is needed."""
    rows = "".join(
        f"    {name.removesuffix('_0')}{'{0}' if name.endswith('_0') else '{}'}:{span}\n"
        for name, span in ranges.items()
    )
    live = f"HloLiveRange (max 9):\n    0:weights\n  BufferLiveRange:\n{rows}  Live ranges at 1:\n"
    return list(buffers.held_at_the_peak(ASSIGNMENT, VALUES, live))


WEIGHTS = ("weights", 400)


@pytest.mark.parametrize(
    ("ranges", "rows"),
    [
        pytest.param(
            {"kept": "1-5", "gathered_0": "2-3", "same_place": "3-4", "later": "6-8"},
            [WEIGHTS, ("gathered{0}", 400), ("kept", 300)],
            id="values in one place count once, at the moment that takes the most",
        ),
        pytest.param(
            {"kept": "1-5", "across": "4-5"}, [WEIGHTS, ("kept", 300), ("across", 100)], id="each byte counts once"
        ),
        pytest.param(
            {"kept": "1-6", "same_place": "1-2", "gathered_0": "4-5"},
            [WEIGHTS, ("gathered{0}", 400), ("kept", 300)],
            id="of equal moments the one whose values have names",
        ),
        pytest.param({"same_place": "3-4"}, [WEIGHTS, ("same_place", 400)], id="a value that a loop carries"),
        pytest.param(
            {"later": "6-8", "inside": "7-8", "kept": "1-2"}, [("later", 600), WEIGHTS], id="within a larger one"
        ),
    ],
)
def test_what_is_held_at_the_peak(ranges: dict[str, str], rows: list[tuple[str, int]]) -> None:
    found = held(**ranges)
    assert [(one.name.removesuffix("{}"), one.bytes) for one in found] == rows
    assert [one.name for one in found if one.argument] == ["weights{}"]


def test_a_buffer_is_of_the_instruction_that_makes_it() -> None:
    found = {one.name: (one.opcode, one.op_name, one.frame) for one in held(kept="1-6", later="6-8")}
    assert found == {
        "weights{}": ("parameter", "state['model']['w'].value", 0),
        "kept{}": ("fusion", "jvp()/while/mul", 7),
        "later{}": ("fusion", "state['model']['w'].value", 0),  # two steps back: what it is made of
    }
