"""The sampler as it runs: a program of its own, with a pynvml made here that answers, refuses or loses a GPU."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.inside import node_sampler as module
from benchmarks.telemetry.samples import GpuSample, read

SAMPLER = Path(module.__file__)

# Answers like a DGX's driver; what FAKE_NVML says (JSON) is refused, or lost after so many questions for energy.
FAKE_PYNVML = """
import json, os
from types import SimpleNamespace
told = json.loads(os.environ["FAKE_NVML"])
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
class NVMLError_FunctionNotFound(NVMLError): pass
class NVMLError_LibraryNotFound(NVMLError): pass
class NVMLError_GpuIsLost(NVMLError): pass
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
asked = {}
def nvmlInit():
    if told.get("init"): raise globals()[told["init"]]()
def nvmlDeviceGetCount(): return told.get("count", 2)
def nvmlSystemGetDriverVersion(): return "580.65"
def nvmlSystemGetNVMLVersion(): return b"13.580.65"
def nvmlSystemGetCudaDriverVersion(): return 13010
def nvmlDeviceGetHandleByIndex(index):
    if index in told.get("no_handle", []): raise NVMLError_GpuIsLost()
    return index
def answer(name, gpu, value):
    asked[name, gpu] = asked.get((name, gpu), 0) + 1
    with open(os.environ["FAKE_NVML_ASKED"], "a") as stream: stream.write(f"{name} {gpu}\\n")
    energy = asked["nvmlDeviceGetTotalEnergyConsumption", gpu]
    if gpu in told.get("lost", {}).get("gpus", []) and energy > told["lost"]["after"]:
        raise NVMLError_GpuIsLost()
    if name in told.get("unsupported", []): raise NVMLError_NotSupported()
    if name in told.get("not_found", []): raise NVMLError_FunctionNotFound()
    return value
def def_(name, value):
    asked.update({(name, gpu): 0 for gpu in range(8)})
    globals()[name] = lambda gpu, *more: answer(name, gpu, value(gpu, asked[name, gpu], *more))
def_("nvmlDeviceGetName", lambda gpu, n: "NVIDIA H100 80GB HBM3")
def_("nvmlDeviceGetUUID", lambda gpu, n: f"GPU-{gpu}")
def_("nvmlDeviceGetPciInfo", lambda gpu, n: SimpleNamespace(busId=b"00000000:1B:00.0"))
def_("nvmlDeviceGetEnforcedPowerLimit", lambda gpu, n: 700000)
def_("nvmlDeviceGetMaxClockInfo", lambda gpu, n, kind: {1: 1980, 2: 2619}[kind])
def_("nvmlDeviceGetRemappedRows", lambda gpu, n: (1, n, 0, 0))
def_("nvmlDeviceGetTotalEnergyConsumption", lambda gpu, n: 1000000 + 350000 * n)
def_("nvmlDeviceGetPowerUsage", lambda gpu, n: 350500)
def_("nvmlDeviceGetClockInfo", lambda gpu, n, kind: {1: 1755 - gpu, 2: 2619}[kind])
def_("nvmlDeviceGetTemperature", lambda gpu, n, sensor: 61 + gpu)
def_("nvmlDeviceGetUtilizationRates", lambda gpu, n: SimpleNamespace(gpu=99, memory=50))
def_("nvmlDeviceGetMemoryInfo", lambda gpu, n: SimpleNamespace(total=2**36, used=2**35, free=2**35))
def_(told.get("reasons", "nvmlDeviceGetCurrentClocksEventReasons"), lambda gpu, n: 0x4)
def_("nvmlDeviceGetTotalEccErrors", lambda gpu, n, kind, counter: {(1, 0): 3}[kind, counter])
def_("nvmlDeviceGetPcieReplayCounter", lambda gpu, n: 7)
"""
ROW = [1_000_000, 350.5, 1755, 2619, 61, 99, 2**35, 4, 3, 7]


class Sampler:
    """The program on a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "telemetry"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        self.running: list[subprocess.Popen[str]] = []
        (folder / "modules").mkdir()

    def with_nvml(self, source: str = FAKE_PYNVML, **told: Any) -> None:
        (self.folder / "modules" / "pynvml.py").write_text(source)
        asked = str(self.folder / "asked")
        self.environment |= {"FAKE_NVML": json.dumps(told), "FAKE_NVML_ASKED": asked}
        self.environment["PYTHONPATH"] = str(self.folder / "modules")

    def without_nvml(self) -> None:
        self.with_nvml("raise ImportError('not there')")

    def start(self, *options: str, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, str(SAMPLER), f"--out={self.out}", "--interval=0.05", *options]
        process = subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True, **more)
        self.running.append(process)
        return process

    def file(self, name: str = "n1") -> Path:
        return self.out / f"node-{name}.jsonl"

    def wait_for_lines(self, count: int, name: str = "n1") -> None:
        wait_for(lambda: self.file(name).exists() and self.file(name).read_text().count("\n") >= count)

    def sampled(self, *options: str, lines: int = 5) -> list[dict[str, Any]]:
        """What it wrote until it was told to end."""
        process = self.start("--name=n1", *options)
        self.wait_for_lines(lines)
        process.terminate()
        _, said = process.communicate(timeout=10)
        assert (process.returncode, said) == (0, "")
        return [json.loads(line) for line in self.file().read_text().splitlines()]


