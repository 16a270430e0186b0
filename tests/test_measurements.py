"""Every script that measures something is started once, in its smallest form: it works, and prints its figures."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LIMIT_SECONDS = 400
# Script -> its smallest options, and a word of its last output.
SMALLEST = {
    "measure_faults.py": (["--logs=10", "--runs=2"], "0 faults in 10 logs and 2 run folders"),
    # The clock only: each pair of whole runs takes a minute.
    "measure_overhead.py": (["--pairs=0", "--clock_steps=180", "--set=micro_batch_size=1"], "n 1 blocks"),
    "measure_ranks.py": (["--ranks=4", "--steps=20", "--nodes=2", "--samples=20"], "page: "),
    "measure_start_up.py": (["2"], "--help"),
    "measure_store.py": (["--runs=20", "--repeats=1"], "dashboard with nothing new"),
}

pytestmark = pytest.mark.slow(seconds=8)


@pytest.mark.parametrize("script", SMALLEST)
def test_it_still_measures(script: str) -> None:
    small, words = SMALLEST[script]
    done = subprocess.run(
        [sys.executable, str(HERE / script), *small],
        capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, cwd=HERE.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert words in done.stdout


def test_memory_does_not_grow_with_the_ranks_or_the_nodes_of_a_run() -> None:
    peaks = []
    for sizes in (["--ranks=4", "--nodes=2"], ["--ranks=128", "--nodes=34"]):
        script = [sys.executable, str(HERE / "measure_ranks.py"), *sizes, "--steps=500", "--samples=300"]
        printed = subprocess.run(script, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS).stdout
        peaks.append([float(peak) for peak in re.findall(r"peak ([\d.]+) MB", printed)])
    # 62,000 steps more, of 300 bytes or more if kept, and 9,800 samples of 8 GPUs, of 2,600 bytes or more.
    assert all(many - few < 10 for few, many in zip(*peaks, strict=True)), peaks


def test_none_is_left_out() -> None:
    assert {str(path.relative_to(HERE)) for path in HERE.rglob("measure_*.py")} == SMALLEST.keys()
