"""Judge MLPerf logs: each run, and each set of runs of one benchmark on one system."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from benchmarks.mlperf.checkers import CheckerResult
from benchmarks.mlperf.findings import Finding
from benchmarks.mlperf.package import Ruleset
from benchmarks.mlperf.run_report import RunReport, report_lines
from benchmarks.mlperf.time_to_train import olympic_mean
from benchmarks.text import first_few, printable
from benchmarks.values import Value

FEWEST = 3  # an olympic mean and rcp_checker need this many runs
MOST_WARNINGS = 12


class RunVerdict(Value, frozen=True):
    """One run with the results of the compliance checker and of Stepmark's own checks."""

    name: str
    compliance: CheckerResult
    story: RunReport

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.story.findings if finding.level == "error"]

    @property
    def passes(self) -> bool:
        return self.compliance.passed and not self.errors


class CheckedSet(Value, frozen=True):
    """The runs of one benchmark on one system, with the results of the checkers."""

    name: str
    benchmark: str
    submission_runs: int | None  # how many runs a submission must have
    ruleset: Ruleset
    runs: list[RunVerdict]
    convergence: CheckerResult | None  # from rcp_checker
    no_convergence_because: str
    seeds: CheckerResult | None  # from seed_checker; None for a single run


class SetVerdict(CheckedSet, frozen=True):
    """The verdict on one set of runs."""

    worst: str | None  # the failed run that the rules allow to exclude
    olympic_minutes: float | None
    olympic_minutes_at_reference: float | None
    warnings: list[str]  # deviations that the official checkers accept, each with its number of runs
    reasons: list[str]  # why the set does not pass
    no_submission_because: list[str]


class Verdict(Value, frozen=True):
    """The verdict on all sets of runs together."""

    verdict: Literal["passes", "fails"]
    reasons: list[str]
    no_submission_because: list[str]  # why these logs do not form a submission, even if all runs pass
    sets: list[SetVerdict]
    not_counted: list[str]  # files in which no MLLOG line is readable


def judge(sets: Sequence[CheckedSet], not_counted: list[str]) -> Verdict:
    judged = [_judge_set(one) for one in sets]
    reasons = [f"{one.name}: {reason}" for one in judged for reason in one.reasons]
    reasons += [f"{name} has no readable MLLOG line, so it is not counted" for name in not_counted]
    of = [f"{one.name} ({one.benchmark}): " if len(judged) > 1 else "" for one in judged]
    no_submission = [name + why for name, one in zip(of, judged, strict=True) for why in one.no_submission_because]
    return Verdict("fails" if reasons else "passes", reasons, no_submission, judged, not_counted)


def _judge_set(one: CheckedSet) -> SetVerdict:
    failed = [run for run in one.runs if not run.passes]
    # The rules allow one run of a submission that did not converge, or whose log does not comply.
    may_be_excluded = len(failed) == 1 and len(one.runs) >= FEWEST and all(f.one_may for f in failed[0].errors)
    worst = failed[0] if may_be_excluded else None
    counted = [run.story for run in one.runs if run is not worst]
    bad = [run.name for run in failed if run is not worst]
    minutes = [run.time_to_train_minutes for run in counted if run.time_to_train_minutes is not None]
    olympic = at_reference = None
    if not bad and len(minutes) == len(counted):
        olympic = olympic_mean(minutes + [max(minutes)] * (worst is not None))
        at = [run.convergence.seconds_at_reference / 60 for run in counted if run.convergence is not None]
        at_reference = olympic_mean(at) if len(at) == len(counted) else None
    reasons = [f"{len(bad)} of {len(one.runs)} runs fail: {', '.join(bad)}"] if bad else []
    batches = sorted({run.story.global_batch_size for run in one.runs if run.story.global_batch_size is not None})
    if len(batches) > 1:
        reasons.append(f"the runs differ in global_batch_size: {', '.join(map(str, batches))}")
    for checked in (one.convergence, one.seeds):
        if checked is not None and not checked.passed:
            reasons.append(f"{checked.checker}: {'; '.join(checked.complaints)}")
    return SetVerdict(
        **{name: getattr(one, name) for name in CheckedSet.__struct_fields__},
        worst=worst.name if worst else None,
        olympic_minutes=olympic,
        olympic_minutes_at_reference=at_reference,
        warnings=_warnings(one.runs),
        reasons=reasons,
        no_submission_because=_no_submission(one),
    )


