"""Runs MaxText's own training loop and writes down what really happened, one JSON line an event.

The only file of this backend that imports a framework. It is run by path inside MaxText's
environment (`python -P worker.py ... -- key=value ...`) on the standard library and MaxText alone.

MaxText times dispatch to dispatch while its logger waits for the step before, so the figure it
prints for step k is the true time of step k-2. Here the clock is read when that wait ends: the loop
keeps its one-deep pipeline, and the seconds add up to the wall time.

MaxText trains on in silence where a rank is alone, a loss is NaN or nothing gets a gradient; this
worker asserts each of them.
"""

import argparse
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
ENOUGH_TO_SEE_TRAINING = 4


class EventFile:
    """Append-only JSON lines; each line is one write, so a killed worker leaves whole lines."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._cut = False

    def write(self, event, **fields):
        line = (json.dumps({"event": event, **fields}) + "\n").encode()
        if self._cut:
            line = b"\n" + line  # a full disk cut the line before: this one must not be lost with it
        self._cut = True
        while line:
            line = line[os.write(self._fd, line) :]
        self._cut = False


class StepClock:
    """Stamps the end of every step where MaxText's loop waits for it, and writes it down."""

    def __init__(self, events):
        self._events = events
        self._start = None
        self._last_end = None
        self.steps = 0
        self.broken_losses = []
        self.broken_gradients = []
        self.largest_gradient_norm = 0.0
        self._losses = set()

    def start(self):
        self._start = self._last_end = time.perf_counter()

    def around(self, write_metrics):
        """MaxText's metric writer, with the clock read when the step it writes is done on the device.

        The loop calls it for a step after the next one is dispatched, and so it waits for the device there.
        Reading the clock at that wait costs nothing; a thread of its own that waits for the loss cost 3% of
        a 14 ms step on a CPU. The values are fetched by MaxText's writer, and only then written down here.
        """

        def write(metrics, step, metric_type="train"):
            if metric_type != "train":
                return write_metrics(metrics, step, metric_type)
            metrics["scalar"]["learning/loss"].block_until_ready()
            end = time.perf_counter()
            try:
                return write_metrics(metrics, step, metric_type)
            finally:  # MaxText may refuse a loss and raise: the step was trained all the same
                self._record(step, end, metrics["scalar"])

        return write

    def _record(self, step, end, scalars):
        loss = float(scalars["learning/loss"])
        gradient_norm = float(scalars["learning/raw_grad_norm"])
        seconds, self._last_end = end - self._last_end, end
        self.steps += 1
        if len(self._losses) < 2:
            self._losses.add(loss)
        if not math.isfinite(loss):
            self.broken_losses.append(step)
        if not math.isfinite(gradient_norm):
            self.broken_gradients.append(step)
        self.largest_gradient_norm = max(self.largest_gradient_norm, gradient_norm)
        self._events.write(
            "step",
            step=step,
            seconds=seconds,
            elapsed_seconds=end - self._start,
            loss=finite_or_none(loss),
            gradient_norm=finite_or_none(gradient_norm),
            framework_seconds=finite_or_none(scalars.get("perf/step_time_seconds")),
            framework_tflops_per_device=finite_or_none(scalars.get("perf/per_device_tflops_per_sec")),
            framework_tokens_per_second_per_device=finite_or_none(scalars.get("perf/per_device_tokens_per_sec")),
        )

    def failures(self):
        """Broken assertions: the run went through, and its figures prove nothing."""
        found = []
        if self.steps == 0:
            found.append("no step was trained")
        for what, steps in (("loss", self.broken_losses), ("gradient norm", self.broken_gradients)):
            if steps:
                shown = ", ".join(map(str, steps[:5]))
                found.append(f"the {what} is not finite in {len(steps)} steps (first: {shown})")
        if self.steps and not self.broken_gradients and self.largest_gradient_norm == 0:
            found.append("every gradient is zero: nothing was trained")
        # The data repeats, and the learning rate starts at zero: a model that trains shows it by the fourth step.
        if self.steps >= ENOUGH_TO_SEE_TRAINING and len(self._losses) == 1 and not self.broken_losses:
            found.append(f"the loss is the same to the last bit in all {self.steps} steps: nothing was trained")
        return found


def finite_or_none(number):
    if number is None:
        return None
    number = float(number)
    return number if math.isfinite(number) else None


