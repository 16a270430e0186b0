"""NVML as the real pynvml asks it, of machines that are stand-ins; and runs on such machines."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.request.resolve import Request
from launch.machine import machine_gpus
from launch.preflight import machine
from launch.running import local
from launch.terminal import progress
from tests import forked
from tests.toy_backend import install, make_environment_in

REPOSITORY = Path(__file__).resolve().parents[3]
Play = Callable[[str], None]
TINY = ("--backend=jax", "--model=llama2_tiny")
EIGHT_B = ("--backend=nemo", "--model=llama31_8b")


@pytest.mark.parametrize(
    ("machine", "shown", "driver", "cuda"),
    [
        ("dgx_h100", "8 x NVIDIA H100 80GB HBM3", "580.95.05", (13, 0)),
        ("gb200_tray", "4 x NVIDIA GB200", "580.65.06", (13, 0)),
        ("workstation", "2 x NVIDIA GeForce RTX 4090 and 1 x NVIDIA RTX A2000 12GB", "560.35.03", (12, 6)),
        ("old_driver", "2 x NVIDIA A100-SXM4-80GB", "470.256.02", (11, 4)),
    ],
)
def test_what_a_machine_has(machine: str, shown: str, driver: str, cuda: tuple[int, int], play_machine: Play) -> None:
    play_machine(machine)
    found = machine_gpus.detect()
    assert machine_gpus.machine_gpus.shown(found.gpus) == shown
    assert (found.driver, found.cuda, found.why_none) == (driver, cuda, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("init = 9", "not loaded"),
        ("init = 12", "libnvidia-ml.so.1 was not found"),
        ("init = 18", "restart the machine"),
        ("init = 999", "NVML failed"),
        ("driver = 1", "the driver shows no GPU"),
        ("mig_slice", "GPU 0 is in MIG mode"),
        ("driver = 1\n[gpu]\nlost = 1", "GPU 0 does not answer"),
    ],
)
def test_why_there_are_no_gpus(text: str, why: str, play_machine: Play) -> None:
    play_machine(text)
    found = machine_gpus.detect()
    assert found.gpus == ()
    assert why in found.why_none


# --- what is chosen, and what is refused ----------------------------------------------------------


def dry_run(folder: Path, *flags: str) -> tuple[str, str]:
    done = forked.run(REPOSITORY / "launch/run.py", *flags, "--dry_run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("machine", "flags", "chosen"),
    [
        ("dgx_h100", EIGHT_B, "--hardware=h100 --gpus=8"),
        ("workstation", (*TINY, "--hardware=here"), "--hardware=nvidia_geforce_rtx_4090 --gpus=2"),
    ],
)
def test_a_request_takes_the_gpus_that_are_here(
    machine: str, flags: tuple[str, ...], chosen: str, tmp_path: Path, play_machine: Play
) -> None:
    play_machine(machine)
    out, err = dry_run(tmp_path, *flags)
    assert f": {chosen}" in err.splitlines()[0]
    refused = out.partition("would be refused: ")[2]
    assert not refused or "Transformer Engine" in refused  # which the environment lacks, not the machine
    assert ("peaks: {}" in err) == ("nvidia_" in chosen)


def test_a_cpu_benchmark_stays_on_the_cpu(tmp_path: Path, play_machine: Play) -> None:
    play_machine("dgx_h100")
    for backend in ("jax", "nemo"):
        out, err = dry_run(tmp_path, f"--backend={backend}", "--model=llama2_tiny", "--verbose")
        assert (err, " 1 x cpu " in out, "CUDA_VISIBLE_DEVICES=\n" in out) == ("", True, True)


REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yml").read_text())


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refused(case: dict[str, str], tmp_path: Path, play_machine: Play) -> None:
    play_machine(case["machine"])
    flags = case["flags"].split()
    done = forked.run(REPOSITORY / "launch/run.py", *flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert case["words"] in done.stderr
    assert case["next"] in done.stderr.partition("next:")[2]
    assert "Traceback" not in done.stderr
    first = done.stderr.partition("stepmark: ")[2].splitlines()[0]
    assert f"would be refused: {first}" in dry_run(tmp_path, *flags)[0]


@pytest.mark.parametrize(
    ("machine", "variable", "why"),
    [
        ("workstation", "0", "use UUIDs"),
        *(("dgx_h100", text, "does not name exactly one") for text in ("", "-1", "9", "all", "GPU-")),
        ("dgx_h100", "0,0", "'0' does not name exactly one"),
        ("init = 9", None, "not loaded"),
        ("init = 18", None, "restart the machine"),
        ("init = 4", None, "has no permission"),
        ("init = 12", None, ""),
    ],
)
def test_the_cpu_is_taken_in_silence_only_where_there_is_no_driver(
    machine: str,
    variable: str | None,
    why: str,
    play_machine: Play,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play_machine(machine)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    progress.note.cache_clear()
    asked = Request(backend="jax", model="llama32_1b", dtype="bf16")
    assert machine_gpus.with_local_gpus(asked, Configs(), find_backend("jax")) == asked
    printed = capsys.readouterr().err
    assert printed.startswith("No GPU found; running") == bool(why)
    assert why in printed


# --- the doctor ------------------------------------------------------------------------------------

GPU_LINE = "%d, NVIDIA H100 80GB HBM3, GPU-%d, 570.1, %s, Disabled, 81559, 4, 0, %d, %s, 345, 1980, 31"
HEADER = (
    "index, name, uuid, driver_version, persistence_mode, mig.mode.current, memory.total [MiB], memory.used [MiB], "
    "utilization.gpu [%], ecc.errors.uncorrected.volatile.total, clocks_event_reasons.active, "
    "clocks.current.sm [MHz], clocks.max.sm [MHz], temperature.gpu"
)


def play_nvidia_smi(folder: Path, *gpus: str, process: str = "", code: int = 0) -> dict[str, str]:
    """The variables under which nvidia-smi shows these GPUs."""
    links = "".join(f"GPU {n}: H100\n\t Link 0: 26 GB/s\n" for n in range(len(gpus)))
    text = f"""#!/bin/sh
