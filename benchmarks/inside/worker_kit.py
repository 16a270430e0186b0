"""The common code of workers, which run in a framework's environment: events, steps, assertions, the end of a run.

A worker loads this file by its path, and imports nothing else of Stepmark. This file uses only the standard library,
so the environments of frameworks do not need Stepmark's packages.
"""

import argparse
import contextlib
import ctypes
import faulthandler
import importlib.util
import json
import math
import os
import platform
import signal
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
ENOUGH_TO_SEE_TRAINING = 4
RANDOM_WEIGHTS = "the frozen weights are random (no checkpoint was read), which does not affect the step time"


class EventFile:
    """Appends JSON lines to a file, each with one write, so that lines are complete even if the worker is killed."""

    def __init__(self, path):
        self._path = Path(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._cut = False

    def write(self, event, **fields):
        line = (json.dumps({"event": event, **fields}) + "\n").encode()
        if self._cut:
            line = b"\n" + line  # an earlier write failed on a full disk and left an incomplete line
        self._cut = True
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            # On a full disk, files cannot be written, but a link can often be made. Its target is the reason.
            with contextlib.suppress(OSError):
                self._path.with_name("could-not-write").symlink_to(error.strerror)
            raise
        self._cut = False


class StepRecorder:
    """Records every step with its time, and remembers problems that make the run invalid."""

    def __init__(self, events):
        self._events = events
        self._start = None
        self._last_end = None
        self.steps = 0
        self.broken_losses = []
        self.broken_gradients = []
        self.largest_gradient_norm = 0.0
        self._losses = set()

    @property
    def started(self):
        return self._start is not None

    def start(self):
        self._start = self._last_end = time.perf_counter()
        # The time of steps is measured from here. The Unix time relates the steps to the machine's samples.
        host = os.environ.get("SLURMD_NODENAME") or platform.node()  # Slurm's name of the node
        host = host.encode(errors="surrogateescape").decode(errors="backslashreplace")  # JSON needs valid UTF-8
        self._events.write("started", unix_seconds=time.time(), host=host)

    def record(self, step, end, loss, gradient_norm, excluded_because=None, other_losses=None, **framework):
        """Record a step that ended at `end` (of time.perf_counter()). `framework` has the framework's own values.

        If `loss` is None, only another rank knows it. `excluded_because` names other work during the step.
        `other_losses` has the terms of the trained loss that `loss` excludes.
        """
        seconds, self._last_end = end - self._last_end, end
        self.steps += 1
        if loss is not None:
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
            **({"excluded_because": excluded_because} if excluded_because else {}),
            **({"other_losses": {k: finite_or_none(v) for k, v in other_losses.items()}} if other_losses else {}),
            **{name: finite_or_none(value) for name, value in framework.items()},
        )

    def failures(self):
        """Return the assertions that failed. If any failed, the run completed, but its metrics are not valid."""
        found = []
        if self.steps == 0:
            found.append("no step was trained")
        for what, steps in (("loss", self.broken_losses), ("gradient norm", self.broken_gradients)):
            if steps:
                shown = ", ".join(map(str, steps[:5]))
                found.append(f"the {what} is not finite in {len(steps)} steps (first: {shown})")
        if self.steps and not self.broken_gradients and self.largest_gradient_norm == 0:
            found.append("every gradient is zero: nothing was trained")
        # The data repeats, and the learning rate may start at 0. If the model trains, 4 steps have different losses.
        if self.steps >= ENOUGH_TO_SEE_TRAINING and len(self._losses) == 1 and not self.broken_losses:
            found.append(f"the loss is the same to the last bit in all {self.steps} steps: nothing was trained")
        return found


