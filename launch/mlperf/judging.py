"""`launch/report.py mlperf`: what the checkers are asked of each set of logs, one verdict, and a submission's folder:
ORG/systems/SYSTEM.json, ORG/results/SYSTEM/BENCHMARK/result_N.txt and
ORG/benchmarks/BENCHMARK/implementations/SYSTEM/.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, nearest
from benchmarks.mlperf import package
from benchmarks.mlperf.checkers import Checker, CheckerResult, read_text
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.findings import find_across
from benchmarks.mlperf.package import Rules, Ruleset, find_ruleset, of_one_round, read_rounds
from benchmarks.mlperf.run_report import definition_of, expected_of, report_run
from benchmarks.mlperf.verdict import FEWEST, RunVerdict, SetVerdict, Verdict, judged, text
from benchmarks.text import some
from launch.mlperf.staging import Judged, staged_runs
from launch.terminal.output import answer

LONGEST_SECONDS = 600  # of a checker
PROGRAM = Path(__file__).with_name("checker_process.py")
NEEDS_SCIPY = ("rcp_checker", "package_checker")
FOLDERS_OF_A_PACKAGE = ("results", "systems")
TRAINING = "training"  # of MLPerf's benchmarks, as its checkers ask


class Task(NamedTuple):
    """One question to one checker."""

    checker: Checker
    arguments: tuple[str, ...]


class Prepared(NamedTuple):
    """The runs of one benchmark on one system, and what the checkers are asked of them."""

    name: str
    judged: list[Judged]
    ruleset: Ruleset
    definition: MlperfBenchmark | None
    compliance: list[Task]
    convergence: Task | None
    no_convergence_because: str
    seeds: Task | None

    @property
    def tasks(self) -> list[Task]:
        return [*self.compliance, *(task for task in (self.convergence, self.seeds) if task)]


def report(
    place: Path,
    ruleset: str | None,
    made: Path | None,
    system: Path | None,
    implementation: Path | None,
) -> int:
    """Judges a folder; with `made`, makes a package of it first and judges that."""
    if ruleset is not None and ruleset not in (known := package.rulesets()):
        what = f"unknown ruleset '{ruleset}': {nearest(ruleset, known)}"
        raise RequestError(what, where="--ruleset", why="those are of the installed package")
    if made is not None:
        place = _packaged(place, made, system, implementation)
    elif system is not None or implementation is not None:
        raise RequestError("--system and --implementation go with --package", where="--package")
    verdict = judge(place, ruleset, Configs())
    answer(judged(verdict), lambda: text(verdict))
    return EXIT_VALID if verdict.passes else EXIT_INVALID


def _packaged(place: Path, org: Path, system: Path | None, implementation: Path | None) -> Path:
    """The logs as they are, in the layout of a submission."""
    if system is None or not system.is_file():
        what, command = "a package needs the description of its system", f"--package={org} --system=FILE.json"
        raise RequestError(what, where=f"--system={system or ''}", next_command=command)
    if implementation is not None and not implementation.is_dir():
        raise RequestError("no such folder", where=f"--implementation={implementation}")
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        sets, lost = staged_runs(place, Path(scratch))
        if lost:
            what = f"{some(lost)}: no line of MLLOG in it that can be read, so a package would lack its run"
            raise RequestError(
                what, where=str(place), next_command="move it elsewhere if it is no result of this set"
            )
        if len(sets) != 1:
            names = ", ".join(sorted({judged[0].log.benchmark or "unknown" for _, judged in sets}))
            what = f"{len(sets)} sets of runs in it ({names}): a package is made of one benchmark on one system"
            raise RequestError(what, where=str(place))
        runs = sets[0][1]
        name, benchmark = system.stem, runs[0].log.benchmark
        if benchmark is None:
            what = "the logs name no benchmark, and its name is that of a folder"
            raise RequestError(what, where="submission_benchmark of the logs", next_command="logs that name one")
        results = org / "results" / name
        if results.exists():
            what, instead = f"{results} is there already", "another --package, or remove that folder"
            raise RequestError(what, where=f"--package={org}", next_command=instead)
        (org / "systems").mkdir(parents=True, exist_ok=True)
        (results / benchmark).mkdir(parents=True)
        for number, one in enumerate(runs):
            shutil.copyfile(one.staged, results / benchmark / f"result_{number}.txt")
    shutil.copyfile(system, org / "systems" / f"{name}.json")
    code = org / "benchmarks" / benchmark / "implementations" / name
    code.mkdir(parents=True, exist_ok=True)
    if implementation is not None:
        shutil.copytree(implementation, code, dirs_exist_ok=True)
    else:
        (code / "README.md").write_text(
            "The code that ran belongs here: --implementation=FOLDER.\n", encoding="utf-8"
        )
    return org


def judge(place: Path, ruleset: str | None, configs: Configs) -> Verdict:
    """A log, a folder of logs, or a package; by a ruleset, or each set by that of its own round."""
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        staged, not_counted = staged_runs(place, Path(scratch))
        rules = [package.rules(name) for name in package.rulesets()]
        submission = all((place / name).is_dir() for name in FOLDERS_OF_A_PACKAGE)
        logs = [[run.log for run in judged] for _, judged in staged]
        rounds = read_rounds(configs.root)
        found = [Ruleset(ruleset, "--ruleset") if ruleset else find_ruleset(runs, rules, rounds) for runs in logs]
        newest = max((one.name for one in found), key=package.by_version)
        if submission:
            found = [
                of_one_round(one, newest, runs[0].benchmark, rules) for one, runs in zip(found, logs, strict=True)
            ]
        sets = [_prepare(name, judged, by, rules, configs) for (name, judged), by in zip(staged, found, strict=True)]
        whole, descriptions = _package_tasks(place, newest, Path(scratch)) if submission else (None, {})
        tasks = [*(task for one in sets for task in one.tasks), *([whole] if whole else []), *descriptions.values()]
        answers = ask(tasks)
        return Verdict(
            ruleset=newest,
            sets=[_judge_set(one, answers) for one in sets],
            package=answers[whole].renamed({f"{Path(whole.arguments[0])}/": ""}) if whole else None,
            systems={name: answers[task] for name, task in descriptions.items()},
            not_counted=not_counted,
        )


def _package_tasks(place: Path, ruleset: str, scratch: Path) -> tuple[Task, dict[str, Task]]:
    """The questions on a submission: on the whole, and on each description."""
    # On a copy, called as the original: the checker leaves scaling.json beside the results.
    copy = scratch / "package" / (place.resolve().name or "package")
    shutil.copytree(place, copy)
    descriptions = sorted((copy / "systems").glob("*.json"))
    systems = {path.name: Task("system_desc_checker", (str(path), TRAINING, ruleset)) for path in descriptions}
    return Task("package_checker", (str(copy), TRAINING, ruleset)), systems


# --- what the checkers are asked ---------------------------------------------------------------


def _prepare(name: str, judged: list[Judged], by: Ruleset, rules: list[Rules], configs: Configs) -> Prepared:
    runs, benchmark = [one.log for one in judged], judged[0].log.benchmark
    definition = definition_of(runs[0], configs)
    _refuse_without_rules(benchmark, by.name, rules)
    why_not = _no_convergence(judged, by.name)
    files = [str(one.staged) for one in judged]
    rcp = (str(judged[0].staged.parent), "--rcp_usage", TRAINING, "--rcp_version", by.name)
    asks_seeds = len(judged) > 1 and not any(one.is_open for one in runs)
    return Prepared(
        name=name,
        judged=judged,
        ruleset=by,
        definition=definition,
        compliance=[Task("compliance_checker", ("--usage", TRAINING, "--ruleset", by.name, file)) for file in files],
        convergence=None if why_not else Task("rcp_checker", rcp),
        no_convergence_because=why_not,
        seeds=Task("seed_checker", (by.name, *files)) if asks_seeds else None,
    )


def _refuse_without_rules(benchmark: str | None, ruleset: str, rules: list[Rules]) -> None:
    """A ruleset that lacks a benchmark of others."""
    having = [one.name for one in rules if benchmark in one.benchmarks]
    if having and ruleset not in having:
        raise RequestError(
            f"{benchmark} is not in ruleset {ruleset}",
            where="--ruleset",
            why=f"it is in {', '.join(having)}",
            next_command=f"--ruleset={having[-1]}",
        )


def _no_convergence(judged: list[Judged], ruleset: str) -> str:
    """Why rcp_checker isn't asked; nothing where it is."""
    count, benchmark = len(judged), judged[0].log.benchmark or "a benchmark that is not named"
    if any(one.log.is_open for one in judged):
        return "the open division may converge as it likes"
    if not package.has_reference_points(benchmark, ruleset):
        return f"ruleset {ruleset} has no reference points of {benchmark}"
    if count < FEWEST:
        return f"of {count} run{'s' if count != 1 else ''} it computes no number (nan), and fails"
    return ""


