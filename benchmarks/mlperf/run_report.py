"""One run of an MLLOG as figures and as text: how it ended, how long it took, and of what that was made. Pure."""

from collections.abc import Sequence
from typing import BinaryIO

from benchmarks.configs import Configs
from benchmarks.mlperf import package
from benchmarks.mlperf.definitions import MlperfBenchmark, read_definition
from benchmarks.mlperf.findings import Finding, find
from benchmarks.mlperf.reference_points import Expected, expected
from benchmarks.mlperf.run_log import LoggedRun, number, runs_of
from benchmarks.mlperf.time_to_train import Convergence, TimeToTrain, compare_convergence, take_apart
from benchmarks.statistics import median
from benchmarks.values import MlperfEvaluation, Value

SHOWN_EVALUATIONS = 8


class RunReport(Value, frozen=True):
    """What an MLLOG says of one run. A figure that it does not give is None."""

    benchmark: str | None
    platform: str | None
    status: str  # success, aborted, fail, or unknown
    status_text: str  # as the log writes it; empty where it has no run_stop
    target: float | None
    reached: bool | None
    time_to_train_minutes: float | None  # run_stop - run_start, whatever the status
    init_seconds: float | None  # first init_start to run_start
    global_batch_size: int | None
    samples: int | None
    evaluations: list[MlperfEvaluation]
    samples_per_second: float | None  # samples over training time, without evaluations
    samples_per_second_printed: float | None  # the median of those that the run itself printed
    apart: TimeToTrain | None
    convergence: Convergence | None
    no_convergence_because: str
    findings: list[Finding]


def report_run(run: LoggedRun, benchmark: MlperfBenchmark | None, expected: Expected | None) -> RunReport:
    apart = take_apart(run)
    convergence = None
    if apart is not None and benchmark is not None and expected is not None:
        convergence = compare_convergence(run, apart, benchmark, expected)
    target = benchmark.target.at_most if benchmark else number(run.settings.get("target_accuracy"))
    values = [one.value for one in run.evaluations if one.value is not None]
    return RunReport(
        benchmark=run.benchmark,
        platform=run.platform,
        status=run.status,
        status_text=run.status_text,
        target=target,
        reached=None if target is None or not values else any(0 < value <= target for value in values),
        time_to_train_minutes=None if run.seconds is None else run.seconds / 60,
        init_seconds=run.init_seconds,
        global_batch_size=run.batch,
        samples=run.samples,
        evaluations=[MlperfEvaluation(one.samples, one.value) for one in run.evaluations],
        samples_per_second=apart.samples_per_second if apart else None,
        samples_per_second_printed=median(run.throughputs),
        apart=apart,
        convergence=convergence,
        no_convergence_because="" if convergence else _why_not(run, benchmark, expected),
        findings=find(run, benchmark),
    )


def definition_of(run: LoggedRun, configs: Configs) -> MlperfBenchmark | None:
    """The benchmark that a run names, where it is known here."""
    return read_definition(configs, run.benchmark) if run.benchmark in configs.names("mlperf") else None


def expected_of(run: LoggedRun, benchmark: MlperfBenchmark | None, ruleset: str | None = None) -> Expected | None:
    """What the reference needs at the batch of a run; None where there is no reference."""
    if benchmark is None or not run.batch:
        return None
    return expected(package.reference_points(benchmark, ruleset or benchmark.rulesets[-1]), run.batch)


def report_runs(stream: BinaryIO, configs: Configs) -> list[RunReport]:
    """Every run of a log, told with the reference points of the newest ruleset that has its benchmark."""
    known = ((run, definition_of(run, configs)) for run in runs_of(stream))
    return [report_run(run, benchmark, expected_of(run, benchmark)) for run, benchmark in known]


def _why_not(run: LoggedRun, benchmark: MlperfBenchmark | None, expected: Expected | None) -> str:
    if benchmark is None:
        return f"no reference points of {run.benchmark or 'a benchmark that is not named'}"
    if run.status != "success":
        return "the run did not meet its target, so how many samples that takes is not known"
    if expected is None:
        return "no global_batch_size that is a count is logged"
    if expected.samples is None:
        side = "smallest" if expected.how == "below" else "largest"
        return f"its batch of {run.batch} is {expected.how} the {side} of the reference points, {expected.between[0]}"
    return "its samples are not logged"


