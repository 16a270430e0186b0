"""How a run that could end early ended: recomputed from its raw steps, held against what its ranks say. Pure."""

import math
from collections.abc import Sequence

from benchmarks.early_stop import stopping
from benchmarks.measuring.figures import Figures, usable_seconds
from benchmarks.measuring.interval import median_interval
from benchmarks.measuring.settling import SETTLING_LIMIT_SECONDS, Settling
from benchmarks.values import Benchmark, RunRecord, Step, Until, Value


class UntilFigures(Value, frozen=True):
    """What --until came to. A figure that can't be known is null, and `null_because` of the result says why."""

    target: float  # of the half-width, relative: 0.005
    reached: bool  # the rule was met; `why` says how, or what was missing
    why: str
    half_width: float | None  # of the interval in seconds_per_step, its longer side, relative to the median
    decided: int | None  # the step after which the rule was met
    steps: int  # that were run
    fixed_steps: int  # that would have been run without it
    device_seconds: float | None  # of stepping: all steps, the first one too, on all devices
    fixed_device_seconds: float | None  # the same, had the missing steps taken the median
    saving: float | None  # of these, the share that was not spent


def rule_of(until: Until, steps: int) -> stopping.StopRule:
    """The rule as a worker has it."""
    asked = stopping.Until(until.half_width, until.at_least, steps)
    return stopping.StopRule(asked, median_interval, Settling(), SETTLING_LIMIT_SECONDS)


def tell(rule: stopping.StopRule, step: Step) -> bool:
    return rule.take(step.step, step.seconds, step.elapsed_seconds, step.excluded_because)


def progress_text(rule: stopping.StopRule) -> str:
    """What a person sees while such a run goes on."""
    if rule.decided is None:
        return rule.missing
    return f"the median is known to {stopping.percent(rule.half_width or 0.0)}: the run ends"


def expected_steps(benchmark: Benchmark, record: RunRecord) -> int:
    """How many steps the run was to have: fewer where its first rank announced an early end, as it was asked to."""
    said = record.stopped.get(0)
    return said.step + 1 if benchmark.until is not None and said is not None else benchmark.steps


def until_figures(
    benchmark: Benchmark, steps: Sequence[Step], figures: Figures
) -> tuple[UntilFigures | None, dict[str, str]]:
    """What --until came to and the reasons for its nulls; `steps` are those of rank 0, as they were reported."""
    if benchmark.until is None:
        return None, {"until": "all steps were asked for (no --until)"}
    rule = _replayed(benchmark.until, benchmark.steps, steps)
    spread = figures.seconds_per_step
    half_width = None
    nulls = {}
    if spread.median and spread.ci95:
        half_width = stopping.half_width(spread.median, *spread.ci95)
    else:
        nulls["until.half_width"] = figures.null_because.get("seconds_per_step", "there is no interval")
    spent, fixed, why = _cost(benchmark, steps, spread.median, figures)
    nulls |= {f"until.{name}": why for name in ("device_seconds", "fixed_device_seconds", "saving") if why}
    return UntilFigures(
        target=benchmark.until.half_width,
        reached=rule.decided is not None,
        why=_why(rule, figures),
        half_width=half_width,
        decided=rule.decided,
        steps=len(steps),
        fixed_steps=benchmark.steps,
        device_seconds=spent,
        fixed_device_seconds=fixed,
        saving=1 - spent / fixed if spent is not None and fixed else None,
    ), nulls


def _replayed(until: Until, asked_steps: int, steps: Sequence[Step]) -> stopping.StopRule:
    rule = rule_of(until, asked_steps)
    for step in steps:
        tell(rule, step)
    return rule


def _why(rule: stopping.StopRule, figures: Figures) -> str:
    if rule.decided is None:
        return f"never reached: {rule.missing}"
    known = stopping.percent(rule.half_width or 0.0)
    settled = "" if figures.window.settled else "; step times had no time to settle: it speaks of these steps alone"
    return f"known to {known} after step {rule.decided}{settled}"


def _cost(
    benchmark: Benchmark, steps: Sequence[Step], median: float | None, figures: Figures
) -> tuple[float | None, float | None, str]:
    """Device-seconds spent, and what the fixed number of steps would have cost; or why they are not known."""
    if median is None:
        return None, None, figures.null_because.get("seconds_per_step", "the median step is not known")
    seconds = usable_seconds(steps)
    if len(seconds) < len(steps):
        return None, None, "a step has no time"
    spent = math.fsum(seconds) * benchmark.gpus
    return spent, spent + (benchmark.steps - len(steps)) * median * benchmark.gpus, ""


# --- whether the ranks did as the rule says -------------------------------------------------------


def broken_agreements(benchmark: Benchmark, record: RunRecord, steps: Sequence[Step]) -> list[str]:
    """Where an early end does not follow from the raw steps, or the ranks did not end together."""
    if benchmark.until is None:
        return [f"rank {rank}: ended early, and nobody had asked for it" for rank in sorted(record.stopped)]
    decided = _replayed(benchmark.until, benchmark.steps, steps).decided
    said = record.stopped.get(0)
    if said is None:
        went_on = decided is not None and decided + stopping.LONGEST_LEAD < benchmark.steps - 1
        ran_on = went_on and len(steps) == benchmark.steps
        return [f"--until was reached after step {decided}, and the run did not end early"] if ran_on else []
    found = []
    if said.decided != decided:
        after = f"step {decided}" if decided is not None else "no step"
        found.append(f"the run was ended after step {said.decided}, by its steps the rule is met after {after}")
    if not 0 <= said.step - said.decided <= stopping.LONGEST_LEAD:
        found.append(f"the end after step {said.step} was announced {said.step - said.decided} steps before")
    last: dict[int, int] = {}
    for step in record.steps:
        last[step.rank] = max(step.step, last.get(step.rank, 0))
    others = sorted(rank for rank, at in last.items() if at != said.step)
    if others:
        found.append(
            f"rank {others[0]} ended after step {last[others[0]]}, step {said.step} was announced as the last"
        )
    return found
