"""Report one run in an MLLOG as values and as text: its status, its time to train, and the parts of that time."""

from typing import BinaryIO

from benchmarks.configs import Configs
from benchmarks.mlperf import package
from benchmarks.mlperf.definitions import read_definition
from benchmarks.mlperf.findings import Finding, find
from benchmarks.mlperf.run_log import LoggedRun, number, runs_of
from benchmarks.mlperf.time_to_train import Convergence, TimeToTrain, compare_convergence, split_time_to_train
from benchmarks.values import MlperfEvaluation, Value

SHOWN_EVALUATIONS = 8


class RunReport(Value, frozen=True):
    """The report of one run in an MLLOG. Missing values are None."""

    benchmark: str | None
    platform: str | None
    status: str  # success, aborted, fail or unknown
    status_text: str  # the status as it is written in the log; empty without run_stop
    target: float | None
    reached: bool | None
    time_to_train_minutes: float | None  # from run_start to run_stop, for every status
    init_seconds: float | None  # from the first init_start to run_start
    global_batch_size: int | None
    samples: int | None
    evaluations: list[MlperfEvaluation]
    apart: TimeToTrain | None
    convergence: Convergence | None
    no_convergence_because: str
    findings: list[Finding]


def report_run(run: LoggedRun, configs: Configs, ruleset: str | None = None) -> RunReport:
    """Return the report of a run, with the reference points of `ruleset` (default: the newest one)."""
    benchmark = read_definition(configs, run.benchmark) if run.benchmark in configs.names("mlperf") else None
    expected = None
    if benchmark is not None and run.batch:
        points = package.reference_points(benchmark, ruleset or benchmark.rulesets[-1])
        expected = package.expected(points, run.batch)
    apart, convergence = split_time_to_train(run), None
    if benchmark is None:
        why_not = f"no reference points of {run.benchmark or 'a benchmark that is not named'}"
    elif expected is None:
        why_not = f"the batch of {run.batch} is outside the reference convergence points"
    else:
        convergence = compare_convergence(run, apart, benchmark, expected) if apart else None
        why_not = "" if convergence else "the run did not meet its target, or its samples are not logged"
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
        apart=apart,
        convergence=convergence,
        no_convergence_because=why_not,
        findings=find(run, benchmark),
    )


def report_runs(stream: BinaryIO, configs: Configs) -> list[RunReport]:
    """Return the reports of all runs in a log."""
    return [report_run(run, configs) for run in runs_of(stream)]


# --- text -------------------------------------------------------------------------------------


def report_lines(report: RunReport, findings: list[Finding]) -> list[str]:
    """Return the report of a run as lines, and `findings` at their end."""
    name = " on ".join(part for part in (report.benchmark or "unknown benchmark", report.platform) if part)
    ended = report.status if report.status != "unknown" else (report.status_text or "no run_stop")
    if report.time_to_train_minutes is not None:
        what = "time to train" if report.status == "success" else "ended after"
        ended += f", {what} {report.time_to_train_minutes:.3f} min"
    figures = {
        "{} samples": report.samples,
        "global batch {}": report.global_batch_size,
        "{:.4g} samples/s while training": report.apart.samples_per_second if report.apart else None,
        "init {:.1f} s": report.init_seconds,
    }
    known = [words.format(figure) for words, figure in figures.items() if figure is not None]
    found = [f"{name}: {ended}", ", ".join(known) or "samples and global batch unknown"]
    if report.evaluations:
        found.append(_evaluations(report))
    if report.apart is not None:
        found += _apart_lines(report.apart, len(report.evaluations))
    if report.convergence is not None:
        found += _convergence_lines(report.convergence, report.samples or 0)
    else:
        found.append(f"convergence: not judged, {report.no_convergence_because}")
    return [*found, *(finding.text() for finding in findings)]


def _evaluations(report: RunReport) -> str:
    shown, count = report.evaluations[-SHOWN_EVALUATIONS:], len(report.evaluations)
    losses = ["no number" if one.value is None else f"{one.value:.4f}" for one in shown]
    text = ", ".join(f"{loss} at {one.samples}" for loss, one in zip(losses, shown, strict=True))
    which = f"the last {len(shown)} of {count} evaluations" if len(shown) < count else "evaluations"
    target = f"; target {report.target:g}" if report.target is not None else ""
    return f"{which}: {text} samples{target}"


def _apart_lines(apart: TimeToTrain, evaluations: int) -> list[str]:
    """Return lines with the parts of the time to train and their shares. The parts add up to the total."""
    if not apart.divided:
        return [f"time to train {apart.total_seconds:.3f} s; its parts are unknown, because the log marks no blocks"]
    steps = "" if apart.seconds_per_step is None else f"{apart.steps} steps x {apart.seconds_per_step:.4g} s"
    rows = [
        ("training", apart.training_seconds, steps),
        ("evaluation", apart.evaluation_seconds, f"{evaluations} evaluations"),
        ("checkpoint", apart.checkpoint_seconds, "" if apart.checkpoint_seconds else "none is marked"),
        ("other", apart.other_seconds, "between the parts above"),
        ("sum", apart.total_seconds, "run_stop - run_start"),
    ]
    total = apart.total_seconds or 1.0
    return [f"  {name:<11}{took:>12.3f} s {100 * took / total:>5.1f}%  {note}".rstrip() for name, took, note in rows]


def _convergence_lines(convergence: Convergence, samples: int) -> list[str]:
    expected = convergence.expected
    points = " and ".join(map(str, expected.between))
    how = f"interpolated between batches {points}" if len(expected.between) > 1 else f"found at batch {points}"
    spread = "" if convergence.deviations is None else f", {convergence.deviations:+.1f} standard deviations"
    return [
        f"convergence: {samples} samples, the reference needs {expected.samples:.0f} "
        f"+- {expected.stdev:.0f} ({how}): {100 * convergence.ratio:.1f}%{spread}, {convergence.word}",
        f"would have taken {convergence.seconds_at_reference / 60:.3f} min at the reference's mean sample count",
    ]