# --- text -------------------------------------------------------------------------------------


def report_lines(report: RunReport, already_shown: Sequence[str] = ()) -> list[str]:
    """The report of a run for people, without findings that were said of all runs."""
    name = " on ".join(part for part in (report.benchmark or "unknown benchmark", report.platform) if part)
    ended = report.status if report.status != "unknown" else (report.status_text or "no run_stop")
    if report.time_to_train_minutes is not None:
        what = "time to train" if report.status == "success" else "ended after"
        ended += f", {what} {report.time_to_train_minutes:.3f} min"
    figures = {
        "{} samples": report.samples,
        "global batch {}": report.global_batch_size,
        "{:.4g} samples/s while training": report.samples_per_second,
        "{:.4g} samples/s as the run printed it": report.samples_per_second_printed,
        "init {:.1f} s before it": report.init_seconds,
    }
    known = [words.format(figure) for words, figure in figures.items() if figure is not None]
    found = [f"{name}: {ended}", ", ".join(known) or "samples and global batch unknown"]
    if report.evaluations:
        found.append(_evaluations(report))
    if report.apart is not None:
        found += _apart_lines(report.apart)
    if report.convergence is not None:
        found += _convergence_lines(report.convergence)
    elif report.no_convergence_because:
        found.append(f"convergence: not judged, {report.no_convergence_because}")
    return [*found, *(finding.text() for finding in report.findings if finding.what not in already_shown)]


def _evaluations(report: RunReport) -> str:
    shown, count = report.evaluations[-SHOWN_EVALUATIONS:], len(report.evaluations)
    text = ", ".join(f"{_loss(one.value)} at {one.samples}" for one in shown)
    which = f"the last {len(shown)} of {count} evaluations" if len(shown) < count else "evaluations"
    target = f"; target {report.target:g}" if report.target is not None else ""
    return f"{which}: {text} samples{target}"


def _loss(value: float | None) -> str:
    return "no number" if value is None else f"{value:.4f}"


def _apart_lines(apart: TimeToTrain) -> list[str]:
    """The parts, each with its share; they sum up to the total."""
    if not apart.divided:
        return [f"time to train {apart.total_seconds:.3f} s; the log marks no blocks, so its parts are not known"]
    steps = ""
    if apart.steps is not None and apart.seconds_per_step is not None:
        steps = f"{apart.steps} steps x {apart.seconds_per_step:.4g} s"
        if apart.step_seconds_printed is not None:
            steps += f" ({apart.step_seconds_printed:.4g} s a step as the run printed it, median)"
        if apart.idle_seconds is not None:
            steps += f", {apart.idle_seconds:.3f} s of it idle between steps"
    rows = [
        ("training", apart.training_seconds, steps),
        ("evaluation", apart.evaluation_seconds, f"{apart.evaluations} evaluations"),
        ("checkpoint", apart.checkpoint_seconds, "" if apart.checkpoint_seconds else "none is marked"),
        ("other", apart.other_seconds, "between the parts above"),
        ("sum", apart.total_seconds, "run_stop - run_start"),
    ]
    total = apart.total_seconds or 1.0
    return [f"  {name:<11}{took:>12.3f} s {100 * took / total:>5.1f}%  {note}".rstrip() for name, took, note in rows]


def _convergence_lines(convergence: Convergence) -> list[str]:
    points = " and ".join(str(batch) for batch in convergence.between)
    how = f"{convergence.how} at batch {points}"
    if convergence.how == "interpolated":
        how = f"interpolated between batches {points}"
    spread = "" if convergence.deviations is None else f", {convergence.deviations:+.1f} standard deviations"
    return [
        f"convergence: {convergence.samples} samples, the reference needs {convergence.expected_samples:.0f} "
        f"+- {convergence.expected_stdev:.0f} ({how}): {100 * convergence.ratio:.1f}%{spread}, {convergence.word}",
        f"would have taken {convergence.seconds_at_reference / 60:.3f} min at the reference mean",
    ]
