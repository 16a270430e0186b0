"""Run MaxText's own training loop and record its events, one JSON line per event.

This program runs by path inside MaxText's environment (`python -P worker.py ... -- key=value ...`) with only the
standard library and MaxText.

MaxText measures the time between two dispatches. Its logger waits between them for the previous step, so MaxText's
time for step k is the duration of step k-2. This worker reads the clock when that wait ends, so its step times add up
to the wall time. The loop still dispatches one step ahead. MaxText silently continues if a rank has not joined the
other ranks, if a loss is NaN, or if no parameter has a gradient. This worker checks for these three problems.
"""

import argparse
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

PACKAGES = [
    "maxtext", "jax", "jaxlib", "jax-cuda12-pjrt", "jax-cuda13-pjrt", "flax", "optax", "orbax-checkpoint", "qwix",
    "aqtp", "numpy", "transformer-engine", "transformer-engine-jax",
]  # fmt: skip


# MaxText adds these terms to its loss. Frameworks are compared by the loss without them, MaxText's lm_loss.
OTHER_LOSSES = {"load_balancing": "learning/moe_lb_loss", "mtp": "learning/mtp_loss"}


class StepClock(kit.StepRecorder):
    """Records the end of every step at the point where MaxText's loop waits for it."""

    def __init__(self, events, reasons_against=()):
        super().__init__(events)
        self._reasons_against = reasons_against  # functions: step number -> why it cannot be measured, or None
        self.end_of_step = time.perf_counter  # returns the end time of a step that has ended on the device

    def around(self, write_metrics):
        """Return a function that calls MaxText's metric writer, and records when the step has ended on the device.

        The loop calls the writer for a step after it has dispatched the next step, so waiting for the loss in the
        writer does not delay the device. A separate thread that waited for the loss slowed a 14 ms step on a CPU by
        3%. The function records the metrics after MaxText's writer has fetched them from the device.
        """

        def write(metrics, step, metric_type="train"):
            if metric_type != "train":
                return write_metrics(metrics, step, metric_type)
            metrics["scalar"]["learning/loss"].block_until_ready()
            end = self.end_of_step()
            try:
                return write_metrics(metrics, step, metric_type)
            finally:  # record the step even if MaxText refuses its loss and raises
                self._record_scalars(step, end, metrics["scalar"])

        return write

    def _record_scalars(self, step, end, scalars):
        others = {ours: term for ours, theirs in OTHER_LOSSES.items() if (term := float(scalars.get(theirs, 0.0)))}
        self.record(
            step,
            end,
            float(scalars["learning/lm_loss" if others else "learning/loss"]),
            float(scalars["learning/raw_grad_norm"]),
            next(filter(None, (reason(step) for reason in self._reasons_against)), None),
            others,
            framework_seconds=scalars.get("perf/step_time_seconds"),
            framework_tflops_per_device=scalars.get("perf/per_device_tflops_per_sec"),
            framework_tokens_per_second_per_device=scalars.get("perf/per_device_tokens_per_sec"),
        )


def hook_training_loop(train, clock, on_first_step):
    """Replace the function that MaxText's loop calls for every step, until its first call has installed the clock."""
    original = train.training_loop_iteration

    def first_iteration(device_state, python_variables, immutable_data):
        train.training_loop_iteration = original
        on_first_step(device_state)
        logger = python_variables["metric_logger_instance"]
        logger.write_metrics = clock.around(logger.write_metrics)
        clock.start()
        return original(device_state, python_variables, immutable_data)

    train.training_loop_iteration = first_iteration


def facts(options, device_state, program, adapters=None):
    import jax
    from flax import nnx

    def counted(kind):
        """Return the number of parameters of a type, such as nnx.Param, from the sizes of the arrays."""
        return sum(x.size for x in jax.tree.leaves(nnx.state(device_state["state"]["model"], kind)))

    mesh = device_state["mesh"].shape
    device = jax.devices()[0]
    return {
        "rank": options.rank,
        "process_count": jax.process_count(),
        "device_count": jax.device_count(),
        "local_device_count": jax.local_device_count(),
        "device_kind": device.device_kind,
        "platform": device.platform,
        "parameters": counted(nnx.Param),
        "trainable_parameters": counted(nnx.LoRAParam if adapters else nnx.Param),
        "mesh": {axis: int(size) for axis, size in mesh.items() if size > 1},
        "versions": kit.installed_versions(PACKAGES),
        "argv": options.settings,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "program": program,
        "notes": [kit.RANDOM_WEIGHTS] if adapters else [],
    }


