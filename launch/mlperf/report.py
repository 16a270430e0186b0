"""`launch/report.py mlperf`: the verdict over a folder on the screen, and the submission's folder made of its logs:
ORG/systems/SYSTEM.json, ORG/results/SYSTEM/BENCHMARK/result_N.txt, ORG/benchmarks/BENCHMARK/implementations/SYSTEM/.
"""

import re
import shutil
import tempfile
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.logs.log_endings import printable
from benchmarks.mlperf.verdict import OF_A_SUBMISSION, Verdict, text
from benchmarks.values import json_text, to_builtins
from launch.mlperf import judging, package
from launch.mlperf.judging import Judged
from launch.mlperf.package import rulesets

NO_CODE = "The code that ran belongs here: --implementation=FOLDER.\n"


def report(
    place: Path,
    ruleset: str | None,
    made: Path | None,
    system: Path | None,
    implementation: Path | None,
    *,
    as_json: bool,
) -> int:
    """Judges a folder; with `made`, makes a package of it first and judges that."""
    ruleset = ruleset or rulesets()[-1]
    if made is None:
        if system is not None or implementation is not None:
            raise RequestError("--system and --implementation go with --package", where="--package")
    else:
        if system is None:
            raise RequestError(
                "a package needs the description of its system",
                where="--package",
                next_command=f"--package={made} --system=FILE.json",
            )
        with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
            judged = _one_set(place, Path(scratch))
            _refuse(made, judged, system, implementation, ruleset)
            _write(made, judged, system, implementation)
        place = made
    verdict = judging.judge(place, ruleset, Configs())
    print(json_text(_as_json(verdict)) if as_json else text(verdict))
    return EXIT_VALID if verdict.passes else EXIT_INVALID


# --- a submission's folder --------------------------------------------------------------------


def _one_set(place: Path, scratch: Path) -> list[Judged]:
    sets = judging.staged_runs(place, scratch)
    if len(sets) != 1:
        names = ", ".join(sorted({judged[0].log.benchmark or "unknown" for _, judged in sets}))
        raise RequestError(
            f"{len(sets)} sets of runs in it ({names}): a package is made of one benchmark on one system",
            where=str(place),
        )
    return sets[0][1]


def _refuse(org: Path, judged: list[Judged], system: Path, implementation: Path | None, ruleset: str) -> None:
    benchmark = judged[0].log.benchmark or "unknown"
    if not re.fullmatch(r"[A-Za-z0-9]\w*(?:[.-]\w+)*", benchmark, re.ASCII):
        raise RequestError(
            f"'{printable(benchmark)}' cannot be the name of a folder",
            where="submission_benchmark of the logs",
            why="a log may say anything, and a package is written where --package says",
        )
    if len(judged) != OF_A_SUBMISSION:
        raise RequestError(
            f"{len(judged)} runs, and a submission has {OF_A_SUBMISSION} of a benchmark",
            where="--package",
            why="the package checker refuses any other number",
        )
    if (org / "results" / system.stem).exists():
        raise RequestError(f"{org / 'results' / system.stem} is there already", where=f"--package={org}")
    if implementation is not None and not implementation.is_dir():
        raise RequestError("no such folder", where=f"--implementation={implementation}")
    checked = package.system_description(system.absolute(), ruleset)
    if not checked.passed:
        raise RequestError(
            "the description of the system does not pass system_desc_checker",
            where=f"--system={system}",
            why="; ".join(checked.complaints),
        )


def _write(org: Path, judged: list[Judged], system: Path, implementation: Path | None) -> None:
    """The logs as they are."""
    benchmark, name = judged[0].log.benchmark or "unknown", system.stem
    results, systems = org / "results" / name / benchmark, org / "systems"
    code = org / "benchmarks" / benchmark / "implementations" / name
    for folder in (results, systems, code):
        folder.mkdir(parents=True, exist_ok=True)
    for place, one in enumerate(judged):
        shutil.copyfile(one.staged, results / f"result_{place}.txt")
    shutil.copyfile(system, systems / f"{name}.json")
    if implementation is not None:
        shutil.copytree(implementation, code, dirs_exist_ok=True)
    else:
        (code / "README.md").write_text(NO_CODE, encoding="utf-8")


def _as_json(verdict: Verdict) -> dict[str, object]:
    """The verdict and what follows from it, which a struct of values alone does not say."""
    sets = [
        {
            **to_builtins(one),
            "olympic_minutes": one.olympic_minutes,
            "olympic_minutes_at_reference": one.olympic_minutes_at_reference,
        }
        for one in verdict.sets
    ]
    return {
        "verdict": "passes" if verdict.passes else "fails",
        "reasons": verdict.reasons,
        "derived_rules": verdict.derived,
        **to_builtins(verdict),
        "sets": sets,
    }
