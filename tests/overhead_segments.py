"""The cost of the worker's clock alone: on and off in turn, segment by segment, within one MaxText run.

Started by measure_overhead.py inside MaxText's environment. A segment with the clock is compared with the mean of
its two neighbours without it, so that drift cancels. Prints one line: ratio, its 95% half-width, pairs, milliseconds.
"""

import importlib.util
import math
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

SEGMENT_STEPS = 20
SETTLED_SEGMENT = 4
WORKER = Path(__file__).resolve().parents[1] / "jax_backend" / "worker.py"


def load_worker():
    spec = importlib.util.spec_from_file_location("stepmark_worker", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alternate(train, clock):
    """Rebind the loop's iteration so that every other segment runs under the clock; returns segment starts."""
    original = train.training_loop_iteration
    starts, writers = [], []

    def iteration(state, variables, data):
        logger, step = variables["metric_logger_instance"], variables["step"]
        if not writers:
            writers.extend([logger.write_metrics, clock.around(logger.write_metrics)])
            clock.start()
        if step % SEGMENT_STEPS == 0:
            starts.append(time.perf_counter())
            logger.write_metrics = writers[(step // SEGMENT_STEPS) % 2]
        return original(state, variables, data)

    train.training_loop_iteration = iteration
    return starts


def main():
    worker = load_worker()
    from maxtext.trainers.pre_train import train

    with tempfile.TemporaryDirectory() as folder:
        clock = worker.StepClock(worker.kit.EventFile(Path(folder) / "events.jsonl"))
        config, recorder = train.initialize(["stepmark", worker.base_config(), *sys.argv[1:]])
        starts = alternate(train, clock)
        train.run(config, recorder)
    seconds = [(after - before) / SEGMENT_STEPS for before, after in pairwise(starts)]
    logs = [
        math.log(seconds[k] / ((seconds[k - 1] + seconds[k + 1]) / 2))
        for k in range(SETTLED_SEGMENT + 1, len(seconds) - 1)
        if k % 2
    ]
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
    ratio, milliseconds = math.exp(statistics.mean(logs)), statistics.median(seconds) * 1e3
    print(f"SEGMENTS {ratio:.4f} {half:.4f} {len(logs)} {milliseconds:.3f}")


if __name__ == "__main__":
    main()