class AdapterProof:
    """Proof that training changed only the adapters.

    A worker passes name -> checksum for all adapters and all frozen weights, before the first and after the last
    step. The step times do not include the time for the checksums.
    """

    def __init__(self, rank=0):
        self._rank = rank
        self._before = {}
        self.failures = ["training ended before the adapters were checked"]
        self.notes = []

    def begin(self, adapters, frozen):
        self._before = {"adapters": adapters, "frozen": frozen}

    def finish(self, adapters, frozen, without_gradient=()):
        """Compare the checksums. `without_gradient`: the adapters that had no gradient in the last step, if known."""
        self.failures = []
        unchanged = [name for name, bits in adapters.items() if bits == self._before["adapters"].get(name)]
        changed = [name for name, bits in frozen.items() if bits != self._before["frozen"].get(name)]
        gone = sorted(self._before["frozen"].keys() - frozen.keys())
        if not adapters:
            self.failures.append("no adapter was made: nothing was trained")
        if without_gradient:
            self._fail(without_gradient, adapters, "adapters receive no gradient")
        if unchanged:
            self._fail(unchanged, adapters, "adapters did not change")
        if changed:
            self._fail(changed, frozen, "frozen weights changed")
        if gone:
            self._fail(gone, self._before["frozen"], "frozen weights are missing after training")
        self.notes.append(
            f"adapters on rank {self._rank}: {len(adapters) - len(unchanged)} of {len(adapters)} tensors changed; "
            f"{len(changed) + len(gone)} of {len(frozen)} frozen tensors changed"
        )

    def _fail(self, names, among, what):
        self.failures.append(f"{len(names)} of {len(among)} {what} (first: {names[0]})")


class Slowdown:
    """Makes every step (1 + fraction) times as long by a sleep at its end (--inject_slowdown).

    In each step, ranks wait for one another, so only rank 0 sleeps (see `slowdown`). If all ranks slept, the wait
    would be part of the step time, and with a fraction of 1 or more, steps would become longer without limit.
    """

    def __init__(self, fraction):
        self.fraction = fraction
        self._last_end = None
        self._steps = 0
        self._own = 0.0
        self._took = 0.0

    def end_of_step(self, end):
        """Sleep after a step that ended at `end`, and return the new time. The first step has no sleep."""
        if self.fraction and self._last_end is not None:
            own = end - self._last_end
            time.sleep(self.fraction * own)
            end = time.perf_counter()
            self._steps += 1
            self._own += own
            self._took += end - self._last_end
        self._last_end = end
        return end

    def notes(self):
        if not self._steps:
            return []
        longer = f"from {self._own:.3g} s to {self._took:.3g} s"
        return [f"--inject_slowdown={self.fraction:g} increased the time of {self._steps} steps {longer}"]


def slowdown(options):
    """Return the slowdown of this rank. Only rank 0 is slowed down, because the other ranks wait for it."""
    return Slowdown(options.inject_slowdown if options.rank == 0 else 0.0)


