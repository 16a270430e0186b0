"""`launch/report.py --mlperf`: the verdict over a folder on the screen, and the package that is made of it."""

import tempfile
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.mlperf.verdict import Verdict, text
from benchmarks.values import json_text, to_builtins
from launch.mlperf import judging
from launch.mlperf.package import rulesets
from launch.mlperf.packaging import write_package


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
        _make(place, made, system, implementation)
        place = made
    verdict = judging.judge(place, ruleset, Configs())
    print(json_text(_as_json(verdict)) if as_json else text(verdict))
    return EXIT_VALID if verdict.passes else EXIT_INVALID


def _make(place: Path, made: Path, system: Path | None, implementation: Path | None) -> None:
    if system is None:
        raise RequestError(
            "a package needs the description of its system",
            where="--package",
            next_command=f"--package={made} --system=FILE.json",
        )
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        sets = judging.staged_runs(place, Path(scratch))
        if len(sets) != 1:
            names = ", ".join(sorted({judged[0].log.benchmark or "unknown" for _, judged in sets}))
            raise RequestError(
                f"{len(sets)} sets of runs in it ({names}): a package is made of one benchmark on one system",
                where=f"--mlperf={place}",
            )
        judged = sets[0][1]
        write_package(made, judged, judged[0].log.benchmark or "unknown", system, implementation)


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
        "synthetic": verdict.synthetic,
        **to_builtins(verdict),
        "sets": sets,
    }