case "$*" in
*query-gpu*) printf '%s\\n' "{HEADER.replace("%", "%%")}" {" ".join(f'"{gpu}"' for gpu in gpus)}; exit {code};;
*compute-apps*) printf 'gpu_uuid, pid, process_name, used_gpu_memory [MiB]\\n{process}';;
*nvlink*) printf '%s' "{links}";;
esac
"""
    (folder / "nvidia-smi").write_text(text)
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def doctor(folder: Path, **variables: str) -> dict[str, tuple[str, str]]:
    done = forked.run(REPOSITORY / "launch/doctor.py", "--json", cwd=folder, env={**os.environ, **variables})
    assert done.stderr == ""
    checks = {check["check"]: (check["status"], check["text"]) for check in json.loads(done.stdout)}
    assert done.returncode == (3 if any(status == "failed" for status, _ in checks.values()) else 0)
    return checks


def test_the_doctor_shows_each_gpu_and_what_is_wrong_with_it(tmp_path: Path, play_machine: Play) -> None:
    play_machine("dgx_h100")
    good = GPU_LINE % (0, 0, "Enabled", 0, "0x0")
    sick = GPU_LINE % (1, 1, "Disabled", 3, "0x40")
    checks = doctor(tmp_path, **play_nvidia_smi(tmp_path, good, sick, process="GPU-1, 7, train.py, 2000\\n"))
    assert checks["GPUs"] == ("ok", "8 x NVIDIA H100 80GB HBM3, driver 580.95.05, CUDA up to 13.0")
    assert checks["GPU 0"] == ("ok", "NVIDIA H100 80GB HBM3, 4 of 81559 MiB in use, 31 C, 345 of 1980 MHz")
    for check, status, words in (
        ("GPUs idle", "failed", "process 7 (train.py)"),
        ("GPU memory errors", "failed", "GPU 1: 3 uncorrected ECC errors"),
        ("GPU throttling", "failed", "GPU 1: hardware thermal"),
        ("GPU persistence", "warning", "off on GPU 1"),
        ("NVLink", "ok", ""),
    ):
        assert checks[check][0] == status
        assert words in checks[check][1]


def test_the_doctor_without_gpus_or_with_a_lost_one(tmp_path: Path, play_machine: Play) -> None:
    play_machine("dgx_h100")
    lost = play_nvidia_smi(tmp_path, "Unable to determine the device handle: GPU is lost", code=15)
    checks = doctor(tmp_path, **lost)
    assert checks["nvidia-smi"][0] == "failed"
    assert "GPU is lost" in checks["nvidia-smi"][1]
    play_machine("init = 12")
    assert doctor(tmp_path)["GPUs"][0] == "not_checked"


def checks_of(machine_report: tuple[Any, str, int]) -> tuple[dict[str, tuple[str, str]], int]:
    found, _, code = machine_report
    return {one.check: (one.status, one.text) for one in found}, code


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing was made and nothing but nvidia-smi is on PATH."""
    play_nvidia_smi(tmp_path, GPU_LINE % (0, 0, "Enabled", 0, "0x0"))
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("home")
def test_the_doctor_holds_the_driver_against_each_environment(play_machine: Play) -> None:
    play_machine("old_driver")
    checks, code = checks_of(machine.report())
    assert code == 3
    for name, cuda in (("jax-maxtext", "12.9"), ("nemo-megatron", "13.0")):
        status, text = checks[f"environment {name}"]
        assert status == "failed"
        assert f"driver 470.256.02 is too old for the CUDA {cuda}" in text
    play_machine("dgx_h100")
    checks, code = checks_of(machine.report())
    assert code == 0
    assert "CUDA 13.0, which needs driver 580 or newer" in checks["environment nemo-megatron"][1]
    play_machine("init = 12")
    checks, code = checks_of(machine.report())
    assert code == 0
    assert "CUDA" not in checks["environment jax-maxtext"][1]


