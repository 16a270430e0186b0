"""The suite `smoke` as a user runs it: ten nights of real MaxText and NeMo, a slowed one, and one as always.

Assertions are ratios. Where the machine is so noisy that the gate itself says it would not see the slowdown, a larger
one is injected; and a night that is slow as a whole, which no gate can tell from a regression, may be tried again.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import REPOSITORY, Starter

NIGHTS = 10
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
    for _ in range(NIGHTS):
        done = made.night()
        assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_ten_nights_make_a_history_and_none_is_a_failure(nights: Nights) -> None:
    reports = nights.reports()[:NIGHTS]
    assert [report["verdict"] for report in reports] == ["inconclusive"] * NIGHTS
    needed = [cell["judgements"][0]["nights_needed"] for report in reports for cell in report["cells"]]
    assert needed == [nights_left for nights_left in range(NIGHTS, 0, -1) for _ in CELLS]


def test_a_slowed_night_is_a_regression_and_the_next_one_is_none(nights: Nights) -> None:
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
