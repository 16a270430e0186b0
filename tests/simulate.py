"""Simulates nights and comparisons, and prints how often their verdicts are false and what they find.

    python tests/simulate.py [--histories=1000] [--draws=10000] [--seed=1]

Exit code 1: a rate is worse than docs/explanation promises. tests/simulation/test_rates.py runs a
small size.
"""

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a script: in the checkout's environment
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
    import _script  # noqa: F401

import numpy as np

from tests.simulation import comparisons, rates
from tests.simulation.table import markdown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000, help="simulated histories of each row")
    parser.add_argument("--draws", type=int, default=10_000, help="simulated comparisons of each row")
    parser.add_argument("--seed", type=int, default=rates.SEED)
    asked = parser.parse_args()
    random = np.random.default_rng(asked.seed)
    found = [*comparisons.lines(asked.draws, random), *rates.lines(asked.histories, random)]
    print(markdown(found))
    return 1 if any(line.holds is False for line in found) else 0


if __name__ == "__main__":
    sys.exit(main())
