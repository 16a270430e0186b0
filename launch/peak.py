"""Measure the matmul rate that this machine's device reaches with the matmul shapes of a model.

Examples:
  python launch/peak.py
      this machine's device, in JAX and every precision; takes a few minutes on a CPU
  python launch/peak.py --backend=nemo --dtype=bf16 --model=llama3_8b
      another framework, precision and model
  python launch/run.py --backend=jax --model=llama2_tiny --dtype=fp32 --measured_peak=FILE
      a run whose MFU uses the measured peak, because no peak is published for a CPU
  srun --nodes=1 --gres=gpu:1 python launch/peak.py --hardware=h100
      on a node of a cluster

The peak of a precision is the median rate of the fastest shape. FILE contains the peaks and every measurement. The
screen compares the peaks with the device's published peaks. Exit codes: 0 measured; 1 a program failed; 2 the request
was wrong and nothing was started.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import datetime
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from absl import flags

from benchmarks import VERSION
from benchmarks.backend import Backend, MeasuresPeaks, SideProgram, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError, RunError, UnknownName
from benchmarks.inside import peak_turns
from benchmarks.machine import peak_file, peaks
from benchmarks.machine.machine_gpus import HERE, MachineGpu, busy_notes, busy_text, of_hardware
from benchmarks.machine.machine_gpus import shown as shown_gpus
from benchmarks.values import Hardware, json_text
from launch.cli.command import refuse_more, run_main
from launch.machine import machine_gpus, this_machine
from launch.running.screen import Screen
from launch.running.side_program import python_for, run_side_program
from launch.terminal import places
from launch.terminal.output import document

FLAGS = flags.FLAGS
flags.DEFINE_string("backend", "jax", "Framework: jax, nemo or another installed backend.")
flags.DEFINE_string("model", "llama2_70b", "Model (configs/models) whose matmul shapes to measure.")
flags.DEFINE_integer("tokens", None, "Rows of each matmul. (default: 4096, on a CPU 64 per core)", 1)
flags.DEFINE_string("dtype", ",".join(peaks.PRECISIONS), "Precisions of the matmuls, separated by commas.")
flags.DEFINE_string("hardware", HERE, "Device (configs/hardware); `here` is this machine's GPU, otherwise its CPU.")
flags.DEFINE_string("out", None, "File to write. (default: $STEPMARK_HOME/peaks/<platform>-<device>-<backend>.json)")
flags.DEFINE_boolean("allow_busy", False, "Measure the GPU even if another program uses it.")


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/peak.py --help")
    configs, backend = places.configs(), find_backend(FLAGS.backend)
    device = _device(configs)
    program = None
    if isinstance(backend, MeasuresPeaks):
        program = backend.peak_program(backend.engines[0], device.platform)
    if program is None:
        raise RequestError(
            f"{backend.title} cannot measure peaks on {device.platform}",
            where=f"--backend={backend.name} --hardware={device.name}",
        )
    request = _request(configs, device)
    report = _measure(backend, program, request, _gpus(device))
    if report.device_kind.lower() not in map(str.lower, device.device_names):
        raise RunError(
            f"this machine's device is '{report.device_kind}', not {device.title}",
            where=f"--hardware={FLAGS.hardware}",
            why=f"{device.title} would report the name {' or '.join(device.device_names)}",
        )
    if not report.rates:
        reasons = "; ".join(f"{dtype}: {why}" for dtype, why in report.refused.items())
        raise RunError(f"{backend.title} could not measure a precision on {report.device_kind}", why=reasons)
    machine = this_machine.facts()
    found = peak_file.PeakMeasurement(
        schema_version=peak_file.SCHEMA_VERSION,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        stepmark=VERSION,
        backend=backend.name,
        engine=backend.engines[0],
        hardware=device.name,
        hostname=machine["hostname"],
        processor=machine["cpu"],
        cores=peak_turns.cores(),
        model=FLAGS.model,
        request=request,
        report=report,
        peaks=peaks.device_peaks(report.rates),
    )
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    # Print before storing, so that the user sees the result even if the file cannot be written.
    print("\n".join(peak_file.table(found, device, f"{backend.title}, {versions}")), flush=True)
    path = _store(found)
    use = f"--hardware={device.name} --dtype={next(iter(found.peaks))} --measured_peak={shlex.quote(str(path))}"
    print(f"  file  {path}\n  next  python launch/run.py --backend={backend.name} --model=NAME {use}", flush=True)
    document(peak_file.PeakMeasurementFile(file=str(path), **msgspec.structs.asdict(found)))
    return EXIT_VALID


# --- what to measure ----------------------------------------------------------------------------


def _device(configs: Configs) -> Hardware:
    """Return the device of --hardware. For `here`, it may be a GPU that configs/hardware does not list."""
    machine = machine_gpus.detect()
    if FLAGS.hardware == HERE:
        rows = machine_gpus.rows(configs)
        if not rows and machine.driver:
            print(f"note: measuring the CPU: {machine.why_none}", file=sys.stderr)
        return rows[0] if rows else configs.hardware("cpu")
    device = configs.hardware(FLAGS.hardware)
    if device.platform == "cuda" and not of_hardware(machine.gpus, device):
        raise RequestError(
            f"this machine has no {device.title}",
            where=f"--hardware={device.name}",
            why=f"its GPUs are {shown_gpus(machine.gpus)}" if machine.gpus else machine.why_none,
            next_command="--hardware=cpu",
        )
    return device


def _gpus(device: Hardware) -> list[MachineGpu]:
    """Return this machine's GPUs of the type `device`, idle GPUs first. Only the first GPU is measured."""
    here = of_hardware(machine_gpus.detect().gpus, device) if device.platform == "cuda" else []
    gpus = sorted(here, key=lambda gpu: bool(gpu.busy))
    if gpus and gpus[0].busy and not FLAGS.allow_busy:
        raise RequestError(
            "all GPUs are in use",
            where=f"--hardware={device.name}",
            why=f"{busy_text(gpus)}; end these processes, or accept them with --allow_busy, which the file records",
            next_command="--allow_busy",
        )
    return gpus


