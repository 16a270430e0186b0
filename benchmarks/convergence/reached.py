"""What a run that trains towards a target came to: success or aborted, after how many sequences, in what time. Pure.

Recomputed from what its worker wrote down; where that does not follow from the goal, the result is invalid.
"""

import math
from collections.abc import Iterator, Sequence

from benchmarks.convergence import convergence_status
from benchmarks.convergence.goals import goal_of
from benchmarks.inside.goal import Goal
from benchmarks.measuring.figures import usable_seconds
from benchmarks.values import Benchmark, ConvergenceFigures, Evaluation, RunRecord, Step, TimeToTrain

FAILED = "the run failed"


def reached_at(goal: Goal, evaluations: Sequence[Evaluation]) -> Evaluation | None:
    return next((one for one in evaluations if goal.met(one.loss)), None)


def expected_steps(benchmark: Benchmark, record: RunRecord) -> int | None:
    """How many steps a run has that reached its target; None where it did not, or has none."""
    goal = goal_of(benchmark)
    found = reached_at(goal, record.evaluations) if goal else None
    return found.steps if found else None


def broken_goal(benchmark: Benchmark, record: RunRecord, steps: Sequence[Step]) -> list[str]:
    """Why the run proves no convergence: the target was missed, or the evaluations are not those of the goal."""
    goal = goal_of(benchmark)
    return list(_faults(goal, record.evaluations, len(steps))) if goal else []


def _faults(goal: Goal, evaluations: Sequence[Evaluation], trained: int) -> Iterator[str]:
    due = [step for step in range(1, trained + 1) if goal.due(step)]
    done = [one.steps for one in evaluations]
    if done != due:
        wrong = sorted(set(done) ^ set(due))
        at = f"step {wrong[0]}" if wrong else "some step twice"
        yield f"{len(done)} evaluations were written down, {len(due)} were due: {at} differs"
    for one in evaluations:
        if one.sequences != one.steps * goal.sequences:
            said = f"says {one.sequences:,} sequences, not {one.steps * goal.sequences:,}"
            yield f"the evaluation after step {one.steps} {said}"
            break
    found = reached_at(goal, evaluations)
    known = [one.loss for one in evaluations if one.loss is not None]
    if found is None and known:
        best = f"the loss was {min(known):.4f} at best in {len(evaluations)} evaluations"
        yield f"aborted: {best} and {trained * goal.sequences:,} sequences, the target is {goal.target:g}"
    elif found is None:
        yield f"aborted: no evaluation gave a loss in {trained} steps, the target is {goal.target:g}"
    elif trained > found.steps:
        yield f"the target was reached after step {found.steps}, and {trained - found.steps} more steps were trained"


def convergence_figures(
    benchmark: Benchmark, record: RunRecord, steps: Sequence[Step], *, failed: bool
) -> tuple[ConvergenceFigures | None, dict[str, str]]:
    """`steps` are those of rank 0, as they were reported."""
    goal, towards, course = goal_of(benchmark), benchmark.convergence, convergence_status.course_of(benchmark)
    if goal is None or towards is None or course is None:
        return None, {}
    found = None if failed else reached_at(goal, record.evaluations)
    nulls = {}
    why = FAILED if failed else "the target was not reached"
    if found is None:
        nulls["convergence.sequences"] = why
    taken, why_not = _time_to_train(record, steps) if found else (None, why)
    if taken is None:
        nulls["convergence.time_to_train"] = why_not
    else:
        nulls["convergence.time_to_train.step_seconds_printed"] = "the steps are timed by Stepmark itself"
        if taken.init_seconds is None:
            nulls["convergence.time_to_train.init_seconds"] = "the worker did not write down when it began"
    reference = towards.reference
    if reference is None:
        nulls["convergence.reference_sequences"] = "no reference runs are known at this batch"
    if found is None or reference is None:
        nulls["convergence.deviations"] = why if reference else nulls["convergence.reference_sequences"]
    last = record.evaluations[-1].loss if record.evaluations else None
    if last is None:
        nulls["convergence.last_loss"] = "no evaluation gave a loss"
    points = [(one.sequences, one.loss) for one in record.evaluations]
    return ConvergenceFigures(
        benchmark=towards.benchmark,
        target_loss=towards.target_loss,
        status="failed" if failed else "success" if found else "aborted",
        standing=convergence_status.status_of(course, points).text(),
        sequences=found.sequences if found else None,
        last_loss=last,
        evaluations=record.evaluations,
        time_to_train=taken,
        reference_sequences=reference.mean_sequences if reference else None,
        deviations=(found.sequences - reference.mean_sequences) / reference.stdev_sequences
        if found and reference
        else None,
    ), nulls


def _time_to_train(record: RunRecord, steps: Sequence[Step]) -> tuple[TimeToTrain | None, str]:
    started = next((one for one in record.started if one.rank == 0), None)
    if started is None:
        return None, "the worker did not write down when it began its first step"
    seconds = usable_seconds(steps)
    if len(seconds) < len(steps):
        return None, "a step has no time"
    total = record.evaluations[-1].ended_unix - started.unix_seconds
    evaluation = math.fsum(one.seconds for one in record.evaluations)
    training = total - evaluation
    launched, samples = started.launched_unix_seconds, record.evaluations[-1].sequences
    return TimeToTrain(
        total_seconds=total,
        training_seconds=training,
        evaluation_seconds=evaluation,
        checkpoint_seconds=0.0,
        other_seconds=0.0,
        init_seconds=None if launched is None else started.unix_seconds - launched,
        samples=samples,
        evaluations=len(record.evaluations),
        steps=len(steps),
        seconds_per_step=training / len(steps),
        step_seconds_printed=None,
        samples_per_second=samples / training,
        divided=True,
        idle_seconds=max(0.0, training - math.fsum(seconds)),  # two clocks: they may differ by microseconds
    ), ""
