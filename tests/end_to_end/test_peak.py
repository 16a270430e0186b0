"""launch/peak.py in both real frameworks on this machine's CPU, and runs whose MFU uses the measured peak."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.machine.peak_file import PeakMeasurement
from tests.end_to_end.runs import LIMIT_SECONDS, NEMO, REPOSITORY, Run, Starter, measure_peak

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]


@pytest.fixture(scope="module")
def nemo_peak(nemo_python: Path, starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    return measure_peak(starter, tmp_path_factory.mktemp("nemo_peak"), NEMO)


@pytest.mark.parametrize(("fixture", "package"), [("jax_peak", "jaxlib"), ("nemo_peak", "torch")])
def test_a_cpu_is_measured_in_both_frameworks(fixture: str, package: str, request: pytest.FixtureRequest) -> None:
    found = msgspec.json.decode(request.getfixturevalue(fixture).read_bytes(), type=PeakMeasurement)
    report = found.report
    assert (report.platform, report.device_kind, found.hardware) == ("cpu", "cpu", "cpu")
    assert report.threads == len(os.sched_getaffinity(0))
    assert package in report.versions
    assert list(found.peaks) == ["bf16", "fp32"]
    assert report.refused == {}
    names = ["query_key_value", "attention_output", "mlp_input", "mlp_output", "head", "square"]
    assert [rate.shape.name for rate in report.rates] == 2 * names
    assert all(len(rate.tflops) == 5 for rate in report.rates)
    for peak in found.peaks.values():  # no laptop is slower, and no CPU faster
        assert 0.001 < peak.tflops < 500


def test_a_maxtext_run_over_virtual_devices_is_held_against_the_machine(sharded: Run, jax_peak: Path) -> None:
    entry: dict[str, Any] = next(one for one in sharded.result["mfu"] if "measured" in one["convention"])
    peak_tflops = json.loads(jax_peak.read_text())["peaks"]["bf16"]["tflops"]
    assert entry["peak_tflops"] * 4 == pytest.approx(peak_tflops)
    assert entry["peak_source"].startswith("measured: launch/peak.py, ")
    assert "sha256" in entry["peak_source"]
    achieved = sharded.result["model_flops_per_step"] / sharded.result["seconds_per_step"]["median"] / 1e12
    assert entry["percent"] == pytest.approx(100 * achieved / peak_tflops)


@pytest.mark.parametrize("fixture", ["jax_python", "nemo_python"])
def test_a_program_without_its_device_says_so(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What a GPU node would say whose framework sees no GPU: one line, and no report."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    backend = fixture.removesuffix("_python")
    program = str(REPOSITORY / f"{backend}_backend/inside/peak_program.py")
    done = subprocess.run(
        [request.getfixturevalue(fixture), "-P", program, "--platform=cuda", str(tmp_path)],
        env={**os.environ, "JAX_PLATFORMS": "cuda"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert {"jax": "no cuda device here", "nemo": "finds no GPU here"}[backend] in done.stderr
    assert list(tmp_path.iterdir()) == []
