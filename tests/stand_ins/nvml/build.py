"""Builds the stand-in for NVML with the machine's C compiler; `machines/` are the machines that it plays."""

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
MACHINES = HERE / "machines"
LIBRARY = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """The library in that folder. A process that has loaded it finds it by its name, as pynvml looks for it."""
    made = folder / LIBRARY
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", f"-Wl,-soname,{LIBRARY}", "-o", made, HERE / "nvml.c"],
        check=True,
    )
    return made
