"""`make gpu` without a GPU: its judgements of stored and invented results, and its output without checks."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import judged
from tests.gpu.judged import JudgedCheck
from tests.stand_ins.nvml.build import MACHINES, build

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests/benchmarks/compare/real_run/result.json"
FALLING = [12.0 - step / 10 for step in range(60)]
LIMIT_SECONDS = 60

Change = Callable[[dict[str, Any]], Any]
Judge = Callable[[dict[str, Any]], JudgedCheck]


def on_gpus() -> dict[str, Any]:
    """Return a real result of a CPU with the additional fields of a GPU."""
    result: dict[str, Any] = json.loads(REAL.read_text())
    result["mfu"] = [
        {"convention": "recipe", "precision_peak": "bf16", "peak_tflops": 989.0, "peak_source": "", "percent": 41.0},
        {"convention": "causal", "precision_peak": "bf16", "peak_tflops": 989.0, "peak_source": "", "percent": 38.0},
    ]
    result["telemetry"]["gpu"] = {
        "gpus": 1, "energy_joules": 9000.0, "joules_per_token": 0.02, "power_watts_mean": 610.0,
        "power_watts_max": 690.0, "power_limit_watts": 700.0, "sm_clock_mhz_median": 1700.0,
        "sm_clock_mhz_highest": 1980, "throttled": {"software_power_cap": 0.5, "power_brake": 0.0},
        "temperature_c_max": 61, "memory_bytes_max": 70_000_000_000, "ecc_uncorrected": None, "null_because": {},
    }  # fmt: skip
    result["pgle"] = {"way": "auto", "seen": {"applied": True, "reason": "jax profiled 3 steps"}}
    return result


# --- a run --------------------------------------------------------------------------------------


def test_a_good_run_holds_with_its_figures() -> None:
    found = judged.trained(on_gpus(), FALLING)
    assert found.problems == []
    assert found.figures == (
        "6.444 ms a step, 39,730 tokens/s/GPU, MFU 41.0% (recipe, of 989 TFLOP/s bf16), "
        "loss 11.300 to 6.800 (means of 15 steps)"
    )


def compiled(result: dict[str, Any]) -> JudgedCheck:
    return judged.memory_as_compiled({"variants": [{"compiled": {"peak_bytes": 64e9}}]}, result)


def trained(result: dict[str, Any]) -> JudgedCheck:
    return judged.trained(result, FALLING)


def gpu_of(**changes: Any) -> Change:
    return lambda result: result["telemetry"]["gpu"].update(changes)


NO_COUNTER = {"energy_joules": "GPU 0 has no energy counter"}
WRONG: dict[str, tuple[Judge, Change, str]] = {
    "invalid": (trained, lambda r: r.update(status="invalid", reasons=["a step was slow"]), "the run is invalid"),
    "an MFU of too much": (trained, lambda r: r["mfu"][0].update(percent=97.0), "97.0% is not between"),
    "no MFU": (trained, lambda r: r.update(mfu=None), "MFU is not known: no bf16 peak"),
    "no loss": (lambda r: judged.trained(r, [None] * 60), lambda _: None, "0 have a loss"),
    "a loss that stays": (lambda r: judged.trained(r, [12.0, 11.99] * 30), lambda _: None, "the loss does not fall"),
    "no energy": (
        judged.telemetry_known,
        gpu_of(energy_joules=None, null_because=NO_COUNTER),
        "energy_joules is null: GPU 0 has no energy counter",
    ),
    "no clock": (judged.telemetry_known, gpu_of(sm_clock_mhz_median=None), "sm_clock_mhz_median is null"),
    "milliwatts": (judged.telemetry_known, gpu_of(power_watts_mean=610_000.0), "610000 W a GPU, the limit is 700 W"),
    "less memory": (compiled, gpu_of(memory_bytes_max=58_000_000_000), "+10% apart, 10% are allowed"),
    "more memory": (compiled, gpu_of(memory_bytes_max=80_000_000_000), "-20% apart, 10% are allowed"),
    "no memory": (compiled, gpu_of(memory_bytes_max=None), "was not measured"),
    "no PGLE": (judged.pgle_applied, lambda r: r["pgle"]["seen"].update(applied=False), "not applied: jax profiled"),
}


@pytest.mark.parametrize(("judge", "change", "problem"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_does_not_hold(judge: Judge, change: Change, problem: str) -> None:
    result = on_gpus()
    change(result)
    (found,) = judge(result).problems
    assert problem in found


def test_what_is_right_holds() -> None:
    for judge in (trained, judged.telemetry_known, judged.pgle_applied, compiled):
        assert judge(on_gpus()).problems == []
    assert compiled(on_gpus()).figures == "64.00 GB compiled, 70.00 GB measured: ratio 0.914"


def test_the_mfu_is_that_of_the_runs_own_precision() -> None:
    """fp8 is compared with the bf16 peak too, which it may exceed."""
    result = on_gpus()
    result["benchmark"]["dtype"] = "fp8"
    result["mfu"] = [{**one, "precision_peak": kind, "percent": p} for one, kind, p in zip(
        result["mfu"], ("bf16", "fp8"), (61.0, 30.0), strict=True)]  # fmt: skip
    assert judged.mfu(result).figures.startswith("MFU 30.0%")


def test_the_real_run_of_a_cpu_has_no_mfu_and_no_telemetry_of_gpus() -> None:
    real = json.loads(REAL.read_text())
    assert judged.trained(real, FALLING, sane_mfu=False).problems == []
    assert len(judged.trained(real, FALLING).problems) == 1
    assert judged.telemetry_known(real).problems == ["the run uses no GPU"]
    assert judged.pgle_applied(real).problems == ["the result does not say whether PGLE was applied"]


# --- the others ---------------------------------------------------------------------------------

TRACE = {"mean": {"wall_seconds": {"matmul": 0.3, "other": 0.1, "collective": 0.0, "idle": 0.1}}}


@pytest.mark.parametrize(("clock", "problem"), [(0.5, ""), (0.48, ""), (0.47, "+6.4% apart"), (0.53, "-5.7% apart")])
def test_a_trace_adds_up_to_the_step_of_our_clock(clock: float, problem: str) -> None:
    found = judged.trace_adds_up({**TRACE, "comparison": {"clock_seconds_per_step": clock}})
    assert "; ".join(found.problems).startswith(problem)
    assert bool(found.problems) == bool(problem)
    assert "500 ms in the trace" in found.figures
    assert found.figures.endswith("matmul 60%, other 20%, idle 20%")
    assert judged.trace_adds_up({**TRACE, "comparison": None}).problems


@pytest.mark.parametrize(
    ("printed", "problems"),
    [
        ("ratio 1.0010, 95% interval 0.9950 to 1.0070 (geometric mean, n 4 blocks of 80 steps)", 0),
        ("ratio 1.0300, 95% interval 1.0200 to 1.0400 (geometric mean, n 4 blocks of 80 steps)", 1),
        ("ratio 1.0339, 95% interval 0.4922 to 2.1717 (geometric mean, n 4 blocks of 80 steps)", 1),
        ("", 1),
    ],
)
def test_the_clock_costs_little_where_its_interval_says_so(printed: str, problems: int) -> None:
    assert len(judged.clock_costs_little(f"clock alone: 400 steps\n{printed}\n").problems) == problems


@pytest.mark.parametrize(
    ("peaks", "problem"),
    [
        ({"bf16": {"tflops": 720.0, "spread": 0.02}, "fp32": {"tflops": 50.0, "spread": None}}, ""),
        ({"bf16": {"tflops": 1980.0, "spread": 0.02}}, "bf16: 200% of the datasheet's peak"),
        ({"bf16": {"tflops": 720.0, "spread": 0.5}}, "bf16: a spread of 50% between turns"),
        ({}, "no precision was measured"),
    ],
)
def test_a_peak_is_believable(peaks: dict[str, Any], problem: str) -> None:
    assert "; ".join(judged.peak_believable(peaks, {"bf16": 989.0}).problems).startswith(problem)


def test_the_same_work_names_the_lines_that_differ() -> None:
    line = {"quantity": "loss", "difference": 4e-4, "tolerance": 1e-3, "agrees": True}
    equal = {"quantity": "tensors", "difference": None, "tolerance": None, "agrees": True}
    proof = {"dtype": "bf16", "hardware": "h100", "comparisons": [{"model": "m", "lines": [equal, line]}]}
    assert judged.same_work(proof) == (
        "2 lines in bf16 on h100; nearest to its tolerance: loss of m, 4.0e-04 of 1e-03",
        [],
    )
    line["agrees"] = False
    assert judged.same_work(proof).problems == ["m: loss differs"]


# --- the account --------------------------------------------------------------------------------


def make_gpu(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the program of `make gpu` in a separate folder."""
    tests = str(REPOSITORY / "tests/gpu")
    command = [sys.executable, "-m", "pytest", tests, "-m", "gpu", "-rN", "--tb=no", "--verbosity=-1", "-n0", *words]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("STEPMARK_", "CUDA_"))}
    return subprocess.run(
        command,
        env={**environment, "PYTHONPATH": str(REPOSITORY), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


def test_without_a_gpu_nothing_is_tried_and_the_reason_is_shown(tmp_path: Path) -> None:
    done = make_gpu(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout
    assert "peak: jax: needs the backend's environment" in done.stdout
    assert "18 checks were not tried: this machine has no GPU: " in done.stdout
    assert not (tmp_path / "results").exists()


def test_on_a_machine_with_gpus_what_can_be_checked_is_and_the_account_is_left(tmp_path: Path) -> None:
    """NVML's stand-in plays eight H100: they are found, and a run on more of them is refused."""
    done = make_gpu(
        tmp_path,
        "-k",
        "device or trains and jax-bf16",
        LD_LIBRARY_PATH=str(build(tmp_path).parent),
        STEPMARK_NVML_MACHINE=str(MACHINES / "dgx_h100"),
        STEPMARK_GPU_FLAGS="--gpus=16",
    )
    assert done.returncode == 1, done.stdout
    assert "8 x NVIDIA H100 80GB HBM3 of 80 GB, driver 5" in done.stdout
    assert "1 holds, 1 does not hold, 0 not tried" in done.stdout
    (folder,) = (tmp_path / "results").iterdir()
    assert f"to send: {folder}" in done.stdout
    assert (folder / "table.txt").read_text() in done.stdout
    found, refused = json.loads((folder / "checks.json").read_text())
    assert (found["name"], found["outcome"]) == ("device is found", "holds")
    assert (refused["name"], refused["outcome"]) == ("trains: jax-bf16", "does not hold")
    assert refused["why"].startswith("exit code 2: ")
    assert "launch/run.py --backend=jax" in (folder / "logs/01-jax-bf16-steps-60.log").read_text()
    assert len(json.loads((folder / "machine.json").read_text())["gpus"]) == 8
