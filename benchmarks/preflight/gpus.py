"""What nvidia-smi printed on each node of a preflight -> findings about its GPUs. Pure.

Without such GPUs at the site, every check of them is `not_checked`: a CPU proves nothing about a GPU.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from benchmarks.preflight.values import Answer, Command, Finding, Status, Wanted, not_checked, outliers
from benchmarks.values import Hardware

IDLE_MIB = 1024  # ours: the driver itself holds up to some hundreds
IDLE_PERCENT = 5

# Bits of clocks_event_reasons.active (once clocks_throttle_reasons) that mean a slower GPU, as nvml.h names them;
# that a GPU is idle (0x1) is none.
THROTTLED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
LIMITED = {0x2: "application clocks are set", 0x4: "software power cap", 0x100: "display clocks"}

Row = dict[str, str]  # a column of nvidia-smi, without its unit -> value, without its unit
SAME_COLUMN = {"clocks_throttle_reasons.active": "clocks_event_reasons.active", "clocks.sm": "clocks.current.sm"}


def table(text: str) -> list[Row]:
    """`nvidia-smi --format=csv`: a header with units, then a row a device."""
    lines = list(csv.reader(io.StringIO(text), skipinitialspace=True))
    if not lines:
        return []
    names = [name.partition(" [")[0].strip() for name in lines[0]]
    names = [SAME_COLUMN.get(name, name) for name in names]
    return [
        dict(zip(names, [_without_unit(value) for value in line], strict=True))
        for line in lines[1:]
        if len(line) == len(names)
    ]


def _without_unit(value: str) -> str:
    return re.sub(r"^([0-9.]+) (?:MiB|MHz|%|W|C)$", r"\1", value.strip())


def gpu_versions(answer: Answer) -> dict[str, str]:
    """Driver and CUDA, to be compared between nodes."""
    rows = _rows(answer)
    cuda = re.search(r"CUDA Version:\s*([0-9.]+)", _output(answer, "nvidia_smi"))
    found = {"driver": ", ".join(sorted({row["driver_version"] for row in rows if "driver_version" in row}))}
    return {name: value for name, value in (found | {"CUDA": cuda[1] if cuda else ""}).items() if value}


def findings(answers: Sequence[Answer], wanted: Wanted) -> list[Finding]:
    """Every check of every node's GPUs."""
    why = _not_here(wanted.hardware)
    if why is not None:
        return [not_checked(name, answer, why) for name in NAMES for answer in answers]
    found = [finding for answer in answers for finding in _of_node(answer, wanted.hardware)]
    return found + _same_clocks(answers)


def _not_here(hardware: Sequence[Hardware]) -> str | None:
    if all(device.kind == "cpu" for device in hardware):
        return "the site's hardware is cpu"
    if not any(device.platform == "cuda" for device in hardware):
        return f"the site's hardware is {', '.join(device.name for device in hardware)}: only nvidia-smi is asked"
    return None


def _of_node(answer: Answer, hardware: Sequence[Hardware]) -> list[Finding]:
    rows = _rows(answer)
    present = _judged("GPUs", answer, _present(answer, rows, hardware))
    if not rows:
        return [present, *(not_checked(name, answer, "no GPU was seen") for name in CHECKS)]
    return [present, *(_judged(name, answer, check(answer, rows)) for name, check in CHECKS.items())]


Problem = tuple[Status, str]  # a status that is not ok, and the text


class Asked(Protocol):
    """Whoever was asked: a node, or this machine."""

    @property
    def commands(self) -> Mapping[str, Command]: ...


Check = Callable[[Asked, list[Row]], Problem | None]


def judged(asked: Asked) -> list[tuple[str, Status, str]]:
    """Every check of GPUs that needs no other node, as (name, status, what was seen)."""
    rows = _rows(asked)
    found = [(name, check(asked, rows) or ("ok", "")) for name, check in CHECKS.items()] if rows else []
    return [(name, status, text) for name, (status, text) in found]


def _judged(name: str, answer: Answer, problem: Problem | None) -> Finding:
    status, text = problem or ("ok", "")
    return Finding(check=name, status=status, node=answer.node, text=text[:300])


def _present(answer: Answer, rows: list[Row], hardware: Sequence[Hardware]) -> Problem | None:
    if not rows:
        return "failed", f"nvidia-smi: {_output(answer, 'gpus').strip() or 'it printed nothing'}"
    names = Counter(row.get("name", "unknown") for row in rows)
    seen = ", ".join(f"{count} x {name}" for name, count in names.items())
    wanted = " or ".join(f"{h.devices_per_node} x {' or '.join(h.device_names) or h.title}" for h in hardware)
    fits = any(_fits(names, device) for device in hardware)
    if fits and any(row.get("mig.mode.current") == "Enabled" for row in rows):
        return "failed", "MIG mode is enabled: a GPU is cut into parts"
    return None if fits else ("failed", f"{seen}; {wanted} wanted")


def _fits(names: Counter[str], hardware: Hardware) -> bool:
    known = {name.casefold() for name in hardware.device_names}
    return sum(names.values()) == hardware.devices_per_node and all(name.casefold() in known for name in names)


def _by_gpu(found: Sequence[tuple[str, str]]) -> str:
    """(GPU, words) -> "GPU 0, 1: words; GPU 4: other words"."""
    gpus: dict[str, list[str]] = {}
    for gpu, words in found:
        gpus.setdefault(words, []).append(gpu)
    return "; ".join(f"GPU {', '.join(of_words)}: {words}" for words, of_words in gpus.items())


