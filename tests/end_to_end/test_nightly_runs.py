"""The suite `smoke` as a user runs it: three nights of real MaxText and NeMo, as always, slowed, and as always.

The nights before the first are copies of it, on earlier days and a little faster or slower.

Assertions are ratios. Where the machine is so noisy that the gate itself says it would not see the slowdown, a larger
one is injected; and a night that is slow as a whole, which no gate can tell from a regression, may be tried again.
"""

import json
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import REPOSITORY, Starter

EARLIER = (0.95, 1.04, 0.97, 1.0, 1.06, 0.94, 1.02, 0.98, 1.05)  # what each earlier night took of the first
NIGHT_FORMAT = "%Y%m%dT%H%M%SZ"
LIMIT_SECONDS = 600
CELLS = ("jax-llama2_tiny", "nemo-llama3_tiny")
SLOWDOWN = 0.5
LARGEST = 5.0

pytestmark = pytest.mark.slow


class Nights:
    def __init__(self, starter: Starter, output_dir: Path) -> None:
        self._starter = starter
        self.output_dir = output_dir

    def night(self, *words: str) -> "subprocess.CompletedProcess[str]":
        script = str(REPOSITORY / "launch/nightly.py")
        process = self._starter([sys.executable, script, "--suite=smoke", f"--output_dir={self.output_dir}", *words])
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.output_dir.glob("nights/smoke/2*.json"))]

    def copy_to_earlier_days(self) -> None:
        (first,) = self.reports()
        night = first["night"]
        for days, factor in enumerate(EARLIER, start=1):
            earlier = (datetime.strptime(night, NIGHT_FORMAT) - timedelta(days=days)).strftime(NIGHT_FORMAT)
            names = {night: earlier}
            for cell in first["cells"]:
                run_id = cell["run_id"]
                names[run_id] = earlier + run_id[len(earlier) :]
                shutil.copytree(self.output_dir / run_id, self.output_dir / names[run_id])
                for name in ("provenance.json", "result.json"):
                    rename(self.output_dir / names[run_id] / name, names)
                result = self.output_dir / names[run_id] / "result.json"
                result.write_text(json.dumps(slower(json.loads(result.read_text()), factor)))
            record = self.output_dir / "nights/smoke" / f"{earlier}.json"
            shutil.copy(record.with_name(f"{night}.json"), record)
            rename(record, names)

    def judged(self, cell: str) -> dict[str, Any]:
        (found,) = (one for one in self.reports()[-1]["cells"] if one["cell"] == cell)
        assert found["status"] == "valid", found["reasons"]
        judgement: dict[str, Any] = found["judgements"][0]
        return judgement


@pytest.fixture(scope="module")
def nights(
    jax_python: Path,  # noqa: ARG001 - the environment is there
    nemo_python: Path,  # noqa: ARG001
    starter: Starter,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    made = Nights(starter, tmp_path_factory.mktemp("nights"))
    done = made.night()
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def rename(path: Path, names: dict[str, str]) -> None:
    """Longer names first: those of runs begin as that of their night may."""
    text = path.read_text()
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(old, names[old])
    path.write_text(text)


def slower(result: dict[str, Any], factor: float) -> dict[str, Any]:
    times = result["seconds_per_step"]
    scaled = {name: times[name] * factor for name in ("median", "mean", "stdev")}
    return {**result, "seconds_per_step": {**times, **scaled, "ci95": [end * factor for end in times["ci95"]]}}


def test_a_first_night_is_inconclusive_and_no_failure(nights: Nights) -> None:
    report = nights.reports()[0]
    assert report["verdict"] == "inconclusive"
    assert [cell["judgements"][0]["nights_needed"] for cell in report["cells"]] == [10] * len(CELLS)


@pytest.mark.slow(seconds=350)
def test_a_slowed_night_is_a_regression_and_the_next_one_is_none(nights: Nights) -> None:
    nights.copy_to_earlier_days()
    slowdown, done = SLOWDOWN, nights.night(f"--inject_slowdown={SLOWDOWN}")
    seen_from = max(nights.judged(cell)["smallest_detectable_percent"] for cell in CELLS) / 100
    if done.returncode != 3 and seen_from > SLOWDOWN / 2:
        slowdown = min(2 * seen_from, LARGEST)
        done = nights.night(f"--inject_slowdown={slowdown:.2f}")
    assert done.returncode == 3, done.stdout + done.stderr
    seen = [cell for cell in CELLS if nights.judged(cell)["verdict"] == "regression"]
    assert seen, done.stdout
    for cell in set(CELLS) - set(seen):  # too noisy here, and the gate says so itself
        assert nights.judged(cell)["smallest_detectable_percent"] / 100 > slowdown / 2, done.stdout
    for cell in seen:
        found = nights.judged(cell)
        assert found["low_percent"] < found["effect_percent"] < found["high_percent"]
        assert slowdown / 2 < found["effect_percent"] / 100 < 2 * slowdown + 1
        assert cell in done.stdout
        assert f"{found['effect_percent']:+.2f}% ({found['low_percent']:+.2f} to {found['high_percent']:+.2f})" in (
            done.stdout
        )
    usual = nights.night()
    for _ in range(2):
        usual = usual if usual.returncode == 0 else nights.night()
    assert usual.returncode == 0, usual.stdout
    left_out = [point["why"] for cell in nights.reports()[-1]["cells"] for point in cell["left_out"]]
    assert left_out.count(f"slowed on purpose by {slowdown:.0%}") >= len(CELLS)
