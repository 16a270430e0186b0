"""How a stored result differs from the one its raw files give. Pure."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.measuring.summary import Result
from benchmarks.values import Step, to_builtins

# Libraries may round the last bits otherwise; a person's edit is never this small.
RELATIVE_TOLERANCE = 1e-9

ABSENT = "(absent)"


def differences(
    stored_result: Result, result: Result, stored_steps: Sequence[Step], steps: Sequence[Step]
) -> list[str]:
    """One line a difference: where, what is stored, what the raw files give."""
    found = list(_between("result.json", to_builtins(stored_result), to_builtins(result)))
    if len(stored_steps) != len(steps):
        found.append(f"steps.jsonl: {len(stored_steps)} steps are stored, the raw files hold {len(steps)}")
    for stored, step in zip(stored_steps, steps, strict=False):
        found += _between(f"steps.jsonl step {step.step} rank {step.rank}", to_builtins(stored), to_builtins(step))
    return found


def _between(path: str, stored: Any, computed: Any) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(computed, dict):
        for key in sorted(stored.keys() | computed.keys()):
            yield from _between(f"{path}: {key}", stored.get(key, ABSENT), computed.get(key, ABSENT))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (one, other) in enumerate(zip(stored, computed, strict=True)):
            yield from _between(f"{path}[{index}]", one, other)
    elif not _same(stored, computed):
        yield f"{path}: stored {stored!r}, raw files give {computed!r}"


def _same(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return math.isclose(stored, computed, rel_tol=RELATIVE_TOLERANCE)
    return type(stored) is type(computed) and bool(stored == computed)
