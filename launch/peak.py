"""Measure the matmul rate that this device really reaches, at the shapes of a model's own matmuls.

Examples:
  python launch/peak.py
      this machine's device in every framework and precision; one to a few minutes each on a CPU
  python launch/peak.py --backend=jax --dtype=bf16 --model=llama3_8b
      one framework, one precision, the matmuls of another model
  python launch/run.py --backend=jax --model=llama2_tiny --dtype=fp32 --measured_peak=FILE
      a run whose MFU is of the peak that was measured: a CPU has no other
  srun --nodes=1 --gres=gpu:1 python launch/peak.py --hardware=h100
      on a node of a cluster
  python launch/peak.py --backend=nemo --python=python3
      inside a container, with the framework that it brings

The peak of a precision is the highest median of any shape. It is written to FILE beside every turn it comes from,
and shown beside what is published of the device. Exit codes: 0 measured; 1 a program failed; 2 the request was
wrong and nothing was started.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import shlex
import shutil
import sys
from pathlib import Path

import msgspec
from absl import flags

from benchmarks.backend import Backend, RefusesHardware, backend_names, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError, RunError, UnknownName
from benchmarks.inside import peak_turns
from benchmarks.machine import peaks
from benchmarks.machine.machine_gpus import HERE
from benchmarks.machine.machine_gpus import shown as shown_gpus
from benchmarks.machine.peak_file import Measured, MeasuredInFile
from benchmarks.machine.peak_table import hardware_yaml, table
from benchmarks.values import Hardware
from launch.checks import measuring_peak
from launch.cli.command import refuse_more, run_main
from launch.machine import machine_gpus
from launch.terminal import places
from launch.terminal.output import document

ALL = "all"

FLAGS = flags.FLAGS
flags.DEFINE_string("backend", ALL, "The framework: jax, nemo, another installed backend, or all.")
flags.DEFINE_string("model", "llama2_70b", "The model of configs/models whose matmuls are measured.")
flags.DEFINE_integer("tokens", None, "Rows of each matmul: 4096, on a CPU 64 a core unless they are given.", 1)
flags.DEFINE_string("dtype", ",".join(peaks.PRECISIONS), "Precisions of the matmuls, with commas.")
flags.DEFINE_float("seconds", None, "For each shape and precision, all turns together: 1, on a CPU 0.5.", 0.01, 3600)
flags.DEFINE_integer("turns", peaks.TURNS, "The turns that the shapes take; the median of them counts.", 1)
flags.DEFINE_string(
    "hardware", None, "The device, of configs/hardware; here, or none: what is found here, its GPU before its CPU."
)
flags.DEFINE_string(
    "out", None, "The file that is written; $STEPMARK_HOME/peaks/<platform>-<device>-<backend>.json else."
)
flags.DEFINE_string(
    "python", None, "A Python that has the framework already, such as a container's; the backend's environment else."
)
flags.DEFINE_boolean("allow_busy", False, "Measure a GPU that another program is using.")


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/peak.py --help")
    configs = places.configs()
    hardware = configs.hardware(FLAGS.hardware) if FLAGS.hardware not in (None, HERE) else None
    platform = _platform(hardware)
    device = hardware or (configs.hardware("cpu") if platform == "cpu" else None)
    request = _request(configs, platform, device)
    python = Path(shutil.which(FLAGS.python) or "").absolute() if FLAGS.python else None
    if python is not None and not python.is_file():
        raise RequestError(f"there is no program '{FLAGS.python}'", where=f"--python={FLAGS.python}")
    chosen = _backends(platform, device)
    if python is not None:
        ((backend, engine),) = chosen  # --python goes with one backend
        measuring_peak.refuse_python(backend, engine, platform, configs.site("local"), python)
    if not FLAGS.allow_busy:
        measuring_peak.refuse_busy(platform, hardware)
    shown = [_measure(backend, platform, device, request, configs, python) for backend in chosen]
    document([MeasuredInFile(file=str(path), **msgspec.structs.asdict(found)) for found, path in shown])
    return EXIT_VALID


# --- what to measure ----------------------------------------------------------------------------


def _platform(hardware: Hardware | None) -> str:
    machine = machine_gpus.found()
    if hardware is None:
        platform = "cuda" if machine.gpus else "rocm" if measuring_peak.ROCM_DRIVER.exists() else "cpu"
        if platform == "cpu" and machine.driver:
            print(f"note: the CPU is measured: {machine.why_none}", file=sys.stderr)
        return platform
    if not measuring_peak.has(hardware):
        no_driver = f"no driver of a {hardware.platform} device is here"
        no_gpu = f"its GPUs are {shown_gpus(machine.gpus)}" if machine.gpus else machine.why_none
        raise RequestError(
            f"this machine has no {hardware.title}",
            where=f"--hardware={hardware.name}",
            why=no_gpu if hardware.platform == "cuda" else no_driver,
            next_command="python launch/peak.py --hardware=cpu; or this on a node that has one (srun --gres=gpu:1)",
        )
    return hardware.platform


def _request(configs: Configs, platform: str, device: Hardware | None) -> peaks.PeakRequest:
    on_cpu = platform == "cpu"
    rows = FLAGS.tokens or (min(peaks.ROWS, peaks.ROWS_A_CORE * peak_turns.cores()) if on_cpu else peaks.ROWS)
    square = min(peaks.LARGEST_SQUARE_ON_A_CPU, 16 * rows) if on_cpu else peaks.LARGEST_SQUARE
    return peaks.PeakRequest(
        shapes=peaks.shapes_of(configs.model(FLAGS.model), rows, square),
        dtypes=_dtypes(device),
        seconds=FLAGS.seconds or (0.5 if on_cpu else 1.0),
        turns=FLAGS.turns,
        fewest_turns=min(peaks.FEWEST_TURNS, FLAGS.turns),
    )


def _dtypes(device: Hardware | None) -> list[str]:
    """As typed; one that is typed and says nothing here is refused, one of the default is left to the program."""
    typed = [word.strip() for word in FLAGS.dtype.split(",") if word.strip()]
    for dtype in typed:
        if dtype not in peaks.PRECISIONS:
            raise UnknownName(f"unknown precision '{dtype}'", "dtype", dtype, peaks.PRECISIONS, where="--dtype")
        if FLAGS["dtype"].present and device is not None and dtype in device.emulated:
            raise RequestError(
                f"{dtype} is emulated on {device.title}: its rate would say nothing",
                where=f"--dtype={dtype}",
                why=device.source,
                next_command="--dtype=" + ",".join(one for one in peaks.PRECISIONS if one not in device.emulated),
            )
    if not typed:
        raise RequestError("no precision is named", where="--dtype", next_command="--dtype=bf16")
    return list(dict.fromkeys(typed))


def _backends(platform: str, device: Hardware | None) -> list[tuple[Backend, str]]:
    """Those asked for, each with the engine whose environment holds its framework. Of all, those that can."""
    names = backend_names() if FLAGS.backend == ALL else [FLAGS.backend]
    for flag in ("out", "python"):
        if FLAGS.backend == ALL and getattr(FLAGS, flag):
            raise RequestError(
                f"--{flag} belongs to one framework, and every backend has its own",
                where=f"--backend={ALL} --{flag}={getattr(FLAGS, flag)}",
                next_command=f"--backend={names[0]}",
            )
    chosen = []
    for backend in map(find_backend, names):
        engine, refusal = backend.engines[0], None
        if device and isinstance(backend, RefusesHardware):
            refusal = backend.refuses_hardware(engine, device)
        if refusal is None and measuring_peak.program_of(backend, engine, platform) is None:
            refusal = RequestError(f"{backend.title} has no program that measures peaks on {platform}")
        if refusal is None:
            chosen.append((backend, engine))
        elif FLAGS.backend != ALL:
            raise refusal
        else:
            print(f"left out: {refusal.what}", file=sys.stderr)
    if not chosen:
        raise RequestError(f"no backend measures peaks on {platform}", where=f"--backend={FLAGS.backend}")
    return chosen


# --- measuring, showing -------------------------------------------------------------------------


def _measure(
    chosen: tuple[Backend, str],
    platform: str,
    device: Hardware | None,
    request: peaks.PeakRequest,
    configs: Configs,
    python: Path | None,
) -> tuple[Measured, Path]:
    backend, engine = chosen
    report = measuring_peak.run(backend, engine, platform, request, python, device)
    known = _known(device, report, configs)
    if not report.rates:
        reasons = "; ".join(f"{dtype}: {why}" for dtype, why in report.refused.items())
        raise RunError(f"{backend.title} could measure no precision on {report.device_kind}", why=reasons)
    found = measuring_peak.measured(backend, engine, known, FLAGS.model, request, report)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    # Before it is kept: what cannot be kept has been seen.
    print("\n".join(table(found, known, f"{backend.title}, {versions}")), flush=True)
    path = measuring_peak.store(found, Path(FLAGS.out).absolute() if FLAGS.out else None)
    use = f"--dtype={next(iter(found.peaks))} --measured_peak={shlex.quote(str(path))}"
    use = f"--hardware={known.name} {use}" if known else use
    print(f"  file  {path}\n  next  python launch/run.py --backend={backend.name} --model=NAME {use}", flush=True)
    if known is None:
        name = measuring_peak.slug(report.device_kind).replace("-", "_")
        print(
            f"  no file of configs/hardware names '{report.device_kind}'. One that does, to be written as "
            f"configs/hardware/{name}.yml before a run can be on it:\n\n{hardware_yaml(found, name)}",
            flush=True,
        )
    return found, path


def _known(device: Hardware | None, report: peaks.PeakReport, configs: Configs) -> Hardware | None:
    """The hardware file that names the measured device; RunError where another was asked for."""
    kind = report.device_kind.lower()
    if device is not None and kind not in map(str.lower, device.device_names):
        raise RunError(
            f"the device here is '{report.device_kind}', not {device.title}",
            where=f"--hardware={device.name}",
            why=f"that one is called {' or '.join(device.device_names)}",
            next_command="the command without --hardware",
        )
    rows = [device] if device else [configs.hardware(name) for name in configs.names("hardware")]
    named = [row for row in rows if row.platform == report.platform and kind in map(str.lower, row.device_names)]
    return named[0] if named else None


if __name__ == "__main__":
    run_main(main)
