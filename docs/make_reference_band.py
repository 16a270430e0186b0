"""Makes the reference band of a small MLPerf benchmark: what the loss of good runs of both backends is, and when.

.venv/bin/python docs/make_reference_band.py --benchmark=llama31_8b_tiny --runs=4 --out=DIR

Each run of MaxText begins with other weights; NeMo's differ by the order in which threads add. Of all runs together,
the band after so many sequences is the mean loss, 3 standard deviations to either side. It is printed as the lines of
`reference` in configs/mlperf/BENCHMARK.yml; the runs stay in DIR, and are not run again where they are there.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DEVIATIONS = 3.0
FEWEST = 4  # runs that have an evaluation there: fewer say nothing of a spread
SEED = "init_weights_seed"


def train(benchmark: str, backend: str, place: int, out: Path) -> dict[int, float]:
    folder = out / f"{backend}-{place}"
    if not list(folder.glob("*/result.json")):
        command = [sys.executable, str(REPOSITORY / "launch" / "run.py"), f"--backend={backend}", "--task=mlperf"]
        seed = [f"--set={SEED}={place}"] if backend == "jax" else []
        subprocess.run([*command, f"--model={benchmark}", f"--output_dir={folder}", *seed], check=True)
    result = json.loads(next(folder.glob("*/result.json")).read_bytes())
    return {one["sequences"]: one["loss"] for one in result["convergence"]["evaluations"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--runs", type=int, default=4, help="of each backend")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    losses: dict[int, list[float]] = defaultdict(list)
    ended = []
    for backend in ("jax", "nemo"):
        for place in range(asked.runs):
            curve = train(asked.benchmark, backend, place, asked.out)
            ended.append(max(curve))
            for sequences, loss in curve.items():
                losses[sequences].append(loss)
    print("reference:")
    print(f"  runs: {len(ended)}")
    print("  batch: 16")
    print(f"  mean_sequences: {statistics.fmean(ended):.1f}")
    print(f"  stdev_sequences: {statistics.stdev(ended):.1f}")
    print("  band:")
    for sequences, found in sorted(losses.items()):
        if len(found) >= FEWEST:
            middle, spread = statistics.fmean(found), DEVIATIONS * statistics.stdev(found)
            print(f"    - {{sequences: {sequences}, low: {middle - spread:.3f}, high: {middle + spread:.3f}}}")


if __name__ == "__main__":
    main()
