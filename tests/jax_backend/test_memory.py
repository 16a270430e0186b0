"""The memory of MaxText's programs, held to what XLA compiled for their GPUs.

compiled_memory.yml was made of XLA's own dumps; tests/end_to_end/test_compiled.py compiles the
recipes' programs again.
"""

from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.configs import parse_yaml
from benchmarks.model.capacity import memory_by_part
from jax_backend import BACKEND
from tests.jax_backend.asked import resolved

RECORDED = Path(__file__).with_name("compiled_memory.yml")
WORST, MEDIAN, PART = 0.025, 0.003, 0.02  # promised are 0.05 and 0.02


@cache
def programs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parse_yaml(RECORDED)["programs"]
    return found


@cache
def planned(number: int) -> dict[str, float]:
    """GB by part, of the program with this number."""
    asked = {name: value for name, value in programs()[number].items() if name not in ("set", "gb")}
    chosen = {name: str(value) for name, value in programs()[number].get("set", {}).items()}
    benchmark = resolved(chosen=chosen, **asked)
    return {name: size / 1e9 for name, size in memory_by_part(benchmark, BACKEND.storage(benchmark)).items()}


def off(number: int) -> float:
    peak: float = programs()[number]["gb"]["peak"]
    return abs(sum(planned(number).values()) / peak - 1)


@pytest.mark.parametrize("number", range(len(programs())), ids=lambda n: str({**programs()[n], "gb": 0}))
def test_the_peak_and_its_parts_are_those_of_the_compiled_program(number: int) -> None:
    parts, compiled = dict(planned(number)), dict(programs()[number]["gb"])
    peak = compiled.pop("peak")
    assert off(number) < WORST
    state = {"arguments": parts.pop("parameters") + parts.pop("optimizer")}
    for name, size in compiled.items():
        assert {**state, **parts}.get(name, 0.0) == pytest.approx(size, abs=PART * peak), name


def test_half_of_the_programs_are_closer() -> None:
    assert median(off(number) for number in range(len(programs()))) < MEDIAN
