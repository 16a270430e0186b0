"""How a stored result differs from the one its raw files give. Pure."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from benchmarks.measuring.summary import Result
from benchmarks.measuring.utilisation import DATASHEET, MIXED, Mfu
from benchmarks.values import Step, to_builtins

# Libraries may round the last bits otherwise; a person's edit is never this small.
RELATIVE_TOLERANCE = 1e-9

ABSENT = "(absent)"

# The keys of result.json that the first version did not have -> the version that brought them.
SINCE = {
    "attempts": "0.3.0",
    "telemetry": "0.3.0",
    "ranks": "0.3.0",
    "pgle": "0.4.0",
    "not_comparable": "0.4.0",
    "hfu": "0.5.0",
    "slowed_by": "0.6.0",
    "convergence": "0.7.0",
    "mlperf": "0.7.0",
}
# It came with MFU against other peaks than the datasheet's, and with other words where there is no peak at all.
MORE_PEAKS = "hfu"


def differences(
    stored_result: Result,
    result: Result,
    stored_steps: Sequence[Step],
    steps: Sequence[Step],
    younger: Collection[str] = (),
) -> list[str]:
    """One line a difference: where, what is stored, what the raw files give.

    `younger` are keys of a result (see younger_keys) that are newer than the version that stored it.
    """
    stored_figures, figures = to_builtins(stored_result), to_builtins(result)
    if MORE_PEAKS in younger:
        _leave_out_more_peaks(stored_figures, figures, result)
    for key in younger:
        stored_figures.pop(key)
        figures.pop(key)
        figures["null_because"].pop(key, None)  # the stored one has none: it would name a key that is not there
    found = list(_between("result.json", stored_figures, figures))
    if len(stored_steps) != len(steps):
        found.append(f"steps.jsonl: {len(stored_steps)} steps are stored, the raw files hold {len(steps)}")
    for stored, step in zip(stored_steps, steps, strict=False):
        found += _between(f"steps.jsonl step {step.step} rank {step.rank}", to_builtins(stored), to_builtins(step))
    return found


def younger_keys(stored_json: Any, stored_by: str) -> list[str]:
    """The keys of a result that are not there because the version that stored it had none of them."""
    if not isinstance(stored_json, dict):
        return []
    version = _numbers(stored_by)
    return [key for key, since in SINCE.items() if key not in stored_json and version and version < _numbers(since)]


def _leave_out_more_peaks(stored: dict[str, Any], figures: dict[str, Any], result: Result) -> None:
    kept = [to_builtins(entry) for entry in result.mfu or [] if not _of_more_peaks(entry)]
    figures["mfu"] = kept or None
    if stored["mfu"] is None and not kept:
        stored["null_because"].pop("mfu", None)
        figures["null_because"].pop("mfu", None)


def _of_more_peaks(entry: Mfu) -> bool:
    """Of another table than the datasheet's, or against the mix of the peaks that an fp8 run uses."""
    return entry.table != DATASHEET or entry.precision_peak == MIXED


def _numbers(version: str) -> list[int]:
    """Empty for what is no version of ours."""
    parts = version.split(".")
    return [int(part) for part in parts] if all(part.isascii() and part.isdecimal() for part in parts) else []


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
