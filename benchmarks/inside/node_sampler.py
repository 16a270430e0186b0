"""Record the energy, clocks, throttling, memory and load of a node once a second during training.

This program is started by its path, once per node, with any Python of the node. It needs only the standard library
and NVIDIA's pynvml, which is installed or passed as a file. It writes facts, samples and a last line with the end to
`DIR/node-NAME.jsonl`, which benchmarks/telemetry/samples.py reads. Its failure must not affect the training.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

PROC = Path("/proc")

# The columns of a GPU's row in a sample, in the order of telemetry.GpuSample -> the NVML query for the value.
COLUMNS = {
    "energy_mj": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "utilization_percent": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_used_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "throttle_reasons": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
    "ecc_uncorrected": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
    "pcie_replays": lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
}
# If a GPU is divided by MIG, these values cover all its slices, but a run uses only one slice.
OF_ALL_SLICES = ("energy_mj", "power_w", "utilization_percent", "memory_used_bytes")


def main(argv):
    options = parse(argv)
    name = (options.name or os.environ.get("SLURMD_NODENAME") or socket.gethostname()).replace("/", "_")
    name = name.encode(errors="surrogateescape").decode(errors="backslashreplace")  # JSON needs valid UTF-8
    ending = Ending()
    with contextlib.suppress(OSError):
        os.nice(19)  # training has priority if it uses all cores
    try:
        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"node-{name}.jsonl").open("ab", buffering=0) as lines:
            gpus = Gpus("not requested") if options.no_gpus else find_gpus(options.pynvml, options.gpus)
            sample(lines, Node(name), gpus, ending, options.interval)
    except OSError as error:
        print(f"stepmark: sampling of node {name} stopped: {error}", file=sys.stderr)
        return 1
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="the folder that gets node-NAME.jsonl")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two samples")
    parser.add_argument("--name", help="name of this node (default: from Slurm, or the host name)")
    parser.add_argument("--pynvml", help="path of pynvml.py (default: the installed one)")
    parser.add_argument(
        "--gpus", type=lambda text: text.split(","), help="sample only the GPUs with these PCI bus ids"
    )
    parser.add_argument("--no_gpus", action="store_true", help="do not sample GPUs, because the run does not use any")
    return parser.parse_args(argv)


def sample(lines, node, gpus, ending, interval):
    """Write the facts, then samples until sampling must end, then the last line."""
    write(
        lines, {"event": "facts", "interval": interval, "gpu_columns": list(COLUMNS), **node.facts(), **gpus.facts()}
    )
    count, reason, due = 0, None, time.monotonic()
    while reason is None:
        write(lines, {"event": "sample", **node.sample(), **gpus.sample()})
        count += 1
        now = time.monotonic()
        due = max(due + interval, now)  # after a late sample, the next one follows a whole interval later
        reason = ending.within(due - now)
    write(lines, {"event": "sample", **node.sample(), **gpus.sample()})
    cost = round(time.process_time(), 4)
    end = {"time": time.time(), "reason": reason, "samples": count + 1, "cpu_seconds": cost}
    write(lines, {"event": "end", **end, "remapped_rows": gpus.remapped_rows()})


class Ending:
    """Detects that sampling must end: a signal arrives, even just before the wait, or the parent process ends."""

    NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    NOT_OURS = (signal.SIGUSR1, signal.SIGUSR2)  # meant for workers; they would end the sampler

    def __init__(self):
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for number in self.NUMBERS:
            signal.signal(number, lambda *_: None)
        for number in self.NOT_OURS:
            signal.signal(number, signal.SIG_IGN)
        if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
            die_with_parent()

    def within(self, seconds):
        """Return the name of the signal that arrives within `seconds`, or None."""
        ready, _, _ = select.select([self._read], [], [], max(0.0, seconds))
        return signal.Signals(os.read(self._read, 1)[0]).name if ready else None


def die_with_parent():
    """End this process when its parent dies, so that no sampler outlives a killed launcher. Works only on Linux."""
    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def write(stream, value):
    """Write a JSON line with one system call, so that the line is complete even if the sampler is killed."""
    text = (json.dumps(value, separators=(",", ":")) + "\n").encode()
    while text:
        text = text[stream.write(text) :]


# --- the node ---------------------------------------------------------------------------------


class Node:
    """The state of the node, read from /proc. If a file cannot be read, its values are null."""

    def __init__(self, name):
        self._name = name
        self._busy, self._all = processor_ticks()

    def facts(self):
        total, _ = memory_bytes()
        return {"time": time.time(), "host": self._name, "cpus": os.cpu_count(), "memory_bytes": total}

    def sample(self):
        total, available = memory_bytes()
        known = total is not None and available is not None
        return {
            "time": round(time.time(), 4),
            "cpu_utilisation": self._utilisation(),
            "memory_used_bytes": total - available if known else None,
            "memory_available_bytes": available,
            "load": load(),
        }

    def _utilisation(self):
        """Return the busy share of all processors since the last sample; None if too little time has passed."""
        busy, everything = processor_ticks()
        if busy is None or self._busy is None or everything <= self._all:
            self._busy, self._all = busy, everything
            return None
        share = (busy - self._busy) / (everything - self._all)
        self._busy, self._all = busy, everything
        return round(min(max(share, 0.0), 1.0), 4)


def processor_ticks():
    """Return the busy ticks and all ticks since the machine started. User time already includes guest time."""
    try:
        with (PROC / "stat").open() as stream:
            user, nice, system, idle, waiting, *others = map(int, stream.readline().split()[1:9])
    except (OSError, ValueError):
        return None, None
    busy = user + nice + system + sum(others)
    return busy, busy + idle + waiting


def memory_bytes():
    """Return the total and the available memory in bytes."""
    found = {}
    try:
        with (PROC / "meminfo").open() as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(value.split()[0]) * 1024
                    if len(found) == 2:
                        break
    except (OSError, ValueError, IndexError):
        return None, None
    return found.get("MemTotal"), found.get("MemAvailable")


def load():
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


# --- the GPUs of the node ---------------------------------------------------------------------


def find_gpus(path=None, wanted=None):
    try:
        nvml = module_at(path) if path else importlib.import_module("pynvml")
    except (ImportError, OSError):
        return Gpus("the package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        every = [Gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        return Gpus(f"no NVIDIA driver: {type(error).__name__}")
    gpus = [gpu for gpu in every if wanted is None or gpu.bus_id() in wanted]
    return Gpus(None if gpus else "the driver shows no GPU", nvml, gpus)


def module_at(path):
    spec = importlib.util.spec_from_file_location("pynvml", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module  # pynvml looks for itself here while it is loaded
    spec.loader.exec_module(module)
    return module


class Gpus:
    """The GPUs of this node that are sampled, or the reason why there are no such GPUs."""

    def __init__(self, why_none, nvml=None, gpus=()):
        self._why_none = why_none
        self._nvml = nvml
        self._gpus = gpus

    def facts(self):
        versions = ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion")
        driver, version, cuda = (query(self._nvml, name) if self._nvml else None for name in versions)
        return {
            "no_gpus_because": self._why_none,
            "driver": driver,
            "nvml": version,
            "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "gpus": [gpu.facts() for gpu in self._gpus],
        }

    def sample(self):
        rows = [gpu.row() for gpu in self._gpus]
        lost = {str(gpu.index): gpu.error for gpu in self._gpus if gpu.error}
        return {"gpus": rows, "errors": lost} if lost else {"gpus": rows}

    def remapped_rows(self):
        return [gpu.remapped_rows() for gpu in self._gpus]


def query(nvml, name, *arguments):
    """Return the result of an NVML query, or None if this driver does not support it."""
    try:
        answer = getattr(nvml, name)(*arguments)
    except (AttributeError, nvml.NVMLError):
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


class Gpu:
    """One GPU. Values that it does not report are null. If the GPU is lost, every later sample contains the error."""

    def __init__(self, nvml, index):
        self.index = index
        self.error = None
        self._nvml = nvml
        self._handle = None
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            self.error = type(error).__name__
        self._mig = bool((self._query("nvmlDeviceGetMigMode") or (0,))[0])

    def facts(self):
        limit = self._query("nvmlDeviceGetEnforcedPowerLimit")
        return {
            "index": self.index,
            "name": self._query("nvmlDeviceGetName"),
            "uuid": self._query("nvmlDeviceGetUUID"),
            "bus_id": self.bus_id(),
            "power_limit_w": None if limit is None else limit / 1000,
            "max_sm_clock_mhz": self._query("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM),
            "max_memory_clock_mhz": self._query("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_MEM),
            "remapped_rows": self.remapped_rows(),
            **({"mig": True} if self._mig else {}),
        }

    def bus_id(self):
        found = getattr(self._query("nvmlDeviceGetPciInfo"), "busId", None)
        return found.decode(errors="replace") if isinstance(found, bytes) else found

    def remapped_rows(self):
        """Return how many memory rows were remapped because of correctable or uncorrectable errors."""
        found = self._query("nvmlDeviceGetRemappedRows")
        return None if found is None else sum(found[:2])

    def row(self):
        """Return the values of COLUMNS in order; None if the GPU is lost."""
        if self._handle is None:
            return None
        self.error = None
        row = [self._ask(name) for name in COLUMNS]
        return None if self.error and not any(value is not None for value in row) else row

    def _query(self, name, *arguments):
        return None if self._handle is None else query(self._nvml, name, self._handle, *arguments)

    def _ask(self, name):
        nvml = self._nvml
        try:
            return None if self._mig and name in OF_ALL_SLICES else COLUMNS[name](nvml, self._handle)
        except (AttributeError, nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return None
        except nvml.NVMLError as error:
            self.error = type(error).__name__
            return None


if __name__ == "__main__":
    # Remove this folder from the import path, because its modules could shadow those of the standard library.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]
    sys.exit(main(sys.argv[1:]))
