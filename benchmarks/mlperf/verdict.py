"""One verdict over MLPerf logs: each run, the runs of one system together, and a package. Pure."""

from collections import Counter
from typing import Literal

import msgspec

from benchmarks.mlperf.checkers import CheckerResult
from benchmarks.mlperf.findings import Finding
from benchmarks.mlperf.package import Ruleset
from benchmarks.mlperf.run_report import RunReport, report_lines
from benchmarks.mlperf.time_to_train import olympic_mean
from benchmarks.reading.shown_lines import printable
from benchmarks.text import some
from benchmarks.values import Value

FEWEST = 3  # runs, for an olympic mean and for rcp_checker
MOST_WARNINGS = 12


class RunVerdict(Value, frozen=True):
    """One run: what the compliance checker and the further checks say."""

    name: str
    compliance: CheckerResult
    story: RunReport

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.story.findings if finding.level == "error"]

    @property
    def passes(self) -> bool:
        return self.compliance.passed and not self.errors


class SetVerdict(Value, frozen=True):
    """The runs of one benchmark on one system."""

    name: str
    benchmark: str
    submission_runs: int | None  # how many a submission has
    ruleset: Ruleset
    runs: list[RunVerdict]
    across: list[Finding]
    convergence: CheckerResult | None  # rcp_checker's
    no_convergence_because: str
    seeds: CheckerResult | None  # the package checker's, of more than one run

    @property
    def failed(self) -> list[RunVerdict]:
        return [run for run in self.runs if not run.passes]

    @property
    def worst(self) -> RunVerdict | None:
        """The one run that the rules let a submission have: it did not converge, or its log does not comply."""
        if len(self.failed) != 1 or len(self.runs) < FEWEST:
            return None
        return self.failed[0] if all(finding.one_may for finding in self.failed[0].errors) else None

    @property
    def olympic_minutes(self) -> float | None:
        """Without the best and the worst; a run that did not converge is the worst."""
        minutes = [run.story.time_to_train_minutes for run in self.runs if run is not self.worst]
        known = [one for one in minutes if one is not None]
        if len(known) < len(minutes) or any(run is not self.worst for run in self.failed):
            return None
        return olympic_mean([*known, *([max(known)] if self.worst and known else [])])

    @property
    def olympic_minutes_at_reference(self) -> float | None:
        """The same with the samples that the reference needs: how fast the machines are, whatever the seeds."""
        convergences = [run.story.convergence for run in self.runs if run is not self.worst]
        minutes = [one.seconds_at_reference / 60 for one in convergences if one is not None]
        if self.olympic_minutes is None or len(minutes) < len(convergences):
            return None
        return olympic_mean(minutes)

    def _warned(self) -> list[tuple[str, int]]:
        """Each kind of warning, and how many runs have it."""
        kinds = [{f.what for f in run.story.findings if f.level == "warning"} for run in self.runs]
        return Counter(what for run in kinds for what in sorted(run)).most_common()

    @property
    def of_every_run(self) -> list[str]:
        """The warnings that are the same for all of several runs."""
        return [what for what, count in self._warned() if count == len(self.runs) > 1]

    @property
    def warnings(self) -> list[str]:
        """What the official checkers accept and a reader must know: each kind once, with how many runs have it."""
        return [f"{self.name}: {what} ({count} of {len(self.runs)} runs)" for what, count in self._warned()]

    @property
    def no_submission_because(self) -> list[str]:
        """What keeps these runs from being a submission's, whether or not they pass."""
        count, needed = len(self.runs), self.submission_runs
        found = []
        if needed is not None and count != needed:
            few = f"{count} of the {needed} runs that a submission needs"
            found.append(few if count < needed else f"{count} runs, and a submission has {needed}")
        systems = sorted({run.story.platform for run in self.runs if run.story.platform})
        return found + ([f"the logs name {len(systems)} systems ({some(systems, 3)})"] if len(systems) > 1 else [])

    @property
    def reasons(self) -> list[str]:
        """Why the set does not pass."""
        bad = [run.name for run in self.failed if run is not self.worst]
        found = [f"{len(bad)} of {len(self.runs)} runs fail: {', '.join(bad)}"] if bad else []
        found += [finding.what for finding in self.across if finding.level == "error"]
        if self.convergence is not None and not self.convergence.passed:
            found.append(f"rcp_checker: {'; '.join(self.convergence.complaints)}")
        if self.seeds is not None and not self.seeds.passed:
            found.append(f"seed_checker: {'; '.join(self.seeds.complaints)}")
        return [f"{self.name}: {reason}" for reason in found]


