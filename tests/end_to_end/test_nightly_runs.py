"""The suite `smoke` with its cell of MaxText: a first night, and one that is slowed.

The nights before the first are copies of it, on earlier days, and differ more than a busy machine's nights do. So the
gate calls a night slow from 3.3 times the baseline on, and the slowed one takes 11 times as long: both are judged
right unless the machine makes a night 3.3 times as slow as another. Such a night is run again. (Simulated: if all
runs of a night share a noise of 20%, no test of a million fails; with 30%, one in 10,000; with 40%, one in 500.)
"""

import json
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import DEFAULT_ROOT
from tests.end_to_end.runs import REPOSITORY, Starter
from tests.launch.campaigns.nights.earlier_nights import copy_to_earlier_days

# What each earlier night took of the first; the mean over the median differs as much, in another order.
EARLIER = tuple(math.exp(eighths / 8) for eighths in range(-4, 5))
EARLIER_MEANS = (*EARLIER[4:], *EARLIER[:4])
LIMIT_SECONDS = 1200
CELL = "jax-llama2_tiny"
SLOWDOWN = 10.0
NOISE = 5  # times as slow as another: no night of one machine is
RERUNS = 3  # those that confirm one cell
STEPS = 8  # of the suite's 40: most of a run is its start

pytestmark = pytest.mark.slow


class Nights:
    def __init__(self, starter: Starter, place: Path) -> None:
        self._starter = starter
        self.output_dir = place / "results"
        self._configs = shutil.copytree(DEFAULT_ROOT, place / "configs")
        self._suite = self._configs / "suites/smoke.yml"
        start, _, rest = self._suite.read_text().partition("  - backend: nemo\n")
        of_maxtext = start + rest[rest.index("site: local") :]
        assert of_maxtext.count("steps: 40") == 1
        self._suite.write_text(of_maxtext.replace("steps: 40", f"steps: {STEPS}"))

    def night(self, *words: str) -> "subprocess.CompletedProcess[str]":
        script = str(REPOSITORY / "launch/nightly.py")
        command = [sys.executable, script, "--suite=smoke", f"--output_dir={self.output_dir}", *words]
        process = self._starter(command, STEPMARK_CONFIGS=str(self._configs))
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def night_that_ends(self, code: int, *words: str) -> "subprocess.CompletedProcess[str]":
        done = self.night(*words)
        done = done if done.returncode == code else self.night(*words)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.output_dir.glob("nights/smoke/2*.json"))]

    def judged(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The newest night's cell, and what it says of the seconds per step."""
        (found,) = self.reports()[-1]["cells"]
        assert found["cell"] == CELL
        assert found["status"] == "valid", found["reasons"]
        return found, found["judgements"][0]

    def slowed_by(self, run_id: str) -> float:
        return float(json.loads((self.output_dir / run_id / "result.json").read_text())["slowed_by"])


@pytest.fixture(scope="module")
def nights(
    jax_python: Path,  # noqa: ARG001 - the environment exists
    starter: Starter,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    made = Nights(starter, tmp_path_factory.mktemp("nights"))
    done = made.night()
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_a_first_night_is_not_tested_and_no_failure(nights: Nights) -> None:
    report = nights.reports()[0]
    assert report["verdict"] == "not tested"
    assert [cell["judgements"][0]["nights_needed"] for cell in report["cells"]] == [10]


@pytest.mark.slow(seconds=60)
def test_a_slowed_night_is_a_regression(nights: Nights) -> None:
    copy_to_earlier_days(nights.output_dir, "smoke", [*zip(EARLIER, EARLIER_MEANS, strict=True)])
    slowed = nights.night_that_ends(3, f"--inject_slowdown={SLOWDOWN}", f"--max_reruns={RERUNS}")
    cell, found = nights.judged()
    assert (found["verdict"], found["suspicion"]) == ("worse", "confirmed")
    assert (1 + SLOWDOWN) / NOISE < 1 + found["effect_percent"] / 100 < (1 + SLOWDOWN) * NOISE, slowed.stdout
    assert found["low_percent"] < found["effect_percent"] < found["high_percent"]
    share = f"{found['effect_percent']:+.2f}% ({found['low_percent']:+.2f} to {found['high_percent']:+.2f})"
    assert share in slowed.stdout
    assert [nights.slowed_by(run_id) for run_id in cell["rerun_ids"]] == [SLOWDOWN] * RERUNS
    decides = statistics.median(found["confirmations"])
    assert found["effect_percent"] == pytest.approx(100 * (decides / found["baseline"] - 1))
