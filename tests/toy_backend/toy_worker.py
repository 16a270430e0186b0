"""Naps instead of training; fails at a step as it is told to. Standard library and the worker kit alone."""

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
said = dict(word.split("=", 1) for word in options.settings)
events = kit.events_of(options)
recorder = kit.StepRecorder(events)
slowdown = kit.Slowdown(options.inject_slowdown)  # on every rank: no toy waits for another


def fail(kind):
    if kind == "segfault":
        ctypes.string_at(0)
    elif kind == "hang":
        while True:
            time.sleep(3600)
    elif kind == "memory":
        hoard = []
        while True:
            hoard.append(bytearray(32 << 20))
            time.sleep(0.01)
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "port":
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            first.listen()
            second.bind(first.getsockname())
    elif kind == "disk":
        Path("/dev/full").write_bytes(b"a checkpoint")
    elif kind == "limit":  # ulimit -v
        resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
        bytearray(1 << 30)
    elif kind == "flag":
        argparse.ArgumentParser(prog="train.py").parse_args(["--no_such_flag=1"])
    elif kind.startswith("exit"):
        os._exit(int(kind.removeprefix("exit")))
    elif kind == "raise":
        raise RuntimeError("told to")


def train():
    first_attempt = "attempt-1" in Path(options.events_dir).parts
    kind, _, at = said["fault"].partition("@")
    mine = first_attempt and kind and int(said["fault_rank"]) == options.rank
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
    for step in range(int(said["steps"])):
        time.sleep(float(said["nap"]))
        if mine and step == int(at or 0):
            fail(kind)
        recorder.record(step, slowdown.end_of_step(time.perf_counter()), 6.0 - step / 10, 1.0)


kit.leave(kit.run(options, train, recorder.failures, events, slowdown.notes))
