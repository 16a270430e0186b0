"""The flags that describe a benchmark. Importing this module defines them for a command."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from benchmarks.errors import LIST_COMMAND, RequestError, UnknownName
from launch.cli.command import Words

if TYPE_CHECKING:
    from benchmarks.request.resolve import Request
    from benchmarks.values import MeasuredPeak, Site

HEADING = "Flags of the benchmark (default: the values of the recipe)"
TASKS = ("pretrain", "lora", "mlperf")

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "backend", None, "The framework: jax (MaxText), nemo (NeMo, Megatron) or another installed one. Required. *"
)
flags.DEFINE_string("model", None, "The model, such as llama2_tiny or llama2_70b. Required; --list shows all. *")
flags.DEFINE(Words(TASKS), "task", "pretrain", "Training task. *")
flags.DEFINE(Words(("nemo", "bridge")), "engine", None, "Program of the backend, if it has several. *")
flags.DEFINE_string("recipe", None, "Name of a recipe; --list shows all. (default: the first that matches)")
flags.DEFINE(Words(("bf16", "fp8", "mxfp8", "nvfp4", "fp32", "int8")), "dtype", None, "Precision of the matmuls. *")
flags.DEFINE_string("hardware", None, "GPU type, such as h100, or cpu. On site local, Stepmark detects the type. *")
flags.DEFINE_string("gpus", None, "Total number of GPUs; with cpu, number of virtual devices. *")
flags.DEFINE_string("nodes", None, "Number of nodes; on site local, number of processes. *")
flags.DEFINE_string("site", None, "Where to run; --list shows the sites. (default: $STEPMARK_SITE, otherwise local)")
flags.DEFINE_integer("steps", None, "Number of training steps.")
flags.DEFINE(Words(("steady", "last", "A-B")), "window", None, "The measured steps; A-B is a range such as 35-44.")
flags.DEFINE(Words(("off", "nsys", "auto")), "pgle", "off", "Profile-guided latency estimation (jax). *")
flags.DEFINE_string("data", None, "Folder of a dataset that replaces the recipe's data.")
flags.DEFINE_string(
    "image",
    None,
    "Container image: REGISTRY/NAME:TAG, or the path of a .sqsh or .sif file. (default: from the site)",
)
flags.DEFINE_enum("runtime", None, ["venv", "container", "python"], "Runtime of a run. (default: from the site)")
flags.DEFINE_string("python", None, "Path of a Python that has the framework, for --runtime=python.")
flags.DEFINE_string("measured_peak", None, "File that launch/peak.py wrote; MFU and the bound also use its peak.")
flags.DEFINE_multi_string("set", [], "Override a setting, such as sequence_length=64; repeat for more.")


def site_name() -> str:
    name: str = FLAGS.site or os.environ.get("STEPMARK_SITE") or "local"
    return name


def requests(site: "Site", **rest: Any) -> "list[Request]":
    """Return a request for every combination of values in the flags; `rest` are fields that the caller sets."""
    from benchmarks.request.resolve import LISTED, RuntimeOptions, requests_of

    for name in ("backend", "model"):
        if getattr(FLAGS, name) is None:
            raise RequestError(f"--{name} is missing", next_command=LIST_COMMAND)
    typed = {
        "site": site.name,
        "steps": FLAGS.steps,
        "window": FLAGS.window,
        "recipe": FLAGS.recipe,
        "data": str(Path(FLAGS.data).absolute()) if FLAGS.data else None,
        "settings": _settings(FLAGS.set),
        "runs_in": RuntimeOptions(runtime=FLAGS.runtime, python=python(), image=image()),
        "measured_peak": _measured_peak(site),
    }
    found = requests_of({name: getattr(FLAGS, name) for name in LISTED}, {**typed, **rest})
    for request in found:
        if request.task not in TASKS:
            raise UnknownName(f"unknown task '{request.task}'", request.task, TASKS, where="--task")
    return found


def image() -> str | None:
    """Return the value of --image, with an absolute path if it is a file."""
    typed: str | None = FLAGS.image
    if typed is None:
        return None
    from benchmarks.request import images

    return images.checked(str(Path(typed).absolute()) if typed.endswith(images.FILES) else typed, "--image")


def python() -> str | None:
    """Return --python as an absolute path. Search PATH for a bare name. Do not resolve links: a venv needs them."""
    typed: str | None = FLAGS.python
    if typed is None:
        return None
    import shutil

    return str(Path(shutil.which(typed) or typed).expanduser().absolute())


def _measured_peak(site: "Site") -> "MeasuredPeak | None":
    if FLAGS.measured_peak is None:
        return None
    from benchmarks.inside import peak_turns
    from benchmarks.machine import peak_file
    from launch.machine import this_machine

    found = peak_file.read(FLAGS.measured_peak)
    if site.slurm is None:
        peak_file.refuse_another_processor(found, this_machine.cpu_name(), peak_turns.cores())
    return found


def _settings(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise RequestError(f"--set={text}: KEY=VALUE is expected", where="--set")
        if found.get(key, value) != value:
            raise RequestError(f"--set={key} is given twice, with {found[key]} and {value}", where="--set")
        found[key] = value
    return found
