"""What is wrong with a configuration before it costs a GPU hour: every rule is looked at, with its arithmetic. Pure.

A finding refuses what cannot work or would fake its status, whatever the division; what only the closed division
forbids is refused there, and noted in the open one. And both for people: what a configuration comes to, its findings.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from benchmarks.mlperf.asked import Asked
from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation, steps_apart, wall_minutes
from benchmarks.mlperf.reference_points import ReferencePoint, expected
from benchmarks.mlperf.submission import CLOSED, DIVISION, OPEN, Submission
from benchmarks.rendering.report import Rows
from benchmarks.values import Value

Scope = Literal["always", "closed", "note"]
SPREADS = 3  # standard deviations below the mean: a run that short has not converged in any reference run


class Finding(Value, frozen=True):
    """One rule that a configuration breaks."""

    rule: str
    what: str
    arithmetic: str
    cure: str
    scope: Scope

    def refuses(self, division: str) -> bool:
        return self.scope == "always" or (self.scope == "closed" and division == CLOSED)


def findings(
    asked: Asked,
    benchmark: MlperfBenchmark,
    submission: Submission,
    points: Sequence[ReferencePoint],
) -> list[Finding]:
    """All at once. Where the GPUs make no batch, what rests on it is not said."""
    found = [*_division(asked), *_layout(asked), *_kept(asked, submission), *_caches(asked), *_time(asked)]
    if asked.batch < 1:
        return found
    return [
        *found,
        *_first_evaluation(asked, benchmark, submission),
        *_cadence(asked, benchmark, submission),
        *_reference(asked, points),
        *_steps(asked, benchmark, submission, points),
    ]


def refused(found: Sequence[Finding], division: str) -> list[Finding]:
    return [finding for finding in found if finding.refuses(division)]


# --- what cannot work ---------------------------------------------------------------------------


def _division(asked: Asked) -> Iterator[Finding]:
    if asked.division not in (CLOSED, OPEN):
        yield Finding(
            rule="division",
            what=f"{DIVISION}={asked.division} is no division",
            arithmetic=f"there are {CLOSED} and {OPEN}",
            cure=f"{DIVISION}={CLOSED}",
            scope="always",
        )


def _layout(asked: Asked) -> Iterator[Finding]:
    share = asked.model_share
    axes = f"TP {asked.tensor} x PP {asked.pipeline} x CP {asked.context} = {share}"
    if asked.gpus % share:
        yield Finding(
            rule="layout",
            what=f"{asked.gpus} GPUs cannot be shared out",
            arithmetic=f"{asked.nodes} x {asked.gpus_per_node} = {asked.gpus} GPUs, and one replica takes {axes}",
            cure="axes whose product divides the GPUs",
            scope="always",
        )
    replicas = max(1, asked.gpus // share)
    if asked.minibatch is not None and asked.minibatch % asked.micro_batch:
        yield Finding(
            rule="micro batch",
            what=f"MINIBS {asked.minibatch} is no multiple of the micro batch",
            arithmetic=f"{asked.minibatch} / {asked.micro_batch} = {asked.minibatch / asked.micro_batch:g}",
            cure=f"a micro batch that divides {asked.minibatch}",
            scope="always",
        )
    if asked.stated_batch is not None and asked.stated_batch % (asked.micro_batch * replicas):
        step = asked.micro_batch * replicas
        yield Finding(
            rule="batch",
            what=f"BATCHSIZE {asked.stated_batch} cannot be shared out",
            arithmetic=f"{replicas} replicas x micro batch {asked.micro_batch} = {step}, and"
            f" {asked.stated_batch} / {step} = {asked.stated_batch / step:g}",
            cure=f"a multiple of {step}",
            scope="always",
        )
    if asked.batch < 1:
        yield Finding(
            rule="batch",
            what="the global batch is 0",
            arithmetic=asked.batch_text(),
            cure="more GPUs, a larger MINIBS or smaller axes",
            scope="always",
        )


def _first_evaluation(asked: Asked, benchmark: MlperfBenchmark, submission: Submission) -> Iterator[Finding]:
    if asked.max_steps is None:
        return
    first = first_evaluation(benchmark, asked.batch, asked.evaluation_interval)
    if first.step <= asked.max_steps:
        return
    name = submission.knobs.evaluation_interval
    interval = asked.evaluation_interval or benchmark.evaluation.every_samples
    if benchmark.evaluation.knob_counts == "steps" and asked.evaluation_interval is not None:
        apart = f"{name} {interval} steps"
    else:
        apart = f"ceil({name} {interval} samples / {asked.batch}) = {first.steps_apart} steps"
    skipped = f"floor(0.125 x {asked.batch} + 2) = {first.skipped} skipped" if first.skipped else "none skipped"
    steps_name = submission.knobs.max_steps or "MAX_STEPS"
    yield Finding(
        rule="first evaluation",
        what=f"the first evaluation, at step {first.step}, comes after the last step, {asked.max_steps}",
        arithmetic=f"global batch = {asked.batch_text()}; evaluations are {apart} apart, {skipped}:"
        f" ({first.skipped} + 1) x {first.steps_apart} = {first.step} > {steps_name} {asked.max_steps}",
        cure=f"{steps_name} of {first.step} or more: no run that never evaluates can reach the target",
        scope="always",
    )


def _time(asked: Asked) -> Iterator[Finding]:
    if asked.minutes_of_one is None or asked.minutes is None:
        return
    needed = wall_minutes(asked.experiments, asked.minutes_of_one)
    if asked.minutes < needed:
        yield Finding(
            rule="time limit",
            what=f"the job's {asked.minutes} minutes are too few",
            arithmetic=f"5 + NEXP {asked.experiments} x (WALLTIME_RUNANDTIME {asked.minutes_of_one} + 5) = {needed}",
            cure=f"{needed} minutes or more",
            scope="always",
        )


# --- what would fake its status -------------------------------------------------------------------


def _kept(asked: Asked, submission: Submission) -> Iterator[Finding]:
    for kept in submission.kept:
        given = asked.variables.get(kept.name)
        if given is None or given in kept.values:
            continue
        only = f"only {' or '.join(repr(value) for value in kept.values)}" if kept.values else "it is not set"
        yield Finding(
            rule=kept.name,
            what=f"{kept.name}={given} would make another benchmark of it",
            arithmetic=f"{only}: {kept.why}",
            cure=f"leave {kept.name} out",
            scope="always",
        )


# --- what the closed division asks for -------------------------------------------------------------


def _caches(asked: Asked) -> Iterator[Finding]:
    if not asked.clears_caches:
        yield Finding(
            rule="caches",
            what="the caches are not cleared before the run",
            arithmetic="CLEAR_CACHES=0, and the log must hold cache_clear",
            cure="CLEAR_CACHES=1, in a job that has its nodes to itself",
            scope="closed",
        )


def _cadence(asked: Asked, benchmark: MlperfBenchmark, submission: Submission) -> Iterator[Finding]:
    if asked.evaluation_interval is None:
        return
    ruled = steps_apart(benchmark.evaluation, asked.batch)
    now = steps_apart(benchmark.evaluation, asked.batch, asked.evaluation_interval)
    if now == ruled:
        return
    name, every = submission.knobs.evaluation_interval, benchmark.evaluation.every_samples
    proper = ruled if benchmark.evaluation.knob_counts == "steps" else every
    yield Finding(
        rule="evaluation cadence",
        what=f"it evaluates every {now} steps, and the rules every {ruled}",
        arithmetic=f"the rules: every {every:,} samples, ceil({every} / {asked.batch}) = {ruled} steps;"
        f" {name}={asked.evaluation_interval} makes {now}",
        cure=f"{name}={proper}",
        scope="closed",
    )


def _reference(asked: Asked, points: Sequence[ReferencePoint]) -> Iterator[Finding]:
    found = expected(points, asked.batch)
    if found.inside or not points:
        return
    side, end = (
        ("smaller than the smallest", "below") if found.how == "below" else ("larger than the largest", "above")
    )
    batches = ", ".join(str(point.batch) for point in points)
    yield Finding(
        rule="reference points",
        what=f"a global batch of {asked.batch} is {side} reference convergence point, {found.between[0]}",
        arithmetic=f"{asked.batch_text()}; the reference converged at {batches}: between them it is interpolated,"
        f" {end} them nothing is known",
        cure=f"a batch of {found.between[0]} or {'more' if end == 'below' else 'less'}",
        scope="closed",
    )


def _steps(
    asked: Asked, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Iterator[Finding]:
    name = submission.knobs.max_steps
    if asked.max_steps is None or name is None:
        return
    reference = expected(points, asked.batch)
    trained = asked.max_steps * asked.batch
    if reference.samples is not None and reference.stdev is not None:
        least = reference.samples - SPREADS * reference.stdev
        needs = f"the reference needs {reference.samples:,.0f} samples (standard deviation {reference.stdev:,.0f})"
        product = f"{name} {asked.max_steps} x {asked.batch} = {trained:,}"
        if trained < least:
            yield Finding(
                rule="steps",
                what=f"{trained:,} samples are too few to converge",
                arithmetic=f"{product}; {needs}, at least {least:,.0f} in any run",
                cure=f"{name} of {math.ceil(reference.samples / asked.batch)} or more",
                scope="always",
            )
        elif trained < reference.samples:
            yield Finding(
                rule="steps",
                what=f"half of all runs need more than {trained:,} samples",
                arithmetic=f"{product}; {needs}",
                cure=f"{name} of {math.ceil((reference.samples + 2 * reference.stdev) / asked.batch)} or more",
                scope="note",
            )
    if benchmark.max_steps is None or asked.max_steps == benchmark.max_steps:
        return
    fixed = benchmark.optimizer.decay_and_warmup_steps is not None
    if fixed or asked.max_steps > benchmark.max_steps:
        yield Finding(
            rule="steps",
            what=f"{name}={asked.max_steps}, {'the rules have' if fixed else 'the reference stops at'}"
            f" {benchmark.max_steps}",
            arithmetic="the learning rate ends with the last step, so another number is another schedule",
            cure=f"{name}={benchmark.max_steps}",
            scope="closed" if fixed else "note",
        )


# --- text ---------------------------------------------------------------------------------------


def configuration_rows(
    asked: Asked, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Rows:
    """What it comes to; a line each."""
    rows: Rows = [
        ("benchmark", f"{benchmark.title}: {benchmark.target.metric} <= {benchmark.target.at_most:g}"),
        ("division", asked.division),
        ("GPUs", f"{asked.nodes} x {asked.gpus_per_node} = {asked.gpus}"),
        ("global batch", asked.batch_text()),
    ]
    if asked.batch < 1:
        return rows
    first = first_evaluation(benchmark, asked.batch, asked.evaluation_interval)
    rows += [
        ("evaluations", f"every {first.steps_apart} steps, {first.skipped} skipped: first at step {first.step}"),
        ("reference", _reference_text(asked.batch, points)),
    ]
    if asked.max_steps is not None:
        trained = f"{asked.max_steps} x {asked.batch} = {asked.max_steps * asked.batch:,} samples"
        rows.append(("last step", f"{submission.knobs.max_steps} {trained}"))
    if asked.minutes_of_one is not None:
        needed = wall_minutes(asked.experiments, asked.minutes_of_one)
        limit = f"5 + NEXP {asked.experiments} x (WALLTIME_RUNANDTIME {asked.minutes_of_one} + 5) = {needed} minutes"
        rows.append(("time limit", limit))
    return rows


def _reference_text(batch: int, points: Sequence[ReferencePoint]) -> str:
    found = expected(points, batch)
    if found.samples is None or found.stdev is None:
        return f"none at a batch of {batch}: the points are {', '.join(str(point.batch) for point in points)}"
    how = "" if found.how == "found" else f", interpolated between {found.between[0]} and {found.between[1]}"
    return f"{found.samples:,.0f} samples to converge (standard deviation {found.stdev:,.0f}){how}"


def finding_lines(found: Sequence[Finding], division: str) -> list[str]:
    """Every finding with its arithmetic and its cure; those that refuse come first."""
    ordered = sorted(found, key=lambda one: not one.refuses(division))
    lines = []
    for number, one in enumerate(ordered, start=1):
        word = "refused" if one.refuses(division) else "note"
        lines += [f"{number}. {word}: {one.what} ({one.rule})", f"     {one.arithmetic}", f"     cure: {one.cure}"]
    return lines
