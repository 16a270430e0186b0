"""`launch/report.py mlperf`: which logs there are, what the checkers say of each, and one verdict.

Nothing is written into what is judged: every run is copied first, as result_N.txt, so that a job's output with
several experiments in it is judged run by run.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.errors import RequestError, nearest
from benchmarks.measuring.statistics import median
from benchmarks.mlperf.checkers import CheckerResult
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.findings import find_across
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.records import TOKEN
from benchmarks.mlperf.reference_points import published_for, read_times
from benchmarks.mlperf.rounds import Rules, Ruleset, find_ruleset, read_rounds
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.mlperf.story import tell
from benchmarks.mlperf.systems import System, described, on_platform
from benchmarks.mlperf.verdict import FEWEST, RunVerdict, SetVerdict, Verdict
from benchmarks.runs.runfolder import BENCHMARK
from launch.mlperf import package
from launch.mlperf.derived_rules import derived_rules
from launch.mlperf.own_log import FOLDER as OWN_FOLDER
from launch.mlperf.package import Task
from launch.mlperf.reading import definition_of, expected_of, runs_in

LOG_NAMES = re.compile(r".*\.(?:txt|out|log|mllog)")
HEAD_BYTES = 1 << 22
LONGEST_LINE = 1 << 16  # of MLLOG
FOLDERS_OF_A_PACKAGE = ("results", "systems")


class Judged(NamedTuple):
    """A run, where it is from, and the file with its lines alone."""

    name: str
    log: LoggedRun
    source: Path
    staged: Path


class Prepared(NamedTuple):
    """The runs of one benchmark on one system, and what the checkers are asked of them."""

    name: str
    judged: list[Judged]
    system: System
    ruleset: Ruleset
    definition: MlperfBenchmark | None
    derived: bool
    compliance: list[Task]
    convergence: Task | None
    no_convergence_because: str
    seeds: Task | None

    @property
    def tasks(self) -> list[Task]:
        return [*self.compliance, *(task for task in (self.convergence, self.seeds) if task)]


def refuse_unknown(ruleset: str) -> None:
    known = package.rulesets()
    if ruleset not in known:
        what = f"unknown ruleset '{ruleset}': {nearest(ruleset, known)}"
        raise RequestError(what, where="--ruleset", why="those are of the installed package")


def judge(place: Path, ruleset: str | None, configs: Configs) -> Verdict:
    """A log, a folder of logs, or a package; by a ruleset, or each set by that of its own round."""
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        staged, rules = staged_runs(place, Path(scratch)), [package.rules(name) for name in package.rulesets()]
        sets = [_prepare(name, judged, ruleset, rules, configs, Path(scratch)) for name, judged in staged]
        newest = max((one.ruleset.name for one in sets), key=package.by_version)
        whole, descriptions = _package_tasks(place, newest, Path(scratch))
        tasks = [*(task for one in sets for task in one.tasks), *([whole] if whole else []), *descriptions.values()]
        said = package.ask(tasks)
        return Verdict(
            ruleset=newest,
            sets=[_judge_set(one, said, configs) for one in sets],
            package=said[whole] if whole else None,
            systems={name: said[task] for name, task in descriptions.items()},
        )


def _package_tasks(place: Path, ruleset: str, scratch: Path) -> tuple[Task | None, dict[str, Task]]:
    """Of a submission, the questions on the whole and on each description; none of a mere folder of logs."""
    if not all((place / name).is_dir() for name in FOLDERS_OF_A_PACKAGE):
        return None, {}
    # On a copy, called as the original: the checker leaves scaling.json beside the results.
    copy = scratch / "package" / (place.resolve().name or "package")
    shutil.copytree(place, copy)
    descriptions = sorted((copy / "systems").glob("*.json"))
    systems = {path.name: package.system_description(path, ruleset) for path in descriptions}
    return package.submission_package(copy, ruleset), systems


# --- which logs -------------------------------------------------------------------------------


def staged_runs(place: Path, scratch: Path) -> list[tuple[str, list[Judged]]]:
    """The runs below a place, by folder and benchmark, each copied to a file of its own."""
    return [
        (name, judged)
        for number, (name, files) in enumerate(_groups(place).items())
        for judged in _staged(files, scratch / f"set-{number}")
    ]


def _groups(place: Path) -> dict[str, list[Path]]:
    """Folder -> its logs; of a single log, itself."""
    if not place.exists():
        raise RequestError("no such folder or file", where=str(place))
    named = (path for path in place.rglob("*") if LOG_NAMES.fullmatch(path.name))
    files = sorted((path for path in ([place] if place.is_file() else named) if _is_log(path)), key=_by_number)
    if not files:
        why = "a log of MLPerf has lines with :::MLLOG; files named *.txt, *.out, *.log and *.mllog are looked at"
        raise RequestError("no MLLOG line in it", where=str(place), why=why)
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(_group_of(path, place), []).append(path)
    return groups


def _group_of(path: Path, place: Path) -> str:
    """The folder of a log. Runs of Stepmark's own each have a folder: those of one backend side by side are a set."""
    run = _own_run(path)
    folder = path.parent if run is None else run.parent
    name = folder.resolve().name if folder == place or not folder.is_relative_to(place) else folder.relative_to(place)
    if run is None:
        return str(name)
    try:
        backend = json.loads((run / BENCHMARK).read_text(encoding="utf-8"))["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        backend = "backend unknown"
    return f"{name}, {backend}"


def _own_run(path: Path) -> Path | None:
    run = path.parent.parent
    return run if path.parent.name == OWN_FOLDER and (run / BENCHMARK).is_file() else None


def _is_log(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return MLLOG.recognises(stream.read(HEAD_BYTES))


def _by_number(path: Path) -> tuple[str, int, str]:
    """result_10 comes after result_9."""
    numbers = re.findall(r"\d+", path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name


def _staged(files: Sequence[Path], folder: Path) -> list[list[Judged]]:
    """The runs of one folder, those of each benchmark in a folder of their own."""
    found: dict[str | None, list[Judged]] = {}
    for path in files:
        _refuse_long_lines(path)
        runs, name = runs_in(path), (_own_run(path) or path).name
        bounds = [0, *(run.records[0].line - 1 for run in runs[1:]), None]
        for place, (run, lines) in enumerate(zip(runs, pairwise(bounds), strict=False), start=1):
            own = found.setdefault(run.benchmark, [])
            staged = folder / (run.benchmark or "unknown") / f"result_{len(own)}.txt"
            staged.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as stream:
                staged.write_bytes(b"".join(islice(stream, *lines)))
            own.append(Judged(name if len(runs) == 1 else f"{name}, run {place}", run, path, staged))
    return list(found.values())


def _refuse_long_lines(path: Path) -> None:
    """A line of MLLOG is some hundred bytes long, 373 at most in the results of v4.0 to v5.1."""
    with path.open("rb") as stream:
        number, length, marked = 1, 0, False
        while piece := stream.readline(LONGEST_LINE):
            length, marked = length + len(piece), marked or TOKEN in piece
            if marked and length >= LONGEST_LINE:
                raise RequestError(
                    f"an MLLOG line of more than {LONGEST_LINE} bytes",
                    where=f"{path}:{number}",
                    why="the longest of a published log has 373: that one is damaged",
                    next_command=f"sed -n {number}p {path} | cut -c 1-300",
                )
            if piece.endswith(b"\n"):
                number, length, marked = number + 1, 0, False


# --- what the checkers are asked ---------------------------------------------------------------


def _prepare(
    name: str, judged: list[Judged], ruleset: str | None, rules: list[Rules], configs: Configs, scratch: Path
) -> Prepared:
    runs, benchmark = [one.log for one in judged], judged[0].log.benchmark
    definition = definition_of(runs[0], configs)
    by = Ruleset(ruleset, "--ruleset") if ruleset else find_ruleset(runs, rules, read_rounds(configs.root))
    own = _rules_for(definition, by.name, configs, scratch)
    if own is None:
        _refuse_without_rules(benchmark, by.name, rules)
    why_not = _no_convergence(judged, definition, by.name)
    closed = not any(one.is_open for one in runs)
    return Prepared(
        name=name,
        judged=judged,
        system=_system_of(judged[0], configs),
        ruleset=by,
        definition=definition,
        derived=own is not None,
        compliance=[package.compliance(one.staged, by.name, own) for one in judged],
        convergence=None if why_not else package.convergence(judged[0].staged.parent, by.name),
        no_convergence_because=why_not,
        seeds=package.seeds([one.staged for one in judged], by.name) if closed and len(judged) > 1 else None,
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


def _no_convergence(judged: list[Judged], definition: MlperfBenchmark | None, ruleset: str) -> str:
    """Why rcp_checker isn't asked; nothing where it is."""
    count, benchmark = len(judged), judged[0].log.benchmark or "a benchmark that is not named"
    if definition is not None and definition.stands_for is not None:
        return f"{definition.name} is a small copy of {definition.stands_for}: there are no reference points of it"
    if any(one.log.is_open for one in judged):
        return "the open division may converge as it likes"
    if not package.has_reference_points(benchmark, ruleset):
        return f"ruleset {ruleset} has no reference points of {benchmark}"
    if count < FEWEST:
        return f"of {count} run{'s' if count != 1 else ''} it computes no number (nan), and fails"
    return ""


def _system_of(one: Judged, configs: Configs) -> System:
    """ORG/systems/SYSTEM.json of a log in ORG/results/SYSTEM/BENCHMARK, or what the log prints."""
    folder, known = one.source.resolve().parent.parent, configs.names("hardware")
    if folder.parent.name == "results":
        path = folder.parent.parent / "systems" / f"{folder.name}.json"
        with suppress(OSError, ValueError):
            content = json.loads(path.read_text(encoding="utf-8"))
            found = described(content, f"systems/{path.name}", known) if isinstance(content, dict) else None
            if found is not None:
                return found
    platform = one.log.settings.get("submission_platform")
    return on_platform(platform if isinstance(platform, str) else None, known)


# --- the verdict on them -----------------------------------------------------------------------


def _judge_set(one: Prepared, said: Mapping[Task, CheckerResult], configs: Configs) -> SetVerdict:
    names = {str(run.staged): run.name for run in one.judged}
    runs = [
        RunVerdict(
            name=run.name,
            compliance=said[task],
            derived=one.derived,
            story=tell(run.log, one.definition, expected_of(run.log, one.definition, one.ruleset.name)),
        )
        for run, task in zip(one.judged, one.compliance, strict=True)
    ]
    benchmark, minutes = one.judged[0].log.benchmark or "unknown", [run.story.time_to_train_minutes for run in runs]
    system, typical = one.system, median([took for took in minutes if took])
    return SetVerdict(
        name=one.name,
        benchmark=benchmark,
        system=system,
        ruleset=one.ruleset,
        runs=runs,
        across=find_across([run.log for run in one.judged]),
        convergence=said[one.convergence] if one.convergence else None,
        no_convergence_because=one.no_convergence_because,
        seeds=said[one.seeds].renamed(names) if one.seeds else None,
        published=published_for(read_times(configs.root), benchmark, system.hardware, system.gpus, typical),
    )


def _rules_for(definition: MlperfBenchmark | None, ruleset: str, configs: Configs, scratch: Path) -> Path | None:
    """Derived rules of a small copy; None where the package's own are meant."""
    if definition is None or definition.stands_for is None:
        return None
    if ruleset not in definition.rulesets:
        raise RequestError(
            f"{definition.name} is not in ruleset {ruleset}",
            where="--ruleset",
            why=f"it is in {', '.join(definition.rulesets)}",
            next_command=f"--ruleset={definition.rulesets[-1]}",
        )
    real = configs.mlperf(definition.stands_for)
    return derived_rules(definition, real, ruleset, scratch / f"rules-{definition.name}-{ruleset}")
