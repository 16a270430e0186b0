"""`launch/report.py mlperf`: which logs there are, what the checkers say of each, and one verdict.

Nothing is written into what is judged: every run is copied first, as result_N.txt, so that a job's output with
several experiments in it is judged run by run.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.errors import RequestError, nearest
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

LOG_NAMES = re.compile(r".*\.(?:txt|out|log|mllog)")
HEAD_BYTES = 1 << 22
FOLDERS_OF_A_PACKAGE = ("results", "systems")


class Judged(NamedTuple):
    """A run, where it is from, and the file with its lines alone."""

    name: str
    log: LoggedRun
    staged: Path


def refuse_unknown(ruleset: str) -> None:
    known = package.rulesets()
    if ruleset not in known:
        what = f"unknown ruleset '{ruleset}': {nearest(ruleset, known)}"
        raise RequestError(what, where="--ruleset", why="those are of the installed package")


def judge(place: Path, ruleset: str, configs: Configs) -> Verdict:
    """A log, a folder of logs, or a package."""
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        staged = staged_runs(place, Path(scratch))
        sets = [_judge_set(name, judged, ruleset, configs, Path(scratch)) for name, judged in staged]
        if not all((place / name).is_dir() for name in FOLDERS_OF_A_PACKAGE):
            return Verdict(ruleset=ruleset, sets=sets)
        # On a copy, called as the original: the checker leaves scaling.json beside the results.
        copy = Path(scratch) / "package" / (place.resolve().name or "package")
        shutil.copytree(place, copy)
        descriptions = sorted((copy / "systems").glob("*.json"))
        systems = {path.name: package.system_description(path, ruleset) for path in descriptions}
        return Verdict(ruleset=ruleset, sets=sets, package=package.submission_package(copy, ruleset), systems=systems)


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
        runs, name = runs_in(path), (_own_run(path) or path).name
        bounds = [0, *(run.records[0].line - 1 for run in runs[1:]), None]
        for place, (run, lines) in enumerate(zip(runs, pairwise(bounds), strict=False), start=1):
            own = found.setdefault(run.benchmark, [])
            staged = folder / (run.benchmark or "unknown") / f"result_{len(own)}.txt"
            staged.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as stream:
                staged.write_bytes(b"".join(islice(stream, *lines)))
            own.append(Judged(name if len(runs) == 1 else f"{name}, run {place}", run, staged))
    return list(found.values())


# --- the verdict on them -----------------------------------------------------------------------


def _judge_set(name: str, judged: list[Judged], ruleset: str, configs: Configs, scratch: Path) -> SetVerdict:
    runs = [_judge_run(one, ruleset, configs, scratch) for one in judged]
    benchmark = judged[0].log.benchmark or "unknown"
    definition = definition_of(judged[0].log, configs)
    why_not = ""
    if definition is not None and definition.stands_for is not None:
        why_not = f"{definition.name} is a small copy of {definition.stands_for}: there are no reference points of it"
    elif len(runs) < FEWEST:
        why_not = f"of {len(runs)} run{'s' if len(runs) != 1 else ''} it computes no number (nan), and fails"
    platform, hardware = runs[0].story.platform, configs.names("hardware")
    return SetVerdict(
        name=name,
        benchmark=benchmark,
        runs=runs,
        across=find_across([(one.name, one.log) for one in judged]) if len(judged) > 1 else [],
        convergence=None if why_not else package.convergence(judged[0].staged.parent, ruleset),
        no_convergence_because=why_not,
        published=published_for(read_times(configs.root), benchmark, platform, hardware),
    )


def _judge_run(judged: Judged, ruleset: str, configs: Configs, scratch: Path) -> RunVerdict:
    definition = definition_of(judged.log, configs)
    rules = _rules_for(definition, ruleset, configs, scratch)
    return RunVerdict(
        name=judged.name,
        compliance=package.compliance(judged.staged, ruleset, rules),
        derived=rules is not None,
        story=tell(judged.log, definition, expected_of(judged.log, definition, ruleset)),
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
    real = configs.mlperf(definition.stands_for)
    return derived_rules(definition, real, ruleset, scratch / f"rules-{definition.name}")