def _warnings(runs: Sequence[RunVerdict]) -> list[str]:
    """Return each kind of warning once, with the number of runs to which it applies."""
    kinds = [{f.what for f in run.story.findings if f.level == "warning"} for run in runs]
    counts = Counter(what for run in kinds for what in sorted(run)).most_common()
    return [f"{what} ({count} of {len(runs)} runs)" for what, count in counts]


def _no_submission(one: CheckedSet) -> list[str]:
    count, needed = len(one.runs), one.submission_runs
    found = []
    if needed is not None and count != needed:
        few = f"{count} of the {needed} runs that a submission needs"
        found.append(few if count < needed else f"{count} runs, but a submission has {needed}")
    systems = sorted({run.story.platform for run in one.runs if run.story.platform})
    return found + ([f"the logs name {len(systems)} systems ({first_few(systems, 3)})"] if len(systems) > 1 else [])


# --- text -------------------------------------------------------------------------------------


def text(verdict: Verdict) -> str:
    """Return the verdict as text: each set with its runs, then the verdict."""
    shown = [line for one in verdict.sets for line in [*_set_lines(one), ""]]
    names = list(dict.fromkeys(one.ruleset.name for one in verdict.sets))
    passes = verdict.verdict == "passes"
    short = first_few(verdict.no_submission_because, 3, "; ") if passes else ""
    by = f"(ruleset{'s' if len(names) > 1 else ''} {', '.join(names)})"
    shown.append(f"verdict: {verdict.verdict} {by}" + (f", but is not a submission: {short}" if short else ""))
    return "\n".join(map(printable, [*shown, *(f"  {reason}" for reason in verdict.reasons)]))


def _set_lines(one: SetVerdict) -> list[str]:
    count = len(one.runs)
    runs = f"{count} run{'s' if count != 1 else ''}"
    runs += f" (a submission has {one.submission_runs})" if one.submission_runs else ""
    convergence = one.convergence.text() if one.convergence else f"not run, {one.no_convergence_because}"
    more = len(one.warnings) - MOST_WARNINGS
    return [
        f"{one.name}: {one.benchmark}, {runs}",
        f"  ruleset: {one.ruleset.name}, {one.ruleset.because}",
        *(f"  {line}" for run in one.runs for line in _run_lines(run, run.name == one.worst)),
        f"  rcp_checker: {convergence}",
        *([f"  seed_checker: {one.seeds.text()}"] if one.seeds else []),
        *(f"  warning (not from the official checkers): {what}" for what in one.warnings[:MOST_WARNINGS]),
        *([f"  and {more} more warnings (--json has all)"] if more > 0 else []),
        f"  {_olympic(one)}",
    ]


def _run_lines(run: RunVerdict, worst: bool) -> list[str]:
    word = "passes" if run.passes else ("did not converge, excluded as the worst" if worst else "fails")
    checked = f"compliance_checker: {run.compliance.text()}"
    return [f"{run.name}: {word}", *(f"  {line}" for line in (checked, *report_lines(run.story, run.errors)))]


def _olympic(one: SetVerdict) -> str:
    minutes, count = one.olympic_minutes, len(one.runs)
    if minutes is None:
        why = f"n = {count}, but at least {FEWEST} runs are needed"
        return f"no olympic time to train: {why if count < FEWEST else 'more runs failed than the rules exclude'}"
    factor, reference = one.convergence.factor if one.convergence else None, one.olympic_minutes_at_reference
    scaled = f", {minutes * factor:.3f} min with rcp_checker's factor of {factor:.4f}" if factor else ""
    speed = "" if reference is None else f"; {reference:.3f} min at the reference's mean sample count"
    how = f"n = {count}, mean without the best and the worst"
    return f"olympic time to train: {minutes:.3f} min ({how}){scaled}{speed}"