def _idle(answer: Asked, rows: list[Row]) -> Problem | None:
    processes = table(_output(answer, "processes"))
    running = [f"process {row.get('pid')} ({row.get('process_name')})" for row in processes]
    busy: list[tuple[str, str]] = []
    for row in rows:
        used, percent = _number(row, "memory.used"), _number(row, "utilization.gpu")
        if used is not None and used > IDLE_MIB:
            busy.append((row["index"], f"{used:.0f} MiB in use"))
        if percent is not None and percent > IDLE_PERCENT:
            busy.append((row["index"], f"{percent:.0f}% busy"))
    words = [*running, *([_by_gpu(busy)] if busy else [])]
    return ("failed", "; ".join(words)) if words else None


def _memory_errors(answer: Asked, rows: list[Row]) -> Problem | None:
    name = "ecc.errors.uncorrected.volatile.total"
    counts = {row["index"]: _number(row, name) for row in rows}
    problems = [(index, f"{count:.0f} uncorrected ECC errors") for index, count in counts.items() if count]
    index_of = {row.get("uuid"): row["index"] for row in rows}
    for row in table(_output(answer, "remapped_rows")):
        gpu = index_of.get(row.get("gpu_uuid")) or str(row.get("gpu_uuid"))
        if row.get("remapped_rows.failure") in ("Yes", "1"):
            problems.append((gpu, "row remapping failed: replace it"))
        elif row.get("remapped_rows.pending") in ("Yes", "1"):
            problems.append((gpu, "remapped rows are pending: reset it"))
    if problems:
        return "failed", _by_gpu(problems)
    return ("not_checked", "the driver counts no ECC errors") if None in counts.values() else None


def _throttling(answer: Asked, rows: list[Row]) -> Problem | None:  # noqa: ARG001
    failed: list[tuple[str, str]] = []
    limited: list[tuple[str, str]] = []
    for row in rows:
        bits = _bits(row.get("clocks_event_reasons.active"))
        if bits is None:
            return "not_checked", "the driver gives no reasons"
        failed += [(row["index"], text) for bit, text in THROTTLED.items() if bits & bit]
        limited += [(row["index"], text) for bit, text in LIMITED.items() if bits & bit]
    if failed:
        return "failed", _by_gpu(failed)
    return ("warning", _by_gpu(limited)) if limited else None


def _persistence(answer: Asked, rows: list[Row]) -> Problem | None:  # noqa: ARG001
    off = [row["index"] for row in rows if row.get("persistence_mode") != "Enabled"]
    text = f"off on GPU {', '.join(off)}: the driver is loaded anew for each job, and counts ECC errors from there"
    return ("warning", text) if off else None


def _nvlink(answer: Asked, rows: list[Row]) -> Problem | None:  # noqa: ARG001
    links = nvlinks(_output(answer, "nvlink"))
    if not links or not any(links.values()):
        return "not_checked", "no NVLink is shown"
    inactive = [
        f"GPU {gpu}: link {', '.join(str(n) for n, active in of_gpu.items() if not active)} inactive"
        for gpu, of_gpu in links.items()
        if not all(of_gpu.values())
    ]
    most = max(len(of_gpu) for of_gpu in links.values())
    fewer = [f"GPU {gpu}: {len(found)} of {most} links" for gpu, found in links.items() if len(found) < most]
    return ("failed", "; ".join(inactive + fewer)) if inactive or fewer else None


def nvlinks(text: str) -> dict[int, dict[int, bool]]:
    """`nvidia-smi nvlink --status`: GPU -> link -> whether it is active."""
    found: dict[int, dict[int, bool]] = {}
    gpu: dict[int, bool] = {}
    for line in text.splitlines():
        if head := re.match(r"GPU (\d+):", line):
            gpu = found.setdefault(int(head[1]), {})
        elif link := re.match(r"\s+Link (\d+): (.*)", line):
            gpu[int(link[1])] = "inactive" not in link[2].casefold()
    return found


CHECKS: dict[str, Check] = {
    "GPUs idle": _idle,
    "GPU memory errors": _memory_errors,
    "GPU throttling": _throttling,
    "GPU persistence": _persistence,
    "NVLink": _nvlink,
}
CLOCKS = "GPU clocks"
NAMES = ("GPUs", *CHECKS, CLOCKS)


def _same_clocks(answers: Sequence[Answer]) -> list[Finding]:
    """The highest clock of each GPU: one that is set lower slows all down."""
    highest = {a.node: sorted({row.get("clocks.max.sm", "unknown") for row in _rows(a)}) for a in answers}
    different = outliers({node: ", ".join(clocks) + " MHz" for node, clocks in highest.items() if clocks})
    found = []
    for answer in answers:
        if not highest[answer.node]:
            found.append(not_checked(CLOCKS, answer, "no GPU was seen"))
            continue
        uneven = f"{' and '.join(highest[answer.node])} MHz on one node" if len(highest[answer.node]) > 1 else ""
        text = uneven or different.get(answer.node, "")
        found.append(Finding(check=CLOCKS, status="warning" if text else "ok", node=answer.node, text=text))
    return found


# --- reading ----------------------------------------------------------------------------------------


def _rows(answer: Asked) -> list[Row]:
    command = answer.commands.get("gpus")
    rows = table(command.output) if command and command.exit_code == 0 else []
    return [row for row in rows if row.get("index", "").isdigit()]


def _output(answer: Asked, name: str) -> str:
    return answer.commands.get(name, Command(exit_code=None, output="")).output


def _number(row: Row, name: str) -> float | None:
    """None: the driver says [N/A] or does not know the field."""
    try:
        return float(row[name])
    except (KeyError, ValueError):
        return None


def _bits(text: str | None) -> int | None:
    try:
        return int(text or "", 16)
    except ValueError:
        return None
