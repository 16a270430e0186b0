"""The sampler of a run on this machine: it starts, ends with the run, and does not affect it when it fails."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.telemetry.samples import read
from benchmarks.telemetry.summary import summarise
from launch.running import local
from tests.stand_ins.nvml.build import MACHINES, build


def wait_for(true: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def sampled(folder: Path, count: int = 3) -> bool:
    return any(len(node.samples) >= count for node in read(folder))


def test_a_run_is_sampled_until_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "attempt-1" / "telemetry"
    with local.sample_while(folder, interval=0.05):
        wait_for(lambda: sampled(folder))
    (node,) = read(folder)
    assert node.end.reason == "SIGTERM"
    assert node.unreadable == []
    assert len(list(folder.iterdir())) == 1, "a log that says nothing is not kept"


@pytest.mark.parametrize(
    ("machine", "places", "known"),
    [
        ("dgx_h100", ["00000000:11:00.0", "00000000:12:00.0"], 10),
        ("mig_slice", ["00000000:1B:00.0"], 6),  # all but what the slices have together
    ],
)
def test_telemetry_of_the_runs_gpus_by_the_launchers_own_pynvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, places: list[str], known: int
) -> None:
    """The real nvidia-ml-py on the stand-in for its library: the whole way from NVML to the figures of a result."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build(tmp_path).parent))
    monkeypatch.setenv("STEPMARK_NVML_MACHINE", str(MACHINES / machine))
    folder = tmp_path / "telemetry"
    with local.sample_while(folder, interval=0.05, gpus=places):
        wait_for(lambda: sampled(folder))
    (node,) = read(folder)
    assert node.unreadable == []
    row = node.samples[1].gpus[0]
    assert sum(getattr(row, name) is not None for name in row.__struct_fields__) == known
    times = [sample.time for sample in node.samples]
    gpu = summarise([node], (times[0], times[-1]), 1000, gpus_expected=len(places)).gpu
    assert (gpu.gpus, gpu.power_limit_watts, gpu.sm_clock_mhz_median) == (len(places), 700.0, 1755)
    assert (gpu.temperature_c_max, gpu.driver is None) == (41, False)
    assert (gpu.energy_joules is not None) is (machine == "dgx_h100"), gpu.null_because


def test_a_failed_sampler_is_noted_and_its_log_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import time\nprint('first', flush=True)\nraise SystemExit('stepmark: sampled no more')")
    monkeypatch.setattr(local, "SAMPLER", broken)
    folder = tmp_path / "telemetry"
    with local.sample_while(folder):
        wait_for(lambda: (folder / local.SAMPLER_LOG).read_text().count("\n") == 2)
    assert capsys.readouterr().err == "stepmark: sampled no more\n"
    assert (folder / local.SAMPLER_LOG).exists()


def test_a_sampler_that_hangs_does_not_hold_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = tmp_path / "stubborn.py"
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    stubborn.write_text(f"import os, signal, time\n{ignore}\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(local, "SAMPLER", stubborn)
    monkeypatch.setattr(local, "END_SECONDS", 0.3)
    folder = tmp_path / "telemetry"
    with local.sample_while(folder):
        wait_for(lambda: (folder / local.SAMPLER_LOG).read_text().strip() != "")
        pid = int((folder / local.SAMPLER_LOG).read_text())
        asked = time.monotonic()
    assert time.monotonic() - asked < 50
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
