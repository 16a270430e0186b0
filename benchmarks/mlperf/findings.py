"""Find defects of one run that mlperf-logging's checkers miss: status, settings, cadence, clock, unreadable lines.

An error disqualifies a log: its status is not success, a line or the time cannot be read, or a setting breaks the
rules. Deviations that also occur in accepted submissions are warnings, such as a different evaluation cadence.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation
from benchmarks.mlperf.run_log import INTERLEAVED, LoggedRun, number
from benchmarks.text import first_few
from benchmarks.values import Value

CLOCK_SLACK_MS = 1000  # one process may write lines slightly out of order
SHOWN = 3  # the most examples of one kind of finding


class Finding(Value, frozen=True):
    """One defect of a log, and the line that shows it."""

    level: Literal["error", "warning"]
    what: str
    line: int | None = None
    one_may: bool = False  # whether one run of a set may have this defect, because the rules exclude one run

    def text(self) -> str:
        return f"{self.level}: {self.what}" + (f" (line {self.line})" if self.line is not None else "")


def find(run: LoggedRun, benchmark: MlperfBenchmark | None) -> list[Finding]:
    """Return all findings about one run, errors first."""
    found = [*_errors(run), *_clock(run)]
    if benchmark is None:
        name = f"{run.settings.get('submission_benchmark')!r:.100}"
        what = f"unknown benchmark {name}: target and settings are not compared"
        found.append(Finding("warning", what))
    elif not run.is_open:
        found += [*_settings(run, benchmark), *_cadence(run, benchmark)]
    return sorted(found, key=lambda finding: finding.level != "error")


def _errors(run: LoggedRun) -> Iterator[Finding]:
    if run.status != "success":
        line = run.marks["run_stop"][-1].line if run.marks["run_stop"] else None
        yield Finding("error", f"status is {run.status_text or 'not given'}, not success", line, one_may=True)
    for skipped in run.skipped:
        level: Literal["error", "warning"] = "warning" if skipped.reason == INTERLEAVED else "error"
        yield Finding(level, f"unreadable MLLOG line: {skipped.reason}", skipped.line, one_may=True)
    for mark in ("run_start", "run_stop"):
        if len(run.marks[mark]) > 1:
            what = f"{mark} appears {len(run.marks[mark])} times, so the time to train is unknown"
            yield Finding("error", what, run.marks[mark][1].line)
    if run.seconds is not None and run.seconds <= 0:
        yield Finding("error", f"run_stop is {abs(run.seconds):.3f} s before run_start")
    batches = run.values("global_batch_size")
    if batches and (run.batch is None or len(batches) > 1):
        yield Finding(
            "error", f"global_batch_size is {first_few([*map(repr, batches)]):.100}, but must be one positive number"
        )


def _clock(run: LoggedRun) -> Iterator[Finding]:
    """Yield warnings if the clock goes back. Lines before init_stop are skipped, because several ranks write them."""
    initialised = run.marks["init_stop"]
    following = [record for record in run.records if initialised and record.line >= initialised[0].line]
    back = [(a, b) for a, b in pairwise(following) if b.time_ms < a.time_ms - CLOCK_SLACK_MS]
    for before, after in back[:SHOWN]:
        what = f"the clock went back by {(before.time_ms - after.time_ms) / 1000:.3f} s"
        yield Finding("warning", f"{what} between {before.key} and {after.key}", after.line)


def _settings(run: LoggedRun, benchmark: MlperfBenchmark) -> Iterator[Finding]:
    for key, fixed in _fixed_settings(benchmark).items():
        if fixed is not None and (other := [one for one in run.values(key) if not _is_same(one, fixed)]):
            yield Finding("error", f"{key} is {other[0]!r:.100}, but the rules of {benchmark.name} require {fixed!r}")
    steps = run.settings.get("opt_learning_rate_training_steps")
    trained = None if run.samples is None or not run.batch else run.samples // run.batch
    if isinstance(steps, int) and steps > 0 and trained is not None and trained > steps:
        what = f"the run trained {trained} steps, {trained - steps} more than its schedule of {steps}"
        yield Finding("warning", what)


def _fixed_settings(benchmark: MlperfBenchmark) -> dict[str, Any]:
    """Return key -> the value that the rules fix, or None if they do not fix it."""
    optimizer, lora = benchmark.optimizer, benchmark.lora
    return {
        "target_accuracy": benchmark.target.at_most,
        "opt_adamw_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.gradient_clip_norm,
        "opt_adamw_beta_1": optimizer.beta_1,
        "opt_adamw_beta_2": optimizer.beta_2,
        "opt_adamw_epsilon": optimizer.epsilon,
        "opt_name": optimizer.name,
        "max_sequence_length": benchmark.sequence_length,
        "eval_samples": benchmark.eval_samples,
        "lora_rank": lora.rank if lora else None,
        "lora_alpha": lora.alpha if lora else None,
    }


def _is_same(logged: Any, fixed: Any) -> bool:
    one, other = number(logged), number(fixed)
    if one is None or other is None:
        return bool(logged == fixed)
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def _cadence(run: LoggedRun, benchmark: MlperfBenchmark) -> Iterator[Finding]:
    """Yield warnings about evaluations that are off by more than one step, because submissions may round by one."""
    reached = [one for one in run.evaluations if one.value is not None and benchmark.target.reached_by(one.value)]
    if reached and reached[0] is not run.evaluations[-1]:
        what = f"training continued after {reached[0].value} had met the target"
        yield Finding("warning", what, reached[0].line)
    counted = [(one.samples, one.line) for one in run.evaluations if one.samples is not None]
    if not counted or not run.batch:
        return
    first = first_evaluation(benchmark, run.batch)
    apart = first.steps_apart * run.batch
    samples, line = counted[0]
    if abs(samples - first.samples) > (first.skipped + 1) * run.batch:
        what = f"the first evaluation is after {samples} samples; the rules require {first.samples}"
        steps = f"{first.skipped + 1} x {first.steps_apart} steps of {run.batch}"
        yield Finding("warning", f"{what} ({steps})", line)
    between = [(after - before, line) for (before, _), (after, line) in pairwise(counted)]
    wrong = [(samples, line) for samples, line in between if abs(samples - apart) > run.batch]
    for samples, line in wrong[:SHOWN]:
        yield Finding("warning", f"{samples} samples between two evaluations; the rules require {apart}", line)
    if len(wrong) > SHOWN:
        yield Finding("warning", f"and {len(wrong) - SHOWN} more evaluations at a wrong interval")
