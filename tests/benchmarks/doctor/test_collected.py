"""Failures as people reported them (collected.txt), shortened to the lines that count: what is named first.

For those marked `after`, the thread describes the error, and its lines were combined here.
"""

from pathlib import Path

import pytest

from tests.benchmarks.doctor.reading import diagnosis

# For each: its origin; the first symptom with its rank and a part of its line; the lines.
BLOCKS = Path(__file__).with_name("collected.txt").read_text().split("=== ")[1:]


@pytest.mark.parametrize("block", BLOCKS, ids=[block.partition("\n")[0] for block in BLOCKS])
def test_a_failure_that_was_reported(block: str) -> None:
    _, first_is, lines = block.split("\n", 2)
    name, rank, part = first_is.split(" ", 2)
    first = diagnosis(a_log=lines).first
    assert first is not None
    assert (first.id, str(first.first.rank)) == (name, rank)
    assert part in first.first.text