def _request(configs: Configs, device: Hardware) -> peaks.PeakRequest:
    on_cpu = device.kind == "cpu"
    rows = FLAGS.tokens or (min(peaks.ROWS, peaks.ROWS_A_CORE * peak_turns.cores()) if on_cpu else peaks.ROWS)
    square = min(peaks.LARGEST_SQUARE_ON_A_CPU, 16 * rows) if on_cpu else peaks.LARGEST_SQUARE
    return peaks.PeakRequest(
        shapes=peaks.shapes_of(configs.model(FLAGS.model), rows, square),
        dtypes=_dtypes(device),
        seconds=0.5 if on_cpu else 1.0,
        turns=peaks.TURNS,
    )


def _dtypes(device: Hardware) -> list[str]:
    """Return the precisions of --dtype. Skip emulated precisions, whose rates have no meaning."""
    typed = list(dict.fromkeys(FLAGS.dtype.replace(" ", "").split(",")))
    for dtype in typed:
        if dtype not in peaks.PRECISIONS:
            raise UnknownName(f"unknown precision '{dtype}'", dtype, peaks.PRECISIONS, where="--dtype")
    real = [dtype for dtype in typed if dtype not in device.emulated]
    if not real:
        raise RequestError(
            f"the rate has no meaning, because {FLAGS.dtype} is emulated on {device.title}",
            where=f"--dtype={FLAGS.dtype}",
            why=device.source,
            next_command="--dtype=bf16",
        )
    return real


# --- measuring ----------------------------------------------------------------------------------


def _measure(
    backend: Backend, program: SideProgram, request: peaks.PeakRequest, gpus: Sequence[MachineGpu]
) -> peaks.PeakReport:
    """Run the backend's program and return its measurements. If it fails, keep its temporary folder with the log."""
    engine = backend.engines[0]
    python_for(backend, engine, program, gpus)  # before the screen: making an environment shows progress
    folder = Path(tempfile.mkdtemp(prefix=f"stepmark-peak-{backend.name}-"))  # a container's home may be read-only
    with Screen(0, f"measuring matmuls with {backend.title}"):
        (folder / "request.json").write_text(json_text(request))
        report = run_side_program(backend, engine, program, folder, peaks.PeakReport, gpus)
    shutil.rmtree(folder)
    return msgspec.structs.replace(report, notes=[*report.notes, *busy_notes(gpus[:1])])


def _store(found: peak_file.PeakMeasurement) -> Path:
    """Write the measurement to the file of --out, otherwise to the default file of the device."""
    report = found.report
    # Every CPU has the name cpu, and several machines may share a home, so name the processor instead.
    device = f"{found.processor}-{found.cores}" if report.platform == "cpu" else report.device_kind
    words = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    name = f"{report.platform}-{words}-{found.backend}.json"
    path = Path(FLAGS.out).absolute() if FLAGS.out else places.own_place("peaks", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text(found))
    return path


if __name__ == "__main__":
    run_main(main)
