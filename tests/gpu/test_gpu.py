"""The checks of `make gpu` on this machine's GPUs: commands as users type them, and their expected results."""

import json
import shutil

import pytest

from benchmarks.configs import Configs
from benchmarks.machine.machine_gpus import shown
from launch.machine import machine_gpus
from tests.gpu import judged
from tests.gpu.commands import Commands, Here, Run
from tests.gpu.conftest import Check
from tests.gpu.judged import JudgedCheck

STEPS = "--steps=60"
PROFILED_STEPS = "--steps=40"  # 20 to 30 are recorded
# Without it JAX reserves most of a GPU before the first step, and that is what NVML would see.
AS_NEEDED = "--set=env.XLA_PYTHON_CLIENT_ALLOCATOR=platform"
CLOCK_STEPS = 400  # four blocks, and one that warms up
BACKENDS = ["jax", "nemo"]
DTYPES = ["bf16", "fp8"]


def run(commands: Commands, host: Here, backend: str, dtype: str = "bf16", *flags: str) -> Run:
    return commands.run(host, backend, dtype, *(flags or (STEPS,)))


@pytest.mark.gpu(needs="NVML, a second")
def test_device_is_found(check: Check, host: Here) -> None:
    if not host.on_gpu:
        pytest.skip("this is the CPU")
    found, rows = machine_gpus.detect(), machine_gpus.rows(Configs())
    memory = " and ".join(f"{row.memory_gb:g} GB" for row in rows)
    cuda = ".".join(map(str, found.cuda or ()))
    figures = f"{shown(found.gpus)} of {memory}, driver {found.driver}, CUDA up to {cuda or 'unknown'}"
    figures += f"; {found.hidden}" if found.hidden else ""
    unknown = [] if host.published else [f"configs/hardware has no peak of {rows[0].title}: python launch/peak.py"]
    check.holds(JudgedCheck(figures, unknown))


@pytest.mark.gpu(needs="the backend's environment (made here the first time: GBs, minutes), one idle GPU, 2 minutes")
@pytest.mark.parametrize("backend", BACKENDS)
def test_peak(check: Check, host: Here, commands: Commands, backend: str) -> None:
    file = commands.peak(backend)
    cpu = [] if host.on_gpu else ["--hardware=cpu", f"--model={host.model}"]
    commands.start(f"peak-{backend}", "launch/peak.py", f"--backend={backend}", f"--out={file}", *cpu).tried().expect(
        0
    )
    check.holds(judged.peak_believable(json.loads(file.read_text())["peaks"], host.published))


@pytest.mark.gpu(needs="the GPUs, 60 steps; fp8 of NeMo also Transformer Engine (--runtime=container has it)")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_trains(check: Check, host: Here, commands: Commands, backend: str, dtype: str) -> None:
    found = run(commands, host, backend, dtype)
    check.holds(judged.trained(found.result, found.losses, sane_mfu=host.on_gpu))


@pytest.mark.gpu(needs="the run in bf16, a driver that reports power and energy")
@pytest.mark.parametrize("backend", BACKENDS)
def test_telemetry_is_known(check: Check, host: Here, commands: Commands, backend: str) -> None:
    if not host.on_gpu:
        pytest.skip("the CPU has none")
    check.holds(judged.telemetry_known(run(commands, host, backend).result))


@pytest.mark.gpu(needs="the GPUs, 60 steps; MaxText's own virtual environment, to compile for 1 minute")
def test_memory_is_as_compiled(check: Check, host: Here, commands: Commands) -> None:
    if not host.on_gpu:
        pytest.skip("the CPU has none")
    result = run(commands, host, "jax", "bf16", AS_NEEDED, STEPS).result
    asked = ["--backend=jax", f"--model={host.model}", "--dtype=bf16", f"--hardware={host.hardware}", AS_NEEDED]
    gpus = f"--gpus={result['benchmark']['gpus']}"
    done = commands.start("compile", "launch/plan.py", "compile", *asked, gpus, "--json").tried().expect(0)
    check.holds(judged.memory_as_compiled(json.loads(done.out), result))


@pytest.mark.gpu(needs="the run in bf16, a second")
@pytest.mark.parametrize("backend", BACKENDS)
def test_result_follows_from_the_raw_files(check: Check, host: Here, commands: Commands, backend: str) -> None:
    path = run(commands, host, backend).path
    done = commands.start(f"verify-{backend}", "launch/verify.py", str(path)).expect(0)
    check.holds(JudgedCheck(done.out.strip().rpartition(": ")[2]))


@pytest.mark.gpu(needs="the GPUs, 40 steps of which 11 are recorded; for NeMo nsys on PATH")
@pytest.mark.parametrize(("backend", "profile"), [("jax", "xplane"), ("nemo", "nsys")])
def test_trace_adds_up(check: Check, host: Here, commands: Commands, backend: str, profile: str) -> None:
    if profile == "nsys" and (shutil.which("nsys") is None or not host.on_gpu):
        pytest.skip("nsys is not on PATH" if host.on_gpu else "nsys records CUDA's calls, and this is the CPU")
    path = run(commands, host, backend, "bf16", f"--profile={profile}", PROFILED_STEPS).path
    done = commands.start(f"trace-{backend}", "launch/report.py", "trace", str(path), "--json").expect(0)
    check.holds(judged.trace_adds_up(json.loads(done.out)))


@pytest.mark.gpu(needs="the GPUs, 60 steps")
def test_pgle_is_applied(check: Check, host: Here, commands: Commands) -> None:
    if not host.on_gpu:
        pytest.skip("a CPU's trace has no times that XLA could schedule by")
    check.holds(judged.pgle_applied(run(commands, host, "jax", "bf16", "--pgle=auto", STEPS).result))


@pytest.mark.gpu(needs="the backend's own virtual environment, one GPU, 400 steps")
@pytest.mark.parametrize("backend", BACKENDS)
def test_clock_costs_little(check: Check, host: Here, commands: Commands, backend: str) -> None:
    asked = [f"--backend={backend}", f"--model={host.model}", f"--hardware={host.hardware}", "--dtype=bf16"]
    steps = ["--pairs=0", f"--clock_steps={CLOCK_STEPS}"]
    done = commands.start(f"clock-{backend}", "tests/measure_overhead.py", *asked, *steps).tried().expect(0)
    check.holds(judged.clock_costs_little(done.out))


@pytest.mark.gpu(needs="the virtual environments of both backends, one GPU, 2 minutes")
def test_same_work_in_bf16(check: Check, host: Here, commands: Commands) -> None:
    asked = ["--equivalence", "--dtype=bf16", f"--hardware={host.hardware}", "--json"]
    kept = f"--output_dir={commands.folder / 'equivalence'}"
    done = commands.start("equivalence", "launch/verify.py", *asked, kept).tried().expect(0, 3)
    check.holds(judged.same_work(json.loads(done.out)))
