"""The names, processor and memory of this machine. nvml.py queries its GPUs."""

import contextlib
import os
import platform
import pwd
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    return {
        "hostname": platform.node().encode(errors="surrogateescape").decode(errors="backslashreplace"),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": host_memory_bytes(),
        "load_average": list(os.getloadavg()),
    }


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def host_memory_bytes() -> int:
    """Return the memory of the machine or of this control group, whichever is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def name_of(user: int) -> str:
    """Return a user's name, or the number of a user without a name, as in a container started with --user."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
