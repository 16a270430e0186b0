"""Runs a backend's peak program on this machine, shows its progress, and stores what it measured."""

import contextlib
import datetime
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from benchmarks import VERSION
from benchmarks.backend import Backend, MeasuresPeaks, SideProgram
from benchmarks.errors import RequestError, RunError
from benchmarks.inside import peak_turns
from benchmarks.machine import peak_file
from benchmarks.machine.machine_gpus import MachineGpu, busy_notes, busy_text, kinds, of_hardware
from benchmarks.machine.peak_file import Measured
from benchmarks.machine.peaks import PeakReport, PeakRequest, device_peaks
from benchmarks.request.resolve import with_runtime
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import Hardware, Site, json_text
from launch.environments import own_python
from launch.machine import machine_gpus, this_machine
from launch.running.screen import Screen
from launch.running.side_program import python_for, removed_on_interrupt, run_side_program
from launch.terminal.places import stepmark_home

ROCM_DRIVER = Path("/dev/kfd")
DEVICES, TPU_DEVICES = Path("/dev"), ("accel[0-9]*", "vfio/[0-9]*")  # of the older and the newer drivers


# --- this machine -------------------------------------------------------------------------------


def has(hardware: Hardware) -> bool:
    """False if no program could find such a device: no driver is loaded, or it shows none."""
    if hardware.platform == "cuda":
        return bool(of_hardware(machine_gpus.found().gpus, hardware))
    if hardware.platform == "tpu":
        return any(place for pattern in TPU_DEVICES for place in DEVICES.glob(pattern))
    return hardware.platform == "cpu" or ROCM_DRIVER.exists()


def _gpus(platform: str, hardware: Hardware | None) -> list[MachineGpu]:
    """Those of the hardware's kind, otherwise of the most common kind; an idle one first: the first is measured."""
    gpus = machine_gpus.found().gpus if platform == "cuda" else []
    groups = [of_hardware(gpus, hardware)] if hardware else kinds(gpus)
    return sorted(groups[0], key=lambda gpu: bool(gpu.busy)) if groups else []


def refuse_busy(platform: str, hardware: Hardware | None) -> None:
    """RequestError if no GPU of the kind is idle: what is measured becomes the peak that others' MFU is of."""
    gpus = _gpus(platform, hardware)
    if gpus and gpus[0].busy:
        raise RequestError(
            "every GPU that could be measured is in use",
            where=f"--hardware={hardware.name}" if hardware else "this machine",
            why=busy_text(gpus),
            next_command="end what uses them; or --allow_busy, which measures one all the same, and the file says so",
        )


def program_of(backend: Backend, engine: str, platform: str) -> SideProgram | None:
    """None if the backend has no program that measures the peaks of such devices."""
    return backend.peak_program(engine, platform) if isinstance(backend, MeasuresPeaks) else None


def refuse_python(backend: Backend, engine: str, platform: str, site: Site, python: Path) -> None:
    """RequestError if the program could not start with it."""
    program = program_of(backend, engine, platform)
    spec = backend.environment(engine, platform)
    if program is not None and program.module:
        spec = msgspec.structs.replace(spec, import_check=program.module)
    own_python.refuse(with_runtime(site, None, str(python)), spec, engine)


# --- measuring ----------------------------------------------------------------------------------


def run(
    backend: Backend,
    engine: str,
    platform: str,
    request: PeakRequest,
    python: Path | None = None,
    hardware: Hardware | None = None,
) -> PeakReport:
    """What the backend's program measured. If it fails, its temporary folder stays, with its log."""
    program = program_of(backend, engine, platform)
    if program is None:
        raise RequestError(f"{backend.title} has no program that measures peaks", where=f"--backend={backend.name}")
    gpus = _gpus(platform, hardware)
    python = python or python_for(backend, engine, program, gpus)  # its progress goes before ours
    folder = Path(tempfile.mkdtemp(prefix=f"stepmark-peak-{backend.name}-"))  # a container's home may be read-only
    title = f"measuring matmuls with {backend.title}"
    with removed_on_interrupt(folder), Screen(0, title) as screen:

        def look() -> None:
            """The last thing the program said, on the screen."""
            with contextlib.suppress(OSError):
                lines = (folder / "rank-0.log").read_text(errors="replace").splitlines()
                said = [line for line in lines if line.startswith(peak_turns.PROGRESS)]
                if said:
                    screen.waiting(f"{title}: {said[-1].removeprefix(peak_turns.PROGRESS)}")

        (folder / "request.json").write_text(json_text(request))
        report = run_side_program(backend, engine, program, folder, PeakReport, python, gpus, look)
    shutil.rmtree(folder)
    return msgspec.structs.replace(report, notes=[*report.notes, *busy_notes(gpus[:1])])


# --- the file -----------------------------------------------------------------------------------


def measured(
    backend: Backend, engine: str, known: Hardware | None, model: str, request: PeakRequest, report: PeakReport
) -> Measured:
    machine = this_machine.facts()
    return Measured(
        schema_version=peak_file.SCHEMA_VERSION,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        stepmark=VERSION,
        backend=backend.name,
        engine=engine,
        hardware=known.name if known else None,
        hostname=machine["hostname"],
        processor=machine["cpu"],
        cores=peak_turns.cores(),
        model=model,
        request=request,
        report=report,
        peaks=device_peaks(report.rates),
    )


def store(found: Measured, path: Path | None) -> Path:
    """Write the file whole or not at all, in the place of --out or in the one that the device has."""
    if path is None:  # all CPUs are called cpu, so one is known by its processor; several machines may share a home
        report = found.report
        device = f"{found.processor}-{found.cores}" if report.platform == "cpu" else report.device_kind
        path = stepmark_home() / "peaks" / f"{report.platform}-{slug(device)}-{found.backend}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json_text(found).encode())
    except (OSError, RunError) as error:
        why = error.what if isinstance(error, RunError) else error.strerror or str(error)
        raise RunError("the measured peak was not kept", where=str(path), why=why) from None
    return path


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "device"
