"""Writes the layout that a submission has, and nothing that is not there: ORG/systems/SYSTEM.json,
ORG/results/SYSTEM/BENCHMARK/result_N.txt, ORG/benchmarks/BENCHMARK/implementations/SYSTEM/.
"""

import json
import re
import shutil
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.logs.log_endings import printable
from benchmarks.mlperf.verdict import OF_A_SUBMISSION
from benchmarks.version import VERSION
from launch.mlperf import package
from launch.mlperf.judging import Judged

FIELD = re.compile(r'^\s+"([a-z_-]+)",$', re.MULTILINE)
FOLDER_NAME = re.compile(r"[A-Za-z0-9]\w*(?:[.-]\w+)*", re.ASCII)


def write_package(org: Path, judged: list[Judged], benchmark: str, system: Path, implementation: Path | None) -> Path:
    """The package's folder, whole or refused; the logs as they are."""
    _refuse(org, judged, system, implementation)
    if not FOLDER_NAME.fullmatch(benchmark):
        raise RequestError(
            f"'{printable(benchmark)}' cannot be the name of a folder",
            where="submission_benchmark of the logs",
            why="a log may say anything, and a package is written where --package says",
        )
    name = system.stem
    results = org / "results" / name / benchmark
    results.mkdir(parents=True)
    for place, one in enumerate(judged):
        shutil.copyfile(one.staged, results / f"result_{place}.txt")
    (org / "systems").mkdir(exist_ok=True)
    shutil.copyfile(system, org / "systems" / f"{name}.json")
    code = org / "benchmarks" / benchmark / "implementations" / name
    if implementation is not None:
        shutil.copytree(implementation, code, dirs_exist_ok=True)
    else:
        code.mkdir(parents=True, exist_ok=True)
        (code / "README.md").write_text(_readme(benchmark, judged), encoding="utf-8")
    return org


def required_fields() -> list[str]:
    """What the installed system checker asks of a description."""
    text = (package.folder() / "system_desc_checker" / "system_desc_checker.py").read_text(encoding="utf-8")
    begin = text.index("required_fields")
    return FIELD.findall(text[begin : text.index("]", begin)])


def _refuse(org: Path, judged: list[Judged], system: Path, implementation: Path | None) -> None:
    synthetic = [one.name for one in judged if any(record.metadata.get("synthetic") for record in one.log.records)]
    if synthetic:
        raise RequestError(
            f"{synthetic[0]} holds synthetic values: no package is made of them",
            where="--package",
            why="a package is a claim that machines were measured",
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
    _refuse_description(system)


def _refuse_description(system: Path) -> None:
    try:
        said = json.loads(system.read_text(encoding="utf-8"))
        problem = "" if isinstance(said, dict) else "it holds no JSON object"
    except (OSError, ValueError) as error:
        said, problem = {}, getattr(error, "strerror", None) or str(error)
    missing = [field for field in required_fields() if field not in said]
    if problem or missing:
        raise RequestError(
            f"no system description: {problem or 'it lacks ' + ', '.join(missing)}",
            where=f"--system={system}",
            why=f"a description is a JSON object with {', '.join(required_fields())}",
        )


def _readme(benchmark: str, judged: list[Judged]) -> str:
    files = sorted({str(record.metadata.get("file", "")) for one in judged for record in one.log.records})
    written = "\n".join(f"- `{name}`" for name in files if name)
    return (
        f"# {benchmark}\n\nStepmark {VERSION} put these logs together; it did not train them unless they say so.\n"
        f"The code that ran belongs here (`--implementation=FOLDER`). The logs name as their writers:\n\n{written}\n"
    )
