"""One verdict over MLPerf logs: each run, the runs of one system together, and a package. Pure."""

from benchmarks.mlperf.checkers import CheckerResult
from benchmarks.mlperf.findings import Finding
from benchmarks.mlperf.reference_points import PublishedTime
from benchmarks.mlperf.story import Story, lines
from benchmarks.mlperf.time_to_train import olympic_mean
from benchmarks.values import Value

FEWEST = 3  # runs, for an olympic mean and for rcp_checker
OF_A_SUBMISSION = 10


class RunVerdict(Value, frozen=True):
    """One run: what the compliance checker and the further checks say."""

    name: str
    compliance: CheckerResult
    derived: bool  # judged by derived rules: it stands for another benchmark
    story: Story

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
    runs: list[RunVerdict]
    across: list[Finding]
    convergence: CheckerResult | None  # rcp_checker's
    no_convergence_because: str
    published: list[PublishedTime]

    @property
    def failed(self) -> list[RunVerdict]:
        return [run for run in self.runs if not run.passes]

    @property
    def worst(self) -> RunVerdict | None:
        """The one run that may have failed to converge, with nothing else wrong: the olympic mean leaves it out."""
        if len(self.failed) != 1 or len(self.runs) < FEWEST:
            return None
        errors = self.failed[0].errors
        return self.failed[0] if errors and all(finding.of_convergence for finding in errors) else None

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
        told = [run.story.convergence for run in self.runs if run is not self.worst]
        minutes = [one.seconds_at_reference / 60 for one in told if one is not None]
        return olympic_mean(minutes) if len(minutes) == len(told) and self.olympic_minutes is not None else None

    @property
    def reasons(self) -> list[str]:
        """Why the set does not pass."""
        bad = [run.name for run in self.failed if run is not self.worst]
        found = [f"{len(bad)} of {len(self.runs)} runs fail: {', '.join(bad)}"] if bad else []
        found += [finding.what for finding in self.across if finding.level == "error"]
        if self.convergence is not None and not self.convergence.passed:
            found.append(f"rcp_checker: {'; '.join(self.convergence.complaints)}")
        return [f"{self.name}: {reason}" for reason in found]


class Verdict(Value, frozen=True):
    """Everything that was judged."""

    ruleset: str
    sets: list[SetVerdict]
    package: CheckerResult | None = None
    systems: dict[str, CheckerResult] = {}

    @property
    def reasons(self) -> list[str]:
        found = [reason for one in self.sets for reason in one.reasons]
        checked = {**({"package_checker": self.package} if self.package else {}), **self.systems}
        return found + [f"{name}: {'; '.join(one.complaints)}" for name, one in checked.items() if not one.passed]

    @property
    def passes(self) -> bool:
        return not self.reasons

    @property
    def derived(self) -> bool:
        return any(run.derived for one in self.sets for run in one.runs)


# --- text -------------------------------------------------------------------------------------


def text(verdict: Verdict) -> str:
    """The verdict for people: each set, each run, and last the one word."""
    told = [line for one in verdict.sets for line in [*_set_lines(one), ""]]
    told += [f"system {name}: {result.text()}" for name, result in verdict.systems.items()]
    if verdict.package is not None:
        told.append(f"package: {verdict.package.text()}")
    by = f"ruleset {verdict.ruleset}" + (", derived rules for small copies" if verdict.derived else "")
    word = "passes" if verdict.passes else "fails"
    return "\n".join([*told, f"verdict: {word} ({by})", *(f"  {reason}" for reason in verdict.reasons)])


def _set_lines(one: SetVerdict) -> list[str]:
    count = len(one.runs)
    runs = f"{count} run{'s' if count != 1 else ''} (a submission has {OF_A_SUBMISSION})"
    asked = one.convergence.text() if one.convergence else f"not asked, {one.no_convergence_because}"
    return [
        f"{one.name}: {one.benchmark}, {runs}",
        *(f"  {line}" for run in one.runs for line in _run_lines(run, run is one.worst)),
        *(f"  {finding.text()}" for finding in one.across),
        f"  rcp_checker: {asked}",
        f"  {_olympic(one)}",
        *(["  published:", *(f"    {row.text()}" for row in one.published)] if one.published else []),
    ]


def _run_lines(run: RunVerdict, worst: bool) -> list[str]:
    word = "passes" if run.passes else ("did not converge, left out as the worst" if worst else "fails")
    derived = " by derived rules" if run.derived else ""
    checked = f"compliance_checker{derived}: {run.compliance.text()}"
    return [f"{run.name}: {word}", *(f"  {line}" for line in (checked, *lines(run.story)))]


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
