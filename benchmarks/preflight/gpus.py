"""Find problems of a node's GPUs in the output of nvidia-smi. No I/O.

If the site does not have NVIDIA GPUs, every check is `not_checked`, because a CPU proves nothing about a GPU.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.preflight.values import Answer, Command, Expectations, Finding, Problem, finding, outliers
from benchmarks.values import Hardware

NO_GPU = "found no GPU"
IDLE_MIB = 1024  # Stepmark's choice; the driver itself uses up to a few hundred MiB
IDLE_PERCENT = 5
CHECKS = ("GPUs idle", "GPU memory errors", "GPU throttling", "GPU persistence", "NVLink")
CLOCKS = "GPU clocks"

# The bits of clocks_event_reasons.active (formerly clocks_throttle_reasons) that mean a slower GPU, with their names
# in nvml.h. The bit for an idle GPU (0x1) is not included.
THROTTLED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
LIMITED = {0x2: "application clocks are set", 0x4: "software power cap", 0x100: "display clocks"}

Row = dict[str, str]  # nvidia-smi's column -> value, both without the unit
SAME_COLUMN = {"clocks_throttle_reasons.active": "clocks_event_reasons.active", "clocks.sm": "clocks.current.sm"}


def table(text: str) -> list[Row]:
    """Return the rows of `nvidia-smi --format=csv,nounits`, which prints a header with units and a row per device."""
    header, *lines = list(csv.reader(io.StringIO(text), skipinitialspace=True)) or [[]]
    names = [name.partition(" [")[0].strip() for name in header]
    names = [SAME_COLUMN.get(name, name) for name in names]
    return [dict(zip(names, line, strict=True)) for line in lines if len(line) == len(names)]


Commands = Mapping[str, Command]


def gpu_versions(commands: Commands) -> dict[str, str]:
    """Return the versions of the driver and CUDA, for the comparison between nodes."""
    rows = gpu_rows(commands)
    cuda = re.search(r"CUDA Version:\s*([0-9.]+)", _output(commands, "nvidia_smi"))
    found = {"driver": ", ".join(sorted({row["driver_version"] for row in rows if "driver_version" in row}))}
    return {name: value for name, value in (found | {"CUDA": cuda[1] if cuda else ""}).items() if value}


def findings(answers: Sequence[Answer], wanted: Expectations) -> list[Finding]:
    """Return the findings of all GPU checks on all nodes."""
    if not any(device.platform == "cuda" for device in wanted.hardware):
        names = ", ".join(device.name for device in wanted.hardware)
        why = f"the site's hardware is {names}; only nvidia-smi is checked"
        return [
            finding(name, answer, ("not_checked", why)) for name in ("GPUs", *CHECKS, CLOCKS) for answer in answers
        ]
    found = []
    for answer in answers:
        problems = {"GPUs": _present(answer.commands, wanted.hardware), **problems_of(answer.commands)}
        found += [finding(name, answer, problem) for name, problem in problems.items()]
    return found + _same_clocks(answers)


def problems_of(commands: Commands) -> dict[str, Problem | None]:
    """Return check -> problem (or None) for the GPU checks of a single node, in the order of the report."""
    rows = gpu_rows(commands)
    if not rows:
        return dict.fromkeys(CHECKS, ("not_checked", NO_GPU))
    off = [row["index"] for row in rows if row.get("persistence_mode") != "Enabled"]
    text = f"off on GPU {', '.join(off)}: the driver loads again for each job, which resets its ECC counts"
    found: tuple[Problem | None, ...] = (
        _idle(commands, rows),
        _memory_errors(commands, rows),
        _throttling(rows),
        ("warning", text) if off else None,
        _nvlink(_output(commands, "nvlink")),
    )
    return dict(zip(CHECKS, found, strict=True))


def _present(commands: Commands, hardware: Sequence[Hardware]) -> Problem | None:
    rows = gpu_rows(commands)
    if not rows:
        return "failed", f"nvidia-smi: {_output(commands, 'gpus').strip() or 'no output'}"
    names = Counter(row.get("name", "unknown") for row in rows)
    wanted_counts = [
        (device.devices_per_node, {name.casefold() for name in device.device_names}) for device in hardware
    ]
    if not any(names.total() == count and {*map(str.casefold, names)} <= known for count, known in wanted_counts):
        seen = ", ".join(f"{count} x {name}" for name, count in names.items())
        wanted = " or ".join(f"{h.devices_per_node} x {' or '.join(h.device_names) or h.title}" for h in hardware)
        return "failed", f"{seen}; needs {wanted}"
    mig = any(row.get("mig.mode.current") == "Enabled" for row in rows)
    return ("failed", "MIG mode is enabled, which splits each GPU") if mig else None


def _by_gpu(found: Sequence[tuple[str, str]]) -> str:
    """Return (GPU, text) pairs as one text, grouped by text: "GPU 0, 1: text; GPU 4: other text"."""
    gpus: dict[str, list[str]] = {}
    for gpu, words in found:
        gpus.setdefault(words, []).append(gpu)
    return "; ".join(f"GPU {', '.join(of_words)}: {words}" for words, of_words in gpus.items())


def _idle(commands: Commands, rows: list[Row]) -> Problem | None:
    processes = table(_output(commands, "processes"))
    words = [f"process {row.get('pid')} ({row.get('process_name')})" for row in processes]
    for row in rows:
        if (_number(row, "memory.used") or 0) > IDLE_MIB:
            words.append(f"GPU {row['index']}: {row['memory.used']} MiB in use")
        if (_number(row, "utilization.gpu") or 0) > IDLE_PERCENT:
            words.append(f"GPU {row['index']}: {row['utilization.gpu']}% busy")
    return ("failed", "; ".join(words)) if words else None


def _memory_errors(commands: Commands, rows: list[Row]) -> Problem | None:
    name = "ecc.errors.uncorrected.volatile.total"
    counts = {row["index"]: _number(row, name) for row in rows}
    problems = [(index, f"{count:.0f} uncorrected ECC errors") for index, count in counts.items() if count]
    index_of = {row.get("uuid"): row["index"] for row in rows}
    for row in table(_output(commands, "remapped_rows")):
        gpu = index_of.get(row.get("gpu_uuid")) or str(row.get("gpu_uuid"))
        if row.get("remapped_rows.failure") in ("Yes", "1"):
            problems.append((gpu, "row remapping failed: replace the GPU"))
        elif row.get("remapped_rows.pending") in ("Yes", "1"):
            problems.append((gpu, "remapped rows are pending: reset the GPU"))
    if problems:
        return "failed", _by_gpu(problems)
    return ("not_checked", "the driver does not count ECC errors") if None in counts.values() else None


def _throttling(rows: list[Row]) -> Problem | None:
    failed: list[tuple[str, str]] = []
    limited: list[tuple[str, str]] = []
    for row in rows:
        try:
            bits = int(row["clocks_event_reasons.active"], 16)
        except (KeyError, ValueError):
            return "not_checked", "the driver does not report throttling"
        failed += [(row["index"], text) for bit, text in THROTTLED.items() if bits & bit]
        limited += [(row["index"], text) for bit, text in LIMITED.items() if bits & bit]
    if failed:
        return "failed", _by_gpu(failed)
    return ("warning", _by_gpu(limited)) if limited else None


def _nvlink(text: str) -> Problem | None:
    """Return the problem that `nvidia-smi nvlink --status` shows: inactive or missing links; None if all is well."""
    links: dict[int, dict[int, bool]] = {}
    of_gpu: dict[int, bool] = {}
    for line in text.splitlines():
        if head := re.match(r"GPU (\d+):", line):
            of_gpu = links.setdefault(int(head[1]), {})
        elif link := re.match(r"\s+Link (\d+): (.*)", line):
            of_gpu[int(link[1])] = "inactive" not in link[2].casefold()
    most = max((len(of_gpu) for of_gpu in links.values()), default=0)
    if not most:
        return "not_checked", "nvidia-smi shows no NVLink"
    problems = []
    for gpu, of_gpu in links.items():
        inactive = ", ".join(str(link) for link, active in of_gpu.items() if not active)
        if inactive:
            problems.append(f"GPU {gpu}: link {inactive} inactive")
        if len(of_gpu) < most:
            problems.append(f"GPU {gpu}: {len(of_gpu)} of {most} links")
    return ("failed", "; ".join(problems)) if problems else None


def _same_clocks(answers: Sequence[Answer]) -> list[Finding]:
    """Return findings about the GPUs' highest clocks. One GPU with a lower limit slows down all GPUs of a run."""
    highest = {a.node: sorted({row.get("clocks.max.sm", "unknown") for row in gpu_rows(a.commands)}) for a in answers}
    different = outliers({node: ", ".join(clocks) + " MHz" for node, clocks in highest.items() if clocks})
    found = []
    for answer in answers:
        clocks, uneven = highest[answer.node], different.get(answer.node)
        if len(clocks) > 1:
            uneven = f"{' and '.join(clocks)} MHz on one node"
        problem: Problem | None = ("warning", uneven) if uneven else None
        found.append(finding(CLOCKS, answer, problem if clocks else ("not_checked", NO_GPU)))
    return found


# --- reading ----------------------------------------------------------------------------------------


def gpu_rows(commands: Commands) -> list[Row]:
    command = commands.get("gpus")
    rows = table(command.output) if command and command.exit_code == 0 else []
    return [row for row in rows if row.get("index", "").isdigit()]


def _output(commands: Commands, name: str) -> str:
    return commands.get(name, Command(exit_code=None, output="")).output


def _number(row: Row, name: str) -> float | None:
    """Return a field as a number; None if the driver reports [N/A] or does not know the field."""
    try:
        return float(row[name])
    except (KeyError, ValueError):
        return None
