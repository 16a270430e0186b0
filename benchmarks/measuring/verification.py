"""How a stored result differs from the one its raw files give. Pure."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from benchmarks.measuring import settling
from benchmarks.measuring.figures import interval_notes
from benchmarks.measuring.summary import Result
from benchmarks.measuring.window import SETTLING, STEADY
from benchmarks.values import Step, to_builtins

# Libraries may round the last bits otherwise; a person's edit is never this small.
RELATIVE_TOLERANCE = 1e-9

ABSENT = "(absent)"
INTERVAL = "seconds_per_step.ci95"
LAST_THAT_DID_NOT_JUDGE = (0, 11)
NEW_NULLS = (*settling.OF_DRIFT, settling.STEPS_TO_TELL, INTERVAL)


def differences(
    stored_result: Result, result: Result, stored_steps: Sequence[Step], steps: Sequence[Step], made_by: str = ""
) -> list[str]:
    """One line a difference: where, what is stored, what the raw files give. `made_by` is Stepmark's version."""
    if has_older_rules(stored_result, made_by):
        result = _judged_as_before(result, stored_result)
    found = list(_between("result.json", to_builtins(stored_result), to_builtins(result)))
    if len(stored_steps) != len(steps):
        found.append(f"steps.jsonl: {len(stored_steps)} steps are stored, the raw files hold {len(steps)}")
    for stored, step in zip(stored_steps, steps, strict=False):
        found += _between(f"steps.jsonl step {step.step} rank {step.rank}", to_builtins(stored), to_builtins(step))
    return found


def has_older_rules(stored: Result, made_by: str) -> bool:
    """Whether it was made before settling was judged; a later version cannot have left that out."""
    numbers = re.match(r"(\d+)\.(\d+)", made_by)
    before = numbers is None or (int(numbers[1]), int(numbers[2])) <= LAST_THAT_DID_NOT_JUDGE
    return before and stored.window.settling == "not judged"


def _judged_as_before(result: Result, stored: Result) -> Result:
    """The result as versions up to 0.11.0 gave it: settled once the first steps were left out, whatever came then.

    Of a recipe's window the rest of the result does not say what they found, so that is taken as stored; so is the
    interval, which had another rule.
    """
    settled = SETTLING in result.window.excluded if result.window.rule == STEADY else stored.window.settled
    not_judged = dict.fromkeys(("drift_percent_per_minute", "median_off_percent", "steps_to_tell"))
    window = msgspec.structs.replace(result.window, settled=settled, settling="not judged", **not_judged)
    note = settling.note(result.window)
    before = [] if settled else [settling.NOTE_BEFORE]
    of_interval = interval_notes(result.seconds_per_step.median or 0.0, result.window.counted)
    notes = [one for said in result.notes if said not in of_interval for one in (before if said == note else [said])]
    spread = msgspec.structs.replace(result.seconds_per_step, ci95=stored.seconds_per_step.ci95)
    nulls = {name: why for name, why in result.null_because.items() if name not in NEW_NULLS}
    if INTERVAL in stored.null_because:
        nulls[INTERVAL] = stored.null_because[INTERVAL]
    return msgspec.structs.replace(result, window=window, notes=notes, null_because=nulls, seconds_per_step=spread)


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
