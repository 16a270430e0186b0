"""Replaces itself with the program after `--`, and runs it under nsys if this task's rank is one of `--ranks`.

    python under_nsys.py --ranks=0,8-15 --output=FOLDER/NAME -- PROGRAM ARGUMENT...

Every task of a phase starts through this script, by path, with Python 3.8 or newer and its standard library. Signals
reach the program (or nsys) directly, and the task ends with its exit code. If a rank cannot be recorded, the rank
exits at once with code 2. The site then ends the other ranks, which would otherwise wait for it forever.

The options of nsys are those of NVIDIA's launcher (NeMo-Run 0.11.1) and recipes, with their names since nsys 2025.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import re
import shutil
import signal
import sys
from typing import NoReturn

EXIT_REFUSED = 2
OUTSIDE_SLURM = "local"
DIE_WITH_PARENT = "STEPMARK_DIE_WITH_PARENT"


def main(argv: list[str]) -> NoReturn:
    options = parse(argv)
    rank = int(os.environ.get("STEPMARK_RANK", "0"))
    if rank not in options.ranks:
        os.execvp(options.program[0], options.program)
    nsys = shutil.which("nsys")
    if nsys is None:
        print(
            f"under_nsys: nsys must record rank {rank}, but {platform.node()} does not have the program 'nsys'\n"
            f"  where: PATH={os.environ.get('PATH', '')}\n"
            "  why:   the environment or container of this phase does not include Nsight Systems; install "
            "nsight-systems-cli,\n         add its folder to PATH, or pass --profile=none",
            file=sys.stderr,
        )
        sys.exit(EXIT_REFUSED)
    # A worker asks the kernel to end it when its parent ends. Under nsys, its parent is only a thread, so nsys asks.
    if os.environ.pop(DIE_WITH_PARENT, None):
        set_parent_death_signal = 1
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    os.execvp(nsys, [nsys, "profile", *nsys_options(options, rank), *options.program])


def parse(argv: list[str]) -> argparse.Namespace:
    cut = argv.index("--")  # the program's own arguments may contain another `--`
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", required=True, type=ranks_of, help="such as 0,1,8-15")
    parser.add_argument("--output", required=True, help="path of the report; %%q{NAME} is replaced with NAME's value")
    parser.add_argument("--gpu_metrics", action="store_true", help="sample the GPUs' counters, once per node")
    parser.add_argument("--cpu", action="store_true", help="sample the CPUs too")
    parser.add_argument("--whole_run", action="store_true", help="record the whole run, but no CUDA activity")
    options = parser.parse_args(argv[:cut])
    options.program = argv[cut + 1 :]
    return options


def ranks_of(text: str) -> set[int]:
    """Return the ranks in a text such as 0,1,8-10."""
    found: set[int] = set()
    for word in text.split(","):
        first, _, last = word.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def numbers_of_this_task(rank: int) -> dict[str, str]:
    """Return Slurm's variables for this task, or replacements outside Slurm.

    A shell inside an allocation has such variables too, and passes them on to every task that it starts.
    """
    ours = os.environ.get("SLURM_PROCID") == str(rank)
    return {
        "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID") or OUTSIDE_SLURM,
        "SLURM_NODEID": os.environ.get("SLURM_NODEID", "0") if ours else "0",
        "SLURM_LOCALID": os.environ.get("SLURM_LOCALID", str(rank)) if ours else str(rank),
        "SLURM_PROCID": str(rank),
    }


# --- the options of nsys ------------------------------------------------------------------------


def nsys_options(options: argparse.Namespace, rank: int) -> list[str]:
    """Return the options of NVIDIA's own recipes. nsys then records each kernel of a CUDA graph."""
    numbers = numbers_of_this_task(rank)
    # nsys can replace %q{VARIABLE} itself, but outside Slurm these variables do not exist.
    output = re.sub(
        r"%q\{(\w+)\}", lambda found: numbers.get(found[1]) or os.environ.get(found[1], ""), options.output
    )
    found = ["--sample=process-tree", "--cpuctxsw=process-tree"] if options.cpu else ["-s", "none", "--cpuctxsw=none"]
    found += ["-o", output, "--force-overwrite", "true"]
    if options.whole_run:
        found += ["-t", "cuda,nvtx,osrt"]
    else:
        found += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
        found += ["-t", "cuda,nvtx", "--cuda-graph-trace=node"]
    # The first task of a node that is recorded samples all GPUs of the node. Tasks are numbered node by node.
    first = min(one for one in options.ranks if one >= rank - int(numbers["SLURM_LOCALID"]))
    if options.gpu_metrics and rank == first:
        found.append("--gpu-metrics-devices=all")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
