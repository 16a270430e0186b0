"""Times matmuls in turns inside a framework's environment: the part that all backends' peak programs share.

Loaded by its path, on the standard library alone. A program brings a `Device`, which makes matmuls and times calls of
them; here is how often each is called, what is written down, and what a person sees meanwhile.

All matmuls of a precision take turns, so that what slows the machine for a while slows each of them.
"""

import argparse
import ctypes
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PROGRESS = "progress: "  # the lines of the log that are for people
OVERRUN = 2.0  # times the seconds asked for; then a slow shape gets the fewest turns
FIRST_LINE = 300
LONG = 5.0  # times what a turn should take: of such a first call it is known that one a turn will do
MOST_CALLS = 2**16
SHORTEST_SECONDS = 1e-6
SECOND_LOOK_SECONDS = 0.02  # of calls, from which on their time says how long one takes

Timed = Callable[[int], float]  # calls -> the seconds they took, all done
Shape = dict[str, Any]  # a peaks.MatmulShape


TYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8": "float8_e4m3fn"}
FIRST_WITH_FP8 = (8, 9)  # compute capability of CUDA


class Device:
    """What a backend's program knows: its device, and how to multiply on it."""

    emulated = ""  # why fp8 on a CPU says nothing

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.on_cpu = platform == "cpu"
        self._notes: list[str] = []

    def facts(self) -> dict[str, Any]:
        """Return device_kind, platform, versions and all that a peaks.PeakReport has, except the rates."""
        raise NotImplementedError

    def matmul(self, dtype: str, shape: Shape) -> Timed:
        """Return a matmul whose matrices are there; a RuntimeError if the framework cannot do it."""
        raise NotImplementedError

    def capability(self) -> tuple[int, int] | None:
        """Of CUDA."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return what is to be known about the rates; asked at the end."""
        return list(dict.fromkeys(self._notes))

    def refuses(self, dtype: str) -> str | None:
        """Return why a precision cannot be measured on this device."""
        if dtype not in TYPES:
            return f"this program knows {', '.join(TYPES)}"
        if dtype != "fp8" or self.on_cpu:
            return self.emulated if dtype == "fp8" else None
        found = self.capability() if self.platform == "cuda" else None
        if found is not None and found < FIRST_WITH_FP8:
            has, needs = (".".join(map(str, version)) for version in (found, FIRST_WITH_FP8))
            return f"the device has compute capability {has}, and fp8 from {needs} on"
        return None


def main(device_on: Callable[[str], Device], argv: list[str]) -> None:
    """`--platform=cuda FOLDER`: its request.json -> its report.json, whole."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--platform", required=True)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    folder, device = options.folder, device_on(options.platform)
    die_with_parent()
    request = json.loads((folder / "request.json").read_text())
    rates, refused = measure(request, device, lambda text: print(PROGRESS + text, flush=True))
    report = {**device.facts(), "rates": rates, "refused": refused, "notes": device.notes()}
    unfinished = folder / ".report.json"
    unfinished.write_text(json.dumps(report))
    unfinished.replace(folder / "report.json")


def measure(
    request: dict[str, Any], device: Device, tell: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rates of every shape and precision, and the precisions that have none, each with its reason."""
    rates: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    for dtype in request["dtypes"]:
        reason = device.refuses(dtype)
        if reason:
            refused[dtype] = reason
            continue
        try:
            rates += _rates_of(dtype, request, device, tell)
        except RuntimeError as error:  # out of memory, no such kernel: what both frameworks raise
            refused[dtype] = f"{type(error).__name__}: {first_line(error)}"
    return rates, refused


def _rates_of(
    dtype: str, request: dict[str, Any], device: Device, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    matmuls = []
    for number, shape in enumerate(request["shapes"], 1):
        tell(f"{dtype}: matmul {number} of {len(request['shapes'])}, {shape['name']}, its first call")
        matmuls.append(Matmul(shape, device.matmul(dtype, shape), request))
    for turn in range(1, request["turns"] + 1):
        tell(f"{dtype}: turn {turn} of {request['turns']}")
        for matmul in matmuls:
            matmul.take_turn()
    return [{"shape": matmul.shape, "dtype": dtype, "tflops": matmul.tflops} for matmul in matmuls]


class Matmul:
    """One shape in one precision: how often it is called a turn, and how fast it was in each."""

    def __init__(self, shape: Shape, timed: Timed, request: dict[str, Any]) -> None:
        self.shape, self.tflops = shape, list[float]()
        self._timed, self._fewest = timed, int(request["fewest_turns"])
        self._turn_seconds: float = request["seconds"] / request["turns"]
        self._left: float = OVERRUN * request["seconds"]
        self._calls = self._calls_a_turn()
        self._flops = 2.0 * shape["m"] * shape["k"] * shape["n"] * self._calls

    def _calls_a_turn(self) -> int:
        """The first call warms up. Where it was short, more of them say how long one takes."""
        calls, seconds = 1, self._seconds(1)
        if seconds > LONG * self._turn_seconds:
            return 1
        enough = min(SECOND_LOOK_SECONDS, self._turn_seconds)
        while (seconds := self._seconds(calls)) < enough and calls < MOST_CALLS:
            calls *= 2
        return max(1, round(self._turn_seconds * calls / max(seconds, SHORTEST_SECONDS)))

    def take_turn(self) -> None:
        if self._left <= 0 and len(self.tflops) >= self._fewest:
            return
        seconds = self._seconds(self._calls)
        if seconds == 0:
            raise RuntimeError(f"{self._calls} calls of {self.shape['name']} took no time: the clock does not work")
        self._left -= seconds
        self.tflops.append(self._flops / seconds / 1e12)

    def _seconds(self, calls: int) -> float:
        seconds = self._timed(calls)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise RuntimeError(f"{calls} calls of {self.shape['name']} took {seconds} s: the clock does not work")
        return seconds


def first_line(error: BaseException) -> str:
    """Of what a framework says; it may go on for pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:FIRST_LINE] if lines else "no reason was given"


def cores() -> int:
    """That this process may use; a framework that runs alone on a CPU takes all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def die_with_parent() -> None:
    """A launcher that is killed outright leaves no program measuring (Linux; harmless elsewhere)."""
    set_parent_death_signal = 1
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
