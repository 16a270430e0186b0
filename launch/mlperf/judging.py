"""Run MLPerf's checkers on each set of logs, and return one verdict (`launch/report.py mlperf`)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, nearest
from benchmarks.mlperf import package
from benchmarks.mlperf.checkers import Checker, CheckerResult, read_text
from benchmarks.mlperf.package import Ruleset, find_ruleset
from benchmarks.mlperf.run_report import report_run
from benchmarks.mlperf.submission import read_submission
from benchmarks.mlperf.verdict import FEWEST, CheckedSet, RunVerdict, Verdict, judge, text
from launch.mlperf.staging import StagedSet, staged_runs
from launch.terminal.output import answer

LONGEST_SECONDS = 300  # the time limit of a checker
PROGRAM = Path(__file__).with_name("checker_process.py")
TRAINING = "training"  # the checkers' name for MLPerf Training


class Task(NamedTuple):
    """One run of one checker."""

    checker: Checker
    arguments: tuple[str, ...]


def report(place: Path, ruleset: str | None) -> int:
    """Judge a log or a folder of logs with `ruleset`, otherwise each set of logs with the ruleset of its round."""
    if ruleset is not None and ruleset not in (known := package.rulesets()):
        what = f"unknown ruleset '{ruleset}': {nearest(ruleset, known)}"
        raise RequestError(what, where="--ruleset", why="these are the rulesets of the installed package")
    verdict = judge_folder(place, ruleset, Configs())
    answer(verdict, lambda: text(verdict))
    return EXIT_VALID if verdict.verdict == "passes" else EXIT_INVALID


def judge_folder(place: Path, ruleset: str | None, configs: Configs) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        sets, not_counted = staged_runs(place, Path(scratch))
        return judge([_checked(one, ruleset, configs) for one in sets], not_counted)


def _checked(one: StagedSet, ruleset: str | None, configs: Configs) -> CheckedSet:
    benchmark = one.runs[0].log.benchmark
    by = _ruleset(one, ruleset, configs)
    having = package.rulesets(benchmark)
    if having and by.name not in having:
        raise RequestError(
            f"{benchmark} is not in ruleset {by.name}",
            where="--ruleset",
            why=f"it is in {', '.join(having)}",
            next_command=f"--ruleset={having[-1]}",
        )
    files = [str(run.staged) for run in one.runs]
    why_not = _no_convergence(one, by.name)
    tasks = [Task("compliance_checker", ("--usage", TRAINING, "--ruleset", by.name, file)) for file in files]
    if not why_not:
        folder = str(one.runs[0].staged.parent)
        tasks.append(Task("rcp_checker", (folder, "--rcp_usage", TRAINING, "--rcp_version", by.name)))
    if len(files) > 1 and not one.is_open:
        tasks.append(Task("seed_checker", (by.name, *files)))
    answers = ask(tasks, {str(run.staged): run.name for run in one.runs})
    further = {result.checker: result for result in answers[len(files) :]}
    return CheckedSet(
        name=one.name,
        benchmark=benchmark or "unknown",
        submission_runs=package.runs_of_a_submission(benchmark or ""),
        ruleset=by,
        runs=[
            RunVerdict(run.name, result, report_run(run.log, configs, by.name))
            for run, result in zip(one.runs, answers, strict=False)
        ],
        convergence=further.get("rcp_checker"),
        no_convergence_because=why_not,
        seeds=further.get("seed_checker"),
    )


def _ruleset(one: StagedSet, ruleset: str | None, configs: Configs) -> Ruleset:
    """Return the ruleset for a set of logs. For runs of Stepmark, use that of NVIDIA's program, not of the date."""
    if ruleset is not None:
        return Ruleset(ruleset, "--ruleset")
    benchmark = one.runs[0].log.benchmark
    if one.is_own and benchmark in configs.names("submissions"):
        return Ruleset(read_submission(configs, benchmark).ruleset, "the ruleset of the submission that ran")
    return find_ruleset([run.log for run in one.runs], configs.root)


def _no_convergence(one: StagedSet, ruleset: str) -> str:
    """Return why rcp_checker cannot judge the set; empty if it can."""
    count, benchmark = len(one.runs), one.runs[0].log.benchmark or "an unnamed benchmark"
    if one.is_open:
        return "the open division has no rule for convergence"
    if not package.has_reference_points(benchmark, ruleset):
        return f"ruleset {ruleset} has no reference points of {benchmark}"
    if count < FEWEST:
        return f"rcp_checker cannot compute a number from {count} run{'s' if count != 1 else ''} (nan)"
    return ""


def ask(tasks: list[Task], names: dict[str, str]) -> list[CheckerResult]:
    """Run the checkers and return their results, with the names of runs instead of paths.

    The checkers run in one process, because imports cost more than the checks, and in a temporary folder, because
    they write logs to the current folder. A task that prints nothing has no verdict.
    """
    package.folder()  # raises RequestError if the package is not installed
    questions = [{**task._asdict(), "longest_seconds": LONGEST_SECONDS} for task in tasks]
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        done = subprocess.run(
            [sys.executable, "-P", str(PROGRAM)],
            cwd=scratch,
            input=json.dumps(questions),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    texts = [json.loads(line) for line in done.stdout.splitlines()]
    texts += [""] * (len(tasks) - len(texts))
    for path, name in names.items():
        texts = [one.replace(path, name) for one in texts]
    return [read_text(task.checker, one) for task, one in zip(tasks, texts, strict=True)]
