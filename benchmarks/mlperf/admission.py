"""Which rules of MLPerf a configuration breaks, each with its arithmetic.

A broken rule refuses what cannot work or would fake its status, in any division. What only the closed division
forbids is refused there, and noted in the open one.
"""

import math
from collections.abc import Iterator, Sequence

from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation, steps_apart, wall_minutes
from benchmarks.mlperf.package import ReferencePoint, expected
from benchmarks.mlperf.submission import CLOSED, DIVISION, OPEN, Configuration, Submission
from benchmarks.text import Rows
from benchmarks.values import Value

SPREADS = 3  # standard deviations below the mean: a run that short has not converged in any reference run


class BrokenRule(Value, frozen=True):
    """One rule that a configuration breaks."""

    rule: str
    what: str
    arithmetic: str
    cure: str
    closed_only: bool = False  # the open division allows it

    def refuses(self, division: str) -> bool:
        return division == CLOSED or not self.closed_only


def broken_rules(
    config: Configuration, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> list[BrokenRule]:
    return [
        *_settings(config, submission),
        *_evaluations(config, benchmark, submission),
        *_reference(config, benchmark, submission, points),
    ]


def _settings(config: Configuration, submission: Submission) -> Iterator[BrokenRule]:
    if config.division not in (CLOSED, OPEN):
        what = f"{DIVISION}={config.division} is no division"
        yield BrokenRule("division", what, f"there are {CLOSED} and {OPEN}", f"{DIVISION}={CLOSED}")
    for kept in submission.kept:
        given = config.variables.get(kept.name)
        if given is not None and given not in kept.values:
            only = f"only {' or '.join(map(repr, kept.values))}" if kept.values else "it is not set"
            what = f"{kept.name}={given} would make another benchmark of it"
            yield BrokenRule(kept.name, what, f"{only}: {kept.why}", f"leave {kept.name} out")
    if not config.clears_caches:
        what, why = "the caches are not cleared before the run", "CLEAR_CACHES=0, and the log must hold cache_clear"
        yield BrokenRule(
            "caches", what, why, "CLEAR_CACHES=1, in a job that has its nodes to itself", closed_only=True
        )
    if config.minutes_of_one is not None and config.minutes is not None:
        needed = wall_minutes(config.minutes_of_one)
        if config.minutes < needed:
            what = f"the job's {config.minutes} minutes are too few"
            arithmetic = f"5 + WALLTIME_RUNANDTIME {config.minutes_of_one} + 5 = {needed}"
            yield BrokenRule("time limit", what, arithmetic, f"{needed} minutes or more")


def _evaluations(config: Configuration, benchmark: MlperfBenchmark, submission: Submission) -> Iterator[BrokenRule]:
    name, given = submission.knobs.evaluation_interval, config.evaluation_interval
    cadence, batch = benchmark.evaluation, config.batch
    first = first_evaluation(benchmark, batch, given)
    if config.max_steps is not None and first.step > config.max_steps:
        last = submission.knobs.max_steps or "MAX_STEPS"
        yield BrokenRule(
            "first evaluation",
            f"the first evaluation, at step {first.step}, comes after the last step, {config.max_steps}",
            f"{config.batch_text()}; evaluations are {first.steps_apart} steps apart, {first.skipped} skipped:"
            f" ({first.skipped} + 1) x {first.steps_apart} = {first.step} > {last} {config.max_steps}",
            f"{last} of {first.step} or more: no run that never evaluates can reach the target",
        )
    ruled = steps_apart(cadence, batch)
    if first.steps_apart != ruled:
        every = cadence.every_samples
        yield BrokenRule(
            "evaluation cadence",
            f"it evaluates every {first.steps_apart} steps, and the rules every {ruled}",
            f"the rules: every {every:,} samples, ceil({every} / {batch}) = {ruled} steps;"
            f" {name}={given} makes {first.steps_apart}",
            f"{name}={ruled if cadence.knob_counts == 'steps' else every}",
            closed_only=True,
        )


def _reference(
    config: Configuration, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Iterator[BrokenRule]:
    reference, name, batch = expected(points, config.batch), submission.knobs.max_steps, config.batch
    if points and reference is None:
        known = ", ".join(str(point.batch) for point in points)
        yield BrokenRule(
            "reference points",
            f"a global batch of {batch} is outside the reference convergence points",
            f"{config.batch_text()}; the reference converged at {known}",
            f"a batch of {points[0].batch} to {points[-1].batch}",
            closed_only=True,
        )
    if config.max_steps is None or name is None:
        return
    trained = config.max_steps * batch
    least = 0.0 if reference is None else reference.samples - SPREADS * reference.stdev
    if reference is not None and trained < least:
        yield BrokenRule(
            "steps",
            f"{trained:,} samples are too few to converge",
            f"{name} {config.max_steps} x {batch} = {trained:,}; the reference needs {reference.samples:,.0f} samples"
            f" (standard deviation {reference.stdev:,.0f}), at least {least:,.0f} in any run",
            f"{name} of {math.ceil(reference.samples / batch)} or more",
        )
    fixed = benchmark.optimizer.decay_and_warmup_steps is not None
    if fixed and benchmark.max_steps is not None and config.max_steps != benchmark.max_steps:
        yield BrokenRule(
            "steps",
            f"{name}={config.max_steps}, the rules have {benchmark.max_steps}",
            "the learning rate ends with the last step, so another number is another schedule",
            f"{name}={benchmark.max_steps}",
            closed_only=True,
        )


# --- text ---------------------------------------------------------------------------------------


def configuration_rows(
    config: Configuration, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Rows:
    """What it comes to; a line each."""
    batch = config.batch
    rows: Rows = [
        ("benchmark", f"{benchmark.title}: {benchmark.target.metric} <= {benchmark.target.at_most:g}"),
        ("division", config.division),
        ("GPUs", f"{config.nodes} x {config.gpus_per_node} = {config.gpus}"),
        ("global batch", config.batch_text()),
    ]
    first, found = first_evaluation(benchmark, batch, config.evaluation_interval), expected(points, batch)
    reference = f"none at a batch of {batch}: the points are {', '.join(str(point.batch) for point in points)}"
    if found is not None:
        how = "" if len(found.between) == 1 else f", interpolated between {found.between[0]} and {found.between[1]}"
        reference = f"{found.samples:,.0f} samples to converge (standard deviation {found.stdev:,.0f}){how}"
    rows += [
        ("evaluations", f"every {first.steps_apart} steps, {first.skipped} skipped: first at step {first.step}"),
        ("reference", reference),
    ]
    if config.max_steps is not None:
        trained = f"{config.max_steps} x {batch} = {config.max_steps * batch:,} samples"
        rows.append(("last step", f"{submission.knobs.max_steps} {trained}"))
    if config.minutes_of_one is not None:
        minutes = f"5 + WALLTIME_RUNANDTIME {config.minutes_of_one} + 5 = {wall_minutes(config.minutes_of_one)}"
        rows.append(("time limit", f"{minutes} minutes"))
    return rows


def rule_lines(found: Sequence[BrokenRule]) -> list[str]:
    """Every broken rule with its arithmetic and its cure."""
    return [
        line
        for number, one in enumerate(found, start=1)
        for line in (f"{number}. {one.what} ({one.rule})", f"     {one.arithmetic}", f"     cure: {one.cure}")
    ]
