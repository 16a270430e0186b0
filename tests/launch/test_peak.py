"""launch/peak.py and --measured_peak, on a backend whose device multiplies at a given rate."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.machine.peak_file import PeakMeasurementFile
from benchmarks.machine.peaks import TURNS
from tests import toy_backend

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 240


class Machine:
    """The toy backend in its own home."""

    def __init__(self, folder: Path, play: Callable[[str], None]) -> None:
        self.play = play
        self.folder, self.home = folder, folder / "home"
        self.variables = toy_backend.install(folder)
        toy_backend.make_environment_in(folder)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.variables["TMPDIR"] = str(self.temporary)

    def start(self, command: list[str], **variables: str) -> "subprocess.Popen[str]":
        path = f"{self.variables['PYTHONPATH']}:{REPOSITORY}"
        environment = {**os.environ, **self.variables, "PYTHONPATH": path, **variables}
        return subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def call(self, command: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(command, **variables)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def peak(self, *flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.call([str(REPOSITORY / "launch/peak.py"), "--backend=toy", *flags], **variables)

    def on_a_gpu(self, device: str, *flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run on a GPU of that name; without a name, on a driver without GPUs."""
        gpu = f"[gpu]\nname = {device}\nuuid = GPU-7\nmemory_mib = 81559\n" if device else ""
        self.play(f"driver = 580.65\n{gpu}")
        return self.peak(*flags, **{"TOY_DEVICE": device, **variables})

    def run(self, *flags: str) -> "subprocess.CompletedProcess[str]":
        toy = ["--backend=toy", "--model=llama2_tiny", "--steps=5", f"--output_dir={self.folder / 'results'}"]
        return self.call([str(REPOSITORY / "launch/run.py"), *toy, *flags])

    def peaks(self) -> list[str]:
        place = self.home / "peaks"
        return sorted(path.name for path in place.iterdir()) if place.exists() else []

    def file(self) -> Path:
        (path,) = (self.home / "peaks").glob("*.json")
        return path


@pytest.fixture
def machine(tmp_path: Path, play_machine: Callable[[str], None]) -> Machine:
    return Machine(tmp_path, play_machine)


CPU = "--hardware=cpu"
TINY = "--model=llama2_tiny"


ALL_BUSY = """
driver = 580.65
[gpu x2]
name = NVIDIA H100 80GB HBM3
uuid = GPU-%d
memory_mib = 81559
process = 4242 61440 /usr/bin/python3
"""


def test_a_gpu_in_use_is_not_measured_unless_that_is_allowed(
    machine: Machine, play_machine: Callable[[str], None]
) -> None:
    gpu = {"TOY_DEVICE": "NVIDIA H100 80GB HBM3"}
    play_machine(ALL_BUSY)
    done = machine.peak(TINY, **gpu)
    assert (done.returncode, "all GPUs are in use" in done.stderr) == (2, True)
    assert "GPU 0: process 4242 (/usr/bin/python3) holds 64.4 GB" in done.stderr
    assert machine.peak(TINY, CPU).returncode == 0
    done = machine.peak(TINY, "--allow_busy", **gpu)
    assert (done.returncode, "GPU 0: process 4242" in done.stdout) == (0, True)
    play_machine("busy_h100")
    done = machine.peak(TINY, **gpu)
    assert (done.returncode, "4242" in done.stdout) == (0, False)
    assert "it is shown 'GPU-6a1f" in done.stdout


# --- measuring ----------------------------------------------------------------------------------


def test_a_cpu_is_measured_and_the_file_says_how(machine: Machine) -> None:
    done = machine.peak(CPU, "--tokens=32")
    assert done.returncode == 0, done.stderr
    (name,) = machine.peaks()
    assert name.startswith("cpu-")
    assert name.endswith("-toy.json")
    found = json.loads(machine.file().read_text())
    assert found["peaks"]["bf16"]["tflops"] == pytest.approx(6.0)  # 2 x 2 x 1.5, of mlp_input
    assert (found["peaks"]["bf16"]["of"], found["peaks"]["bf16"]["turns"]) == ("mlp_input", TURNS)
    assert found["peaks"]["fp32"]["tflops"] == pytest.approx(3.0)
    assert (list(found["peaks"]), found["report"]["refused"]) == (["bf16", "fp32"], {})
    assert (found["model"], found["hardware"], found["engine"]) == ("llama2_70b", "cpu", "nap")
    for words in (
        "the highest median",
        "fp8 is not measured",
        "a toy says so",
        "the matmuls have only 32 rows (--tokens), but a sequence has 4096 tokens",
        "1/N",
        f"--measured_peak={machine.file()}",
    ):
        assert words in done.stdout
    assert "measuring matmuls with Toy" in done.stderr
    assert list(machine.temporary.iterdir()) == []


def test_json_is_the_file(machine: Machine) -> None:
    place = machine.folder / "sub folder" / "peak.json"
    done = machine.peak(CPU, "--json", f"--out={place}", "--dtype=fp32", TINY)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    msgspec.convert(printed, PeakMeasurementFile)
    assert printed == {"file": str(place), **json.loads(place.read_text())}
    assert list(printed["peaks"]) == ["fp32"]
    assert machine.peaks() == []


