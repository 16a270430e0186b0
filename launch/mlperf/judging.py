"""`launch/report.py mlperf`: which logs there are, what the checkers say of each, and one verdict.

Nothing is written into what is judged: every run is copied first, as result_N.txt, so that a job's output with
several experiments in it is judged run by run.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.errors import RequestError, nearest
from benchmarks.mlperf.checkers import CheckerResult
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.findings import find_across
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.reference_points import published_for, read_times
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.mlperf.story import tell
from benchmarks.mlperf.verdict import FEWEST, RunVerdict, SetVerdict, Verdict
from benchmarks.runs.runfolder import BENCHMARK
from launch.mlperf import package
from launch.mlperf.derived_rules import derived_rules
from launch.mlperf.own_log import FOLDER as OWN_FOLDER
from launch.mlperf.reading import definition_of, expected_of, runs_in
from launch.reports.own_runs import is_run

LOG_NAMES = re.compile(r".*\.(?:txt|out|log|mllog)")
HEAD_BYTES = 1 << 22
FOLDER_OF_A_PACKAGE = ("results", "systems")


class Judged(NamedTuple):
    """A run, where it is from, and the file with its lines alone."""

    name: str
    log: LoggedRun
    staged: Path


def judge(place: Path, ruleset: str, configs: Configs) -> Verdict:
    """A log, a folder of logs, or a package."""
    known = package.rulesets()
    if ruleset not in known:
        raise RequestError(
            f"unknown ruleset '{ruleset}': {nearest(ruleset, known)}",
            where="--ruleset",
            why="those are of the installed package",
        )
    whole = all((place / name).is_dir() for name in FOLDER_OF_A_PACKAGE)
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        sets = [
            _judge_set(name, judged, ruleset, configs, Path(scratch))
            for name, judged in staged_runs(place, Path(scratch))
        ]
        checked, systems = _judge_package(place, ruleset, Path(scratch)) if whole else (None, {})
    return Verdict(ruleset=ruleset, sets=sets, package=checked, systems=systems)


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
    if place.is_file():
        files = [place]
    elif place.is_dir():
        files = sorted((path for path in place.rglob("*") if _is_log(path)), key=_by_number)
    else:
        raise RequestError("no such folder or file", where=str(place))
    if not files or (place.is_file() and not _is_log(place, any_name=True)):
        raise RequestError(
            "no MLLOG line in it",
            where=str(place),
            why="a log of MLPerf has lines with :::MLLOG; files named *.txt, *.out, *.log and *.mllog are looked at",
        )
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(_group_of(path, place), []).append(path)
    return groups


def _group_of(path: Path, place: Path) -> str:
    """The folder of a log. Runs of Stepmark's own each have a folder: those of one backend side by side are a set."""
    run = _own_run(path)
    folder = path.parent if run is None else run.parent
    name = folder.resolve().name if folder == place or not folder.is_relative_to(place) else folder.relative_to(place)
    return str(name) if run is None else f"{name}, {_backend_of(run)}"


def _own_run(path: Path) -> Path | None:
    run = path.parent.parent
    return run if path.parent.name == OWN_FOLDER and is_run(run) else None


def _backend_of(run: Path) -> str:
    try:
        return str(json.loads((run / BENCHMARK).read_text(encoding="utf-8"))["backend"])
    except (OSError, ValueError, KeyError, TypeError):
        return "backend unknown"


def _is_log(path: Path, *, any_name: bool = False) -> bool:
    if not path.is_file() or not (any_name or LOG_NAMES.fullmatch(path.name)):
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
        runs = runs_in(path)
        for place, run in enumerate(runs):
            own = found.setdefault(run.benchmark, [])
            staged = folder / (run.benchmark or "unknown") / f"result_{len(own)}.txt"
            staged.parent.mkdir(parents=True, exist_ok=True)
            if len(runs) == 1:
                shutil.copyfile(path, staged)
            else:
                staged.write_bytes(b"".join(_lines_of(path, runs, place)))
            name = _name_of(path)
            own.append(Judged(name if len(runs) == 1 else f"{name}, run {place + 1}", run, staged))
    return list(found.values())


def _name_of(path: Path) -> str:
    run = _own_run(path)
    return path.name if run is None else run.name


def _lines_of(path: Path, runs: Sequence[LoggedRun], place: int) -> Iterator[bytes]:
    first = 1 if place == 0 else runs[place].records[0].line
    last = runs[place + 1].records[0].line if place + 1 < len(runs) else None
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if number >= first and (last is None or number < last):
                yield line


# --- the verdict on them -----------------------------------------------------------------------


def _judge_set(name: str, judged: list[Judged], ruleset: str, configs: Configs, scratch: Path) -> SetVerdict:
    runs = [_judge_run(one, ruleset, configs, scratch) for one in judged]
    logs = [(one.name, one.log) for one in judged]
    benchmark = judged[0].log.benchmark or "unknown"
    definition = definition_of(judged[0].log, configs)
    why_not = _why_no_convergence(definition, runs)
    platform = runs[0].story.platform
    return SetVerdict(
        name=name,
        benchmark=benchmark,
        runs=runs,
        across=find_across(logs) if len(logs) > 1 else [],
        convergence=None if why_not else package.convergence(judged[0].staged.parent, ruleset),
        no_convergence_because=why_not,
        published=published_for(read_times(configs.root), benchmark, platform, configs.names("hardware")),
    )


def _why_no_convergence(definition: MlperfBenchmark | None, runs: Sequence[RunVerdict]) -> str:
    if definition is not None and definition.stands_for is not None:
        return f"{definition.name} is a small copy of {definition.stands_for}: there are no reference points of it"
    if len(runs) < FEWEST:
        return f"of {len(runs)} run{'s' if len(runs) != 1 else ''} it computes no number (nan), and fails"
    return ""


def _judge_run(judged: Judged, ruleset: str, configs: Configs, scratch: Path) -> RunVerdict:
    definition = definition_of(judged.log, configs)
    rules = _rules_for(definition, ruleset, configs, scratch)
    expected = expected_of(judged.log, definition, ruleset)
    return RunVerdict(
        name=judged.name,
        compliance=package.compliance(judged.staged, ruleset, rules),
        derived=rules is not None,
        story=tell(judged.log, definition, expected),
    )


def _rules_for(definition: MlperfBenchmark | None, ruleset: str, configs: Configs, scratch: Path) -> Path | None:
    """Derived rules of a small copy; None where the package's own are meant. A ruleset without it is refused."""
    if definition is None:
        return None
    if ruleset not in definition.rulesets:
        raise RequestError(
            f"{definition.name} is not in ruleset {ruleset}",
            where="--ruleset",
            why=f"it is in {', '.join(definition.rulesets)}",
            next_command=f"--ruleset={definition.rulesets[-1]}",
        )
    if definition.stands_for is None:
        return None
    return derived_rules(
        definition, configs.mlperf(definition.stands_for), ruleset, scratch / f"rules-{definition.name}"
    )


def _judge_package(place: Path, ruleset: str, scratch: Path) -> tuple[CheckerResult, dict[str, CheckerResult]]:
    """On a copy, called as the original: the checker leaves scaling.json beside the results."""
    copy = scratch / "package" / (place.resolve().name or "package")
    shutil.copytree(place, copy)
    systems = {
        path.name: package.system_description(path, ruleset) for path in sorted((copy / "systems").glob("*.json"))
    }
    return package.submission_package(copy, ruleset), systems
