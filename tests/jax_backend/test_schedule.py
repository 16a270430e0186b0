"""The schedule that is read from a finished program: the small programs of samples/schedules.yml."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.configs import parse_yaml
from jax_backend.inside import schedule

CASES: Any = parse_yaml(Path(__file__).parent / "samples" / "schedules.yml")
DEVICES = range(32)


@pytest.mark.parametrize("case", CASES["programs"], ids=lambda case: case["name"])
def test_a_program_is_read_as_its_operations(case: dict[str, Any]) -> None:
    called = "".join(CASES["computations"][name] for name in case.get("calls", []))
    text = f"HloModule jit_f, is_scheduled=true, num_partitions=32\n{called}\nENTRY %main {{\n{case['entry']}}}\n"
    node_of = [device % case["nodes"] if "nodes" in case else device // 8 for device in DEVICES]
    read: Any = schedule.schedule(text, {"data": 2, "fsdp": 16}, {"data": "dp"}, node_of)
    found = msgspec.convert(read, Schedule)
    assert_operations(found.computations["main"], case["operations"])
    if "body" in case:
        assert_operations(found.computations["body"], case["body"])
    assert [words.split()[0] for words in found.not_counted] == case.get("not_counted", [])


def assert_operations(found: list[Operation], expected: list[dict[str, Any]]) -> None:
    """The fields that are stated; the others are not looked at."""
    assert len(found) == len(expected)
    for one, fields in zip(found, expected, strict=True):
        assert {name: getattr(one, name) for name in fields} == fields