def join_processes(options):
    """Connect the processes before MaxText starts, because MaxText's own rendezvous for CPUs uses a fixed port."""
    import jax

    if options.processes == 1:
        return
    # If a node has several processes, each uses the GPU whose number is its local rank. A single process uses all.
    # By default, every process would use all GPUs of a node, or in a Slurm job only the GPU of its local rank.
    here = options.devices // options.processes
    mine = [options.rank % options.tasks_per_node] if options.tasks_per_node > 1 else list(range(here))
    jax.distributed.initialize(options.coordinator, options.processes, options.rank, local_device_ids=mine)


def assert_platform():
    """End the worker if jax has no device of the platform, because MaxText would fail later with an unclear error."""
    import jax

    platform = os.environ.get("JAX_PLATFORMS", "")
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        why = str(error).strip().partition("\n")[0] or f"its {platform} plugin is not installed or finds no device"
        raise SystemExit(f"stepmark worker: jax {jax.__version__} has no {platform} device: {why}") from None


def assert_devices(options):
    """End the worker if the ranks have not joined, because MaxText would then silently train each rank separately."""
    import jax

    assert_platform()
    kind, wanted = jax.devices()[0].device_kind, options.device_name
    problems = []
    if jax.process_count() != options.processes:
        problems.append(f"{jax.process_count()} of {options.processes} processes have joined")
    if jax.device_count() != options.devices:
        problems.append(f"jax sees {jax.device_count()} devices, but the benchmark needs {options.devices}")
    if wanted and kind.lower() not in [name.lower() for name in wanted]:
        problems.append(f"the device is '{kind}', but the benchmark needs {' or '.join(wanted)}")
    if problems:
        raise SystemExit("stepmark worker: " + "; ".join(problems))


def argv_of(settings):
    import maxtext

    return ["stepmark", str(Path(maxtext.__file__).parent / "configs" / "base.yml"), *settings]


def record_of_this_rank(options):
    """Disable MaxText's profiler unless this rank is recorded, and use a separate folder for each recorded rank.

    jax names a trace only after its host, so the processes of a node would otherwise overwrite each other's traces.
    """
    settings = dict(word.split("=", 1) for word in options.settings)
    if options.rank not in kit.numbers_of(options.recorded_ranks):
        settings["profiler"] = ""
    elif options.rank:
        settings["base_output_directory"] += f"/rank-{options.rank}"
    options.settings = [f"{name}={value}" for name, value in settings.items()]


def find_cuda_runtime():
    """Make MaxText find pip's libcudart.so, which MaxText needs to start the recording of nsys.

    The dynamic loader does not search pip's folder, and the name of pip's file contains a version.
    """
    from ctypes import CDLL, cdll
    from types import SimpleNamespace

    from maxtext.common import profiler

    def load(name):
        try:
            return cdll.LoadLibrary(name)
        except OSError:
            found = [path for place in sys.path for path in Path(place).glob("nvidia/cu*/lib/libcudart.so.*")]
            if not found:
                raise
            return CDLL(str(found[0]))

    profiler.cdll = SimpleNamespace(LoadLibrary=load)


def hook_step(device_state, clock, slowdown, watch):
    """Wrap each call of the training step in the requested hooks."""
    if watch:
        device_state["p_train_step"] = watch.around(device_state["p_train_step"])
    if slowdown.fraction:
        import jax

        slowed = kit.load(HERE / "loop_hooks.py").SlowedSteps(slowdown, jax.block_until_ready)
        device_state["p_train_step"] = slowed.around(device_state["p_train_step"])
        clock.end_of_step = slowed.end_of_next


