"""Measures how fast launch/ingest.py reads a large log, and with how much memory. Not a test.

    python tests/measure_ingest.py --size_mb=1000 --repeats=5 --format=megatron

Two logs of each format are made: `realistic` (a step and 20 lines of noise in turn) and `steps_only` (the
worst case: every line must be read). A progress bar's noise comes before its paints, as in life: they are one
line, however long, and `realistic` has 20 lines of noise a step there too. Each is read as a user would: the
script in a process of its own, --json, to /dev/null. The rate is for the whole process, its start included;
peak memory is what the kernel reports for it (Linux: in KiB).
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MB = 1_000_000
NOISE_LINES = 20
NOISE = (
    "I1121 13:52:02.512041 140090981755776 metric_logger.py:393] To see full metrics "
    "'tensorboard --logdir=/results/run/tensorboard/'\n"
    "2025-11-21 13:52:02.601 [NCCL] node-17:2134:2201 [3] NCCL INFO Channel 05/0 : 11[3] -> 12[4] "
    "[send] via NET/IB/4/GDRDMA\n"
    "W1121 13:52:02.700000   5915 dump.cc:725] HloModule dump enabled with path prefix: , suffix: step\n"
    "Memstats: After params initialized: using 61.2 of 79.1 GB (77.4%) on gpu:3\n"
) * (NOISE_LINES // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size_mb", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kind", choices=["realistic", "steps_only"], help="one kind alone")
    parser.add_argument("--format", choices=sorted(STEPS), help="one format alone")
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else ["realistic", "steps_only"]
    formats = [options.format] if options.format else sorted(STEPS)
    for name, kind in itertools.product(formats, kinds):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / f"{kind}.log"
            steps = write_log(log, options.size_mb * MB, STEPS[name], NOISE if kind == "realistic" else "")
            size_mb = log.stat().st_size / MB
            measured = [measure(log) for _ in range(options.repeats)]
        rates = [size_mb / seconds for seconds, _ in measured]
        print(
            f"{name}, {kind}: {size_mb:.0f} MB, {steps} steps, n={len(rates)}: "
            f"median {statistics.median(rates):.0f} MB/s (from {min(rates):.0f} to {max(rates):.0f}), "
            f"peak memory {max(peak for _, peak in measured):.0f} MB"
        )


def write_log(path: Path, size_bytes: int, line_of: Callable[[int, float, float], str], noise: str) -> int:
    """A log of about the size; how many steps it has."""
    written = 0
    with path.open("w", newline="") as log:
        for step in itertools.count(1):
            line = line_of(step, 7.0 + step % 1000 / 1000, 8 - step % 997 / 200)
            written += log.write(line + noise)
            if written >= size_bytes:
                return step
    return 0


def _maxtext(step: int, seconds: float, loss: float) -> str:
    return (
        f"I1121 13:52:02.511797 140090981755776 metric_logger.py:265] completed step: {step}, "
        f"seconds: {seconds:.3f}, TFLOP/s/device: {3640 / seconds:.3f}, "
        f"Tokens/s/device: {8192 / seconds:.3f}, total_weights: 524288, loss: {loss:.3f}, "
        f"lm_loss: {loss:.3f}, perplexity: {2981 - step % 997:.3f}\n"
    )


def _nemo(step: int, seconds: float, loss: float) -> str:
    return (
        f"Training epoch 0, iteration {step}/9999999 | lr: 2.699e-06 | global_batch_size: 128 | "
        f"global_step: {step} | peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | "
        f"reduced_train_loss: {loss:.4} | "
        f"train_step_timing in s: {seconds:.4} | consumed_samples: {128 * step}\n"
    )


def _megatron(step: int, seconds: float, loss: float) -> str:
    return (
        f" [2026-04-27 00:00:01] iteration {step:8d}/ 9999999 | consumed samples: {128 * step:12d} | "
        f"elapsed time per iteration (ms): {1000 * seconds:.1f} | "
        f"throughput per GPU (TFLOP/s/GPU): {3640 / seconds:.1f} | learning rate: 1.000000E-04 | "
        f"global batch size:   128 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.520 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def _nemo_bar(step: int, seconds: float, loss: float) -> str:
    """Painted as the counter moves, and again as the metrics change; global_step is kept exact."""

    def paint(metrics_of: int) -> str:
        return (
            f"\rEpoch 0: :  47%|████▋     | {step}/9999999 [06:19<07:13, "
            f"reduced_train_loss={loss + metrics_of % 7:.3f}, global_step={metrics_of}.0, "
            f"consumed_samples={128 * step}.0, train_step_timing in s={seconds:.2f}0]"
        )

    return paint(step - 2) + paint(step - 1) if step > 1 else paint(0)


STEPS = {"maxtext": _maxtext, "nemo": _nemo, "megatron": _megatron, "nemo-bar": _nemo_bar}


def measure(log: Path) -> tuple[float, float]:
    """Seconds and peak memory in MB of one reading."""
    command = [sys.executable, str(REPOSITORY / "launch" / "ingest.py"), f"--log={log}", "--json"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return seconds, usage.ru_maxrss * 1024 / MB


if __name__ == "__main__":
    main()
