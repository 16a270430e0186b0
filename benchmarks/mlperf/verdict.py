"""One verdict over MLPerf logs: each run, the runs of one system together, and a package. Pure."""

from benchmarks.mlperf.checkers import CheckerResult
from benchmarks.mlperf.findings import Finding
from benchmarks.mlperf.reference_points import PublishedTime
from benchmarks.mlperf.story import Story, apart_lines, convergence_lines
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

    @property
    def did_not_converge(self) -> bool:
        """Nothing is wrong with it but that it did not meet its target."""
        return not self.passes and bool(self.errors) and all(finding.of_convergence for finding in self.errors)


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
    def worst(self) -> RunVerdict | None:
        """The one run that may have failed to converge: the olympic mean leaves the worst out."""
        failed = [run for run in self.runs if not run.passes]
        return failed[0] if len(failed) == 1 and len(self.runs) >= FEWEST and failed[0].did_not_converge else None

    @property
    def olympic_minutes(self) -> float | None:
        """Without the best and the worst; a run that did not converge is the worst."""
        minutes = [run.story.time_to_train_minutes for run in self.runs if run is not self.worst]
        known = [one for one in minutes if one is not None]
        if len(known) < len(minutes) or any(not run.passes and run is not self.worst for run in self.runs):
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
        bad = [run.name for run in self.runs if not run.passes and run is not self.worst]
        found = [f"{self.name}: {len(bad)} of {len(self.runs)} runs fail: {', '.join(bad)}"] if bad else []
        found += [f"{self.name}: {finding.what}" for finding in self.across if finding.level == "error"]
        if self.convergence is not None and not self.convergence.passed:
            found.append(f"{self.name}: rcp_checker: {'; '.join(self.convergence.complaints)}")
        return found


class Verdict(Value, frozen=True):
    """Everything that was judged."""

    ruleset: str
    sets: list[SetVerdict]
    package: CheckerResult | None = None
    systems: dict[str, CheckerResult] = {}

    @property
    def reasons(self) -> list[str]:
        found = [reason for one in self.sets for reason in one.reasons]
        if self.package is not None and not self.package.passed:
            found.append(f"package_checker: {'; '.join(self.package.complaints)}")
        found += [f"{name}: {'; '.join(one.complaints)}" for name, one in self.systems.items() if not one.passed]
        return found

    @property
    def passes(self) -> bool:
        return not self.reasons

    @property
    def derived(self) -> bool:
        return any(run.derived for one in self.sets for run in one.runs)


# --- text -------------------------------------------------------------------------------------


def text(verdict: Verdict) -> str:
    """The verdict for people: each set, each run, and last the one word."""
    lines = [line for one in verdict.sets for line in [*_set_lines(one), ""]]
    for name, result in verdict.systems.items():
        lines.append(f"system {name}: {_checker_text(result)}")
    if verdict.package is not None:
        lines.append(f"package: {_checker_text(verdict.package)}")
    return "\n".join([*lines, *_closing(verdict)])


def _closing(verdict: Verdict) -> list[str]:
    by = f"ruleset {verdict.ruleset}" + (", derived rules for small copies" if verdict.derived else "")
    if not verdict.passes:
        return [f"verdict: fails ({by})", *(f"  {reason}" for reason in verdict.reasons)]
    return [f"verdict: passes ({by})"]


def _set_lines(one: SetVerdict) -> list[str]:
    count = len(one.runs)
    runs = f"{count} run{'s' if count != 1 else ''} (a submission has {OF_A_SUBMISSION})"
    lines = [f"{one.name}: {one.benchmark}, {runs}"]
    for run in one.runs:
        lines += [f"  {line}" for line in _run_lines(run, run is one.worst)]
    lines += [f"  {finding.text()}" for finding in one.across]
    if one.convergence is not None:
        lines.append(f"  rcp_checker: {_checker_text(one.convergence)}")
    elif one.no_convergence_because:
        lines.append(f"  rcp_checker: not asked, {one.no_convergence_because}")
    lines.append(f"  {_olympic(one)}")
    if one.published:
        lines += ["  published:", *(f"    {row.text()}" for row in one.published)]
    return lines


def _run_lines(run: RunVerdict, worst: bool) -> list[str]:
    story = run.story
    word = "passes" if run.passes else ("did not converge, left out as the worst" if worst else "fails")
    minutes = "" if story.time_to_train_minutes is None else f", {story.time_to_train_minutes:.3f} min"
    status = story.status if story.status != "unknown" else (story.status_text or "no run_stop")
    samples = "" if story.samples is None else f", {story.samples} samples"
    lines = [f"{run.name}: {word}: {status}{minutes}{samples}"]
    derived = " by derived rules" if run.derived else ""
    lines.append(f"  compliance_checker{derived}: {_checker_text(run.compliance)}")
    lines += [f"  {finding.text()}" for finding in story.findings]
    if story.apart is not None and story.apart.divided:
        lines += apart_lines(story.apart)
    if story.convergence is not None:
        lines += [f"  {line}" for line in convergence_lines(story.convergence)]
    return lines


def _checker_text(result: CheckerResult) -> str:
    word = "SUCCESS" if result.passed else "FAILED"
    complaints = f": {'; '.join(result.complaints)}" if result.complaints else ""
    factor = f"; the score is to be multiplied by {result.factor:.4f}" if result.factor else ""
    return word + complaints + factor


def _olympic(one: SetVerdict) -> str:
    minutes = one.olympic_minutes
    if minutes is not None:
        count = len(one.runs)
        factor = one.convergence.factor if one.convergence else None
        scaled = f", {minutes * factor:.3f} min with rcp_checker's factor of {factor:.4f}" if factor else ""
        reference = one.olympic_minutes_at_reference
        speed = "" if reference is None else f"; {reference:.3f} min at the reference mean of samples"
        how = f"n = {count}, mean without the best and the worst"
        return f"olympic time to train: {minutes:.3f} min ({how}){scaled}{speed}"
    if len(one.runs) < FEWEST:
        return f"no olympic time to train: n = {len(one.runs)}, and {FEWEST} runs are the fewest for one"
    return "no olympic time to train: more runs failed than the one that may be left out"
