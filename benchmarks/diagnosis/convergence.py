"""Evaluations that do not come nearer to their target: no line says so, their values do. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from benchmarks.diagnosis.evidence import Evaluation, Finding, LogEvidence

STUCK, DIVERGING = "eval_stuck", "eval_diverging"
COMPARED = 3  # the last so many evaluations with the so many before them
LEAST_PROGRESS = 0.001  # of the value: of a published LoRA run each evaluation brings 0.003 or more
WORSE = 0.02


def findings(log: LogEvidence, falling: Sequence[str]) -> list[Finding]:
    """What the evaluations of a log show that did not reach its target."""
    said = log.evaluations
    if log.ended_well or len(said) < 2 * COMPARED:
        return []
    last = said[-2 * COMPARED :]
    falls = log.benchmark in falling
    if falls and _diverges(said):
        return [_finding(DIVERGING, log, said[-COMPARED - 1 :])]
    return [_finding(STUCK, log, last)] if _is_stuck([one.value for one in last], falls) else []


def _is_stuck(values: Sequence[float], falls: bool) -> bool:
    """Where it is not known whether a value should fall or rise, it is stuck when it does neither."""
    before, after = values[:COMPARED], values[COMPARED:]
    least = LEAST_PROGRESS * abs(fmean(before))
    if falls:
        return min(before) - min(after) < least
    return abs(fmean(before) - fmean(after)) < least and max(values) - min(values) < 10 * least


def _diverges(said: Sequence[Evaluation]) -> bool:
    values = [one.value for one in said]
    last = values[-COMPARED - 1 :]
    rises = all(after > before for before, after in pairwise(last))
    return rises and values[-1] > min(values) * (1 + WORSE)


def _finding(name: str, log: LogEvidence, said: Sequence[Evaluation]) -> Finding:
    values = ", ".join(f"{one.value:.4g}" for one in said)
    return Finding(
        id=name,
        file=log.file,
        line=said[0].line,
        text=f"eval_accuracy of the last {len(said)} evaluations: {values}",
        rank=None,
        time=said[0].time,
        count=len(said),
    )
