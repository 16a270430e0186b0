"""What is wrong with a configuration before it costs a GPU hour: every rule is looked at, with its arithmetic. Pure.

A finding refuses what cannot work or would fake its status, whatever the division; what only the closed division
forbids is refused there, and noted in the open one. And both for people: what a configuration comes to, its findings.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from benchmarks.mlperf.configuration import Configuration
from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation, steps_apart, wall_minutes
from benchmarks.mlperf.reference_points import ReferencePoint, expected
from benchmarks.mlperf.submission import CLOSED, DIVISION, OPEN, Submission
from benchmarks.rendering.columns import Rows
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
    config: Configuration,
    benchmark: MlperfBenchmark,
    submission: Submission,
    points: Sequence[ReferencePoint],
) -> list[Finding]:
    """All at once. Where the GPUs make no batch, what rests on it is not said."""
    found = [*_division(config), *_layout(config), *_kept(config, submission), *_caches(config), *_time(config)]
    if config.batch < 1:
        return found
    return [
        *found,
        *_first_evaluation(config, benchmark, submission),
        *_cadence(config, benchmark, submission),
        *_reference(config, points),
        *_steps(config, benchmark, submission, points),
    ]


def refused(found: Sequence[Finding], division: str) -> list[Finding]:
    return [finding for finding in found if finding.refuses(division)]


# --- what cannot work ---------------------------------------------------------------------------


def _division(config: Configuration) -> Iterator[Finding]:
    if config.division not in (CLOSED, OPEN):
        yield Finding(
            rule="division",
            what=f"{DIVISION}={config.division} is no division",
            arithmetic=f"there are {CLOSED} and {OPEN}",
            cure=f"{DIVISION}={CLOSED}",
            scope="always",
        )


def _layout(config: Configuration) -> Iterator[Finding]:
    share = config.model_share
    axes = f"TP {config.tensor} x PP {config.pipeline} x CP {config.context} = {share}"
    if config.gpus % share:
        yield Finding(
            rule="layout",
            what=f"{config.gpus} GPUs cannot be shared out",
            arithmetic=f"{config.nodes} x {config.gpus_per_node} = {config.gpus} GPUs, and one replica takes {axes}",
            cure="axes whose product divides the GPUs",
            scope="always",
        )
    replicas = max(1, config.gpus // share)
    if config.minibatch is not None and config.minibatch % config.micro_batch:
        yield Finding(
            rule="micro batch",
            what=f"MINIBS {config.minibatch} is no multiple of the micro batch",
            arithmetic=f"{config.minibatch} / {config.micro_batch} = {config.minibatch / config.micro_batch:g}",
            cure=f"a micro batch that divides {config.minibatch}",
            scope="always",
        )
    if config.stated_batch is not None and config.stated_batch % (config.micro_batch * replicas):
        step = config.micro_batch * replicas
        yield Finding(
            rule="batch",
            what=f"BATCHSIZE {config.stated_batch} cannot be shared out",
            arithmetic=f"{replicas} replicas x micro batch {config.micro_batch} = {step}, and"
            f" {config.stated_batch} / {step} = {config.stated_batch / step:g}",
            cure=f"a multiple of {step}",
            scope="always",
        )
    if config.batch < 1:
        yield Finding(
            rule="batch",
            what="the global batch is 0",
            arithmetic=config.batch_text(),
            cure="more GPUs, a larger MINIBS or smaller axes",
            scope="always",
        )


def _first_evaluation(config: Configuration, benchmark: MlperfBenchmark, submission: Submission) -> Iterator[Finding]:
    if config.max_steps is None:
        return
    first = first_evaluation(benchmark, config.batch, config.evaluation_interval)
    if first.step <= config.max_steps:
        return
    name = submission.knobs.evaluation_interval
    interval = config.evaluation_interval or benchmark.evaluation.every_samples
    if benchmark.evaluation.knob_counts == "steps" and config.evaluation_interval is not None:
        apart = f"{name} {interval} steps"
    else:
        apart = f"ceil({name} {interval} samples / {config.batch}) = {first.steps_apart} steps"
    skipped = f"floor(0.125 x {config.batch} + 2) = {first.skipped} skipped" if first.skipped else "none skipped"
    steps_name = submission.knobs.max_steps or "MAX_STEPS"
    yield Finding(
        rule="first evaluation",
        what=f"the first evaluation, at step {first.step}, comes after the last step, {config.max_steps}",
        arithmetic=f"global batch = {config.batch_text()}; evaluations are {apart} apart, {skipped}:"
        f" ({first.skipped} + 1) x {first.steps_apart} = {first.step} > {steps_name} {config.max_steps}",
        cure=f"{steps_name} of {first.step} or more: no run that never evaluates can reach the target",
        scope="always",
    )


def _time(config: Configuration) -> Iterator[Finding]:
    if config.minutes_of_one is None or config.minutes is None:
        return
    needed = wall_minutes(config.experiments, config.minutes_of_one)
    if config.minutes < needed:
        yield Finding(
            rule="time limit",
            what=f"the job's {config.minutes} minutes are too few",
            arithmetic=config.time_text(),
            cure=f"{needed} minutes or more",
            scope="always",
        )


# --- what would fake its status -------------------------------------------------------------------


def _kept(config: Configuration, submission: Submission) -> Iterator[Finding]:
    for kept in submission.kept:
        given = config.variables.get(kept.name)
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


def _caches(config: Configuration) -> Iterator[Finding]:
    if not config.clears_caches:
        yield Finding(
            rule="caches",
            what="the caches are not cleared before the run",
            arithmetic="CLEAR_CACHES=0, and the log must hold cache_clear",
            cure="CLEAR_CACHES=1, in a job that has its nodes to itself",
            scope="closed",
        )


def _cadence(config: Configuration, benchmark: MlperfBenchmark, submission: Submission) -> Iterator[Finding]:
    if config.evaluation_interval is None:
        return
    ruled = steps_apart(benchmark.evaluation, config.batch)
    now = steps_apart(benchmark.evaluation, config.batch, config.evaluation_interval)
    if now == ruled:
        return
    name, every = submission.knobs.evaluation_interval, benchmark.evaluation.every_samples
    proper = ruled if benchmark.evaluation.knob_counts == "steps" else every
    yield Finding(
        rule="evaluation cadence",
        what=f"it evaluates every {now} steps, and the rules every {ruled}",
        arithmetic=f"the rules: every {every:,} samples, ceil({every} / {config.batch}) = {ruled} steps;"
        f" {name}={config.evaluation_interval} makes {now}",
        cure=f"{name}={proper}",
        scope="closed",
    )


def _reference(config: Configuration, points: Sequence[ReferencePoint]) -> Iterator[Finding]:
    found = expected(points, config.batch)
    if found.inside or not points:
        return
    side, end = (
        ("smaller than the smallest", "below") if found.how == "below" else ("larger than the largest", "above")
    )
    batches = ", ".join(str(point.batch) for point in points)
    yield Finding(
        rule="reference points",
        what=f"a global batch of {config.batch} is {side} reference convergence point, {found.between[0]}",
        arithmetic=f"{config.batch_text()}; the reference converged at {batches}: between them it is interpolated,"
        f" {end} them nothing is known",
        cure=f"a batch of {found.between[0]} or {'more' if end == 'below' else 'less'}",
        scope="closed",
    )


def _steps(
    config: Configuration, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Iterator[Finding]:
    name = submission.knobs.max_steps
    if config.max_steps is None or name is None:
        return
    reference = expected(points, config.batch)
    trained = config.max_steps * config.batch
    if reference.samples is not None and reference.stdev is not None:
        least = reference.samples - SPREADS * reference.stdev
        needs = f"the reference needs {reference.samples:,.0f} samples (standard deviation {reference.stdev:,.0f})"
        product = f"{name} {config.max_steps} x {config.batch} = {trained:,}"
        if trained < least:
            yield Finding(
                rule="steps",
                what=f"{trained:,} samples are too few to converge",
                arithmetic=f"{product}; {needs}, at least {least:,.0f} in any run",
                cure=f"{name} of {math.ceil(reference.samples / config.batch)} or more",
                scope="always",
            )
        elif trained < reference.samples:
            yield Finding(
                rule="steps",
                what=f"half of all runs need more than {trained:,} samples",
                arithmetic=f"{product}; {needs}",
                cure=f"{name} of {math.ceil((reference.samples + 2 * reference.stdev) / config.batch)} or more",
                scope="note",
            )
    if benchmark.max_steps is None or config.max_steps == benchmark.max_steps:
        return
    fixed = benchmark.optimizer.decay_and_warmup_steps is not None
    if fixed or config.max_steps > benchmark.max_steps:
        yield Finding(
            rule="steps",
            what=f"{name}={config.max_steps}, {'the rules have' if fixed else 'the reference stops at'}"
            f" {benchmark.max_steps}",
            arithmetic="the learning rate ends with the last step, so another number is another schedule",
            cure=f"{name}={benchmark.max_steps}",
            scope="closed" if fixed else "note",
        )


# --- text ---------------------------------------------------------------------------------------


def configuration_rows(
    config: Configuration, benchmark: MlperfBenchmark, submission: Submission, points: Sequence[ReferencePoint]
) -> Rows:
    """What it comes to; a line each."""
    rows: Rows = [
        ("benchmark", f"{benchmark.title}: {benchmark.target.metric} <= {benchmark.target.at_most:g}"),
        ("division", config.division),
        ("GPUs", f"{config.nodes} x {config.gpus_per_node} = {config.gpus}"),
        ("global batch", config.batch_text()),
    ]
    if config.batch < 1:
        return rows
    first = first_evaluation(benchmark, config.batch, config.evaluation_interval)
    rows += [
        ("evaluations", f"every {first.steps_apart} steps, {first.skipped} skipped: first at step {first.step}"),
        ("reference", _reference_text(config.batch, points)),
    ]
    if config.max_steps is not None:
        trained = f"{config.max_steps} x {config.batch} = {config.max_steps * config.batch:,} samples"
        rows.append(("last step", f"{submission.knobs.max_steps} {trained}"))
    if config.minutes_of_one is not None:
        rows.append(("time limit", f"{config.time_text()} minutes"))
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