# --- the checkers -------------------------------------------------------------------------------
# They run in processes of their own and in a folder of their own: they write logs where they are started, and one of
# them into what it judges.


def ask(tasks: Sequence[Task]) -> dict[Task, CheckerResult]:
    """What the checkers say. Those that need scipy run beside the others: its import takes longer than the checks."""
    package.folder()  # says what to install where there is none
    heavy = [task for task in tasks if task.checker in NEEDS_SCIPY]
    light = [task for task in tasks if task.checker not in NEEDS_SCIPY]
    with ThreadPoolExecutor(2) as lanes:
        return {task: result for answers in lanes.map(_ask, (heavy, light)) for task, result in answers.items()}


def _ask(tasks: Sequence[Task]) -> dict[Task, CheckerResult]:
    """In one process; a task that it does not live to answer is one without a verdict."""
    if not tasks:
        return {}
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
    return {task: read_text(task.checker, text) for task, text in zip(tasks, texts, strict=True)}


# --- the verdict on them -----------------------------------------------------------------------


def _judge_set(one: Prepared, answers: Mapping[Task, CheckerResult]) -> SetVerdict:
    names = {str(run.staged): run.name for run in one.judged}
    runs = [
        RunVerdict(
            name=run.name,
            compliance=answers[task],
            story=report_run(run.log, one.definition, expected_of(run.log, one.definition, one.ruleset.name)),
        )
        for run, task in zip(one.judged, one.compliance, strict=True)
    ]
    benchmark = one.judged[0].log.benchmark or "unknown"
    return SetVerdict(
        name=one.name,
        benchmark=benchmark,
        submission_runs=package.runs_of_a_submission(benchmark),
        ruleset=one.ruleset,
        runs=runs,
        across=find_across([run.log for run in one.judged]),
        convergence=answers[one.convergence] if one.convergence else None,
        no_convergence_because=one.no_convergence_because,
        seeds=answers[one.seeds].renamed(names) if one.seeds else None,
    )
