"""A configuration of a submission for people: its batch, its evaluations and its time, with the arithmetic. Pure."""

from collections.abc import Sequence

from benchmarks.mlperf.admission import Finding
from benchmarks.mlperf.asked import Asked
from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation, wall_minutes
from benchmarks.mlperf.reference_points import ReferencePoint, expected
from benchmarks.mlperf.submission import Submission
from benchmarks.rendering.columns import Rows


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
        ("reference", reference_text(asked.batch, points)),
    ]
    if asked.max_steps is not None:
        trained = f"{asked.max_steps} x {asked.batch} = {asked.max_steps * asked.batch:,} samples"
        rows.append(("last step", f"{submission.knobs.max_steps} {trained}"))
    if asked.minutes_of_one is not None:
        needed = wall_minutes(asked.experiments, asked.minutes_of_one)
        limit = f"5 + NEXP {asked.experiments} x (WALLTIME_RUNANDTIME {asked.minutes_of_one} + 5) = {needed} minutes"
        rows.append(("time limit", limit))
    return rows


def reference_text(batch: int, points: Sequence[ReferencePoint]) -> str:
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