def load(path):
    """Load a file next to the worker as a module, because the worker's folder is not on the import path."""
    spec = importlib.util.spec_from_file_location(f"stepmark_{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finite_or_none(number):
    if number is None:
        return None
    number = float(number)
    return number if math.isfinite(number) else None


def installed_versions(names):
    found = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def add_options(parser):
    """Add the options that every worker has. The site sets the rank and the coordinator in the environment."""
    parser.add_argument("--events_dir", required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--device_name", action="append", default=[])
    parser.add_argument("--rank", type=int, default=int(os.environ.get("STEPMARK_RANK", "0")))
    parser.add_argument("--tasks_per_node", type=int, required=True)
    parser.add_argument("--coordinator", default=os.environ.get("STEPMARK_COORDINATOR"))
    parser.add_argument("--check", action="store_true", help="train nothing; check that this node can run the plan")
    parser.add_argument("--task", default="pretrain", choices=["pretrain", "lora"])
    parser.add_argument("--disturbed_steps", default="", help="the steps that a profiler slows, such as 44-50")
    parser.add_argument("--recorded_ranks", default="", help="such as 0-5,7-15")
    parser.add_argument("--inject_slowdown", type=float, default=0.0, help="0.5 makes every step 50%% longer")
    parser.add_argument("settings", nargs="*", help="after --: the framework's own key=value settings")


def numbers_of(text):
    """Return the numbers in a text such as 0-2,8."""
    found = set()
    for word in filter(None, text.split(",")):
        first, _, last = word.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def reason_against_disturbed(options):
    """Return a function that maps the number of a step to the reason to exclude the step, or to None."""
    disturbed = numbers_of(options.disturbed_steps)
    return lambda step: "profiler" if step in disturbed else None


def run(options, train, failures, events, notes=list):
    """Train, record how training ended, and return the exit code. `failures` and `notes` are called at the end."""
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        die_with_parent()
    # SIGUSR2 makes C code print the stacks of a hanging rank to its log, even while Python waits in a collective.
    faulthandler.register(signal.SIGUSR2, all_threads=True)

    def say_end(status, message):
        found = failures()
        events.write("end", rank=options.rank, status=status, message=message[:2000], failures=found, notes=notes())

    def stop(_number, _frame):
        # Exit at once, because the interrupted code, such as jax's garbage collection hook, could lose an exception.
        say_end("interrupted", "a signal stopped the worker")
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        train()
    except SystemExit as error:
        print(error.code, file=sys.stderr)
        say_end("error", str(error.code))
        return EXIT_ERROR
    except BaseException as error:
        traceback.print_exc()
        say_end("error", f"{type(error).__name__}: {error}")
        return EXIT_ERROR
    say_end("done", "")
    return 0


def events_of(options):
    return EventFile(Path(options.events_dir) / f"events-rank{options.rank}.jsonl")


# --- a check before the run -------------------------------------------------------------------


class CheckFailure(Exception):
    """Raised if a job cannot run on this node. It contains the problem, the reason, and what to do next."""

    def __init__(self, what, why, next_step):
        super().__init__(f"{what}; {why}" if why else what)
        self.next_step = next_step


@contextlib.contextmanager
def checking(what, next_step):
    """Turn an error inside the block into a CheckFailure with this error as the reason."""
    try:
        yield
    except CheckFailure:
        raise
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        raise CheckFailure(what, f"{type(error).__name__}: {error}", next_step) from error


def run_check(look, events):
    """Call `look`, print its result or the reason of its failure as the last line, and return the exit code."""
    try:
        with checking("the check itself failed", "python launch/doctor.py logs results/RUN"):
            line, status, message = f"ok {json.dumps(look())}", "done", ""
    except CheckFailure as failure:
        message = " ".join(str(failure).split())[:600]
        line, status = f"{message}; try: {failure.next_step}", "error"
    events.write("end", rank=0, status=status, message=message)
    sys.stderr.flush()
    print(f"stepmark check: {line}", flush=True)
    return 0 if status == "done" else EXIT_ERROR


def check_devices(found, expected, names, *, alone=False):
    """Raise CheckFailure if the check does not see the number and kind of devices that the plan needs on the node.

    With `alone`, extra devices are also refused, because a process that does not select a GPU would use all of them.
    """
    kinds = ", ".join(sorted(set(found)))
    if len(found) < expected or (alone and len(found) > expected):
        raise CheckFailure(
            f"the process sees {len(found)} devices on this node, but the plan needs {expected}",
            kinds,
            "change gres or gpus_per_node in the site file, or pass another --gpus (see python launch/doctor.py "
            "nodes --site=NAME)",
        )
    if names and not {name.lower() for name in found} <= {name.lower() for name in names}:
        wanted = f"the benchmark is for {' or '.join(names)}"
        raise CheckFailure(f"the device is '{kinds}'", wanted, "pass --hardware for that GPU, or another --partition")


def leave(exit_code):
    """End the process. A rank that failed exits at once, because its exit handlers could wait for other ranks."""
    sys.stdout.flush()
    sys.stderr.flush()
    if exit_code:
        os._exit(exit_code)
    sys.exit(0)


def die_with_parent():
    """End this process when its parent dies, so that no worker outlives a killed launcher. Works only on Linux."""
    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def in_a_fork(log, work):
    """Run work() in a new process that writes to `log`. Return its exit code, or -N if signal N ended it."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
            die_with_parent()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def do_jobs(about, doing, prepare, do):
    """Run each job in a file in its own folder, for a program that compiles or traces steps. Return the exit code.

    `prepare(jobs)` imports the framework. `do(job, folder)` runs the job in a fork, and returns its exit code.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--folder", required=True, help="the folder that gets a folder for each job")
    parser.add_argument("--jobs", required=True, help="a JSON file: a list of jobs")
    options = parser.parse_args()
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        die_with_parent()
    jobs = [SimpleNamespace(**job) for job in json.loads(Path(options.jobs).read_bytes())]
    prepare(jobs)
    for number, job in enumerate(jobs):
        folder = Path(options.folder) / str(number)
        folder.mkdir(parents=True)
        print(f"{doing} {job.name} ({number + 1} of {len(jobs)})", flush=True)
        code = do(job, folder)
        if code:
            (folder / "failed.json").write_text(json.dumps({"exit_code": code}))
    (Path(options.folder) / "report.json").write_text(json.dumps({"jobs": len(jobs)}))
    return 0


def write_report(folder, report):
    """Write a job's report atomically, so that a killed program leaves either a complete report or none at all."""
    unfinished = folder / "report.json.part"
    unfinished.write_text(json.dumps(report))
    unfinished.replace(folder / "report.json")