def test_a_known_gpu_is_compared_with_its_published_peak(machine: Machine) -> None:
    done = machine.on_a_gpu("NVIDIA H100 80GB HBM3", TOY_TFLOPS="200")
    assert done.returncode == 0, done.stderr
    assert machine.peaks() == ["cuda-nvidia-h100-80gb-hbm3-toy.json"]
    assert "794.5 (75.5%)" in done.stdout
    assert "989 (60.7%)" in done.stdout
    assert "--hardware=h100" in done.stdout
    assert "[4096, 8192] x [8192, 10240]" in done.stdout
    assert "fp8 was not measured: RuntimeError: a toy has no eighths" in done.stdout


@pytest.mark.parametrize(
    ("gpu", "flags", "shown"),
    [
        ("NVIDIA H100 80GB HBM3", [], "it is shown 'GPU-7'"),
        ("NVIDIA H100 80GB HBM3", [CPU], "it is shown ''"),
        ("", [], "it is shown ''"),
    ],
    ids=["a GPU", "the CPU beside a GPU", "a driver without a GPU"],
)
def test_a_program_is_shown_what_is_measured_alone(machine: Machine, gpu: str, flags: list[str], shown: str) -> None:
    """A framework's CUDA build would take a GPU where the CPU was asked for."""
    device = {"TOY_DEVICE": gpu if shown.endswith("7'") else "cpu"}
    done = machine.on_a_gpu(gpu, TINY, *flags, **device)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert ("note: measuring the CPU: the driver shows no GPU" in done.stderr) is (not gpu)


def test_nothing_measured_or_nothing_stored_is_a_failure(machine: Machine) -> None:
    (machine.folder / "a_folder").mkdir()
    done = machine.peak(CPU, TINY, "--out=a_folder")
    assert (done.returncode, "the peak" in done.stdout, "Is a directory" in done.stderr) == (1, True, True)
    done = machine.peak(CPU, "--dtype=fp32", TOY_ENDS="memory")
    assert (done.returncode, machine.peaks()) == (1, [])
    assert "could not measure a precision" in done.stderr
    assert "out of memory" in done.stderr


def test_a_broken_program_leaves_its_log_and_says_where(machine: Machine) -> None:
    done = machine.peak(CPU, TOY_ENDS="raise", TINY="1")
    assert done.returncode == 1
    assert "ValueError: told to" in done.stderr
    (left,) = machine.temporary.glob("stepmark-peak-toy-*")
    assert str(left / "rank-0.log") in done.stderr
    assert (left / "rank-0.log").exists()
    assert machine.peaks() == []


def test_interrupted_it_leaves_no_worker(machine: Machine) -> None:
    process = machine.start([str(REPOSITORY / "launch/peak.py"), "--backend=toy", CPU], TOY_ENDS="hang")
    deadline = time.monotonic() + LIMIT_SECONDS
    while not any(machine.temporary.glob("*/rank-0.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    assert workers() != []
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert (machine.peaks(), workers(machine.temporary)) == ([], [])


def workers(folder: Path | None = None) -> list[str]:
    """The command lines of toy programs that measure; below one folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        if "toy_peak.py" in words and str(folder or "") in words:
            found.append(words)
    return found


# --- a run --------------------------------------------------------------------------------------


def test_a_run_refuses_what_is_no_peak_of_this_machine(machine: Machine) -> None:
    assert machine.peak(CPU, TINY, "--dtype=fp32").returncode == 0
    good = machine.file().read_text()
    other = json.loads(good)
    other["processor"] = "Processor X"
    gpu = json.loads(good)
    gpu["report"].update(platform="cuda", device_kind="NVIDIA Z9")
    texts = {"damaged.json": good[:300], "other.json": json.dumps(other), "gpu.json": json.dumps(gpu)}
    for name, text in texts.items():
        (machine.folder / name).write_text(text)
    for name, words in (
        ("damaged.json", "is not a measured peak"),
        ("other.json", "a different CPU: Processor X"),
        ("gpu.json", "a different device, NVIDIA Z9 (cuda)"),
        ("none.json", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        (str(machine.file()), "no measured peak for bf16"),
    ):
        done = machine.run(f"--measured_peak={name}", "--dtype=bf16")
        assert done.returncode == 2, (name, done.stderr)
        assert words in done.stderr, name
    assert not (machine.folder / "results").exists()


def test_a_run_on_a_cluster_takes_the_peak_of_its_gpus(machine: Machine) -> None:
    assert machine.on_a_gpu("NVIDIA H100 80GB HBM3", TINY).returncode == 0
    flags = ("--site=example_pyxis", "--hardware=h100", "--dtype=bf16", "--gpus=8", "--dry_run", "--verbose")
    done = machine.run(f"--measured_peak={machine.file()}", *flags)
    assert done.returncode == 0, done.stderr
    assert "job.sbatch" in done.stdout
    refused = machine.run(
        f"--measured_peak={machine.file()}", "--dtype=bf16", "--dry_run", "--verbose"
    )  # here, on the CPU
    assert (refused.returncode, "measured on a different device" in refused.stderr) == (2, True)
