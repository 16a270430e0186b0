"""Find the MLPerf rules that a configuration breaks, each with its arithmetic.

In both divisions, Stepmark refuses a configuration that cannot work or would misstate its status. Only in the closed
division, it also refuses a configuration that breaks other rules; in the open division these become notes.
"""

import math
from collections.abc import Iterator, Sequence

from benchmarks.configs import Configs
from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation, read_definition, steps_apart
from benchmarks.mlperf.package import ReferencePoint, expected, reference_points
from benchmarks.mlperf.submission import (
    CLOSED,
    DIVISION,
    OPEN,
    Submission,
    clears_caches,
    division_of,
    read_submission,
)
from benchmarks.text import Rows
from benchmarks.values import Benchmark, Value

SPREADS = 3  # standard deviations below the mean; no reference run needed fewer samples


class BrokenRule(Value, frozen=True):
    """One MLPerf rule that a configuration breaks."""

    rule: str
    what: str
    arithmetic: str
    cure: str
    closed_only: bool = False  # whether the open division allows it

    def refuses(self, division: str) -> bool:
        return division == CLOSED or not self.closed_only


def rules_of(asked: Benchmark, configs: Configs) -> tuple[MlperfBenchmark, Submission, list[ReferencePoint]]:
    """Return the rules of an MLPerf benchmark, its submission, and the reference points to compare its batch with."""
    rules, submission = read_definition(configs, asked.model.name), read_submission(configs, asked.model.name)
    return rules, submission, reference_points(rules, submission.ruleset)


def broken_rules(
    asked: Benchmark, rules: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> list[BrokenRule]:
    return [
        *_settings(asked),
        *_evaluations(asked, rules, submission),
        *_reference(asked, rules, submission, points),
    ]


def _settings(asked: Benchmark) -> Iterator[BrokenRule]:
    division = division_of(asked)
    if division not in (CLOSED, OPEN):
        what = f"{DIVISION}={division} is not a division"
        yield BrokenRule("division", what, f"the divisions are {CLOSED} and {OPEN}", f"{DIVISION}={CLOSED}")
    if not clears_caches(asked):
        what, why = "the run does not clear the caches", "CLEAR_CACHES=0, but the log must have cache_clear"
        yield BrokenRule("caches", what, why, "CLEAR_CACHES=1, in a job with exclusive nodes", closed_only=True)


def _interval(asked: Benchmark, submission: Submission) -> int | None:
    value = asked.settings.knobs.get(submission.knobs.evaluation_interval)
    return None if value is None else int(value)


def _batch_text(asked: Benchmark) -> str:
    """Return how the global batch is computed, as text."""
    batch, share = asked.batch, asked.parallelism
    replicas = f"{asked.gpus} GPUs / (TP {share.tensor} x PP {share.pipeline} x CP {share.context})"
    return f"MBS {batch.micro_batch_size} x GA {batch.gradient_accumulation} x {replicas} = {batch.global_batch_size}"


def _evaluations(asked: Benchmark, rules: MlperfBenchmark, submission: Submission) -> Iterator[BrokenRule]:
    name, given = submission.knobs.evaluation_interval, _interval(asked, submission)
    cadence, batch = rules.evaluation, asked.batch.global_batch_size
    first, last = first_evaluation(rules, batch, given), submission.knobs.max_steps
    if last is not None and first.step > asked.steps:
        yield BrokenRule(
            "first evaluation",
            f"the first evaluation, at step {first.step}, is after the last step, {asked.steps}",
            f"{_batch_text(asked)}; evaluations are {first.steps_apart} steps apart, {first.skipped} are skipped:"
            f" ({first.skipped} + 1) x {first.steps_apart} = {first.step} > {last} {asked.steps}",
            f"{last} of {first.step} or more, because a run without an evaluation cannot reach the target",
        )
    ruled = steps_apart(cadence, batch)
    if first.steps_apart != ruled:
        every = cadence.every_samples
        yield BrokenRule(
            "evaluation cadence",
            f"the run evaluates every {first.steps_apart} steps, but the rules require every {ruled}",
            f"the rules: every {every:,} samples, ceil({every} / {batch}) = {ruled} steps;"
            f" {name}={given} gives {first.steps_apart}",
            f"{name}={ruled if cadence.knob_counts == 'steps' else every}",
            closed_only=True,
        )


def _reference(
    asked: Benchmark, rules: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Iterator[BrokenRule]:
    name, batch = submission.knobs.max_steps, asked.batch.global_batch_size
    reference = expected(points, batch)
    if points and reference is None:
        known = ", ".join(str(point.batch) for point in points)
        yield BrokenRule(
            "reference points",
            f"a global batch of {batch} is outside the reference convergence points",
            f"{_batch_text(asked)}; the reference converged at {known}",
            f"a batch of {points[0].batch} to {points[-1].batch}",
            closed_only=True,
        )
    if name is None:
        return
    trained = asked.steps * batch
    least = 0.0 if reference is None else reference.samples - SPREADS * reference.stdev
    if reference is not None and trained < least:
        yield BrokenRule(
            "steps",
            f"{trained:,} samples are too few to converge",
            f"{name} {asked.steps} x {batch} = {trained:,}; the reference needs {reference.samples:,.0f} samples"
            f" (standard deviation {reference.stdev:,.0f}), and no run needs fewer than {least:,.0f}",
            f"{name} of {math.ceil(reference.samples / batch)} or more",
        )
    fixed = rules.optimizer.decay_and_warmup_steps is not None
    if fixed and rules.max_steps is not None and asked.steps != rules.max_steps:
        yield BrokenRule(
            "steps",
            f"{name}={asked.steps}, but the rules require {rules.max_steps}",
            "the schedule of the learning rate ends with the last step, so it depends on this number",
            f"{name}={rules.max_steps}",
            closed_only=True,
        )


# --- text ---------------------------------------------------------------------------------------


def configuration_rows(
    asked: Benchmark, rules: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Rows:
    """Return one row for each number of the configuration that MLPerf has rules for."""
    batch = asked.batch.global_batch_size
    first, found = first_evaluation(rules, batch, _interval(asked, submission)), expected(points, batch)
    reference = f"no point at a batch of {batch}, only at {', '.join(str(point.batch) for point in points)}"
    if found is not None:
        how = "" if len(found.between) == 1 else f", interpolated between {found.between[0]} and {found.between[1]}"
        reference = f"{found.samples:,.0f} samples to converge (standard deviation {found.stdev:,.0f}){how}"
    rows: Rows = [
        ("benchmark", f"{rules.title}: {rules.target.metric} <= {rules.target.at_most:g}"),
        ("division", division_of(asked)),
        ("GPUs", f"{asked.nodes} x {asked.gpus // asked.nodes} = {asked.gpus}"),
        ("global batch", _batch_text(asked)),
        ("evaluations", f"every {first.steps_apart} steps; the first at step {first.step} ({first.skipped} skipped)"),
        ("reference", reference),
    ]
    if submission.knobs.max_steps is not None:
        trained = f"{asked.steps} x {batch} = {asked.steps * batch:,} samples"
        rows.append(("last step", f"{submission.knobs.max_steps} {trained}"))
    return rows


def rule_lines(found: Sequence[BrokenRule]) -> list[str]:
    """Return lines about every broken rule: what is broken, the arithmetic, and the fix."""
    return [
        line
        for number, one in enumerate(found, start=1)
        for line in (f"{number}. {one.what} ({one.rule})", f"     {one.arithmetic}", f"     fix: {one.cure}")
    ]