def train_under_clock(options, clock, events, watch, slowdown, program, adapters=None):
    from absl import logging

    # MaxText logs through absl, which shows only warnings and errors outside absl's own app.run.
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    join_processes(options)
    assert_devices(options)
    from maxtext.trainers.pre_train import train

    if "profiler=nsys" in options.settings:
        find_cuda_runtime()
    if adapters:
        kit.load(HERE / "adapters.py").install()
    program.listen()
    config, recorder = train.initialize(argv_of(options.settings))

    def on_first_step(device_state):
        what_runs = facts(options, device_state, program.sha256, adapters)
        events.write("facts", **what_runs)
        if adapters:
            adapters.begin(device_state)
        program.on_found = lambda sha256: events.write("program", sha256=sha256)
        if options.pgle_profile:
            identity = kit.load(HERE / "profile_identity.py")
            # XLA would also read a profile of another program, with wrong costs.
            if problem := identity.check(options.pgle_profile, identity.of_facts(what_runs)):
                raise SystemExit(f"stepmark worker: {problem}")
        hook_step(device_state, clock, slowdown, watch)

    hook_training_loop(train, clock, on_first_step)
    try:
        train.run(config, recorder)
        if adapters:
            adapters.finish()
    finally:
        if watch:
            events.write("pgle", **watch.seen())


def with_reason(train):
    """Return a function that calls `train` and raises the original cause of an error.

    If MaxText refuses its configuration, it exits with only a number. Its context manager for Transformer Engine,
    which every GPU run uses, replaces any error that is raised inside it by another error.
    """

    def train_with_reason():
        try:
            train()
        except (RuntimeError, SystemExit) as error:
            reason = reason_of(error)
            if reason is error:
                raise
            if isinstance(error, SystemExit):
                raise SystemExit(f"stepmark worker: MaxText refuses: {words_of(reason)}") from error
            raise reason from None

    return train_with_reason


def reason_of(error):
    """Return the original error, which MaxText has replaced by other errors."""
    while error.__context__ is not None and (
        (isinstance(error, SystemExit) and isinstance(error.code, int))
        or (isinstance(error, RuntimeError) and "generator didn't stop" in str(error))
    ):
        error = error.__context__
    return error


def words_of(error):
    """Return an error as one line, without the configuration that pydantic's errors contain."""
    problems = getattr(error, "errors", None)
    if callable(problems):
        return "; ".join(str(found["msg"]).removeprefix("Value error, ") for found in problems())
    return f"{type(error).__name__}: {error}"


def main(options):
    events = kit.events_of(options)
    if options.check:
        check = kit.load(HERE / "environment_check.py")
        return kit.run_check(lambda: check.look(options, sys.modules[__name__]), events)
    watch, reasons = None, [kit.reason_against_disturbed(options)]
    if options.pgle_runs:
        watch = kit.load(HERE / "loop_hooks.py").PgleWatch(options.pgle_runs, options.pgle_settling)
        reasons.insert(0, watch.reason_against)
    if options.hlo_dir and options.rank == 0:  # dump the training step; XLA_FLAGS must be set before jax is imported
        asked = f"--xla_dump_to={options.hlo_dir} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train_step.*"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {asked}".strip()
    if options.recorded_ranks:
        record_of_this_rank(options)
    clock = StepClock(events, reasons)
    slowdown = kit.slowdown(options)
    program = kit.load(HERE / "program_digest.py").ProgramDigest()
    adapters = None
    if options.task == "lora":
        adapters = kit.load(HERE / "adapters.py").Adapters(kit, options.rank)

    def train():
        train_under_clock(options, clock, events, watch, slowdown, program, adapters)

    def failures():
        return clock.failures() + (adapters.proof.failures if adapters else [])

    def notes():
        digest = program.notes() if clock.started else []
        return (adapters.proof.notes if adapters else []) + digest + slowdown.notes()

    return kit.run(options, with_reason(train), failures, events, notes)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    kit.add_options(parser)
    parser.add_argument("--pgle_runs", type=int, default=0, help="number of steps that jax profiles for PGLE")
    parser.add_argument("--pgle_settling", type=int, default=0, help="steps to exclude after PGLE recompiles")
    parser.add_argument("--pgle_profile", help="the profile.json of the profile that XLA must read")
    parser.add_argument("--hlo_dir", help="the folder to which rank 0 writes its program")
    return parser.parse_args(argv)


if __name__ == "__main__":
    kit.leave(main(parse(sys.argv[1:])))