def test_the_doctor_shows_the_container_programs_and_an_unknown_device(
    home: Path, play_machine: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_machine("workstation")
    checks, _ = checks_of(machine.report())
    assert checks["containers"][0] == "not_checked"
    assert checks["MFU on NVIDIA GeForce RTX 4090"][0] == "warning"
    for name, text in (("docker", "echo no daemon >&2; exit 1"), ("apptainer", "echo apptainer 1.4")):
        (home / name).write_text(f"#!/bin/sh\n{text}\n")
        (home / name).chmod(0o755)
    checks, _ = checks_of(machine.report())
    status, text = checks["containers: docker"]
    assert (status, "docker cannot be used: no daemon" in text) == ("warning", True)
    assert checks["containers: apptainer"][0] == "ok"
    info = """echo '{"Runtimes": {"runc": {}}}'"""
    (home / "other").mkdir()
    (home / "other/docker").write_text(f"#!/bin/sh\n{info}\n")
    (home / "other/docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "other"))
    checks, _ = checks_of(machine.report())
    status, text = checks["containers: docker"]
    assert (status, "nvidia-ctk" in text) == ("warning", True)


# --- runs ------------------------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path: Path) -> dict[str, str]:
    variables = install(tmp_path)
    make_environment_in(tmp_path)
    return variables


def run_toy(folder: Path, variables: dict[str, str], *flags: str) -> tuple[int, dict[str, object], Path]:
    def soon() -> None:
        local.GRACE_SECONDS = 0.2

    command = ("--backend=toy", "--model=llama2_tiny", "--hardware=h100", f"--output_dir={folder}/results", *flags)
    done = forked.run(
        REPOSITORY / "launch/run.py", *command, env={**os.environ, **variables}, cwd=folder, prepare=soon
    )
    (run,) = (folder / "results").glob("2*")
    return done.returncode, json.loads((run / "result.json").read_text()), run


@pytest.mark.slow(seconds=5)
def test_a_gpu_that_falls_off_the_bus_ends_a_run_that_would_hang_and_all_steps_are_kept(
    tmp_path: Path, toy: dict[str, str], play_machine: Play
) -> None:
    play_machine("falls_off_the_bus")
    code, result, run = run_toy(tmp_path, toy, "--set=fault=hang@4", "--set=fault_rank=1")
    assert (code, result["status"]) == (1, "failed")
    assert "GPU 1 (00000000:11:00.0)" in result["reasons"][0]  # type: ignore[index]
    assert "fell off the bus: NVML reports NVMLError_GpuIsLost" in result["reasons"][0]  # type: ignore[index]
    assert [json.loads(line)["step"] for line in (run / "steps.jsonl").open()].count(3) == 2
    done = forked.run(REPOSITORY / "launch/verify.py", run, env={**os.environ, **toy}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow(seconds=5)
def test_a_run_on_a_busy_machine_notes_it_and_names_its_gpus(
    tmp_path: Path, toy: dict[str, str], play_machine: Play
) -> None:
    play_machine("busy_h100")
    code, result, run = run_toy(tmp_path, toy, "--allow_busy", "--gpus=2", "--steps=30")
    assert code in (0, 3)
    assert any("--allow_busy" in note and "4242" in note for note in result["notes"])  # type: ignore[attr-defined]
    (phase,) = json.loads((run / "plan.json").read_text())["phases"]
    assert phase["environment"]["CUDA_VISIBLE_DEVICES"].count("GPU-6a1f") == 2
    assert result["telemetry"]["gpu"]["gpus"] == 2  # type: ignore[index]
