"""Which buffers a device holds at the peak, from the three files that XLA writes."""

from typing import Any

import pytest

from jax_backend.inside import buffers

ASSIGNMENT = """BufferAssignment:
allocation 0: size 400, page 0, parameter 1, shape |f32[100]| at ShapeIndex {}, maybe-live-out:
 value: <1 weights @0> (size=400,offset=0): f32[100]{0}
 value: <2 new_weights @0> (size=400,offset=0): f32[100]{0}
allocation 1: size 900, page 0, preallocated-temp:
 value: <3 kept @0> (size=300,offset=0): f32[75]{0}
 value: <4 gathered{0} @0> (size=400,offset=300): bf16[200]{0}
 value: <5 same_place (phi) @0> (size=400,offset=300): bf16[200]{0}
 value: <6 later @0> (size=600,offset=300): f32[150]{0}
 value: <7 inside @0> (size=100,offset=350): f32[25]{0}
 value: <8 unscheduled @0> (size=50,offset=850): f32[12]{0}
 value: <11 across @0> (size=200,offset=200): f32[50]{0}
allocation 2: size 8, page 0, thread-local:
 value: <9 scalar @0> (size=8,offset=0): f64[]

Total bytes used: 1308
"""
VALUES = """Used values:
<1 weights @0>
 from instruction: %weights = f32[100]{0} parameter(1), metadata={op_name="state[\\'model\\'][\\'w\\'].value"}
<3 kept @0>
 from instruction: %kept = f32[75]{0} fusion(%cast), kind=kLoop, metadata={op_name="jvp()/while/mul" stack_frame_id=7}
<4 gathered @0>
 from instruction: %gathered = (bf16[200]{0}, bf16[]) all-gather(%cast), metadata={op_name="jvp()/gather"}
<5 same_place @0>
 from instruction: %same_place = bf16[200]{0} bitcast(%gathered), metadata={op_name="jvp()/reshape"}
<6 later @0>
 from instruction: %later = f32[150]{0} fusion(%cast), kind=kLoop
<7 inside @0>
 from instruction: %inside = f32[25]{0} fusion(%later), kind=kLoop, metadata={op_name="jvp()/add"}
<10 cast @0>
 from instruction: %cast = bf16[100]{0} convert(%weights)
"""


def live(**ranges: str) -> str:
    rows = "".join(f"    {name.replace('_0', '{0}')}:{span}\n" for name, span in ranges.items())
    return f"HloLiveRange (max 9):\n    0:weights\n  BufferLiveRange:\n{rows}  Live ranges at 1:\n"


def rows(live_ranges: str) -> list[tuple[Any, ...]]:
    found = buffers.held_at_the_peak(ASSIGNMENT, VALUES, live_ranges)
    return [(one.name.removesuffix("{}"), one.bytes, one.argument) for one in found]


def test_values_in_the_same_place_are_counted_once_at_the_moment_that_takes_the_most() -> None:
    ranges = {"kept{}": "1-5", "gathered_0": "2-3", "same_place{}": "3-4", "later{}": "6-8"}
    assert rows(live(**ranges)) == [("weights", 400, True), ("gathered{0}", 400, False), ("kept", 300, False)]


def test_of_values_that_overlap_each_byte_is_counted_once() -> None:
    found = rows(live(**{"kept{}": "1-5", "across{}": "4-5"}))
    assert found == [("weights", 400, True), ("kept", 300, False), ("across", 100, False)]


def test_of_equal_moments_the_one_whose_values_have_names_is_shown() -> None:
    names = [name for name, _, _ in rows(live(**{"kept{}": "1-6", "same_place{}": "1-2", "gathered_0": "4-5"}))]
    assert names == ["weights", "gathered{0}", "kept"]


def test_a_value_that_a_loop_carries_is_held() -> None:
    assert ("same_place", 400, False) in rows(live(**{"same_place{}": "3-4"}))


def test_a_value_within_a_larger_one_adds_nothing() -> None:
    assert rows(live(**{"later{}": "6-8", "inside{}": "7-8", "kept{}": "1-2"})) == [
        ("later", 600, False),
        ("weights", 400, True),
    ]


@pytest.mark.parametrize(
    ("name", "opcode", "op_name", "frame"),
    [
        ("weights{}", "parameter", "state['model']['w'].value", 0),
        ("kept{}", "fusion", "jvp()/while/mul", 7),
        ("later{}", "fusion", "state['model']['w'].value", 0),  # two steps back: what it is made of
    ],
)
def test_a_buffer_is_of_the_instruction_that_makes_it(name: str, opcode: str, op_name: str, frame: int) -> None:
    found = buffers.held_at_the_peak(ASSIGNMENT, VALUES, live(**{"kept{}": "1-6", "later{}": "6-8"}))
    (one,) = [one for one in found if one.name == name]
    assert (one.opcode, one.op_name, one.frame) == (opcode, op_name, frame)
