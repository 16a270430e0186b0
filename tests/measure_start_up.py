"""How long run.py takes to start, in paired runs with the interpreter and the launcher's smallest imports.

    python tests/measure_start_up.py [PAIRS]

Prints for a dry run of a 70B, for --list and for --help the median ratio, with the quartiles of the pairs. Bytecode
is written, as for a user; the first round, which writes it, is not counted.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
RUN = str(REPOSITORY / "launch" / "run.py")
SMALLEST = ["-c", "import absl.flags, msgspec, yaml"]
CLUSTER = "--backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64"
COMMANDS = {
    "--dry_run": ([RUN, *CLUSTER.split(), "--dry_run"], 2.0),
    "--list": ([RUN, "--list"], 2.0),
    "--help": ([RUN, "--help"], 1.0),
}
DEFAULT_PAIRS = 20


def seconds(arguments: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PAIRS
    rounds = []
    for _ in range(pairs + 1):
        smallest = seconds(SMALLEST)
        rounds.append({name: seconds(arguments) / smallest for name, (arguments, _) in COMMANDS.items()})
    for name, (_, most) in COMMANDS.items():
        ratios = [one[name] for one in rounds[1:]]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{name:10} {middle:.2f} times (quartiles {low:.2f} to {high:.2f} of {pairs} pairs); at most {most:g}")


if __name__ == "__main__":
    main()
