"""Measured peaks: which matmuls, how they are timed, what is made of the rates, and what a run takes from a file."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.inside import peak_turns
from benchmarks.machine import peak_file, peaks
from benchmarks.machine.peaks import MatmulShape, MeasuredRate
from benchmarks.model import flops
from benchmarks.request.resolve import peaks_of_devices
from benchmarks.values import Hardware, JobOptions, Site, Slurm, json_text

CONFIGS = Configs()
LLAMA = CONFIGS.model("llama2_70b")


# --- which matmuls ------------------------------------------------------------------------------


def test_the_matmuls_of_the_70b() -> None:
    shapes = {shape.name: (shape.m, shape.k, shape.n) for shape in peaks.shapes_of(LLAMA, 4096, 8192)}
    assert shapes == {
        "query_key_value": (4096, 8192, 10240),
        "attention_output": (4096, 8192, 8192),
        "mlp_input": (4096, 8192, 57344),
        "mlp_output": (4096, 28672, 8192),
        "head": (4096, 8192, 32000),
        "square": (8192, 8192, 8192),
    }


@pytest.mark.parametrize("name", [n for n in CONFIGS.names("models") if flops.is_llama(CONFIGS.model(n))])
def test_one_pass_over_the_matmuls_is_a_third_of_all_linear_flops(name: str) -> None:
    """Held against the FLOP formula: forward is one of the three passes."""
    model = CONFIGS.model(name)
    *layer, head, _ = peaks.shapes_of(model, 7, 100)
    forward = sum(2 * one.m * one.k * one.n for one in [*model.layers * layer, head])
    assert forward == pytest.approx(7 * flops.linear_flops_per_token(model) / 3)


# --- what is made of the rates ------------------------------------------------------------------


def rate(name: str, tflops: list[float]) -> MeasuredRate:
    return MeasuredRate(shape=MatmulShape(name=name, m=100, k=100, n=100), dtype="bf16", tflops=tflops)


def test_the_peak_is_the_highest_median_not_the_fastest_turn() -> None:
    found = peaks.device_peaks([rate("a", [1.0, 1.0, 9.0]), rate("b", [2.0, 3.0, 4.0]), rate("c", [0.1, 2.9, 2.9])])
    assert list(found) == ["bf16"]
    best = found["bf16"]
    assert (best.tflops, best.of, best.turns) == (3.0, "b", 3)
    assert best.spread == pytest.approx(2 / 3)


# --- how they are timed -------------------------------------------------------------------------


class Clockwork:
    """Matmuls of a known rate, and what was asked of them."""

    def __init__(self, seconds: dict[str, float], failing: str = "") -> None:
        self.seconds, self.failing, self.calls = seconds, failing, list[tuple[str, str, int]]()

    def facts(self) -> dict[str, Any]:
        return {}

    def matmul(self, dtype: str, shape: peak_turns.Shape) -> Callable[[int], float]:
        if dtype == self.failing:
            raise RuntimeError("out of memory\nand a page more")

        def timed(calls: int) -> float:
            self.calls.append((dtype, shape["name"], calls))
            return calls * self.seconds[shape["name"]]

        return timed


def measure(
    framework: Clockwork, dtypes: list[str], seconds: float = 1.0
) -> tuple[dict[tuple[str, str], list[float]], dict[str, str]]:
    shapes = [{"name": name, "m": 1000, "k": 1000, "n": 1000} for name in framework.seconds]
    request = {"shapes": shapes, "dtypes": dtypes, "seconds": seconds, "turns": 5}
    rates, refused = peak_turns.measure(request, framework)
    return {(one["dtype"], one["shape"]["name"]): one["tflops"] for one in rates}, refused


def test_a_rate_is_flops_over_seconds() -> None:
    rates, refused = measure(Clockwork({"a": 0.001, "b": 0.004}), ["bf16", "fp32"])
    assert refused == {}
    assert rates["bf16", "a"] == pytest.approx([2.0] * 5)
    assert rates["fp32", "b"] == pytest.approx([0.5] * 5)


def test_shapes_take_turns_and_each_turn_is_as_long_as_asked() -> None:
    framework = Clockwork({"a": 0.001, "b": 0.004})
    measure(framework, ["bf16"])
    turns = framework.calls[-10:]
    assert turns == [("bf16", "a", 200), ("bf16", "b", 50)] * 5


def test_a_slow_shape_is_called_once_a_turn() -> None:
    framework = Clockwork({"slow": 3.0, "quick": 0.01})
    measure(framework, ["bf16"])
    assert framework.calls[-10:] == [("bf16", "slow", 1), ("bf16", "quick", 20)] * 5


def test_what_cannot_be_measured_has_its_reason_and_hides_no_other() -> None:
    rates, refused = measure(Clockwork({"a": 0.01}, failing="fp32"), ["fp32", "bf16"])
    assert list(rates) == [("bf16", "a")]
    assert refused == {"fp32": "RuntimeError: out of memory"}


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 0.0, -0.1])
def test_a_broken_clock_gives_no_rate(seconds: float) -> None:
    rates, refused = measure(Clockwork({"a": seconds}), ["bf16"])
    assert rates == {}
    assert "the clock does not work" in refused["bf16"]


# --- the file -----------------------------------------------------------------------------------


def measured(device: str = "cpu", platform: str = "cpu", **report_changes: Any) -> peak_file.PeakMeasurement:
    rates = [
        MeasuredRate(shape=shape, dtype=dtype, tflops=[0.95 * fast, fast, 1.05 * fast])
        for dtype, fast in (("bf16", 0.4), ("fp32", 0.2))
        for shape in peaks.shapes_of(LLAMA, 128, 2048)
    ]
    report = peaks.PeakReport(
        device_kind=device,
        platform=platform,
        versions={"jax": "1.2"},
        rates=rates,
        refused={"fp8": "emulated"},
        threads=2 if platform == "cpu" else None,
    )
    report = replace(report, **report_changes)
    return peak_file.PeakMeasurement(
        schema_version=peak_file.SCHEMA_VERSION,
        date="2026-11-22T01:02:03+00:00",
        stepmark="0.1",
        backend="jax",
        engine="maxtext",
        hardware="cpu",
        hostname="host",
        processor="Processor X",
        cores=2,
        model="llama2_70b",
        request=peaks.PeakRequest(
            shapes=peaks.shapes_of(LLAMA, 128, 2048), dtypes=["bf16", "fp32"], seconds=1, turns=3
        ),
        report=report,
        peaks=peaks.device_peaks(report.rates),
    )


def file_of(found: peak_file.PeakMeasurement) -> peak_file.MeasuredPeak:
    return peak_file.measured_peak(json_text(found).encode(), "FILE")


def test_a_file_says_where_its_peak_comes_from() -> None:
    peak = file_of(measured()).peaks["bf16"]
    assert peak.tflops == 0.4
    reasons = (
        "measured: launch/peak.py, 2026-11-22, jax (jax 1.2), bf16 [128, 8192] x [8192, 10240], n 3, spread 10.0%, "
    )
    assert peak.source.startswith(reasons + "sha256 ")
    digest = peak.source.rpartition(" ")[2]
    assert (len(digest), digest) == (64, file_of(measured()).peaks["fp32"].source.rpartition(" ")[2])


def changed(found: peak_file.PeakMeasurement, change: Callable[[dict[str, Any]], object]) -> bytes:
    data = json.loads(json_text(found))
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data["report"]["rates"][0].update(tflops=[0.0]), "Expected `float` > 0.0"),
        (lambda data: data["report"]["rates"][0].update(tflops=[]), "length >= 1"),
        (lambda data: data.update(schema_version=1), "Invalid enum value 1"),
        (lambda data: data.pop("processor"), "missing required field `processor`"),
    ],
)
def test_a_changed_file_is_refused(change: Callable[[dict[str, Any]], object], why: str) -> None:
    with pytest.raises(RequestError, match="is not a measured peak") as refusal:
        peak_file.measured_peak(changed(measured(), change), "FILE")
    assert why in refusal.value.why


# --- for a run ----------------------------------------------------------------------------------


CPU, H100, LOCAL = CONFIGS.hardware("cpu"), CONFIGS.hardware("h100"), CONFIGS.site("local")
CLUSTER = replace(
    LOCAL, name="c", kind="slurm", slurm=Slurm(shared_folders=["/"], hardware=["cpu"], options=JobOptions())
)


def peak_for(hardware: Hardware, site: Site, gpus: int, nodes: int, found: peak_file.PeakMeasurement) -> float:
    return peaks_of_devices(file_of(found), hardware, site, "bf16", gpus, nodes)["bf16"].tflops


@pytest.mark.parametrize(
    ("site", "gpus", "nodes", "machines"),
    [
        (LOCAL, 1, 1, 1),
        (LOCAL, 8, 1, 1),
        (LOCAL, 8, 2, 1),
        (CLUSTER, 8, 1, 1),
        (CLUSTER, 8, 4, 4),
        (CLUSTER, 4, 4, 4),
    ],
)
def test_virtual_devices_share_the_peak_of_their_cpu(site: Site, gpus: int, nodes: int, machines: int) -> None:
    """Peak of a device x devices = peak of all machines."""
    assert peak_for(CPU, site, gpus, nodes, measured()) * gpus == pytest.approx(0.4 * machines)


def test_every_gpu_has_the_whole_peak() -> None:
    gpu = measured(device="NVIDIA H100 80gb HBM3", platform="cuda")
    assert peak_for(H100, LOCAL, 64, 8, gpu) == 0.4


@pytest.mark.parametrize(
    ("hardware", "device", "platform"),
    [(H100, "cpu", "cpu"), (CPU, "NVIDIA H100 80GB HBM3", "cuda"), (H100, "NVIDIA H100 PCIe", "cuda"),
     (H100, "NVIDIA H100 80GB HBM3", "rocm")],
)  # fmt: skip
def test_another_device_is_refused(hardware: Hardware, device: str, platform: str) -> None:
    with pytest.raises(RequestError, match="measured on a different device"):
        peak_for(hardware, LOCAL, 1, 1, measured(device=device, platform=platform))