def hook_training_loop(train, clock, on_first_step):
    """Rebind the function that MaxText's loop looks up for every step; its source is not touched."""
    original = train.training_loop_iteration

    def first_iteration(device_state, python_variables, immutable_data):
        train.training_loop_iteration = original
        on_first_step(device_state)
        logger = python_variables["metric_logger_instance"]
        logger.write_metrics = clock.around(logger.write_metrics)
        clock.start()
        return original(device_state, python_variables, immutable_data)

    train.training_loop_iteration = first_iteration


def parameter_counts(state):
    """(all, trainable) parameters of MaxText's model, counted in the arrays."""
    import jax
    from flax import nnx

    model = state["model"]
    total = sum(x.size for x in jax.tree.leaves(nnx.state(model, nnx.Param)))
    return total, total


def installed_versions(names):
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def facts(rank, device_state, argv):
    import jax

    total, trainable = parameter_counts(device_state["state"])
    mesh = device_state["mesh"].shape
    device = jax.devices()[0]
    packages = ["maxtext", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "qwix", "aqtp", "numpy"]
    return {
        "rank": rank,
        "process_count": jax.process_count(),
        "device_count": jax.device_count(),
        "local_device_count": jax.local_device_count(),
        "device_kind": device.device_kind,
        "platform": device.platform,
        "parameters": int(total),
        "trainable_parameters": int(trainable),
        "mesh": {axis: int(size) for axis, size in mesh.items() if size > 1},
        "versions": installed_versions(packages),
        "argv": argv,
    }


def show_framework_log():
    """MaxText logs through absl, which shows nothing below a warning outside absl's own app.run."""
    from absl import logging

    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)


def join_processes(options):
    """MaxText's own CPU rendezvous has one fixed port, so the processes are joined before it starts."""
    import jax

    if options.processes > 1:
        jax.distributed.initialize(options.coordinator, options.processes, options.rank)


def assert_devices(options):
    """MaxText logs success where every rank trains alone; that is an error here."""
    import jax

    names = [name.lower() for name in options.device_name]
    problems = []
    if jax.process_count() != options.processes:
        problems.append(f"{jax.process_count()} processes have joined, {options.processes} were started")
    if jax.device_count() != options.devices:
        problems.append(f"{jax.device_count()} devices are there, the benchmark is for {options.devices}")
    if names and jax.devices()[0].device_kind.lower() not in names:
        problems.append(
            f"the device is '{jax.devices()[0].device_kind}', the benchmark is for {' or '.join(options.device_name)}"
        )
    if problems:
        raise SystemExit("stepmark worker: " + "; ".join(problems))


def base_config():
    import maxtext

    return str(Path(maxtext.__file__).parent / "configs" / "base.yml")


def train_under_clock(options, clock, events):
    show_framework_log()
    join_processes(options)
    assert_devices(options)
    from maxtext.trainers.pre_train import train

    argv = ["stepmark", base_config(), *options.settings]
    config, recorder = train.initialize(argv)
    hook_training_loop(
        train, clock, lambda state: events.write("facts", **facts(options.rank, state, options.settings))
    )
    train.run(config, recorder)


def die_with_parent():
    """A launcher that is killed outright must not leave its workers training (Linux; harmless elsewhere)."""
    import contextlib
    import ctypes

    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def main(options):
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        die_with_parent()
    events = EventFile(Path(options.events_dir) / f"events-rank{options.rank}.jsonl")
    clock = StepClock(events)

    def say_end(status, message):
        events.write("end", rank=options.rank, status=status, message=message[:2000], failures=clock.failures())

    def stop(_number, _frame):
        # An exception can be swallowed by whatever Python happens to run (jax's garbage collection hook did).
        say_end("interrupted", "the worker was told to stop")
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        train_under_clock(options, clock, events)
    except SystemExit as error:
        print(error.code, file=sys.stderr)
        say_end("error", str(error.code))
        return EXIT_ERROR
    except BaseException as error:
        import traceback

        traceback.print_exc()
        say_end("error", f"{type(error).__name__}: {error}")
        return EXIT_ERROR
    say_end("done", "")
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events_dir", required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--device_name", action="append", default=[])
    parser.add_argument("--rank", type=int, default=int(os.environ.get("STEPMARK_RANK", "0")))
    parser.add_argument("--coordinator", default=os.environ.get("STEPMARK_COORDINATOR"))
    parser.add_argument("settings", nargs="*", help="after --: MaxText's own key=value settings")
    return parser.parse_args(argv)


if __name__ == "__main__":
    exit_code = main(parse(sys.argv[1:]))
    sys.stdout.flush()
    sys.stderr.flush()
    # A rank that failed must not wait in jax's exit handlers for the ranks that hang on it.
    os._exit(exit_code) if exit_code else sys.exit(0)
