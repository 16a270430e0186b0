"""Time interleaved matmuls inside a framework's environment. The peak programs of all backends use this module.

It is loaded by its path and uses only the standard library. Each program defines a `Device`, which makes matmuls and
times calls of them. The matmuls of a precision run in turns, so a slow moment of the machine affects all of them.
"""

import argparse
import ctypes
import json
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_CALLS = 2**16
ENOUGH_SECONDS = 0.02  # calls that take at least this long in total give a reliable time per call
FIRST_LINE = 300

Timed = Callable[[int], float]  # number of calls -> seconds until all of them are complete
Shape = dict[str, Any]  # the fields of a peaks.MatmulShape

TYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8": "float8_e4m3fn"}


class Device:
    """The device of a backend's program. It makes matmuls whose calls can be timed."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.on_cpu = platform == "cpu"
        self.notes: list[str] = []  # remarks about the rates for the user

    def facts(self) -> dict[str, Any]:
        """Return the fields device_kind, platform, versions and threads of a peaks.PeakReport."""
        raise NotImplementedError

    def matmul(self, dtype: str, shape: Shape) -> Timed:
        """Return a function that times a matmul. Raise RuntimeError if the framework does not support the matmul."""
        raise NotImplementedError


def main(device_on: Callable[[str], Device], argv: list[str]) -> None:
    """Read request.json, measure, and write report.json atomically. The arguments are `--platform=cuda FOLDER`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--platform", required=True)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    folder, device = options.folder, device_on(options.platform)
    die_with_parent()
    request = json.loads((folder / "request.json").read_text())
    rates, refused = measure(request, device)
    notes = list(dict.fromkeys(device.notes))
    report = {**device.facts(), "rates": rates, "refused": refused, "notes": notes}
    unfinished = folder / ".report.json"
    unfinished.write_text(json.dumps(report))
    unfinished.replace(folder / "report.json")


def measure(request: dict[str, Any], device: Device) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rates of all shapes and precisions, and precision -> why it has no rates."""
    rates: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    for dtype in request["dtypes"]:
        try:
            rates += _rates_of(dtype, request, device)
        except RuntimeError as error:  # frameworks raise this if memory or a kernel is missing
            refused[dtype] = f"{type(error).__name__}: {first_line(error)}"
    return rates, refused


def _rates_of(dtype: str, request: dict[str, Any], device: Device) -> list[dict[str, Any]]:
    turn_seconds = request["seconds"] / request["turns"]
    matmuls = []
    for shape in request["shapes"]:
        timed = device.matmul(dtype, shape)
        matmuls.append((shape, timed, _calls_a_turn(timed, turn_seconds)))
    tflops: dict[str, list[float]] = {shape["name"]: [] for shape in request["shapes"]}
    for _ in range(request["turns"]):
        for shape, timed, calls in matmuls:
            flops = 2.0 * shape["m"] * shape["k"] * shape["n"] * calls
            tflops[shape["name"]].append(flops / _seconds(timed, calls) / 1e12)
    return [{"shape": shape, "dtype": dtype, "tflops": tflops[shape["name"]]} for shape in request["shapes"]]


def _calls_a_turn(timed: Timed, turn_seconds: float) -> int:
    """Return how many calls take one turn. The time per call is measured after a first call as warm-up."""
    _seconds(timed, 1)
    calls = 1
    while (seconds := _seconds(timed, calls)) < min(ENOUGH_SECONDS, turn_seconds) and calls < MOST_CALLS:
        calls *= 2
    return max(1, round(turn_seconds * calls / seconds))


def _seconds(timed: Timed, calls: int) -> float:
    seconds = timed(calls)
    if not (math.isfinite(seconds) and seconds > 0):
        raise RuntimeError(f"{calls} calls took {seconds} s: the clock does not work")
    return seconds


def first_line(error: BaseException) -> str:
    """Return the first line of a framework's message, because the whole message may be very long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:FIRST_LINE] if lines else "no reason was given"


def cores() -> int:
    """Return how many cores this process may use. On a CPU, a framework uses all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def die_with_parent() -> None:
    """End this process when its parent dies, so that no measurement outlives a killed launcher. Only for Linux."""
    set_parent_death_signal = 1
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
