"""The interval as a worker has it: loaded by its path, without any package of Stepmark, and the same figures.

What it computes is in test_statistics.py, how often it holds the truth in test_coverage_simulation.py.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import interval, statistics

FILE = Path(interval.__file__)
SECONDS = [4 + 0.01 * (step * 7 % 11) + (step == 30) for step in range(50)]


def test_the_launcher_and_the_workers_share_one_interval() -> None:
    assert statistics.median_interval is interval.median_interval
    assert (statistics.median, statistics.stdev) == (interval.median, interval.stdev)


def test_it_is_loaded_by_its_path_and_needs_no_package_of_ours() -> None:
    script = (
        "import importlib.util, json, sys\n"
        f"spec = importlib.util.spec_from_file_location('interval', {str(FILE)!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "before = [name for name in sys.modules if name.startswith('scipy')]\n"
        f"found = module.median_interval({SECONDS!r})\n"
        "ours = [name for name in sys.modules if name.startswith('benchmarks')]\n"
        "print(json.dumps([found, ours, before]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True, cwd=FILE.parent
    )
    found, ours, before_a_quantile = json.loads(done.stdout)
    expected = interval.median_interval(SECONDS)
    assert expected is not None
    assert found == list(expected)
    assert (ours, before_a_quantile) == ([], [])
