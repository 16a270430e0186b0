"""What the package's checkers let pass: status, settings, cadence, clock, repeated and broken lines. Pure.

An error makes a log no result: no status of success, a line or a time that cannot be read, another value of a
setting that the rules fix. All else that the rules' own checkers accept is a warning, for accepted submissions have
it: another cadence above all. What the compliance checker says itself is not said again.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation
from benchmarks.mlperf.run_log import MINGLED, LoggedRun, number, whole
from benchmarks.text import some
from benchmarks.values import Value

CLOCK_SLACK_MS = 1000  # lines of one process may be written a little out of order
LONGEST_SECONDS = 100 * 86400
SHOWN = 3  # examples of one kind


class Finding(Value, frozen=True):
    """One thing that is wrong, and where."""

    level: Literal["error", "warning"]
    what: str
    line: int | None = None
    one_may: bool = False  # one run of a set may have it, as the worst that is left out

    def text(self) -> str:
        return f"{self.level}: {self.what}" + (f" (line {self.line})" if self.line is not None else "")


def find(run: LoggedRun, benchmark: MlperfBenchmark | None) -> list[Finding]:
    """All there is to say of one run, the errors first."""
    found = [*_ending(run), *_lines(run), *_clock(run), *_batch(run)]
    if benchmark is None:
        name = f"{run.settings.get('submission_benchmark')!r:.100}"
        found.append(_warning(f"benchmark {name} isn't known here: target and settings are not compared"))
    elif not run.is_open:
        found += [*_target(run, benchmark), *_settings(run, benchmark), *_cadence(run, benchmark)]
    return sorted(found, key=lambda finding: finding.level != "error")


def _error(what: str, line: int | None = None, *, one_may: bool = False) -> Finding:
    return Finding("error", what, line, one_may)


def _warning(what: str, line: int | None = None) -> Finding:
    return Finding("warning", what, line)


def _ending(run: LoggedRun) -> Iterator[Finding]:
    stops = run.marks["run_stop"]
    if not run.marks["run_start"]:
        yield _error("no run_start: training never began")
    if not stops:
        yield _error("no run_stop: the run ended without a word", one_may=True)
    elif run.status != "success":
        status = repr(run.status_text) if run.status_text else "not given"
        what = f"status is {status}, not 'success' (the compliance checker may pass it all the same)"
        yield _error(what, stops[-1].line, one_may=True)


def _lines(run: LoggedRun) -> Iterator[Finding]:
    for skipped in run.skipped:
        level: Literal["error", "warning"] = "warning" if skipped.reason == MINGLED else "error"
        yield Finding(level, f"unreadable MLLOG line: {skipped.reason}", skipped.line, one_may=True)
    yield from (
        _warning("an evaluation that is no finite number", e.line) for e in run.evaluations if e.value is None
    )
    if run.other_ranks:
        what = f"{run.other_ranks} lines of further ranks: MLLOG is to be written by rank 0 alone"
        yield _warning(what)
    cleared = run.settings.get("cache_clear")
    if cleared is not None and cleared not in (True, "True"):
        yield _warning(f"cache_clear is {cleared!r}: the caches were not cleared")
    for mark in ("init_stop", "run_start", "run_stop"):
        count = len(run.marks[mark])
        if count > 1:
            lines = ", ".join(str(record.line) for record in run.marks[mark][:SHOWN])
            yield _error(f"{mark} is there {count} times (lines {lines}): the time to train is no one's")


def _clock(run: LoggedRun) -> Iterator[Finding]:
    """Ranks may start apart; from init_stop on, one process tells the story."""
    initialised = run.marks["init_stop"]
    following = [record for record in run.records if initialised and record.line >= initialised[0].line]
    back = [(a, b) for a, b in pairwise(following) if b.time_ms < a.time_ms - CLOCK_SLACK_MS]
    for before, after in back[:SHOWN]:
        seconds = (before.time_ms - after.time_ms) / 1000
        yield _warning(f"the clock went back by {seconds:.3f} s between {before.key} and {after.key}", after.line)
    if run.seconds is not None and run.seconds <= 0:
        yield _error(f"run_stop is {abs(run.seconds):.3f} s before run_start")
    if run.seconds is not None and run.seconds > LONGEST_SECONDS:
        yield _error(
            f"run_stop is {run.seconds / 86400:,.0f} days after run_start: one of them is no time of the run"
        )
    last, stop = run.evaluations[-1] if run.evaluations else None, run.stop_ms
    if stop is not None and last is not None and last.time_ms > stop:
        yield _warning(f"run_stop is {(last.time_ms - stop) / 1000:.3f} s before the last evaluation", last.line)


def _batch(run: LoggedRun) -> Iterator[Finding]:
    logged = run.values("global_batch_size")
    if bad := [one for one in logged if (whole(one) or 0) <= 0]:
        yield _error(f"global_batch_size is {bad[0]!r:.100}, which is no count of samples")
    elif len({*map(whole, logged)}) > 1:
        yield _error(f"global_batch_size is {some([*map(repr, logged)])} in one run")


def _target(run: LoggedRun, benchmark: MlperfBenchmark) -> Iterator[Finding]:
    target, logged = benchmark.target, run.values("target_accuracy")
    if other := [one for one in logged if one is not None and one != target.at_most]:
        yield _error(f"target_accuracy is {other[0]!s:.100}, the target of {benchmark.name} is {target.at_most}")
    reached = [one for one in run.evaluations if one.value is not None and target.reached_by(one.value)]
    last = run.evaluations[-1] if run.evaluations else None
    if run.status == "success" and last is None:
        yield _error("status is 'success' without any evaluation")
    elif run.status == "success" and last is not None and not reached:
        what = f"status is 'success', but the last evaluation is {last.value}, not <= {target.at_most}"
        yield _error(what, last.line)
    if run.status != "success" and reached:
        what = f"an evaluation met the target ({reached[0].value} <= {target.at_most})"
        yield _warning(what, reached[0].line)
    if reached and last is not None and reached[0] is not last:
        yield _warning(f"it trained on after {reached[0].value} had met the target", reached[0].line)


def _cadence(run: LoggedRun, benchmark: MlperfBenchmark) -> Iterator[Finding]:
    """Within a step of the rules: a submission may round down, and count the step that is about to begin."""
    counted = [(one.samples, one.line) for one in run.evaluations if one.samples is not None]
    if run.evaluations and (run.evaluations[-1].samples or 0) <= 0:
        what = "the last evaluation does not say after how many samples it is: how many the run needed is not known"
        yield _warning(what, run.evaluations[-1].line)
    if not counted or not run.batch:
        return
    first = first_evaluation(benchmark, run.batch)
    apart = first.steps_apart * run.batch
    samples, line = counted[0]
    if abs(samples - first.samples) > (first.skipped + 1) * run.batch:
        yield _warning(
            f"the first evaluation is after {samples} samples; the rules have it after {first.samples} "
            f"({first.skipped + 1} x {first.steps_apart} steps of {run.batch})",
            line,
        )
    between = [(after - before, line) for (before, _), (after, line) in pairwise(counted)]
    wrong = [(samples, line) for samples, line in between if abs(samples - apart) > run.batch]
    for samples, line in wrong[:SHOWN]:
        yield _warning(f"{samples} samples between two evaluations; the rules have {apart}", line)
    if len(wrong) > SHOWN:
        yield _warning(f"and {len(wrong) - SHOWN} more evaluations out of time")


def _settings(run: LoggedRun, benchmark: MlperfBenchmark) -> Iterator[Finding]:
    for key, expected in fixed_settings(benchmark).items():
        if other := [one for one in run.values(key) if not _same(one, expected)]:
            yield _error(f"{key} is {other[0]!r:.100}, the rules of {benchmark.name} have {expected!r}")
    steps = run.settings.get("opt_learning_rate_training_steps")
    trained = None if run.samples is None or not run.batch else run.samples // run.batch
    if isinstance(steps, int) and steps > 0 and trained is not None and trained > steps:
        yield _warning(f"it trained {trained} steps, {trained - steps} more than its schedule of {steps}")


def fixed_settings(benchmark: MlperfBenchmark) -> dict[str, Any]:
    """The settings that the rules fix, by their keys."""
    optimizer = benchmark.optimizer
    fixed: dict[str, Any] = {
        "opt_adamw_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.gradient_clip_norm,
        "opt_adamw_beta_1": optimizer.beta_1,
        "opt_adamw_beta_2": optimizer.beta_2,
        "opt_adamw_epsilon": optimizer.epsilon,
        "opt_name": optimizer.name,
        "max_sequence_length": benchmark.sequence_length,
        "eval_samples": benchmark.eval_samples,
    }
    if benchmark.lora is not None:
        fixed |= {"lora_rank": benchmark.lora.rank, "lora_alpha": benchmark.lora.alpha}
    return {key: value for key, value in fixed.items() if value is not None}


def _same(logged: Any, expected: Any) -> bool:
    one, other = number(logged), number(expected)
    if one is None or other is None:
        return bool(logged == expected)
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def find_across(runs: Sequence[LoggedRun]) -> list[Finding]:
    """What is wrong with runs as one set; their seeds are the package's seed checker's."""
    batches = sorted({str(run.batch) for run in runs if run.batch is not None})
    return [_error(f"the runs differ in global_batch_size: {', '.join(batches)}")] if len(batches) > 1 else []
