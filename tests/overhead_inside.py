"""What measure_overhead.py starts inside a framework's environment, by path, with the arguments of Stepmark's worker.

`jax_segments` and `nemo_segments` are that worker with its clock on and off in turn, segment by segment of one run:
the times at which the segments began go to segments.json. `nemo_bare` is a script of NeMo's own, without the worker's
clock; MaxText has its own entry point for that.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SEGMENT_STEPS = 20
CLOCK_ON = (True, False, False, True)  # of each block of segments: a steady drift falls on both alike


class Segments:
    """Asked at the start of every step, with the clock and without."""

    def __init__(self):
        self.starts = []
        self._steps = 0

    def step_begins(self):
        """Whether this step is under the clock."""
        if self._steps % SEGMENT_STEPS == 0:
            self.starts.append(time.perf_counter())
        self._steps += 1
        return CLOCK_ON[(len(self.starts) - 1) % len(CLOCK_ON)]


def load_worker(backend):
    spec = importlib.util.spec_from_file_location(
        "stepmark_worker", REPOSITORY / f"{backend}_backend" / "inside" / "worker.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def jax_segments(words):
    """Every step asks the segments which of the two metric writers MaxText's loop has: its own, or that in ours."""
    worker, segments = load_worker("jax"), Segments()

    def hook(train, clock, on_first_step):
        original, writers = train.training_loop_iteration, {}

        def iteration(state, variables, data):
            logger = variables["metric_logger_instance"]
            if not writers:
                on_first_step(state)
                writers.update({False: logger.write_metrics, True: clock.around(logger.write_metrics)})
                clock.start()
            logger.write_metrics = writers[segments.step_begins()]
            return original(state, variables, data)

        train.training_loop_iteration = iteration

    worker.hook_training_loop = hook
    return under_worker(worker, words, segments)


def nemo_segments(words):
    """Return a Lightning callback that replaces Stepmark's and passes on to it in every segment with the clock."""
    worker, segments = load_worker("nemo"), Segments()
    step_clock = worker.step_clock

    def alternating(work):
        from lightning.pytorch.callbacks import Callback

        clock = step_clock(work)

        class Alternating(Callback):
            on = True

            def on_train_batch_start(self, *step):
                self.on = segments.step_begins()
                if self.on:
                    clock.on_train_batch_start(*step)

            def on_train_batch_end(self, *step):
                if self.on:
                    clock.on_train_batch_end(*step)

            def on_train_end(self, *end):
                clock.on_train_end(*end)

        return Alternating()

    worker.step_clock = alternating
    return under_worker(worker, words, segments)


def under_worker(worker, words, segments):
    options = worker.parse(words)
    exit_code = worker.main(options)
    (Path(options.events_dir) / "segments.json").write_text(json.dumps(segments.starts))
    return exit_code


def nemo_bare(words):
    """Train like a user's own script with the same settings; on a CPU it needs the redirect too."""
    worker = load_worker("nemo")
    options = worker.parse(words)
    worker.join_processes(options)
    on_cpu = worker.kit.load(worker.HERE / "cpu_redirect.py").install()
    if on_cpu:
        worker.share_the_cpu(options)
    worker.fit(options, worker.kit.load(worker.HERE / "build.py"), [], on_cpu)
    return 0


if __name__ == "__main__":
    arms = {arm.__name__: arm for arm in (jax_segments, nemo_segments, nemo_bare)}
    sys.exit(arms[sys.argv[1]](sys.argv[2:]))
