"""`launch/report.py mlperf`: the verdict over a folder on the screen, and the submission's folder made of its logs:
ORG/systems/SYSTEM.json, ORG/results/SYSTEM/BENCHMARK/result_N.txt, ORG/benchmarks/BENCHMARK/implementations/SYSTEM/.
What is wrong with such a folder is what the package's own checkers say of it.
"""

import shutil
import tempfile
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.mlperf.verdict import judged, text
from benchmarks.text import some
from launch.mlperf import judging
from launch.mlperf.staging import staged_runs
from launch.terminal.output import answer


def report(
    place: Path,
    ruleset: str | None,
    made: Path | None,
    system: Path | None,
    implementation: Path | None,
) -> int:
    """Judges a folder; with `made`, makes a package of it first and judges that."""
    if ruleset is not None:
        judging.refuse_unknown(ruleset)
    if made is not None:
        place = _packaged(place, made, system, implementation)
    elif system is not None or implementation is not None:
        raise RequestError("--system and --implementation go with --package", where="--package")
    verdict = judging.judge(place, ruleset, Configs())
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