def wait_for(true: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Sampler]:
    made = Sampler(tmp_path)
    made.without_nvml()
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


# --- what it writes -------------------------------------------------------------------------------------


def test_facts_samples_and_an_end_with_all_that_nvml_knows(sampler: Sampler) -> None:
    sampler.with_nvml()
    before = time.time()
    facts, *samples, end = sampler.sampled()
    assert facts["event"] == "facts"
    assert before <= facts["time"] <= time.time()
    assert (facts["host"], facts["interval"], facts["cpus"]) == ("n1", 0.05, os.cpu_count())
    assert facts["memory_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (facts["driver"], facts["nvml"], facts["cuda"]) == ("580.65", "13.580.65", "13.1")
    assert facts["no_gpus_because"] is None
    assert facts["gpus"][1] == {
        "index": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "bus_id": "00000000:1B:00.0",
        "power_limit_w": 700.0,
        "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 2619,
        "remapped_rows": 1,
    }
    assert [sample["event"] for sample in samples] == ["sample"] * len(samples)
    assert samples[0]["gpus"][0] == ROW
    assert samples[1]["gpus"][0] == [1_350_000, *ROW[1:]]
    assert samples[1]["gpus"][1][2] == 1754
    assert all(
        0 <= sample["cpu_utilisation"] <= 1 for sample in samples[2:-1] if sample["cpu_utilisation"] is not None
    )
    assert samples[0]["memory_used_bytes"] + samples[0]["memory_available_bytes"] == facts["memory_bytes"]
    assert (end["event"], end["reason"], end["samples"]) == ("end", "SIGTERM", len(samples))
    assert end["remapped_rows"] == [2, 2], "at the begin and at the end"


def test_its_own_reader_reads_it(sampler: Sampler) -> None:
    sampler.with_nvml()
    lines = sampler.sampled()
    recorded = read(sampler.out)
    (node,) = recorded.nodes
    assert recorded.unreadable == []
    assert tuple(node.facts.gpu_columns) == GpuSample.__struct_fields__
    assert node.samples[0].gpus[0] == GpuSample(**dict(zip(GpuSample.__struct_fields__, ROW, strict=True)))
    assert (len(node.samples), node.name, node.end is not None) == (len(lines) - 2, "n1", True)


def test_the_standard_library_is_enough(sampler: Sampler) -> None:
    """Any node's Python: without site-packages, without our folder on its path."""
    command = [sys.executable, "-I", "-S", str(SAMPLER), f"--out={sampler.out}", "--interval=0.05", "--name=n1"]
    with subprocess.Popen(command) as process:
        sampler.wait_for_lines(3)
        process.terminate()
    assert process.returncode == 0
    facts = read(sampler.out).nodes[0].facts
    assert facts.no_gpus_because == "the package nvidia-ml-py is not there"


def test_the_file_that_it_is_given_serves_a_python_that_has_no_such_package(sampler: Sampler) -> None:
    """As the Python of an image; what an image has installed itself may be too old for the driver."""
    sampler.with_nvml()
    own = sampler.folder / "of the launcher" / "pynvml.py"
    own.parent.mkdir()
    (sampler.folder / "modules" / "pynvml.py").rename(own)
    sampler.without_nvml()
    sampler.environment["FAKE_NVML"] = "{}"
    assert sampler.sampled(f"--pynvml={own}")[1]["gpus"][0] == ROW
    assert find_gpus_without(sampler, own.with_name("gone.py")) == "the package nvidia-ml-py is not there"


def find_gpus_without(sampler: Sampler, path: Path) -> str:
    sampler.file().unlink()
    return str(sampler.sampled(f"--pynvml={path}")[0]["no_gpus_because"])


# --- without a driver, and with one that lacks things ---------------------------------------------------


def test_a_driver_without_gpus_and_gpus_that_are_left_alone(sampler: Sampler) -> None:
    sampler.with_nvml(count=0)
    assert sampler.sampled()[0]["no_gpus_because"] == "the driver shows no GPU"
    sampler.file().unlink()
    sampler.with_nvml()
    facts, *_ = sampler.sampled("--no_gpus")
    assert (facts["no_gpus_because"], facts["gpus"]) == ("not asked for", [])
    assert not (sampler.folder / "asked").exists()


UNSUPPORTED = {
    "nvmlDeviceGetTotalEnergyConsumption": 0,
    "nvmlDeviceGetCurrentClocksEventReasons": 7,
    "nvmlDeviceGetPcieReplayCounter": 9,
}


@pytest.mark.parametrize("how", ["unsupported", "not_found"])
@pytest.mark.parametrize(("name", "column"), UNSUPPORTED.items())
def test_what_a_gpu_does_not_support_is_null_and_asked_once(
    sampler: Sampler, how: str, name: str, column: int
) -> None:
    sampler.with_nvml(**{how: [name]}, count=1)
    _, *samples, _ = sampler.sampled()
    for sample in samples:
        assert sample["gpus"][0][1:] == [None if place == column else ROW[place] for place in range(1, 10)]
        assert (sample["gpus"][0][0] is None) == (column == 0)
        assert "errors" not in sample
    assert (sampler.folder / "asked").read_text().count(f"{name} 0\n") == 1


def test_a_gpu_that_falls_off_the_bus_is_named_and_the_others_go_on(sampler: Sampler) -> None:
    sampler.with_nvml(count=3, lost={"gpus": [1], "after": 2})
    _, *samples, end = sampler.sampled(lines=7)
    assert "errors" not in samples[1]
    for sample in samples[2:]:
        assert sample["gpus"][1] is None
        assert sample["errors"] == {"1": "NVMLError_GpuIsLost"}
        assert sample["gpus"][0][2] == 1755
        assert sample["gpus"][2][2] == 1753
    assert end["remapped_rows"] == [2, None, 2]
    assert read(sampler.out).unreadable == []


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


@pytest.mark.parametrize("text", [None, "", "cpu\n", "cpu a b c d e f g h\n", "intr 1 2 3"])
def test_files_that_are_missing_or_strange_leave_figures_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr(module, "PROC", tmp_path)
    if text is not None:
        (tmp_path / "stat").write_text(text)
        (tmp_path / "meminfo").write_text(text + "MemTotal:\n")
    node = module.Node("n1")
    sample = node.sample()
    assert sample["cpu_utilisation"] is sample["memory_used_bytes"] is sample["memory_available_bytes"] is None
    (tmp_path / "stat").write_text("cpu  1 1 1 1 1 1 1 1\n")
    (tmp_path / "meminfo").write_text(MEMORY)
    assert node.sample()["memory_used_bytes"] == 600 * 1024


# --- names and options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "slurm", "name"),
    [
        (["--name=a/b"], "gpu-017", "a_b"),
        ([], "gpu-017", "gpu-017"),
        ([], None, socket.gethostname()),
    ],
)
def test_a_node_is_called_as_slurm_calls_it(
    sampler: Sampler, options: list[str], slurm: str | None, name: str
) -> None:
    if slurm:
        sampler.environment["SLURMD_NODENAME"] = slurm
    process = sampler.start(*options)
    sampler.wait_for_lines(2, name)
    process.terminate()
    assert process.wait(10) == 0


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_at_once_with_a_last_sample(sampler: Sampler, number: signal.Signals) -> None:
    process = sampler.start("--name=n1", "--interval=60")
    sampler.wait_for_lines(2)
    told = time.time()
    process.send_signal(number)
    assert process.wait(10) == 0
    assert time.time() - told < 5
    *_, last, end = [json.loads(line) for line in sampler.file().read_text().splitlines()]
    assert told <= last["time"] <= told + 5
    assert (end["reason"], end["samples"]) == (number.name, 2)


def limited() -> None:
    """A file may have 3,000 bytes, as on a disk that is nearly full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def test_a_full_disk_ends_it_with_a_word_and_costs_only_the_line_that_is_cut(sampler: Sampler) -> None:
    process = sampler.start("--name=n1", preexec_fn=limited)
    _, said = process.communicate(timeout=15)
    assert process.returncode == 1
    assert said.splitlines() == ["stepmark: node n1 is sampled no more: [Errno 27] File too large"]
    recorded = read(sampler.out)
    assert len(recorded.unreadable) <= 1
    assert len(recorded.nodes[0].samples) > 5