class Verdict(Value, frozen=True):
    """Everything that was judged."""

    ruleset: str  # the newest of those that the sets are judged by
    sets: list[SetVerdict]
    package: CheckerResult | None = None
    systems: dict[str, CheckerResult] = {}
    not_counted: list[str] = []  # results without a line of MLLOG, and logs without one that can be read

    @property
    def reasons(self) -> list[str]:
        found = [reason for one in self.sets for reason in one.reasons]
        found += [f"{name} holds no MLLOG line that can be read: not counted" for name in self.not_counted]
        checked = {**({"package_checker": self.package} if self.package else {}), **self.systems}
        return found + [f"{name}: {'; '.join(one.complaints)}" for name, one in checked.items() if not one.passed]

    @property
    def passes(self) -> bool:
        return not self.reasons

    @property
    def no_submission_because(self) -> list[str]:
        """What keeps these logs from being a submission, though all may pass; of a package its checker decides."""
        if self.package is not None:
            return []
        of_each_set = [(f"{one.name} ({one.benchmark}): ", one.no_submission_because) for one in self.sets]
        found = [(of if len(of_each_set) > 1 else "") + why for of, reasons in of_each_set for why in reasons]
        for name, count in Counter(one.name for one in self.sets).items():
            if count > 1:
                found.append(f"{name}: results of {count} benchmarks, and a submission has a folder for each")
        return found


class JudgedSet(SetVerdict, frozen=True):
    """With what follows from it, for --json."""

    olympic_minutes: float | None
    olympic_minutes_at_reference: float | None
    warnings: list[str]


class Judged(Value, frozen=True):
    """A verdict with what follows from it, for --json."""

    verdict: Literal["passes", "fails"]
    reasons: list[str]
    no_submission_because: list[str]
    ruleset: str
    sets: list[JudgedSet]
    package: CheckerResult | None
    systems: dict[str, CheckerResult]
    not_counted: list[str]


def judged(verdict: Verdict) -> Judged:
    derived = ("olympic_minutes", "olympic_minutes_at_reference", "warnings")
    fields = msgspec.structs.asdict(verdict)
    fields["sets"] = [
        JudgedSet(**msgspec.structs.asdict(one), **{name: getattr(one, name) for name in derived})
        for one in verdict.sets
    ]
    return Judged(
        verdict="passes" if verdict.passes else "fails",
        reasons=verdict.reasons,
        no_submission_because=verdict.no_submission_because,
        **fields,
    )


# --- text -------------------------------------------------------------------------------------


def text(verdict: Verdict) -> str:
    """The verdict for people: each set, each run, and last the one word."""
    shown = [line for one in verdict.sets for line in [*_set_lines(one), ""]]
    shown += [f"system {name}: {result.text()}" for name, result in verdict.systems.items()]
    if verdict.package is not None:
        shown.append(f"package: {verdict.package.text()}")
    names = list(dict.fromkeys(one.ruleset.name for one in verdict.sets))
    by = f"ruleset{'s' if len(names) > 1 else ''} {', '.join(names)}"
    word, other = "passes" if verdict.passes else "fails", verdict.package
    short = some(verdict.no_submission_because, 3, "; ") if verdict.passes else ""
    shown.append(f"verdict: {word} ({by})" + (f", but is no submission: {short}" if short else ""))
    shown += [f"  {reason}" for reason in verdict.reasons]
    if other is not None and other.passed and not verdict.passes:
        shown.append("  The official package_checker passes it: it does not look at these.")
    warned = [warning for one in verdict.sets for warning in one.warnings]
    if warned:
        more = f"and {len(warned) - MOST_WARNINGS} more" if len(warned) > MOST_WARNINGS else ""
        shown += ["warnings, which the official checkers do not raise", *(f"  {w}" for w in warned[:MOST_WARNINGS])]
        shown += [f"  {more}"] if more else []
    return "\n".join(map(printable, shown))


def _set_lines(one: SetVerdict) -> list[str]:
    count = len(one.runs)
    runs = f"{count} run{'s' if count != 1 else ''}"
    runs += f" (a submission has {one.submission_runs})" if one.submission_runs else ""
    convergence = one.convergence.text() if one.convergence else f"not asked, {one.no_convergence_because}"
    return [
        f"{one.name}: {one.benchmark}, {runs}",
        f"  ruleset: {one.ruleset.name}, {one.ruleset.because}",
        *(f"  warning: {what} (all {count} runs)" for what in one.of_every_run),
        *(f"  {line}" for run in one.runs for line in _run_lines(run, run is one.worst, one.of_every_run)),
        *(f"  {finding.text()}" for finding in one.across),
        f"  rcp_checker: {convergence}",
        *([f"  seed_checker: {one.seeds.text()}"] if one.seeds else []),
        f"  {_olympic(one)}",
    ]


def _run_lines(run: RunVerdict, worst: bool, already_shown: list[str]) -> list[str]:
    word = "passes" if run.passes else ("did not converge, left out as the worst" if worst else "fails")
    checked = f"compliance_checker: {run.compliance.text()}"
    return [f"{run.name}: {word}", *(f"  {line}" for line in (checked, *report_lines(run.story, already_shown)))]


def _olympic(one: SetVerdict) -> str:
    minutes, count = one.olympic_minutes, len(one.runs)
    if minutes is None:
        why = f"n = {count}, and {FEWEST} runs are the fewest for one"
        return f"no olympic time to train: {why if count < FEWEST else 'more runs failed than may be left out'}"
    factor, reference = one.convergence.factor if one.convergence else None, one.olympic_minutes_at_reference
    scaled = f", {minutes * factor:.3f} min with rcp_checker's factor of {factor:.4f}" if factor else ""
    speed = "" if reference is None else f"; {reference:.3f} min at the reference mean of samples"
    how = f"n = {count}, mean without the best and the worst"
    return f"olympic time to train: {minutes:.3f} min ({how}){scaled}{speed}"
