"""The sampler as a separate program, with the real pynvml on simulated machines."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from benchmarks.inside import node_sampler as module
from benchmarks.telemetry.samples import GpuSample, read

SAMPLER = Path(module.__file__)
BARE = ("-I", "-S")  # any node's Python: without site-packages, without our folder on its path
Play = Callable[[str], None]


class Sampler:
    """The program with its own folder."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "telemetry"
        self.variables: dict[str, str] = {}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *options: str, python: tuple[str, ...] = (), **more: Any) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        command = [sys.executable, *python, str(SAMPLER), f"--out={self.out}", "--interval=0.05", *options]
        process = subprocess.Popen(
            command, env=environment | self.variables, stderr=subprocess.PIPE, text=True, **more
        )
        self.running.append(process)
        return process

    def file(self, name: str = "n1") -> Path:
        return self.out / f"node-{name}.jsonl"

    def wait_for_lines(self, count: int, name: str = "n1") -> None:
        deadline = time.monotonic() + 120
        while not (self.file(name).exists() and self.file(name).read_text().count("\n") >= count):
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def sampled(self, *options: str, python: tuple[str, ...] = (), lines: int = 5) -> list[dict[str, Any]]:
        """Return what it wrote until the signal to end."""
        self.file().unlink(missing_ok=True)
        process = self.start("--name=n1", *options, python=python)
        self.wait_for_lines(lines)
        process.terminate()
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        return [json.loads(line) for line in self.file().read_text().splitlines()]


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Sampler]:
    made = Sampler(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


# --- what it writes -------------------------------------------------------------------------------------


def test_facts_samples_and_an_end_with_all_that_nvml_knows(sampler: Sampler, play_machine: Play) -> None:
    play_machine("dgx_h100")
    facts, *samples, end = sampler.sampled()
    assert (facts["event"], facts["host"], facts["interval"], facts["cpus"]) == ("facts", "n1", 0.05, os.cpu_count())
    assert facts["memory_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (facts["driver"], facts["cuda"], facts["no_gpus_because"]) == ("580.95.05", "13.0", None)
    gpu = facts["gpus"][1]
    assert (gpu["index"], gpu["name"], gpu["bus_id"]) == (1, "NVIDIA H100 80GB HBM3", "00000000:11:00.0")
    assert (gpu["power_limit_w"], gpu["max_sm_clock_mhz"], gpu["remapped_rows"]) == (700.0, 1980, 0)
    assert {sample["event"] for sample in samples} == {"sample"}
    assert [sample["gpus"][0][0] for sample in samples[:2]] == [1_350_000, 1_700_000]
    assert samples[0]["gpus"][0][1:6] == [350.0, 1755, 2619, 41, 0]
    assert all(
        0 <= sample["cpu_utilisation"] <= 1 for sample in samples[2:-1] if sample["cpu_utilisation"] is not None
    )
    assert samples[0]["memory_used_bytes"] + samples[0]["memory_available_bytes"] == facts["memory_bytes"]
    assert (end["event"], end["reason"], end["samples"]) == ("end", "SIGTERM", len(samples))
    assert end["remapped_rows"] == [0] * 8
    (node,) = read(sampler.out)
    assert (node.unreadable, len(node.samples), node.end is not None) == ([], len(samples), True)
    assert node.facts is not None
    assert tuple(node.facts.gpu_columns) == GpuSample.__struct_fields__
    assert node.samples[0].gpus[0].sm_clock_mhz == 1755


def test_any_python_will_do_and_a_file_that_it_is_given_serves_for_the_package(
    sampler: Sampler, play_machine: Play, tmp_path: Path
) -> None:
    """As the Python of an image; what an image has installed itself may be too old for the driver."""
    play_machine("dgx_h100")
    for options in ([], [f"--pynvml={tmp_path / 'gone.py'}"]):
        facts, *_ = sampler.sampled(*options, python=BARE)
        assert facts["no_gpus_because"] == "the package nvidia-ml-py is not installed"
    facts, first, *_ = sampler.sampled(f"--pynvml={pynvml.__file__}", "--gpus=00000000:12:00.0", python=BARE)
    assert [gpu["index"] for gpu in facts["gpus"]] == [2]
    assert first["gpus"][0][2] == 1755


@pytest.mark.parametrize(
    ("machine", "options", "why"),
    [
        ("init = 12", [], "no NVIDIA driver: NVMLError_LibraryNotFound"),
        ("driver = 1", [], "the driver shows no GPU"),
        ("dgx_h100", ["--no_gpus"], "not requested"),
    ],
)
def test_the_reason_for_sampling_no_gpu_is_recorded(
    sampler: Sampler, play_machine: Play, machine: str, options: list[str], why: str
) -> None:
    play_machine(machine)
    facts, *_ = sampler.sampled(*options)
    assert (facts["no_gpus_because"], facts["gpus"]) == (why, [])


def test_what_a_gpu_does_not_support_is_null_and_no_error(sampler: Sampler, play_machine: Play) -> None:
    play_machine("driver = 1\n[gpu]\nname = A\nuuid = GPU-a\nsm_mhz = 1000\necc = 0")
    _, *samples, end = sampler.sampled()
    place = GpuSample.__struct_fields__.index("ecc_uncorrected")
    assert [(sample["gpus"][0][2], sample["gpus"][0][place]) for sample in samples] == [(1000, None)] * len(samples)
    assert not any("errors" in sample for sample in samples)
    assert end["remapped_rows"] == [None]


def test_a_gpu_that_falls_off_the_bus_is_named_and_the_others_go_on(sampler: Sampler, play_machine: Play) -> None:
    play_machine("falls_off_the_bus")
    _, *samples, end = sampler.sampled(lines=7)
    assert "errors" not in samples[1]
    for sample in samples[2:]:
        assert (sample["gpus"][0][2], sample["gpus"][1]) == (1755, None)
        assert sample["errors"] == {"1": "NVMLError_GpuIsLost"}
    assert end["remapped_rows"] == [0, None]
    assert [node.unreadable for node in read(sampler.out)] == [[]]


# --- the node's own files -------------------------------------------------------------------------------

MEMORY = "MemTotal:    1000 kB\nMemFree:  1 kB\nMemAvailable:   400 kB\nOther: x\n"


def test_utilisation_is_of_the_time_between_two_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle and waiting for a disk is not busy; guest time is in user time already."""
    monkeypatch.setattr(module, "PROC", tmp_path)
    (tmp_path / "meminfo").write_text(MEMORY)
    (tmp_path / "stat").write_text("cpu  100 10 50 800 40 0 0 0 7 0\ncpu0 1 1 1 1\n")
    node = module.Node("n1")
    (tmp_path / "stat").write_text("cpu  130 20 70 830 50 10 10 10 99 0\n")
    sample = node.sample()
    assert sample["cpu_utilisation"] == pytest.approx(90 / 130, abs=1e-4)
    assert (sample["memory_used_bytes"], sample["memory_available_bytes"]) == (600 * 1024, 400 * 1024)
    assert node.sample()["cpu_utilisation"] is None, "no time has passed"
    assert node.facts()["memory_bytes"] == 1000 * 1024


# --- names and options ----------------------------------------------------------------------------------


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_at_once_with_a_last_sample(sampler: Sampler, number: signal.Signals) -> None:
    process = sampler.start("--name=n1", "--interval=60")
    sampler.wait_for_lines(2)
    stopped_at = time.time()
    process.send_signal(number)
    assert process.wait(120) == 0
    assert time.time() - stopped_at < 50
    *_, last, end = [json.loads(line) for line in sampler.file().read_text().splitlines()]
    assert stopped_at <= last["time"] <= stopped_at + 50
    assert (end["reason"], end["samples"]) == (number.name, 2)


def limited() -> None:
    """A file may have 3,000 bytes, as on a disk that is nearly full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def test_a_full_disk_ends_it_with_a_word_and_costs_only_the_line_that_is_cut(sampler: Sampler) -> None:
    process = sampler.start("--name=n1", preexec_fn=limited)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines() == ["stepmark: sampling of node n1 stopped: [Errno 27] File too large"]
    (node,) = read(sampler.out)
    assert len(node.unreadable) <= 1
    assert len(node.samples) > 5
