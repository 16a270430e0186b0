"""Nap instead of training, and fail at a given step. Only the standard library and the worker kit."""

import argparse
import ctypes
import importlib.util
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

spec = importlib.util.spec_from_file_location("kit", sys.argv[1])
kit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kit)
parser = argparse.ArgumentParser()
kit.add_options(parser)
options = parser.parse_args(sys.argv[2:])
settings = dict(word.split("=", 1) for word in options.settings)
if options.check:
    if settings["fault"] == "check":
        print("stepmark check: no bed was found; a toy naps in one; next: --set=fault=", flush=True)
        sys.exit(1)
    importlib.import_module(os.environ.get("TOY_FRAMEWORK", "json"))
    print('stepmark check: ok {"toy": "1.0"}', flush=True)
    sys.exit(0)
events = kit.events_of(options)
recorder = kit.StepRecorder(events)
slowdown = kit.Slowdown(options.inject_slowdown)  # on every rank: no toy waits for another


def hang():
    while True:
        time.sleep(3600)


def take_memory():
    hoard = []
    while True:
        hoard.append(bytearray(32 << 20))
        time.sleep(0.01)


def take_a_port_twice():
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        second.bind(first.getsockname())


def take_more_than_the_limit():  # as under ulimit -v
    resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
    bytearray(1 << 30)


def meet_an_error():
    raise RuntimeError("told to")


ALL = -1
FAULTS = {
    "segfault": lambda: ctypes.string_at(0),
    "hang": hang,
    "memory": take_memory,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "port": take_a_port_twice,
    "disk": lambda: Path("/dev/full").write_bytes(b"a checkpoint"),
    "limit": take_more_than_the_limit,
    "flag": lambda: argparse.ArgumentParser(prog="train.py").parse_args(["--no_such_flag=1"]),
    "raise": meet_an_error,
}


def wait_for_the_others(step):
    """Ranks of a framework meet in every step, so a failing toy must not be ahead of the others."""
    others = [f"events-rank{rank}.jsonl" for rank in range(options.processes) if rank != options.rank]
    for path in (Path(options.events_dir, name) for name in others):
        while not path.exists() or path.read_bytes().count(b'"event": "step"') < step:
            time.sleep(0.01)


def fail(kind):
    if kind.startswith("exit"):
        os._exit(int(kind.removeprefix("exit")))
    FAULTS[kind]()


def train():
    first_attempt = "attempt-1" in Path(options.events_dir).parts
    kind, _, at = settings["fault"].partition("@")
    mine = first_attempt and kind and int(settings["fault_rank"]) in (options.rank, ALL)
    events.write(
        "facts",
        rank=options.rank,
        process_count=options.processes,
        device_count=options.devices,
        local_device_count=1,
        device_kind="cpu",
        platform="cpu",
        parameters=106_816,
        trainable_parameters=106_816,
        mesh={"data": options.devices},
        versions={},
        argv=sys.argv[1:],
    )
    recorder.start()
    for step in range(int(settings["steps"])):
        time.sleep(float(settings["nap"]))
        if mine and step == int(at or 0):
            wait_for_the_others(step)
            fail(kind)
        recorder.record(step, slowdown.end_of_step(time.perf_counter()), 6.0 - step / 10, 1.0)


kit.leave(kit.run(options, train, recorder.failures, events, slowdown.notes))
